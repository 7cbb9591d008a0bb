"""`vertexrig local`: the local Vertex, up, down, and made to fail on purpose."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import local_python, options, output, steps
from vertexrig.cli.groups import Group
from vertexrig.cli.output import result
from vertexrig.errors import ServiceError, UsageError
from vertexrig.project import config

if TYPE_CHECKING:
    from vertexrig.local.state import RunningServer
    from vertexrig.project.config import Loaded

_DEFAULT_PORT = 8642

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="Folder of its state; .vertexrig beside the project file by default.",
)


@click.group("local", cls=Group)
def command() -> None:
    """A server on this machine that speaks the APIs of Vertex AI and its neighbours, and really trains."""


command.add_command(local_python.command)


@command.command("up", short_help="Start the server on 127.0.0.1.")
@options.file_option
@root_option
@click.option(
    "--port",
    type=options.Integer(0, 65535),
    help=f"{_DEFAULT_PORT} by default, or a free one if that is taken; 0: a free one.",
)
@click.option("--detach", "-d", is_flag=True, help="Return once it answers; it goes on in the background.")
@click.option("--slots", type=options.Integer(1), help="Replicas that run at a time; one per core by default.")
@click.option(
    "--slow-start", type=options.Seconds(0, 86400), default=0.0, help="Seconds each replica takes to be available."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND[:PATTERN[:TIMES]]",
    help="Fail jobs whose machine, accelerator or region fits PATTERN, TIMES times; KIND is stockout or quota.",
)
@click.option("--at-least-twice", is_flag=True, help="Let schedules deliver each call twice, as Cloud Scheduler may.")
@click.option("--no-checks", is_flag=True, help="Accept jobs that the service would refuse.")
@click.option("--pass-credentials", is_flag=True, help="Let trainers see your cloud credentials.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the search of studies starts from.")
@options.format_option("text", "json")
def up(
    file: Path | None,
    root: Path | None,
    port: int | None,
    detach: bool,
    slots: int | None,
    slow_start: float,
    faults: tuple[str, ...],
    at_least_twice: bool,
    no_checks: bool,
    pass_credentials: bool,
    seed: int,
    format_: str,
) -> None:
    """Start the server on 127.0.0.1; it stops with Ctrl-C, or with `vertexrig local down`."""
    from vertexrig.local import control, guard
    from vertexrig.local.jobs.settings import Fault, Settings
    from vertexrig.local.runner.options import RunOptions, of_project

    loaded, folder = _project(file, root)
    run = of_project(loaded) if loaded else RunOptions()
    slots = slots or (loaded.project.local.slots if loaded else None)
    settings = Settings(
        folder, run=replace(run, slow_start=slow_start, credentials=pass_credentials), checks=not no_checks, seed=seed,
        faults=[Fault.parse(fault) for fault in faults], at_least_twice=at_least_twice,
    )  # fmt: skip
    settings = replace(settings, slots=slots) if slots else settings
    if not guard.KNOWS_USERS:
        options.note("warning: this system does not show whose a connection is: its other users can reach the server")
    if detach:
        here = control.up(settings, port)
        _make_bucket(here, loaded)
        result(format_, _where(here), "")
        options.note(f"the local Vertex answers at {here.url}")
        _show_next(loaded, steps.named(file), ["--root", root] if root is not None else [])
        return
    from vertexrig.local import server

    server.serve(settings, port, on_start=_started(format_, loaded))


def _where(here: RunningServer) -> dict[str, Any]:
    return {"url": here.url, "pid": here.pid, "root": str(here.root)}


def _show_next(loaded: Loaded | None, named: list[object], rooted: list[object]) -> None:
    """How to use the server: in the shell of whoever started it, and with the project's first job."""
    options.note(f"""point gcloud and the SDK at it:\neval "$({steps.line("local", "env", *named, *rooted)})\"""")
    job = next(iter(loaded.project.jobs), None) if loaded else None
    if job is not None:
        options.note(f"then submit to it as to Vertex AI:\n{steps.line('submit', job, *named)}")


def _make_bucket(here: RunningServer, loaded: Loaded | None) -> None:
    """Jobs put their packages and outputs into the project's bucket, which nobody made on this machine yet."""
    from vertexrig.local import control

    name = loaded.project.bucket_name if loaded else ""
    if not name:
        return
    try:
        control.make_bucket(here, name)
    except ServiceError as error:
        options.note(f"warning: the bucket {name} of the project file is not here: {error}")


def _started(format_: str, loaded: Loaded | None) -> Callable[[RunningServer], None]:
    document = output.document()

    def report(here: RunningServer) -> None:
        _make_bucket(here, loaded)
        if format_ == "json":
            document.data.update(_where(here))
            document.send()
        options.note(f"the local Vertex answers at {here.url}; its state is in {here.root}")

    return report


@command.command("down", short_help="Stop the server.")
@options.file_option
@root_option
@options.format_option("text", "json")
def down(file: Path | None, root: Path | None, format_: str) -> None:
    """Stop the server; jobs that ran start again with the next one."""
    from vertexrig.local import control

    folder = _folder(file, root)
    stopped = control.down(folder)
    result(format_, {"stopped": bool(stopped)}, "")
    options.note("stopped" if stopped else f"no local Vertex runs on {folder}")


@command.command("status")
@options.file_option
@root_option
@options.format_option("text", "json")
def status(file: Path | None, root: Path | None, format_: str) -> None:
    """Show whether the server runs, where, and what it does; the exit code is 1 where none runs."""
    from vertexrig.local import control

    folder = _folder(file, root)
    found = control.status(folder)
    if format_ == "json":
        output.document().data.update(found or {"running": False})
    elif found is None:
        output.say(f"no local Vertex runs on {folder}")
    else:
        queue = found["queue"]
        output.say(f"{found['url']}  process {found['pid']}  state in {found['root']}")
        output.say(
            f"{queue['running']} jobs running, {queue['waiting']} waiting, {queue['used']} of {queue['slots']} slots"
        )
    if found is None:
        raise click.exceptions.Exit(1)


@command.command("env", short_help="Print the shell exports that point programs at it.")
@options.file_option
@root_option
@options.format_option("text", "json")
def env(file: Path | None, root: Path | None, format_: str) -> None:
    """Print shell exports that point gcloud, the SDK, storage clients and vertexrig at the server."""
    from vertexrig.local import control

    loaded, folder = _project(file, root)
    names = {"project": loaded.project.project, "region": loaded.project.region} if loaded else {}
    found = control.env(_running(folder), **names)
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items())
    result(format_, {"env": found}, exports)


@command.command("kill", short_help="Kill a replica of a running job.")
@click.argument("job")
@click.argument("replica")
@options.file_option
@root_option
@options.format_option("text", "json")
def kill(job: str, replica: str, file: Path | None, root: Path | None, format_: str) -> None:
    """Kill REPLICA (such as workerpool1-0) of a running JOB (id or display name), as the loss of its machine would."""
    from vertexrig.local import control

    control.kill(_running(_folder(file, root)), job, replica)
    result(format_, {"job": job, "replica": replica}, "")


@command.command("preempt", short_help="Take the machines of a running job away.")
@click.argument("job")
@options.file_option
@root_option
@options.format_option("text", "json")
def preempt(job: str, file: Path | None, root: Path | None, format_: str) -> None:
    """Take the machines of a running JOB (id or display name) away, as happens to Spot VMs."""
    from vertexrig.local import control

    control.preempt(_running(_folder(file, root)), job)
    result(format_, {"job": job}, "")


def _project(file: Path | None, root: Path | None) -> tuple[Loaded | None, Path]:
    """The project if there is one (the server also serves people without), and the folder of the server's state."""
    folder = _folder(file, root)
    if file is None and not _has_project(note=True):
        return None, folder
    return config.load(file), folder


def _folder(file: Path | None, root: Path | None) -> Path:
    """The folder of the server's state; the project file is not read for it."""
    if file is not None and not file.is_file():
        raise UsageError(f"there is no file {file}")
    if root is not None:
        return root
    if file is None and not _has_project():
        return Path(config.STATE_FOLDER)
    return (config.find(Path.cwd()) if file is None else file).parent / config.STATE_FOLDER


def _has_project(*, note: bool = False) -> bool:
    try:
        config.find(Path.cwd())
    except UsageError as error:
        if note and isinstance(error, config.ForeignProjectError):
            options.note(error)
        return False
    return True


def _running(folder: Path) -> RunningServer:
    from vertexrig.local import state

    here = state.find(folder)
    if here is None:
        raise ServiceError(f"no local Vertex runs on {folder}; start it with `vertexrig local up --detach`")
    return here
