"""Warm starts: a process per environment that has imported the framework of the image, and forks its replicas.

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
from pathlib import Path
from typing import Any

from localvertex.runner.children import Command
from localvertex.runner.forker import MARK, memory_short
from localvertex.runner.run_time_variables import RUN_TIME, read_at_import, read_at_run_time
from vertexrig.package.recipes import FRAMEWORKS
from vertexrig.trainer_source.follow import Followed, follow
from vertexrig.trainer_source.tensorflow_usage import variables_set

MODULES = {"tf": "tensorflow", "pytorch": "torch", "jax": "jax", "sklearn": "sklearn", "xgboost": "xgboost"}
"""Framework of an image -> what is imported ahead of its trainers."""
_LAZY = {"tensorflow": "; tensorflow.keras.Model"}
"""Parts that a framework imports when they are first used."""
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
    answered: bool = False


@dataclass
class _Environment:
    """Replicas that can share a forker."""

    preload: Preload
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
    _read_before: dict[Any, tuple[dict[Path, int], Preload | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def with_forker(self, command: Command, replicas: int) -> tuple[Command, str]:
        """Return a replica's command, with a forker where there is one for it, and why it starts cold.

        The reason is "" if it may start warm, and for a program that uses no framework of its image or that is not
        started as `python -m MODULE` or `python SCRIPT`: of these nobody expects anything else.
        """
        program = _program(command)
        preload = self._read(program, command) if program is not None else None
        if program is None or preload is None:
            return command, ""
        if preload.refused:
            return command, preload.refused
        shared = read_at_import(command.env)
        with self._lock:
            environment = self._environment(program, preload, shared)
            trial = "CLOUD_ML_TRIAL_ID" in command.env
            reason = self._obstacle(command, replicas) or self._forker(environment, program, shared, trial=trial)
            forker = environment.forker
        if reason or forker is None:
            return command, reason
        extra = {"module": program.module, "script": program.script, "args": list(program.args)}

        def fork(request: Mapping[str, Any], descriptors: Sequence[int]) -> bool:
            return _ask(forker, {**request, **extra}, descriptors)

        return replace(command, fork=fork), ""

    def close(self) -> None:
        """End every forker. Replicas that they have forked are not touched: their own runs end them."""
        with self._lock:
            self._closed = True
            for environment in self._environments.values():
                _end(environment)

    def _read(self, program: _Program, command: Command) -> Preload | None:
        """Read what a program needs ahead of it; again only when one of its files has changed."""
        places = command.sources or (command.cwd / program.script,)
        key = (places, program.module, command.framework)
        with self._lock:
            known = self._read_before.pop(key, None)
        if known is None or any(_changed(file) != at for file, at in known[0].items()):
            source = next(
                (one for place in places if (one := follow(place, program.module)).code is not None), Followed()
            )
            folder = command.cwd if program.module else places[0].parent
            files = command.sources or [folder / file for file in source.files]
            known = {file: _changed(file) for file in files}, preload_of(command.framework, source)
        with self._lock:
            self._read_before[key] = known
            while len(self._read_before) > _KEPT:
                del self._read_before[next(iter(self._read_before))]
        return known[1]

    def _environment(self, program: _Program, preload: Preload, shared: Mapping[str, str]) -> _Environment:
        # A folder's time changes when a package is put in or taken out: an import may then bring something else.
        state = [_changed(path) for path in _site(program.python)]
        everything = json.dumps([program.python, preload.statement, preload.settings, state, sorted(shared.items())])
        key = hashlib.sha256(everything.encode()).hexdigest()
        if key not in self._environments:
            # The oldest go first: a dict keeps the order of insertion.
            unused = [other for other, one in self._environments.items() if one.forker is None]
            for other in unused[: max(0, len(self._environments) + 1 - _KEPT)]:
                del self._environments[other]
            self._environments[key] = _Environment(preload)
        return self._environments[key]

    def _obstacle(self, command: Command, replicas: int) -> str:
        """Return why a replica starts cold whatever its environment, "" if it need not."""
        if sys.platform != "linux":
            return "only Linux can fork a process that has already imported the framework"
        if replicas > 1 and not command.env.get("PYTHONHASHSEED"):
            return "each of several replicas has a hash seed of its own; PYTHONHASHSEED is not set"
        return "the local Vertex is shutting down" if self._closed else ""

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
        environment.forker = _start(program.python, environment.preload, shared, self.idle)
        return ""


def _program(command: Command) -> _Program | None:
    """Return what a command line runs, None if it is not one that a forker can run."""
    name, *rest = command.argv
    # A command with a cleanup runs in a container.
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


def _site(python: str) -> tuple[Path, ...]:
    """Return the folders of packages of a virtual environment; of another interpreter none."""
    return tuple(Path(python).parent.parent.glob("lib/python*/site-packages"))


@dataclass(frozen=True)
class Preload:
    """What is done before a trainer starts.

    Args:
        statement: Imports the framework.
        settings: Variables that the trainer sets before it does: name, text, and whether it does so only where there is none.
        refused: Why it cannot be done, "" if it can.
    """

    statement: str = ""
    settings: tuple[tuple[str, str, bool], ...] = ()
    refused: str = ""


def preload_of(framework: str, source: Followed) -> Preload | None:
    """Return what to do ahead of a trainer on an image with this framework; None if it uses no framework, or another one."""
    imported = {item.module.partition(".")[0] for item in source.imports if item.kind == "other"}
    used = {FRAMEWORKS.get(name, name) for name in imported} & MODULES.keys()
    if source.code is None or not used or (framework and framework not in used):
        return None
    if not framework:
        return Preload(refused="the framework of its image is not known; `framework` under local: images: names it")
    settings: dict[str, tuple[str, str, bool]] = {}
    for written in variables_set(source.code):
        if written.name is not None and read_at_run_time(written.name):
            continue
        one = (written.name or "", written.text or "", written.default)
        # A second text for one name: which of them an import sees is only known to the running program.
        if written.text is None or settings.setdefault(one[0], one) != one:
            what = written.name or "a variable whose name is computed"
            place = f"{written.place.file}:{written.place.line}"
            return Preload(refused=f"{place} sets {what}, which an import may read")
    module = MODULES[framework]
    return Preload(f"import {module}{_LAZY.get(module, '')}", tuple(settings.values()))


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _start(python: str, preload: Preload, shared: Mapping[str, str], idle: float) -> _Forker:
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
    settings = {name: text for name, text, default in preload.settings if not (default and name in shared)}
    first = {"statement": preload.statement, "settings": settings, "run_time": list(RUN_TIME), "idle": idle}
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
