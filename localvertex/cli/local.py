"""`vertexrig local`: the local Vertex, up, down, and made to fail on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from localvertex import state
from localvertex.cli import python, run, servers, shells
from localvertex.cli.servers import ServerOptions
from localvertex.front import control
from localvertex.state import RunningServer
from vertexrig import guard
from vertexrig.cli import next_commands, options, output, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.groups import Group
from vertexrig.cli.options import option
from vertexrig.cli.output import result
from vertexrig.project.config import Loaded

_DEFAULT_PORT = 8642


@click.group("local", cls=Group)
def command() -> None:
    """Run the local Vertex: a server on this machine with the APIs of Vertex AI training, which really trains."""


command.others = {"start": ("up",), "serve": ("up",), "stop": ("down",), "ls": ("status",), "list": ("status",)}


@dataclass(frozen=True)
class UpOptions:
    """The server that is started."""

    port: int | None = option(
        "--port",
        type=options.Integer(0, 65535),
        help=f"Port on 127.0.0.1; 0 takes a free port. By default {_DEFAULT_PORT}, or a free port if it is in use.",
    )
    detach: bool = option(
        "--detach", "-d", is_flag=True, help="Run the server in the background, and return when it answers."
    )
    slots: int | None = option(
        "--slots",
        type=options.Integer(1),
        help="Number of replicas that run at a time; by default the project file's, or one per core and at least 4.",
    )
    slow_start: float = option(
        "--slow-start",
        type=options.Seconds(0, 86400),
        default=0.0,
        show_default=True,
        help="Seconds that each replica waits before it starts.",
    )
    pace: servers.PaceOptions = options.shared(servers.pace_options)
    faults: servers.FaultOptions = options.shared(servers.fault_options)
    at_least_twice: bool = option(
        "--at-least-twice",
        is_flag=True,
        help="Deliver each successful call of a schedule a second time, as Cloud Scheduler may.",
    )
    no_checks: bool = option(
        "--no-checks", is_flag=True, help="Accept jobs with findings of severity error or an unknown machine type."
    )
    pass_credentials: bool = option("--pass-credentials", is_flag=True, help="Let trainers see your cloud credentials.")
    seed: int = option("--seed", type=int, default=0, show_default=True, help="Seed of the search of tuning jobs.")
    gs_paths: str | None = option(
        "--gs-paths",
        type=click.Choice(["mapped", "kept"]),
        help="What a trainer gets for a gs:// URI in arguments and variables: `kept` passes the URI, `mapped` the path of a folder. By "
        "default the project file's value. If it has none: `mapped` with --pass-credentials or if the system cannot show /gcs, else "
        "`kept`.",
    )
    trainers: servers.TrainerOptions = options.shared(servers.trainer_options)
    adopt: bool = option(
        "--adopt",
        is_flag=True,
        help="Use state that was made in another folder or on another machine, and start its waiting jobs.",
    )
    record: Path | None = option(
        "--record",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Append each API call and its answer to FILE, without ids, names and tokens.",
    )


@command.command("up", short_help="Start the server on 127.0.0.1.")
@servers.server_options
@options.group("asked", UpOptions)
@options.format_option("text", "json")
def up(where: ServerOptions, asked: UpOptions, format_: str) -> None:
    """Start the server on 127.0.0.1. To stop it, press Ctrl-C or use `vertexrig local down`."""
    from localvertex.jobs.project_settings import settings_of_project  # 130 ms, which other verbs save
    from localvertex.jobs.settings import PENDING_FOR_S, QUEUED_FOR_S

    loaded, folder = where.project()
    servers.bind_or_ask(folder, adopt=asked.adopt)
    settings = settings_of_project(
        loaded,
        folder,
        **asdict(asked.trainers),
        **asdict(asked.pace),
        gs_paths=asked.gs_paths,
        slots=asked.slots,
        credentials=asked.pass_credentials,
        seed=asked.seed,
    )
    settings = replace(
        settings,
        options=replace(settings.options, slow_start=asked.slow_start),
        checks=not asked.no_checks,
        faults=asked.faults.parsed(),
        at_least_twice=asked.at_least_twice,
        pending_for=PENDING_FOR_S,
        queued_for=QUEUED_FOR_S,
    )
    if not guard.KNOWS_USERS:
        streams.note(
            "warning: other users of this machine can use the server, because this system does not show who owns a connection"
        )
    if asked.detach:
        with state.in_use(folder) as use:
            here, ours = control.started(settings, asked.port, record=asked.record)
            if not ours and (given := _given(here)):
                if use.last(here.pid):
                    control.down(folder)
                servers.refuse(here, given[0])
            # Also one that a `local run` has started: it is to outlast that now.
            use.keep(here.pid)
        servers.make_bucket(here, loaded)
        result(format_, _where(here), "")
        streams.note(f"the local Vertex answers at {here.url}; console: {here.url}/")
        _show_next(loaded, next_commands.named(where.file), ["--root", where.root] if where.root is not None else [])
        return
    from localvertex import server  # 230 ms

    server.serve(settings, asked.port, on_start=_started(format_, loaded), record=asked.record)


def _given(found: RunningServer) -> list[str]:
    """Return the options of the command line that a server takes at its start alone, and that do not fit one that runs."""
    context = click.get_current_context()
    fit = {"file", "env", "root", "format_", "detach", "adopt"}
    fit |= {"port"} if context.params["port"] in (0, found.port) else set()
    names = [(str(param.name), param.opts[0]) for param in context.command.params if param.name not in fit]
    return [typed for name, typed in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def _where(here: RunningServer) -> dict[str, Any]:
    return {"url": here.url, "pid": here.pid, "root": str(here.root), "grpc_port": here.grpc_port}


def _show_next(loaded: Loaded | None, named: list[object], rooted: list[object]) -> None:
    """Say how to use the server: in this shell, and with the project's first job."""
    streams.note(
        f"""to point gcloud, storage clients and vertexrig at it (for the SDK: vertexrig local run -- COMMAND):\neval "$({next_commands.line("local", "env", *named, *rooted)})\""""
    )
    job = next(iter(loaded.project.jobs), None) if loaded else None
    if job is not None:
        streams.note(f"to submit a job to it:\n{next_commands.line('submit', job, *named)}")


def _started(format_: str, loaded: Loaded | None) -> Callable[[RunningServer], None]:
    document = output.document()

    def report(here: RunningServer) -> None:
        servers.make_bucket(here, loaded)
        if format_ == "json":
            document.data.update(_where(here))
            document.send()
        streams.note(f"the local Vertex answers at {here.url}; its state is in {here.root}; console: {here.url}/")

    return report


@command.command("down", short_help="Stop the server.")
@servers.server_options
@click.option(
    "--forget", is_flag=True, help="Also delete its state: certificate authority, buckets, jobs, logs and environments."
)
@options.format_option("text", "json")
def down(where: ServerOptions, forget: bool, format_: str) -> None:
    """Stop the server. Its running jobs restart when the next server starts."""
    folder = where.folder()
    stopped = control.down(folder)
    forgotten = forget and control.forget(folder)
    result(format_, {"stopped": bool(stopped), **({"forgotten": forgotten} if forget else {})}, "")
    streams.note("stopped" if stopped else f"no local Vertex is running for {folder}")
    if forget:
        streams.note(f"deleted the state in {folder}" if forgotten else f"there is no state in {folder}")


@command.command("status", short_help="Show whether a server is running, and its jobs.")
@servers.server_options
@options.format_option("text", "json")
def status(where: ServerOptions, format_: str) -> None:
    """Show whether a server is running, its address, and how many jobs it runs. The exit code is 1 if no server is running."""
    folder = where.folder()
    found = control.status(folder)
    if found is None:
        result(format_, {"running": False}, f"no local Vertex is running for {folder}")
        raise click.exceptions.Exit(1)
    queue = found["queue"]
    grpc = f"  gRPC 127.0.0.1:{found['grpc_port']}" if found.get("grpc_port") else ""
    from localvertex.runner import engine  # 100 ms, which other verbs save

    runs = engine.described(found["engine"])
    found = {**found, "runs_images": runs}
    lines = [
        f"{found['url']}{grpc}  process {found['pid']}  state in {found['root']}",
        f"{queue['running']} jobs running, {queue['waiting']} waiting, {queue['used']} of {queue['slots']} slots",
        runs,
        f"console: {found['url']}/",
    ]
    result(format_, found, "\n".join(lines))


@command.command("env", short_help="Print the shell exports that point programs at the server.")
@servers.server_options
@click.option(
    "--transparent",
    is_flag=True,
    help="Print the variables of `local run`, which redirect every program without any change.",
)
@click.option(
    "--shell",
    type=click.Choice(list(shells.SHELLS)),
    default="sh",
    show_default=True,
    help="Syntax of the exports: sh (also for bash and zsh), or fish: `vertexrig local env --shell fish | source`.",
)
@options.format_option("text", "json")
def env(where: ServerOptions, transparent: bool, shell: str, format_: str) -> None:
    """Print shell exports that point gcloud, storage clients and vertexrig at the server.

    An SDK program that names no endpoint still calls Google. --transparent, or `local run`, redirects every program.
    """
    loaded, folder = where.project()
    here = servers.running(folder)
    if transparent:
        difference = run.difference(here, loaded)
        run.mention(difference)
        found, unset = dict(difference.set), list(difference.unset)
    else:
        region = {"region": loaded.project.region} if loaded else {}
        found, unset = control.env(here, project=run.project_of(loaded, os.environ), **region), []
    removed = {"unset": unset} if transparent else {}
    result(format_, {"env": found, **removed}, shells.SHELLS[shell](unset, found))


@command.command("kill", short_help="Kill a replica of a running job.")
@click.argument("job", cls=NameArgument)
@click.argument("replica")
@servers.server_options
@options.format_option("text", "json")
def kill(job: str, replica: str, where: ServerOptions, format_: str) -> None:
    """Kill REPLICA (such as workerpool1-0) of a running JOB (id or display name), as if its machine were lost."""
    control.kill(servers.running(where.folder()), job, replica)
    result(format_, {"job": job, "replica": replica}, "")


@command.command("preempt", short_help="Preempt all machines of a running job.")
@click.argument("job", cls=NameArgument)
@click.option(
    "--grace",
    type=options.Seconds(0, 3600),
    default=0.0,
    show_default=True,
    help="Send SIGTERM first, and SIGKILL after this time, such as 30s; 0 sends SIGKILL at once.",
)
@servers.server_options
@options.format_option("text", "json")
def preempt(job: str, grace: float, where: ServerOptions, format_: str) -> None:
    """Stop all machines of a running JOB (id or display name), as Spot VMs are preempted. The job then restarts."""
    control.preempt(servers.running(where.folder()), job, grace)
    result(format_, {"job": job, "grace": grace}, "")


command.add_command(run.command)
command.add_command(python.command)
