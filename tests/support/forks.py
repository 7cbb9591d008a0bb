"""Starts Python programs by forking a process that has made their imports already: they are most of a small run's time.

`python forks.py IMPORT...` is that process. It reads requests as lines of JSON from stdin and writes how they went to
stdout. What a program imports beyond these modules is read anew in each process, as `python -m` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

READ_AT_IMPORT = ("PYTHON", "LANG", "LC_", "TF_CPP", "TF_USE", "TF_ENABLE", "OMP", "XLA", "CUDA")
"""Beginnings of variables that Python or TensorFlow read before a program begins; others may differ from fork to fork."""
TENSORFLOW = ("numpy", "tensorflow", "tf_keras")
"""What the trainer imports."""


class Forked:
    """A forked process, with the part of `subprocess.Popen` that the tests use."""

    def __init__(self) -> None:
        self.pid = 0
        self.code: int | None = None
        self.started, self.ended = threading.Event(), threading.Event()

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.code

    def wait(self, timeout: float) -> int:
        """Its exit code, once it has ended."""
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout)
        assert self.code is not None
        return self.code

    def terminate(self) -> None:
        """SIGTERM."""
        if self.code is None:
            os.kill(self.pid, signal.SIGTERM)


class Forks:
    """The process that has made the imports, from the first request on; `env` and `options` of Python are what it is started with."""

    def __init__(
        self, env: Mapping[str, str], imports: Sequence[str] = TENSORFLOW, options: Sequence[str] = (),
        python: str = sys.executable,
    ) -> None:  # fmt: skip
        self.env, self.imports, self.options, self.python = dict(env), imports, options, python
        self.server: subprocess.Popen[str] | None = None
        self.made: list[Forked] = []
        self.lock = threading.Lock()

    def can(self, env: Mapping[str, str]) -> bool:
        """Whether a process with this environment may be forked: what imports read is the same."""
        names = {name for name in (*env, *self.env) if name.startswith(READ_AT_IMPORT)}
        return hasattr(os, "fork") and all(env.get(name) == self.env.get(name) for name in names)

    def start(
        self, args: Sequence[str], env: Mapping[str, str], out: Path, err: Path, cwd: Path,
        *, module: str = "trainer.task", stdin: Path = Path(os.devnull),
    ) -> Forked:  # fmt: skip
        """`python -m MODULE ARGS` in a session of its own."""
        with self.lock:
            if self.server is None:
                self.server = subprocess.Popen(
                    [self.python, *self.options, __file__, *self.imports],
                    env=self.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )  # fmt: skip
                threading.Thread(target=self._read, daemon=True).start()
            made = Forked()
            self.made.append(made)
            request = {
                "id": len(self.made) - 1,
                "module": module,
                "args": list(args),
                "env": dict(env),
                "cwd": str(cwd),
            }
            request["streams"] = [str(stdin), str(out), str(err)]
            assert self.server.stdin is not None
            self.server.stdin.write(json.dumps(request) + "\n")
            self.server.stdin.flush()
        assert made.started.wait(120), "the process that forks did not answer"
        assert made.pid, "the process that forks has ended"
        return made

    def _read(self) -> None:
        assert self.server is not None and self.server.stdout is not None
        for line in self.server.stdout:
            said = json.loads(line)
            made = self.made[said["id"]]
            if "pid" in said:
                made.pid = said["pid"]
                made.started.set()
            else:
                made.code = said["code"]
                made.ended.set()
        for made in self.made:
            made.started.set()

    def close(self) -> None:
        """End it."""
        if self.server is not None:
            assert self.server.stdin is not None
            self.server.stdin.close()
            self.server.wait(20)


class _Begin(BaseException):
    """Unwinds the forked process to the end of this file, where the program runs and ends as any other."""


def _serve() -> None:
    """Fork for each line of stdin until it is closed; every child is waited for."""
    ended, woken = os.pipe()
    for end in (ended, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    pending = b""
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 1 << 10)
            for pid in list(running):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    _say(id=running.pop(pid), code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                begun, request["begun"] = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(begun)
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(ended)
                    os.close(woken)
                    raise _Begin(request)
                running[pid] = request["id"]
                os.close(request["begun"])
                os.read(begun, 1)  # until the child has its own session, streams and folder, or has ended
                os.close(begun)
                _say(id=request["id"], pid=pid)


def _say(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _become(request: dict[str, Any]) -> None:
    """Have streams, folder, variables, path and arguments as `python -m` has them there."""
    os.setsid()
    for number, name in enumerate(request["streams"]):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if hasattr(time, "tzset"):
        time.tzset()
    sys.path[0] = request["cwd"]
    sys.argv = [request["module"], *request["args"]]
    os.close(request["begun"])


if __name__ == "__main__":
    import gc
    from importlib import import_module

    gc.disable()
    for module in sys.argv[1:]:
        import_module(module)
    gc.freeze()
    gc.enable()
    begun: dict[str, Any] | None = None
    try:
        _serve()
    except _Begin as begin:
        begun = begin.args[0]
    if begun is not None:
        _become(begun)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        runpy._run_module_as_main(begun["module"])  # type: ignore[attr-defined]  # noqa: SLF001
