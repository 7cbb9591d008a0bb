"""`vertexrig local run`: any program that uses Vertex AI, unchanged, against the local Vertex."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from localvertex import state
from localvertex.cli import servers, signals
from localvertex.front import control
from localvertex.state import RunningServer
from vertexrig.cli import extras, next_commands, streams
from vertexrig.errors import UsageError
from vertexrig.project.config import Loaded

if TYPE_CHECKING:
    from localvertex.front.variables import Environment
    from localvertex.jobs.settings import Settings

_LOOK_EVERY_S = 0.5
"""Seconds between two looks at jobs that are waited for."""
_MOST_OF_STEP = 120
"""Characters of what is done for a job before it runs."""
_SHOWN = {
    "customJobs": "custom job",
    "hyperparameterTuningJobs": "tuning job",
    "trainingPipelines": "training pipeline",
}


@click.command(
    "run",
    short_help="Run an unchanged program against the local Vertex.",
    # Options after the first word of COMMAND are COMMAND's.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@servers.server_options
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append each API call of COMMAND and its answer to FILE, without ids, names and tokens.",
)
@click.option("--no-wait", is_flag=True, help="Return when COMMAND ends, without waiting for its jobs.")
@servers.trainer_options
@servers.fault_options
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    words: tuple[str, ...],
    where: servers.ServerOptions,
    record: Path | None,
    no_wait: bool,
    trainers: servers.TrainerOptions,
    faults: servers.FaultOptions,
) -> None:
    """Run COMMAND unchanged. Its requests to Google's APIs are redirected to the local Vertex.

    If no server is running, `local run` starts one and stops it at the end. COMMAND gets environment variables that redirect
    its requests to this machine and hide your credentials.

    When COMMAND has ended, `local run` waits for the jobs that COMMAND created. Ctrl-C ends the waiting. If no other command keeps
    the server running, the server then stops, and the next `vertexrig local up` restarts the jobs. At the end, `local run`
    lists these jobs on stderr. The exit code is that of COMMAND.
    """
    extras.need("certifi")
    from localvertex.front import variables  # it needs the extra

    # Looked for again on the command's own PATH, which begins with a folder that is made with the server.
    if shutil.which(words[0]) is None and words[0] not in variables.PROGRAMS:
        raise UsageError(f"there is no program {words[0]!r}; write the command after `vertexrig local run --`")

    loaded, folder = where.project()

    def settings() -> Settings:
        from localvertex.jobs.project_settings import settings_of_project  # 130 ms

        made = settings_of_project(loaded, folder, **asdict(trainers), transparent=True)
        return replace(made, faults=faults.parsed())

    given = {
        "--record": record,
        "--cold": trainers.cold,
        "--discrete": trainers.discrete,
        "--engine": trainers.engine,
        "--fault": faults.texts,
        "--strict-gs": trainers.strict_gs,
    }
    with (
        unwinding(),
        server(loaded, folder, settings, record, [name for name, value in given.items() if value]) as here,
    ):
        # Ports of this command alone tell what it makes from what others make on the same server.
        own = control.call(here, "POST", "/v1/runs", {"process": os.getpid()})
        port, front, tls = own["ports"]
        change = difference(replace(here, port=port, front_port=front, tls_port=tls), loaded)
        mention(change)
        before = control.call(here, "GET", f"/v1/made?run={own['run']}")
        environment = change.over(os.environ)
        program = shutil.which(words[0], path=environment["PATH"]) or words[0]
        code, signalled = _run([program, *words[1:]], words[0], environment)
        made = f"/v1/made?after={before['last']}&run={own['run']}"
        options = ["--cold"] * trainers.cold + ["--strict-gs"] * trainers.strict_gs
        options += ["--discrete", trainers.discrete] if trainers.discrete else []
        # What the jobs have is kept for them, as a server of `up` need not do.
        options += [] if loaded and loaded.project.local.gs_paths else ["--gs-paths", "kept"]
        resume = next_commands.line("local", "up", *next_commands.named(where.file), *options, "--root", folder)
        try:
            # A signal that ended the command ends the wait, too.
            if not no_wait and not signalled:
                _wait(here, made, resume)
        finally:
            _report(control.call(here, "GET", made), before, here.root, resume)
    raise click.exceptions.Exit(code)


def difference(here: RunningServer, loaded: Loaded | None) -> Environment:
    """Return what is different in the environment of a command that runs against a server."""
    from localvertex.front.variables import transparent  # it needs an extra

    project = loaded.project if loaded else None
    named = project_of(loaded, os.environ)
    return transparent(here, os.environ, project=named, region=project.region if project else "us-central1")


def project_of(loaded: Loaded | None, user: Mapping[str, str]) -> str:
    """Return the project of the project file; without one, that which Google's libraries take: of a variable, or what gcloud has, whose
    variable comes before its active configuration.
    """
    if loaded is not None:
        return loaded.project.project
    given = user.get("GOOGLE_CLOUD_PROJECT") or user.get("CLOUDSDK_CORE_PROJECT")
    if given:
        return given
    folder = Path(user.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    parser = configparser.ConfigParser(interpolation=None)
    with suppress(OSError, ValueError, configparser.Error):
        active = folder / "active_config"
        name = user.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (active.read_text().strip() if active.exists() else "default")
        parser.read_string((folder / "configurations" / f"config_{name}").read_text(encoding="utf-8"))
    return parser.get("core", "project", fallback="") or "local-project"


def mention(change: Environment) -> None:
    """One line about credentials that are hidden."""
    if change.hidden:
        streams.note(f"hidden from the command: {', '.join(change.hidden)}")


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process by an exception, as SIGINT does: a server that it started ends, too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    caught = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with signals.handled(caught, end):
        yield


@contextmanager
def server(
    loaded: Loaded | None,
    folder: Path,
    settings: Callable[[], Settings],
    record: Path | None,
    given: list[str],
    port: int | None = None,
) -> Iterator[RunningServer]:
    """Provide the server of a folder; one that a command like this started is stopped when the last such command ends.

    Args:
        loaded: The project, if there is one.
        folder: Of its state.
        settings: Gives those of a server that has to be started; they import what runs jobs.
        record: Where it records calls.
        given: Options that only a server takes that is started now.
        port: As for `control.up`.
    """
    servers.bind_or_ask(folder)
    with state.in_use(folder) as use:
        here = state.find(folder)
        # One that was killed holds the folder for a while as it dies; then another is started.
        if here is not None and not control.answers(here):
            here = None
        ours = False
        try:
            if here is None:
                extras.need("uvicorn", "starlette", "optuna", "google_crc32c", "cryptography")
                here, ours = control.started(settings(), port, record=record)
            if ours:
                use.begun(here.pid)
                streams.note(f"the local Vertex answers at {here.url}")
            elif given:
                name = f"--record {record}" if record is not None else given[0]
                servers.refuse(here, name, "--record FILE" if record is not None else name)
            servers.make_bucket(here, loaded)
            yield here
        finally:
            if here is not None and use.last(here.pid):
                control.down(folder)


def _wait(here: RunningServer, made: str, resume: str) -> None:
    """Wait for the jobs that the command made, with a line for each change; Ctrl-C ends the wait."""
    shown: dict[str, str] = {}
    while waiting := [one for one in control.call(here, "GET", made)["made"] if not one["ended"]]:
        if not shown:
            streams.note(
                f"waiting for the jobs that the command created. Ctrl-C ends the waiting; to continue them later: {resume}"
            )
        for one in waiting:
            trials = one["trials"]
            step = f"  {one['step'][:_MOST_OF_STEP]}" if one["step"] else ""
            line = f"{_titled(one)}{f'  {trials[0]} of {trials[1]} trials have ended' if trials else ''}{step}"
            if shown.get(one["name"]) != line:
                shown[one["name"]] = line
                streams.note(line)
        time.sleep(_LOOK_EVERY_S)


def _titled(one: Mapping[str, Any]) -> str:
    state = str(one["state"]).rpartition("STATE_")[2]
    return f"{_SHOWN.get(one['kind'], one['kind'])} {one['name'].rpartition('/')[2]}  {one['displayName']}  {state}"


def _run(argv: list[str], name: str, environment: Mapping[str, str]) -> tuple[int, bool]:
    """Run a command to its end; signals are passed on to it.

    Returns:
        Its exit code; 128 and the number of the signal that ended it, as a shell gives. Whether a signal came meanwhile.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []
    came: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if process is None:
            early.append(number)
        elif number != signal.SIGINT or not _in_foreground():  # otherwise the terminal sent it to the command, too
            with suppress(ProcessLookupError):
                process.send_signal(number)

    # What is ignored stays so: with a handler here the command would get the default action.
    with signals.handled(signals.not_ignored(), pass_on):
        if early:
            return 128 + early[0], True
        try:
            process = subprocess.Popen([name, *argv[1:]], executable=argv[0], env=dict(environment))
        except OSError as error:
            raise UsageError(f"{argv[0]} cannot be run: {error.strerror or error}") from None
        for number in early:  # they came while the command was being started, when no signal reaches it
            process.send_signal(number)
        code = process.wait()
    # Popen gives the number of a signal as a negative code.
    return code if code >= 0 else 128 - code, bool(came)


def _in_foreground() -> bool:
    """Whether this process has a terminal whose Ctrl-C reaches its whole process group."""
    try:
        # The terminal itself, not stdin, which may be a pipe while Ctrl-C still works.
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _report(after: Mapping[str, Any], before: Mapping[str, Any], root: Path, resume: str) -> None:
    """List the jobs that the command made, the calls that the local Vertex does not serve, and the buckets that are missing."""
    listed: dict[str, str] = {}  # the first job with these logs
    for one in after["made"]:
        streams.note(f"created: {_titled(one)}{', deleted' if one['deleted'] else ''}")
        own = f"{_SHOWN.get(one['kind'], one['kind'])} {one['name'].rpartition('/')[2]}"
        if (above := listed.setdefault(one.get("logs") or own, own)) != own:
            # A pipeline and its job end with one error.
            streams.note(f"  for its error and logs see {above}, above")
            continue
        if one.get("error"):
            streams.note(f"  {one['error']}")
        if one.get("printed"):
            who = f"trial {one['trial']}" if "trial" in one else "it"
            streams.note("\n    ".join([f"  the last lines that {who} printed:", *one["printed"]]))
        for text in one.get("warnings", ()):
            streams.note(f"  warning: {text}")
        for text in one.get("hints", ()):
            streams.note(f"  hint: {text}")
        if one.get("logs"):
            streams.note(f"  logs{' of trial ' * ('trial' in one)}{one.get('trial', '')}: {one['logs']}")
        if one.get("output"):
            streams.note(f"  outputs: {one['output']}")
    if any(not one["ended"] for one in after["made"]):
        streams.note(f"these jobs have not ended. To start the server again and continue them:\n{resume}")
    for what, times in after["noted"].items():
        more = times - before["noted"].get(what, 0)
        if more > 0:
            streams.note(f"{what}{f' ({more} times)' if more > 1 else ''}")
    for name in sorted(set(after.get("absent", ())) - set(before.get("absent", ()))):
        streams.note(
            f"the bucket gs://{name} does not exist here. To create it: mkdir -p {shlex.quote(str(root / 'gs' / name))}; to read it "
            f"from Google, if it is public: public_buckets: [{name}] under local: in vertexrig.yaml"
        )
