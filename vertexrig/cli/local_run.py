"""`vertexrig local run`: any program that uses Vertex AI, unchanged, against the local Vertex."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import local_place, options, streams
from vertexrig.errors import UsageError

if TYPE_CHECKING:
    from vertexrig.local.front.variables import Environment
    from vertexrig.local.jobs.settings import Settings
    from vertexrig.local.state import RunningServer
    from vertexrig.project.config import Loaded

# What ends a program from outside: the terminal's Ctrl-C, `kill`, a terminal that closes.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOWN = {
    "customJobs": "custom job",
    "hyperparameterTuningJobs": "tuning job",
    "trainingPipelines": "training pipeline",
}


@click.command(
    "run",
    short_help="Run a program that nobody changed against it.",
    # Options after the first word of COMMAND are COMMAND's.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@options.file_option
@local_place.root_option
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add every call of COMMAND and its answer to FILE, without ids, names and tokens.",
)
@local_place.cold_option
@local_place.discrete_option
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    words: tuple[str, ...], file: Path | None, root: Path | None, record: Path | None, cold: bool, discrete: str | None
) -> None:
    """Run COMMAND, unchanged, with Google's APIs answered by the local Vertex.

    The server is started if none runs, and stopped afterwards. Variables set for COMMAND alone send what it asks of
    Google's APIs to this machine; your credentials are hidden from it. The exit code is COMMAND's; the jobs that it made
    are listed on stderr.
    """
    from vertexrig.cli import extras

    program = shutil.which(words[0])
    if program is None:
        raise UsageError(f"there is no program {words[0]!r}; write the command after `vertexrig local run --`")
    extras.need("certifi")
    from vertexrig.local import control

    loaded, folder = local_place.project(file, root)
    settings = local_place.settings(loaded, folder, cold=cold, discrete=discrete, transparent=True)
    given = {"--record": record, "--cold": cold, "--discrete": discrete}
    with _unwinding(), _server(loaded, settings, record, [name for name, value in given.items() if value]) as here:
        change = difference(here, loaded)
        mention(change)
        before = control.call(here, "GET", "/v1/made")
        # The calls before and after tell apart what this command made from what others made on the same server.
        code = _run([program, *words[1:]], words[0], change.over(os.environ))
        _report(control.call(here, "GET", f"/v1/made?after={before['last']}"), before, here.root)
    raise click.exceptions.Exit(code)


def difference(here: RunningServer, loaded: Loaded | None) -> Environment:
    """What is different in the environment of a command that runs against a server."""
    from vertexrig.local.front.variables import transparent

    project = loaded.project if loaded else None
    named = project.project if project else os.environ.get("GOOGLE_CLOUD_PROJECT") or "local-project"
    return transparent(here, os.environ, project=named, region=project.region if project else "us-central1")


def mention(change: Environment) -> None:
    """One line about credentials that are hidden."""
    if change.hidden:
        streams.note(f"hidden from the command: {', '.join(change.hidden)}")


@contextmanager
def _unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process by an exception, as SIGINT does: a server that it started ends, too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    caught = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    before = {number: signal.signal(number, end) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _server(
    loaded: Loaded | None, settings: Settings, record: Path | None, given: list[str]
) -> Iterator[RunningServer]:
    """The server of a folder; one that a command like this started is stopped when the last such command ends.

    Args:
        loaded: The project, if there is one.
        settings: Of a server that has to be started.
        record: Where it records calls.
        given: Options that only a server takes that is started now.
    """
    from vertexrig.local import control, state

    folder = settings.root
    here = state.find(folder)
    # One that was killed holds the folder for a while as it dies; then another is started.
    if here is not None and not control.answers(here):
        here = None
    if here is not None and given:
        name = f"--record {record}" if record is not None else given[0]
        what = "records only from its start" if record is not None else "has its own settings"
        raise UsageError(
            f"{name}: a local Vertex runs already at {here.url}, and {what}: stop it with "
            f"`vertexrig local down`, or start it with `vertexrig local up {'--record FILE' if record is not None else given[0]}`"
        )
    started = here is None
    if here is None:
        from vertexrig.cli import extras

        extras.need("uvicorn", "starlette", "optuna", "google_crc32c", "cryptography")
        here = control.up(settings, record=record)
        streams.note(f"the local Vertex answers at {here.url}")
    with state.in_use(folder, begun=here.pid if started else None) as last:
        try:
            if started or here.front_port is not None:
                local_place.make_bucket(here, loaded)
            yield here
        finally:
            if last(here.pid):
                control.down(folder)


def _run(argv: list[str], name: str, environment: Mapping[str, str]) -> int:
    """Run a command to its end; signals are passed on to it.

    Returns:
        Its exit code; 128 and the number of the signal that ended it, as a shell gives.
    """
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if not children:
            early.append(number)
        elif number == signal.SIGINT and _in_foreground():
            pass  # the terminal sent it to the command, too
        else:
            with suppress(ProcessLookupError):
                children[0].send_signal(number)

    # What is ignored stays so, as nohup wants it: with a handler here the command would get the default action.
    caught = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in caught}
    try:
        if early:
            return 128 + early[0]
        children.append(subprocess.Popen([name, *argv[1:]], executable=argv[0], env=dict(environment)))
        for number in early:  # they came while the command was being started, when no signal reaches it
            children[0].send_signal(number)
        code = children[0].wait()
    except OSError as error:
        raise UsageError(f"{argv[0]} cannot be run: {error.strerror or error}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    # Popen gives the number of a signal as a negative code.
    return code if code >= 0 else 128 - code


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


def _report(after: Mapping[str, Any], before: Mapping[str, Any], root: Path) -> None:
    """What the command made, and what it asked for in vain."""
    for one in after["made"]:
        state = str(one["state"]).rpartition("STATE_")[2]
        streams.note(
            f"made: {_SHOWN.get(one['kind'], one['kind'])} {one['name'].rpartition('/')[2]}  {one['displayName']}  {state}"
        )
        if one.get("error"):
            streams.note(f"  {one['error']}")
    if any(not one["ended"] for one in after["made"]):
        streams.note("jobs that have not ended go on with the local Vertex: `vertexrig local up`")
    for what, times in after["noted"].items():
        more = times - before["noted"].get(what, 0)
        if more > 0:
            streams.note(f"{what}{f' ({more} times)' if more > 1 else ''}")
    for name in sorted(set(after.get("absent", ())) - set(before.get("absent", ()))):
        streams.note(
            f"there is no bucket gs://{name} here; a folder makes one: mkdir -p {shlex.quote(str(root / 'gs' / name))}"
        )
