"""The options of verbs that run jobs on this machine, and where the local Vertex of a command line is.

`rehearse` shares the state folder, and the options of engine, pace and faults. It needs no server; only with `--fault` it starts one of
its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from localvertex import state
from localvertex.front import control
from vertexrig.cli import options, streams
from vertexrig.errors import ServiceError, UsageError
from vertexrig.files import must_stay
from vertexrig.project import config

if TYPE_CHECKING:
    # 130 ms, which `local status` and its like save
    from localvertex.jobs.settings import Fault
    from localvertex.state import RunningServer
    from vertexrig.project.config import Loaded


@dataclass(frozen=True)
class ServerOptions:
    """Where the local Vertex of a command line is."""

    file: Path | None = options.shared(options.file_option)
    root: Path | None = options.option(
        "--root",
        type=click.Path(path_type=Path),
        help="State folder of the server; by default .vertexrig in the folder of the project file.",
    )

    def project(self) -> tuple[Loaded | None, Path]:
        """Return the project if there is one (the server also serves people without), and the folder of the server's state."""
        folder = self.folder()
        return options.project_if_any(self.file), folder

    def folder(self) -> Path:
        """Return the folder of the server's state; the project file is not read for it."""
        # The folder of a file that is not there would be a new, empty state, and `down` would find nothing to stop.
        if self.file is not None and not self.file.is_file():
            raise UsageError(f"there is no file {self.file}")
        if self.root is not None:
            return self.root
        found = options.find_project(self.file)
        home = found.parent if found else Path()
        return must_stay(home / config.STATE_FOLDER, home)


engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "docker", "podman", "nerdctl", "none"]),
    help="Container engine that runs images. By default the project file's value, or `auto`: the first engine that answers runs the "
    "images that it has; for the others, a Python of this machine runs the code (a stand-in). `none` uses only stand-ins.",
)


@dataclass(frozen=True)
class TrainerOptions:
    """How a server runs trainers."""

    cold: bool = options.option(
        "--cold",
        is_flag=True,
        help="Start each replica as a new process. By default replicas are forked from a process that has already imported the framework.",
    )
    discrete: str | None = options.option(
        "--discrete",
        type=click.Choice(["retry", "decimal", "whole"]),
        help="How trainers receive a discrete value of 128: `decimal` sends 128.0, `whole` sends 128, and `retry` sends 128.0 "
        "and, if the trainer fails on it, 128. By default the project file's value, or retry.",
    )
    strict_gs: bool = options.option(
        "--strict-gs",
        is_flag=True,
        help="Fail a job that writes files to a local folder named gs:, as open() does with a gs:// path. By default the job succeeds, "
        "as on Vertex AI, with a warning.",
    )

    engine: str | None = options.shared(engine_option)


@dataclass(frozen=True)
class PaceOptions:
    """How long a local job waits for its machines, and how long it takes to end."""

    pace: str = options.option(
        "--pace",
        type=click.Choice(["none", "recorded"]),
        default="none",
        show_default=True,
        help="Delays of a job's start and end: none, or the medians of recorded jobs on Vertex AI (176 s and 65 s).",
    )
    speed: float | None = options.option(
        "--speed",
        type=click.FloatRange(min=0, min_open=True, max=100_000),
        metavar="N",
        show_default="1",
        help="Divide the times of --pace recorded by N.",
    )


@dataclass(frozen=True)
class FaultOptions:
    """The faults that a local Vertex has on request."""

    texts: tuple[str, ...] = options.option(
        "--fault",
        multiple=True,
        metavar="KIND[:PATTERN]...",
        help="Make jobs fail. KIND is stockout, quota, denied or preempt. The fault applies to jobs whose machine, accelerator or region "
        "matches every PATTERN. `:2` limits it to two jobs, `:30m` to the first half hour. `preempt:after=20s` preempts a Spot job "
        "after 20 s. `stockout:30m:wait` makes jobs wait for 30 minutes instead. Can be repeated.",
    )

    def parsed(self) -> list[Fault]:
        """Return the faults; UsageError for a text that is not one."""
        from localvertex.jobs.settings import Fault  # 65 ms

        return [Fault.parse(text) for text in self.texts]


def bind_or_ask(folder: Path, *, adopt: bool = False) -> None:
    """Bind the state folder to this machine. If the state was made elsewhere and `adopt` does not accept it, ask the user."""
    try:
        state.bind(folder, adopt=adopt)
    except state.ForeignStateError as error:
        if not (sys.stdin.isatty() and click.confirm(f"{error}\nUse it?", err=True)):
            raise
        state.bind(folder, adopt=True)


pace_options = options.group("pace", PaceOptions)
server_options = options.group("where", ServerOptions)
trainer_options = options.group("trainers", TrainerOptions)
fault_options = options.group("faults", FaultOptions)


def refuse(here: RunningServer, name: str, instead: str = "") -> NoReturn:
    """Raise UsageError for an option that only a new server takes; `instead` is the option as `local up` takes it, "" if that is the command."""
    start = f", then start one with `vertexrig local up {instead}`" if instead else " first"
    raise UsageError(
        f"{name} needs a new server, but a local Vertex is already running at {here.url}; stop it with `vertexrig local down`{start}"
    )


def make_bucket(here: RunningServer, loaded: Loaded | None) -> None:
    """Make the project's bucket on this machine, where jobs put their packages and outputs."""
    name = loaded.project.bucket_name if loaded else ""
    if not name:
        return
    try:
        control.make_bucket(here, name)
    except ServiceError as error:
        streams.note(f"warning: the bucket {name} of the project file could not be created: {error}")


def running(folder: Path) -> RunningServer:
    here = state.find(folder)
    if here is None:
        raise ServiceError(f"no local Vertex is running for {folder}; start it with `vertexrig local up --detach`")
    return here
