"""Warm starts: a process per environment that has made the imports of a trainer, and forks its replicas.

What TensorFlow's import costs, a sweep then pays once and not once per trial: its first trial has a forker made. Of jobs on
their own the first of an environment starts cold, as no other may follow, and the second one has a forker made. Only on Linux:
elsewhere a fork after an import of TensorFlow is not safe.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from vertexrig.local.runner.ahead import Ahead, read_ahead
from vertexrig.local.runner.children import Command
from vertexrig.local.runner.forker import MARK, memory_short
from vertexrig.local.runner.runtime import RUN_TIME, read_at_import

_FORKER = Path(__file__).with_name("forker.py")
_LONGEST_MARK = 200  # the forked replica writes its own mark over the spaces, so there must be room
_MOST = 2
"""Forkers at one time: one that has imported TensorFlow takes some 400 MiB."""
_KEPT = 256
"""Environments that are remembered."""
IDLE_S = 300.0
"""Seconds without a request after which a forker ends."""


@dataclass(frozen=True)
class _Program:
    """A command that a forker can run: a module or a script of the trainer, by one interpreter."""

    python: str
    module: str = ""
    script: str = ""
    args: tuple[str, ...] = ()


@dataclass
class _Forker:
    """A process that forks, and what is known of it."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    used: float
    refused: str = ""
    answered: bool = False


@dataclass
class _Environment:
    """Replicas that can share a forker."""

    ahead: Ahead
    wanted: int = 0
    forker: _Forker | None = None
    refused: str = ""


@dataclass
class Warmth:
    """The forkers of one local Vertex; may be used from several threads.

    Args:
        idle: Seconds without a request after which a forker ends.
    """

    idle: float = IDLE_S
    _environments: dict[str, _Environment] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def of(self, command: Command, replicas: int) -> tuple[Command, str]:
        """A replica's command, with a forker where there is one for it, and why it starts cold.

        The reason is "" if it may start warm, and for a program that imports nothing beyond Python's own modules or that is not
        started as `python -m MODULE` or `python SCRIPT`: of these nobody expects anything else.

        Args:
            command: How it is started cold.
            replicas: Of its job.
        """
        program = _program(command)
        if program is None:
            return command, ""
        shared = read_at_import(command.env)
        with self._lock:
            environment = self._environment(program, command, shared)
            # There is nothing to gain: these load fast.
            if all(name in sys.stdlib_module_names for name in environment.ahead.modules):
                return command, ""
            trial = "CLOUD_ML_TRIAL_ID" in command.env
            reason = self._obstacle(command, replicas) or self._forker(environment, program, shared, trial=trial)
            forker = environment.forker
        if reason or forker is None:
            return command, reason
        extra = {"module": program.module, "script": program.script, "args": list(program.args)}

        def fork(request: Mapping[str, Any], descriptors: Sequence[int]) -> bool:
            return _ask(forker, {**request, **extra}, descriptors)

        return replace(command, fork=fork), ""

    def modules(self, command: Command) -> tuple[str, ...]:
        """What the forker of a command has imported, by the names of the top-level packages that are not Python's own."""
        program = _program(command)
        if program is None:
            return ()
        with self._lock:
            found = self._environment(program, command, read_at_import(command.env)).ahead.modules
        return tuple(name for name in found if name not in sys.stdlib_module_names)

    def close(self) -> None:
        """End every forker. Replicas that they have forked are not touched: their own runs end them."""
        with self._lock:
            self._closed = True
            for environment in self._environments.values():
                _end(environment)

    def _environment(self, program: _Program, command: Command, shared: Mapping[str, str]) -> _Environment:
        source = _source(program, command.cwd)
        ahead = read_ahead(source.entry, source.package, source.find) if source.entry else Ahead()
        # A folder's time changes when a package is put in or taken out: the imports may then be others.
        state = [_changed(path) for path in source.site]
        everything = json.dumps([program.python, ahead.steps, state, sorted(shared.items())])
        key = hashlib.sha256(everything.encode()).hexdigest()
        if key not in self._environments:
            # The oldest go first: a dict keeps the order of insertion.
            unused = [other for other, one in self._environments.items() if one.forker is None]
            for other in unused[: max(0, len(self._environments) + 1 - _KEPT)]:
                del self._environments[other]
            self._environments[key] = _Environment(ahead)
        return self._environments[key]

    def _obstacle(self, command: Command, replicas: int) -> str:
        """Why a replica starts cold whatever its environment, "" if it need not."""
        if sys.platform != "linux":
            return "only Linux can fork a process that has imported what it imports"
        if replicas > 1 and not command.env.get("PYTHONHASHSEED"):
            return "each of several replicas has a hash seed of its own; PYTHONHASHSEED is not set"
        return "the local Vertex closes" if self._closed else ""

    def _forker(self, environment: _Environment, program: _Program, shared: Mapping[str, str], *, trial: bool) -> str:
        """Have a forker if it is time for one; why there is none, "" if there is."""
        environment.wanted += 1
        _look(environment)
        if environment.refused:
            return environment.refused
        if environment.forker is not None:
            environment.forker.used = time.monotonic()
            return ""
        if environment.wanted == 1 and not trial:
            return "it is the first of its environment"
        if memory_short():
            return "memory is short"
        with_forker = [one for one in self._environments.values() if one.forker is not None]
        if len(with_forker) >= _MOST:
            _end(min(with_forker, key=lambda one: one.forker.used if one.forker else 0.0))
        environment.forker = _start(program.python, environment.ahead, shared, self.idle)
        return ""


def _program(command: Command) -> _Program | None:
    """What a command line runs, None if it is not one that a forker can run."""
    name, *rest = command.argv
    # A command with a cleanup runs in Docker.
    if not Path(name).name.startswith("python") or command.cleanup:
        return None
    python = shutil.which(name, path=command.env.get("PATH"))
    rest = rest[1:] if rest[:1] == ["-u"] else rest  # PYTHONUNBUFFERED is set anyway
    if python is None or not rest:
        return None
    if rest[0] == "-m" and len(rest) > 1:
        return _Program(python, module=rest[1], args=tuple(rest[2:]))
    if rest[0].endswith(".py"):
        return _Program(python, script=rest[0], args=tuple(rest[1:]))
    return None


@dataclass(frozen=True)
class _Source:
    """Where a trainer's own modules are: all of a folder, or some packages of an environment."""

    folder: Path
    own: frozenset[str] | None
    entry: Path | None
    package: str
    site: tuple[Path, ...]

    def find(self, name: str) -> Path | None:
        """The file of one of the trainer's own modules."""
        if self.own is not None and name.partition(".")[0] not in self.own:
            return None
        place = self.folder.joinpath(*name.split("."))
        return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


def _source(program: _Program, cwd: Path) -> _Source:
    # Of bin/python in a virtual environment.
    layer = Path(program.python).parent.parent
    site = tuple(layer.glob("lib/python*/site-packages"))
    if program.script:
        entry = cwd / program.script
        return _Source(entry.parent, None, entry if entry.is_file() else None, "", site)
    module = program.module
    # Python looks into the working directory first, as `python -m` does.
    folder, own = (cwd, None) if _module_file(cwd, module) or not site else (site[0], _own(site[0], module))
    found = _module_file(folder, module)
    package = module if found is not None and found.name == "__main__.py" else module.rpartition(".")[0]
    return _Source(folder, own, found, package, site)


def _module_file(folder: Path, module: str) -> Path | None:
    place = folder.joinpath(*module.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__main__.py") if file.is_file()), None)


def _own(site: Path, module: str) -> frozenset[str]:
    """Top-level names of the packages in an environment that were installed from files: the job's own, not their requirements."""
    names = {module.partition(".")[0]}
    for found in distributions(path=[str(site)]):
        # pip writes this file where it installs from a path or URL (PEP 610), not from an index.
        if found.read_text("direct_url.json") is not None:
            names |= {
                Path(str(file)).parts[0].removesuffix(".py") for file in found.files or () if str(file).endswith(".py")
            }
    return frozenset(names)


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _start(python: str, ahead: Ahead, shared: Mapping[str, str], idle: float) -> _Forker:
    # SEQPACKET keeps a request and its descriptors in one piece
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Only what all replicas share: the rest comes with each request.
    environment = {**shared, MARK: " " * _LONGEST_MARK}
    try:
        process = subprocess.Popen(
            [python, str(_FORKER), str(theirs.fileno())], env=environment, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    finally:
        theirs.close()
    # A job's thread must not wait for a forker that is busy with imports.
    ours.setblocking(False)
    forker = _Forker(process, ours, time.monotonic())
    first = {"steps": [list(step) for step in ahead.steps], "run_time": list(RUN_TIME), "idle": idle}
    with suppress(OSError):
        ours.send(json.dumps(first).encode())
    return forker


def _ask(forker: _Forker, request: Mapping[str, Any], descriptors: Sequence[int]) -> bool:
    """Ask for a replica; False if the forker has gone, or if the request is too long for one packet."""
    try:
        socket.send_fds(forker.control, [json.dumps(request).encode()], list(descriptors))
    except (OSError, ValueError):
        return False
    return True


def _look(environment: _Environment) -> None:
    """Learn what has become of a forker."""
    forker = environment.forker
    if forker is None:
        return
    # There may be no answer yet.
    with suppress(OSError, ValueError):
        data = forker.control.recv(1 << 16)
        if data:
            forker.answered, environment.refused = True, str(json.loads(data)["refused"])
    if forker.process.poll() is not None:
        if not forker.answered and not environment.refused:
            environment.refused = f"the process that was to make its imports ended with {forker.process.returncode}"
        forker.control.close()
        environment.forker = None


def _end(environment: _Environment) -> None:
    forker, environment.forker = environment.forker, None
    if forker is not None:
        forker.process.kill()
        forker.process.wait()
        forker.control.close()
