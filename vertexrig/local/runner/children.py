"""Child processes that end with their parent, and one loop that reads the output of many of them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO

from vertexrig.errors import JobFailedError
from vertexrig.local.runner.lines import OF_PACKAGE, Line, Splitter

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_CHUNK = 256 * 1024


@dataclass(frozen=True)
class Command:
    """A program to start.

    Args:
        argv: Program and arguments; the program is looked up in `env`'s PATH.
        env: Its whole environment.
        cwd: Its working directory.
        memory: Bytes all its processes may take together, 0 for no limit.
        cleanup: A command run after its end.
        mark: How a variable of `env` begins that only processes of this program have, "" if there is none.
        severities: Of its lines, by stream.
        gcs: The folder that it sees as /gcs, "" for none.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    memory: int = 0
    cleanup: Sequence[str] = ()
    mark: str = ""
    severities: Mapping[str, str] = field(default_factory=lambda: OF_PACKAGE)
    gcs: str = ""


@dataclass(frozen=True)
class Exit:
    """How a process ended.

    Args:
        code: Exit code; 128 + N when signal N killed it.
        signal: The signal that killed it, None if it exited by itself.
        out_of_memory: It was killed for its memory: by the limit or by the kernel.
        asked: The runner had asked it to end.
    """

    code: int
    signal: int | None = None
    out_of_memory: bool = False
    asked: bool = False


@dataclass
class Child:
    """A running program. Made by `Children.start`."""

    name: str
    command: Command
    process: subprocess.Popen[bytes]
    control: socket.socket
    streams: dict[IO[bytes], Splitter]
    pid: int = 0
    exit: Exit | None = None
    asked: bool = False
    _buffer: bytes = b""
    _reported: Exit | None = None
    open: set[object] = field(default_factory=set)

    def send(self, number: int, *, asked: bool = True) -> None:
        """Signal its process group; `asked` says that the runner wants it to end."""
        self.asked = self.asked or asked
        with contextlib.suppress(OSError):
            self.control.sendall(f"signal {number}\n".encode())

    def read(self, data: bytes) -> None:
        """Take what the supervisor reports."""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"start":
                self.pid = int(numbers[0])
            elif word == b"exit":
                status, oom = int(numbers[0]), bool(int(numbers[1]))
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                code = 128 + number if number else os.WEXITSTATUS(status)
                self._reported = Exit(code, number, oom, self.asked)

    def finish(self) -> None:
        """Settle how it ended, once nothing more can come."""
        self.process.wait()
        if self._reported is None:
            sweep(self.command.mark, self.command.cleanup)
        self.exit = self._reported or Exit(128 + signal.SIGKILL, signal.SIGKILL, False, self.asked)


@lru_cache(maxsize=1)
def shows_buckets() -> bool:
    """Whether this system lets a program see a folder as /gcs: Linux with namespaces of its own."""
    with tempfile.TemporaryDirectory(prefix="vertexrig-gcs-") as folder:
        Path(folder, "gs").mkdir()
        argv = [sys.executable, "-I", "-S", str(_SUPERVISOR), "try", f"{folder}/gs"]
        return subprocess.run(argv, capture_output=True, cwd="/", check=False).returncode == 0


def sweep(mark: str, cleanup: Sequence[str] = ()) -> None:
    """Kill what a program left behind whose supervisor was killed: every process with its mark, and its container.

    Only on Linux, where the system shows the environment that a process was started with.
    """
    for _ in range(200 if mark else 0):  # a process may fork while it is being killed
        pids = map(int, filter(str.isdecimal, _listed("/proc")))
        left = [pid for pid in pids if any(item.startswith(mark.encode()) for item in _environment(pid))]
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.005)
    if cleanup:
        subprocess.run(cleanup, capture_output=True, check=False)


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _environment(pid: int) -> list[bytes]:
    """The environment a process was started with; empty if it has ended or belongs to another user."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


class Children:
    """Starts programs and reads them in the calling thread.

    Args:
        on_line: Called with every line of output.
        wake: A file descriptor that interrupts `poll` when it can be read.
    """

    def __init__(self, on_line: Callable[[Line], None], wake: int | None = None) -> None:
        self.on_line = on_line
        self.running: dict[str, Child] = {}
        self._selector = selectors.DefaultSelector()
        self._wake = wake
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ, None)

    def start(self, name: str, command: Command) -> Child:
        """Start a program.

        Raises:
            JobFailedError: The system cannot start it, for instance because an argument is too long.
        """
        ours, theirs = socket.socketpair()
        options = {
            "memory": command.memory, "cwd": str(command.cwd), "cleanup": list(command.cleanup),
            "gcs": command.gcs,
        }  # fmt: skip
        argv = [
            sys.executable,
            "-I",
            "-S",
            str(_SUPERVISOR),
            str(theirs.fileno()),
            json.dumps(options),
            "--",
            *command.argv,
        ]
        try:
            process = subprocess.Popen(
                argv,
                env=dict(command.env),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            ours.close()
            raise JobFailedError(f"{name} cannot be started: {error}") from error
        finally:
            theirs.close()
        assert process.stdout is not None and process.stderr is not None
        pipes = {"stdout": process.stdout, "stderr": process.stderr}
        streams = {pipe: Splitter(name, stream, command.severities) for stream, pipe in pipes.items()}
        child = Child(name, command, process, ours, streams)
        sources: list[socket.socket | IO[bytes]] = [ours, *streams]
        for source in sources:
            os.set_blocking(source.fileno(), False)
            self._selector.register(source, selectors.EVENT_READ, child)
            child.open.add(source)
        self.running[name] = child
        return child

    def poll(self, timeout: float | None) -> list[Child]:
        """Read what is there, waiting at most `timeout` seconds for it; the programs that ended meanwhile."""
        ended = []
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
                continue
            child: Child = key.data
            if key.fileobj not in child.open:
                continue
            self._read(child, key.fileobj)
            if child.control not in child.open and (not child.open or child._reported is None):
                # A supervisor that ends without a report was killed: what it started may hold the pipes for ever.
                for source in list(child.open):
                    self._close(child, source)
                child.finish()
                self.running.pop(child.name, None)
                ended.append(child)
        return ended

    def _read(self, child: Child, source: object) -> None:
        try:
            if source is child.control:
                data = child.control.recv(4096)
                child.read(data)
            else:
                data = os.read(source.fileno(), _CHUNK)  # type: ignore[attr-defined]
                self._emit(child, source, data, final=not data)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(child, source)

    def _emit(self, child: Child, source: object, data: bytes, *, final: bool) -> None:
        for line in child.streams[source].feed(data, final=final):  # type: ignore[index]
            self.on_line(line)

    def _close(self, child: Child, source: object) -> None:
        if source in child.open:
            child.open.discard(source)
            self._selector.unregister(source)  # type: ignore[arg-type]
            source.close()  # type: ignore[attr-defined]

    def stop(self, children: Sequence[Child], grace: float) -> None:
        """End programs: SIGTERM, and SIGKILL for those still there after `grace` seconds. Returns when all are gone.

        Without a grace there is no SIGTERM.
        """
        for child in children if grace > 0 else ():
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while any(child.exit is None for child in children):
            left = deadline - time.monotonic()
            if left <= 0:
                for child in children:
                    if child.exit is None:
                        child.send(signal.SIGKILL)
                deadline = left = float("inf")
            self.poll(min(left, 1.0))

    def close(self) -> None:
        """Kill what still runs and free everything."""
        for child in list(self.running.values()):
            child.asked = True
            self._selector.unregister(child.control)
            child.control.close()  # which the supervisor takes as the end of this process
            child.open.discard(child.control)
        for child in list(self.running.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(10)
            for source in list(child.open):
                self._close(child, source)
        self.running.clear()
        self._selector.close()
