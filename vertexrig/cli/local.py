"""`vertexrig local`: the local Vertex, up, down, and made to fail on purpose."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.cli import options
from vertexrig.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from vertexrig.local.server import Running
    from vertexrig.project.config import Loaded

_DEFAULT_PORT = 8642

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="Folder of its state; .vertexrig beside the project file by default.",
)


@click.group("local")
def command() -> None:
    """A server on this machine that speaks the APIs of Vertex AI and its neighbours, and really trains."""


@command.command("up")
@options.file_option
@root_option
@click.option("--port", type=click.IntRange(0, 65535), default=_DEFAULT_PORT, show_default=True, help="0: a free one.")
@click.option("--detach", "-d", is_flag=True, help="Return once it answers; it goes on in the background.")
@click.option("--slots", type=click.IntRange(1), help="Replicas that run at a time; one per core by default.")
@click.option(
    "--slow-start", type=options.Seconds(0, 86400), default=0.0, help="Seconds each replica takes to be available."
)
@click.option("--fault", "faults", multiple=True, metavar="KIND[:PATTERN[:TIMES]]", help="stockout or quota, by rule.")
@click.option("--at-least-twice", is_flag=True, help="Have schedules deliver duplicates on purpose.")
@click.option("--no-checks", is_flag=True, help="Accept jobs that the service would refuse.")
@click.option("--pass-credentials", is_flag=True, help="Let trainers see your cloud credentials.")
@click.option("--seed", type=int, default=0, help="Seed of studies.")
def up(
    file: Path | None,
    root: Path | None,
    port: int,
    detach: bool,
    slots: int | None,
    slow_start: float,
    faults: tuple[str, ...],
    at_least_twice: bool,
    no_checks: bool,
    pass_credentials: bool,
    seed: int,
) -> None:
    """Start the server on 127.0.0.1; it stops with Ctrl-C, or with `vertexrig local down`."""
    from vertexrig.local import server

    loaded, folder = _project(file, root)
    slots = slots or (loaded.project.local.slots if loaded else None)
    words = ["--slow-start", str(slow_start), "--seed", str(seed), *_from_project(loaded)]
    words += ["--slots", str(slots)] if slots else []
    words += ["--at-least-twice"] if at_least_twice else []
    words += ["--no-checks"] if no_checks else []
    words += ["--pass-credentials"] if pass_credentials else []
    for fault in faults:
        words += ["--fault", fault]
    if detach:
        here = server.up(folder, port, words)
        options.note(f"the local Vertex answers at {here.url}")
        options.note(_env_line(file, root))
        return

    def started(here: Running) -> None:
        options.note(f"the local Vertex answers at {here.url}; its state is in {here.root}")
        options.note(_env_line(file, root))

    server.main(["--root", str(folder), "--port", str(port), *words], on_start=started)


def _env_line(file: Path | None, root: Path | None) -> str:
    """How to point a shell at the server that was started with these options."""
    given = [("--file", file), ("--root", root)]
    words = shlex.join(
        ["vertexrig", "local", "env", *(word for name, path in given if path for word in (name, str(path)))]
    )
    return f'point gcloud, gsutil and the SDK at it with: eval "$({words})"'


@command.command("down")
@options.file_option
@root_option
def down(file: Path | None, root: Path | None) -> None:
    """Stop the server; jobs that ran start again with the next one."""
    from vertexrig.local import server

    _, folder = _project(file, root)
    options.note("stopped" if server.down(folder) else f"no local Vertex runs on {folder}")


@command.command("status")
@options.file_option
@root_option
@options.format_option("text", "json")
def status(file: Path | None, root: Path | None, format_: str) -> None:
    """Show whether the server runs, where, and what it does."""
    from vertexrig.local import server

    _, folder = _project(file, root)
    found = server.status(folder)
    if format_ == "json":
        click.echo(json.dumps(found or {"running": False}))
    elif found is None:
        click.echo(f"no local Vertex runs on {folder}")
    else:
        queue = found["queue"]
        click.echo(f"{found['url']}  process {found['pid']}  state in {found['root']}")
        click.echo(
            f"{queue['running']} jobs running, {queue['waiting']} waiting, {queue['used']} of {queue['slots']} slots"
        )


@command.command("env")
@options.file_option
@root_option
def env(file: Path | None, root: Path | None) -> None:
    """Print shell exports that point gcloud, the SDK, storage clients and vertexrig at the server."""
    from vertexrig.local import server

    loaded, folder = _project(file, root)
    names = {"project": loaded.project.project, "region": loaded.project.region} if loaded else {}
    for name, value in server.env(_running(folder), **names).items():
        click.echo(f"export {name}={shlex.quote(value)}")


@command.command("kill")
@click.argument("job")
@click.argument("replica")
@options.file_option
@root_option
def kill(job: str, replica: str, file: Path | None, root: Path | None) -> None:
    """Kill REPLICA (such as workerpool1-0) of a running JOB (id or display name), as the loss of its machine would."""
    from vertexrig.local import server

    server.kill(_running(_project(file, root)[1]), job, replica)


@command.command("preempt")
@click.argument("job")
@options.file_option
@root_option
def preempt(job: str, file: Path | None, root: Path | None) -> None:
    """Take the machines of a running JOB (id or display name) away, as happens to Spot VMs."""
    from vertexrig.local import server

    server.preempt(_running(_project(file, root)[1]), job)


def _project(file: Path | None, root: Path | None) -> tuple[Loaded | None, Path]:
    """The project if there is one, and the folder of the server's state."""
    try:
        loaded = options.workspace(file).loaded
    except ConfigError:
        if file is not None:
            raise
        return None, root or Path(".vertexrig")  # the server also serves people without a project file
    return loaded, root or loaded.path(".vertexrig")


def _from_project(loaded: Loaded | None) -> list[str]:
    """The server's options that the project file's `local:` stands for."""
    if loaded is None:
        return []
    words = []
    for pattern, python in loaded.project.local.interpreters.items():
        words += ["--interpreter", f"{pattern}={python}"]
    for pattern, image in loaded.project.local.images.items():
        place = loaded.path(image.path)
        words += ["--image", f"{pattern}={place}" + (f"={shlex.join(image.command)}" if image.command else "")]
    return words


def _running(folder: Path) -> Running:
    from vertexrig.local import server

    here = server.find(folder)
    if here is None:
        raise ServiceError(f"no local Vertex runs on {folder}; start it with `vertexrig local up --detach`")
    return here
