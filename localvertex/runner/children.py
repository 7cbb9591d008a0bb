"""Child processes that end with their parent, and one loop that reads the output of many of them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from localvertex.runner.lines import Line, Splitter
from localvertex.runner.supervisor import processes
from vertexrig.errors import JobFailedError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_HELD_S = 2.0
"""Seconds for which the output of a program that has ended is still read while another process holds its pipes."""
_CHUNK = 256 * 1024  # more than a pipe of Linux holds (64 KiB by default, pipe(7)), so that one read empties it

Fork = Callable[[Mapping[str, Any], Sequence[int]], bool]
"""Asks a process that has made the program's imports to fork it: what to run, and its control socket, stdout and stderr.
False if that process is not there."""


@dataclass(frozen=True)
class Isolation:
    """What a program gets in place of this machine's own; by default, nothing.

    Args:
        gcs: The folder that it sees as /gcs, "" for none; then the other fields have no effect.
        hosts: The file that it sees as /etc/hosts, "" for this machine's own.
        host: The name that its machine has for it, "" for this machine's own.
        changes: Where the files that it wrote in its working directory are moved at its end; "" if it writes into that directory itself.
        tmp: It has a /tmp of its own, which is removed at its end.
    """

    gcs: str = ""
    hosts: str = ""
    host: str = ""
    changes: str = ""
    tmp: bool = False


@dataclass(frozen=True)
class Command:
    """A program to start.

    Args:
        argv: Program and arguments; the program is looked up in `env`'s PATH.
        env: Its whole environment.
        cwd: Its working directory.
        memory: Bytes all its processes may take together, 0 for no limit.
        cleanup: A command run after its end.
        inspect: A command that says how the container that `argv` started has ended; empty for a program of this machine.
        mark: Beginning of the variable of `env` by which `kill_marked` finds the processes of this program, "" if there is none.
        by_executor: Whether the executor of a Python package prints its lines, not a container; see `Splitter`.
        fork: Starts it warm, None to start it cold.
        isolation: What it gets in place of this machine's own.
        framework: The framework of its image, "" if that is not known.
        sources: The packages that hold the program; none if the program is in `cwd`.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    memory: int = 0
    cleanup: Sequence[str] = ()
    inspect: Sequence[str] = ()
    mark: str = ""
    by_executor: bool = True
    fork: Fork | None = None
    isolation: Isolation = Isolation()
    framework: str = ""
    sources: tuple[Path, ...] = ()

    @property
    def written(self) -> Path:
        """The folder that has what it wrote in its working directory, after its end."""
        return Path(self.isolation.changes) if self.isolation.changes else self.cwd

    def options(self) -> dict[str, Any]:
        """Return the options of its supervisor."""
        return {
            "memory": self.memory,
            "cwd": str(self.cwd),
            "cleanup": list(self.cleanup),
            "inspect": list(self.inspect),
            "isolation": asdict(self.isolation),
        }


@dataclass(frozen=True)
class Exit:
    """How a process ended.

    Args:
        code: Exit code; 128 + N when signal N killed it, 128 when it could not be started.
        signal: The signal that killed it, None if it exited by itself.
        out_of_memory: It was killed for its memory: by the limit or by the kernel.
    """

    code: int
    signal: int | None = None
    out_of_memory: bool = False


@dataclass
class Child:
    """A running program. Made by `Children.start`.

    Attributes:
        process: The process started here: on Linux the guard, which forks the supervisor, elsewhere the supervisor itself. None if a
            forker is asked to start the program.
        link: The socket to the supervisor.
        pid: The program's process, 0 until it has started.
        exit: How it ended, None until then.
        refused: Why a forker does not start it.
        open: The socket and the pipes from which more may come.
    """

    name: str
    command: Command
    process: subprocess.Popen[bytes] | None
    link: socket.socket
    streams: dict[IO[bytes], Splitter]
    pid: int = 0
    exit: Exit | None = None
    refused: str = ""
    _buffer: bytes = b""
    _reported: Exit | None = None
    _reported_at: float = 0.0
    open: set[object] = field(default_factory=set)

    def send(self, number: int) -> None:
        """Signal its process group."""
        if self.waiting:
            # There is no process to signal yet. The forker sees the closed socket when it comes to this request, and
            # drops it.
            self._reported = Exit(128 + number, signal.Signals(number))
            with contextlib.suppress(OSError):
                self.link.shutdown(socket.SHUT_RDWR)
            return
        with contextlib.suppress(OSError):
            self.link.sendall(f"signal {number}\n".encode())

    @property
    def waiting(self) -> bool:
        """Whether a forker was asked for it and has not started it yet."""
        return self.process is None and not self.pid

    @property
    def finished(self) -> bool:
        """Whether it has ended, and no more is to be read from it.

        False while another process still holds the pipes of a program that has reported its end; `poll` closes them at `held_until`.
        """
        if self.link in self.open:
            return False
        # A supervisor that ended without a report was killed: what it started may hold the pipes for ever.
        supervisor_killed = self._reported is None
        return not self.open or supervisor_killed or self.waiting  # waiting: `send` ended it before a forker started it

    @property
    def held_until(self) -> float:
        """Until when its output is read after its end, where another process still holds the pipes (`_HELD_S`); infinity while it runs."""
        ended = self._reported is not None and self.link not in self.open
        return self._reported_at + _HELD_S if ended else float("inf")

    def take_report(self, data: bytes) -> None:
        """Take what was read from the control socket: what the supervisor reports, or `cold` and the reason from a forker that does not start it."""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"cold":
                self.refused = line[5:].decode()
            elif word == b"start":
                self.pid = int(numbers[0])
            elif word == b"exit":
                status, oom = int(numbers[0]), bool(int(numbers[1]))
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                # As a shell reports it.
                code = 128 + number if number else os.WEXITSTATUS(status)
                self._reported, self._reported_at = Exit(code, number, oom), time.monotonic()

    def finish(self) -> None:
        """Settle how it ended, once nothing more can come."""
        if self.process is not None:
            self.process.wait()
        if self._reported is None:
            # A supervisor that ends properly has killed everything and reported; this one was killed itself.
            kill_marked(self.command.mark, self.command.cleanup)
        self.exit = self._reported or Exit(128 + signal.SIGKILL, signal.SIGKILL)


@lru_cache(maxsize=1)
def can_show_buckets() -> bool:
    """Whether this system lets a program see a folder as /gcs: Linux that lets it make namespaces."""
    return _shows()


@lru_cache(maxsize=1)
def can_show_names() -> bool:
    """Whether a program can have a host name and an /etc/hosts of its own, and this system looks names up in that file."""
    name = "vertexrig-name"
    return can_show_buckets() and _shows(hosts=hosts_with([name]), host=name)


@lru_cache(maxsize=64)
def can_cover(folder: Path) -> bool:
    """Whether what a program writes in a folder can be kept apart from it: the system and the folder's file system allow an overlay."""
    return can_show_buckets() and _shows(folder)


def hosts_with(names: Iterable[str]) -> str:
    """Return the machine's /etc/hosts with further names of the loopback address."""
    own = Path("/etc/hosts")
    text = own.read_text(encoding="utf-8", errors="replace") if own.is_file() else ""
    return "".join([text.rstrip("\n"), "\n", *(f"127.0.0.1 {name}\n" for name in names)])


def _shows(covered: Path | None = None, hosts: str = "", host: str = "") -> bool:
    with tempfile.TemporaryDirectory(prefix="vertexrig-gcs-") as folder:
        Path(folder, "gs").mkdir()
        Path(folder, "hosts").write_text(hosts, encoding="utf-8")
        changes = f"{folder}/changes" if covered else ""
        isolation = Isolation(gcs=f"{folder}/gs", hosts=f"{folder}/hosts" if hosts else "", host=host, changes=changes)
        options = Command((), {}, covered or Path("/"), isolation=isolation).options()
        # In another process: namespaces, once entered, cannot be left.
        argv = [sys.executable, "-I", "-S", str(_SUPERVISOR), "try", json.dumps(options)]
        return subprocess.run(argv, capture_output=True, cwd="/", check=False).returncode == 0


def kill_marked(mark: str, cleanup: Sequence[str] = ()) -> None:
    """Kill every process with this mark, and run `cleanup`, which removes a container. For programs whose supervisor was killed.

    Processes are found on Linux only, where the system shows the environment that a process was started with.
    """
    for _ in range(200 if mark else 0):  # a process may fork while it is being killed
        left = marked(mark)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    if cleanup:
        subprocess.run(cleanup, capture_output=True, check=False)


def marked(mark: str) -> list[int]:
    """Return the processes that were started with a variable that begins with a mark."""
    return [pid for pid in processes() if any(one.startswith(mark.encode()) for one in _environment(pid))]


def _environment(pid: int) -> list[bytes]:
    """Return the environment a process was started with; empty if it has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class Children:
    """Starts programs and reads them in the calling thread.

    Args:
        on_line: Called with every line of output.
        wake: A file descriptor that interrupts `poll` when it can be read.
        on_forker_answer: Called with each program that a forker was asked to start: once it has started it, or just before the program is
            started cold because the forker refused or has gone.
    """

    def __init__(
        self,
        on_line: Callable[[Line], None],
        wake: int | None = None,
        on_forker_answer: Callable[[Child], None] = lambda child: None,
    ) -> None:
        self.on_line, self.on_forker_answer = on_line, on_forker_answer
        self.running: dict[str, Child] = {}
        self._selector = selectors.DefaultSelector()
        if wake is not None:
            # Its data is None: `poll` tells it from a child by that.
            self._selector.register(wake, selectors.EVENT_READ, None)

    def start(self, name: str, command: Command) -> Child:
        """Start a program.

        Raises:
            JobFailedError: The system cannot start it, for instance because an argument is too long.
        """
        child = self._forked(name, command) or Child(name, command, *_supervised(name, command))
        self._watch(child)
        self.running[name] = child
        return child

    def _watch(self, child: Child) -> None:
        sources: list[socket.socket | IO[bytes]] = [child.link, *child.streams]
        for source in sources:
            os.set_blocking(source.fileno(), False)
            self._selector.register(source, selectors.EVENT_READ, child)
            child.open.add(source)

    def _forked(self, name: str, command: Command) -> Child | None:
        """Ask a forker to start the program, and return it; None without a forker."""
        if command.fork is None:
            return None
        ours, theirs = socket.socketpair()
        ends = {stream: os.pipe() for stream in ("stdout", "stderr")}
        request = {**command.options(), "argv": list(command.argv), "env": dict(command.env)}
        asked = command.fork(request, [theirs.fileno(), *(write for _, write in ends.values())])
        theirs.close()  # otherwise `ours` would not see the end of the forker
        for _, write in ends.values():
            os.close(write)
        pipes: dict[str, IO[bytes]] = {stream: os.fdopen(read, "rb", 0) for stream, (read, _) in ends.items()}
        if not asked:
            ours.close()
            for pipe in pipes.values():
                pipe.close()
            return None
        return Child(name, command, None, ours, _splitters(name, command, pipes))

    def _start_cold(self, child: Child) -> None:
        """Start a program that no forker has started: it refused, or it has gone."""
        for source in list(child.open):
            self._close(child, source)
        self.on_forker_answer(child)
        self.running.pop(child.name, None)
        # The same Child: the run keeps it, and asks it by its name.
        child.process, child.link, child.streams = _supervised(child.name, child.command)
        self._watch(child)
        self.running[child.name] = child

    def poll(self, timeout: float | None) -> list[Child]:
        """Wait at most `timeout` seconds (None: without end) for output, read what has come, and return the programs that ended."""
        ended = []
        # Seconds until `held_until` of the first program that has ended while other processes hold its pipes.
        give_up_in = min((child.held_until for child in self.running.values()), default=float("inf")) - time.monotonic()
        if give_up_in < (float("inf") if timeout is None else timeout):
            timeout = max(give_up_in, 0.0)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    # Empties the pipe, or it would interrupt every later poll.
                    os.read(key.fd, 4096)
            # A source may have been closed in this very round, by another source of the same child.
            elif key.fileobj in key.data.open and self._handle(key.data, key.fileobj):
                ended.append(self._end(key.data))
        # After the loop, which has read what the pipes hold.
        now = time.monotonic()
        return ended + [self._end(child) for child in list(self.running.values()) if child.held_until <= now]

    def _handle(self, child: Child, source: object) -> bool:
        """Read what has come from a source of a child, start it cold if its forker does not start it, and return whether it has ended."""
        waited = child.waiting
        self._read(child, source)
        if waited and not child.waiting:  # a forker has started it
            self.on_forker_answer(child)
        if child.waiting and child._reported is None and child.link not in child.open:
            self._start_cold(child)
            return False
        return child.finished

    def _end(self, child: Child) -> Child:
        for source in list(child.open):
            if source in child.streams:
                self._emit(child, source, b"", final=True)
            self._close(child, source)
        child.finish()
        self.running.pop(child.name, None)
        return child

    def _read(self, child: Child, source: object) -> None:
        try:
            if source is child.link:
                data = child.link.recv(4096)
                child.take_report(data)
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
                # SIGKILL is sent once.
                deadline = left = float("inf")
            # A selector takes no infinity.
            self.poll(min(left, 1.0))

    def close(self) -> None:
        """Kill what still runs and free everything."""
        for child in list(self.running.values()):
            # Close the sockets of all before waiting for the first, so that they end side by side: a supervisor takes the closed
            # socket as the end of this process.
            self._close(child, child.link)
        for child in list(self.running.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait(child, 10)
            for source in list(child.open):
                self._close(child, source)
        self.running.clear()
        self._selector.close()

    @staticmethod
    def _wait(child: Child, timeout: float) -> None:
        """Wait until the processes between this one and a program have ended (`supervisor.py`)."""
        if child.process is not None:
            child.process.wait(timeout)
        if child.process is not None or child.waiting:
            return
        # it is not a child of this process; it and what it started hold the other ends of the pipes
        deadline = min(time.monotonic() + timeout, child.held_until)
        poll = select.poll()
        pipes = {source.fileno() for source in child.streams if source in child.open}
        for pipe in pipes:
            poll.register(pipe, select.POLLIN)
        while pipes and (left := deadline - time.monotonic()) > 0:
            for pipe, _ in poll.poll(left * 1000):
                with contextlib.suppress(BlockingIOError):
                    if not os.read(pipe, _CHUNK):
                        poll.unregister(pipe)
                        pipes.discard(pipe)


def _splitters(name: str, command: Command, pipes: Mapping[str, IO[bytes]]) -> dict[IO[bytes], Splitter]:
    return {pipe: Splitter(name, stream, by_executor=command.by_executor) for stream, pipe in pipes.items()}


def _supervised(
    name: str, command: Command
) -> tuple[subprocess.Popen[bytes], socket.socket, dict[IO[bytes], Splitter]]:
    """Start a program below a supervisor, and return `process`, `link` and `streams` of its `Child`.

    Raises:
        JobFailedError: The system cannot start it.
    """
    ours, theirs = socket.socketpair()
    descriptor = theirs.fileno()
    # isolated and without site: the variables in `env` and the packages installed here are the program's affair
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(_SUPERVISOR),
        str(descriptor),
        json.dumps(command.options()),
        "--",
        *command.argv,
    ]
    try:
        # its own session, so that Ctrl-C in a terminal reaches the runner alone; no buffer, because a selector does not see
        # what lies in one
        process = subprocess.Popen(
            argv,
            env=dict(command.env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[descriptor],
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        ours.close()
        raise JobFailedError(f"{name} cannot be started: {error}") from error
    finally:
        theirs.close()
    assert process.stdout is not None and process.stderr is not None
    return process, ours, _splitters(name, command, {"stdout": process.stdout, "stderr": process.stderr})
