"""A process that has imported a framework and forks replicas; it runs alone, in the trainer's own interpreter.

It starts nothing unless it is single-threaded: a thread that another process has forked away takes its locks with it. A
first fork shows that, because libraries such as OpenBLAS end their threads before a fork and make them again after it.

Called as `python forker.py FD`, with a SOCK_SEQPACKET socket on which it reads packets of JSON. The first one has `statement` (what
imports the framework), `settings` (variables that the trainer sets before it does), `run_time` (names and prefixes of variables that no import may read) and `idle` (seconds without a
request after which it ends); it is answered with `{"refused": REASON}`, where the reason is "" if replicas can be forked. Each
later one is a replica: `argv`, `module` or `script`, `args`, `env`, and the options of its supervisor, with the
descriptors of its control socket, stdout and stderr.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path and sys.path[0] and __file__.startswith(sys.path[0]):
    del sys.path[0]  # this file's folder, whose modules are not the trainer's

import array
import builtins
import ctypes
import gc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import time
import types

# What this file imports is imported in the trainer, too, so there is little of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MARK = "VERTEXRIG_REPLICA"
"""A variable by which the processes of a replica are found when their supervisor was killed."""
_LOOK_EVERY_S = 2.0
_LEAST_FREE = 0.08
"""Part of the machine's memory that stays free, or the forker ends."""
# A request holds a whole environment; `warm` starts a replica cold whose request is longer than a packet may be.
_PACKET = 1 << 20


class _Begin(BaseException):
    """Unwinds the forked process to the top of this file, where the replica's program runs."""


def memory_short() -> bool:
    """Whether so little memory is left, of the machine or of the control group, that a process kept for later has to go."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        total, free = (int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
        if free < _LEAST_FREE * total:
            return True
        with open("/sys/fs/cgroup/memory.max") as file:
            most = int(file.read())
        with open("/sys/fs/cgroup/memory.current") as file:
            used = int(file.read())
        with open("/sys/fs/cgroup/memory.stat") as file:
            # The kernel frees pages of files when memory is asked for, so they do not count as used.
            used -= int(dict(line.split() for line in file)["inactive_file"])
        return most - used < _LEAST_FREE * most
    except (OSError, KeyError, ValueError):
        return False  # no such limit, or it is not shown


class _Noted(type(os.environ)):  # type: ignore[misc]
    """`os.environ` while imports are made: keeps which of the variables were read that differ between replicas."""

    run_time: tuple[str, ...] = ()
    read: set[str] = set()  # noqa: RUF012

    def __getitem__(self, key: str) -> str:
        if key in self.run_time or key.startswith(tuple(one for one in self.run_time if one.endswith("_"))):
            self.read.add(key)
        value: str = super().__getitem__(key)
        return value


def _import(statement: str, settings: dict[str, str], run_time: list[str]) -> str:
    """Make the imports; why nothing can be forked after them, "" if it can."""
    kind = type(os.environ)
    _Noted.run_time = tuple(run_time)
    os.environ.update(settings)
    os.environ.__class__ = _Noted
    try:
        # In a separate name space: the names that it binds are not the trainer's.
        exec(statement, {"__name__": "vertexrig_preload"})
    # A module may also call sys.exit() when it is imported.
    except BaseException as error:
        return f"{statement!r} ends with {type(error).__name__}: {error}"
    finally:
        os.environ.__class__ = kind  # modules hold the object itself, so its class is what can be changed
    return f"{statement!r} reads {', '.join(sorted(_Noted.read))}" if _Noted.read else _threads()


def _threads() -> str:
    """Return why this process is not single-threaded where it forks, "" if it is."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    count = 1
    for _ in range(20):  # a thread that has ended is listed for a moment
        count = len(os.listdir("/proc/self/task"))
        if count == 1:
            return ""
        time.sleep(0.05)
    return f"the imports have started {count - 1} threads"


def _mark_place() -> tuple[int, int]:
    """Return where the mark is in this process's environment as the system shows it, and how long it may be."""
    libc = ctypes.CDLL(None)
    # /proc/PID/environ shows the memory that the process was started with, and os.environ does not write there. As a
    # pointer: the default for getenv, an int, has half of its bits.
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(MARK.encode())
    return (address, len(ctypes.string_at(address))) if address else (0, 0)


def _adopt(environment: dict[str, str], place: tuple[int, int]) -> None:
    """Take the replica's environment, and show its mark in /proc, by which what is left of it is found."""
    # Item by item through os.environ, so that getenv() of C libraries sees it, too.
    os.environ.clear()
    os.environ.update(environment)
    mark = os.fsencode(environment.get(MARK, ""))
    address, length = place
    # The room is fixed; a longer mark would write over other variables.
    if address and len(mark) <= length:
        ctypes.memset(address, 0, length)
        ctypes.memmove(address, mark, len(mark))


def _closed(control: socket.socket) -> bool:
    """Whether the other end is closed. Reading would not show it: requests may wait before that."""
    poll = select.poll()
    poll.register(control, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    descriptors = array.array("i")
    data, ancillary, _, _ = control.recvmsg(_PACKET, socket.CMSG_SPACE(3 * descriptors.itemsize))
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(value[: len(value) - len(value) % descriptors.itemsize])
    return data, list(descriptors)


def _serve(control: socket.socket, idle: float, place: tuple[int, int], said: tuple[int, int]) -> None:
    """Fork a replica for each request, until the runner goes, no request comes any more, or memory is short."""
    asked = time.monotonic()
    while time.monotonic() - asked < idle and not memory_short():
        if not select.select([control], [], [], _LOOK_EVERY_S)[0]:
            continue
        data, descriptors = _receive(control)
        if not data:
            return
        asked = time.monotonic()
        if os.fork() == 0:
            control.close()
            _supervise(json.loads(data), descriptors, place, said)
        for descriptor in descriptors:
            os.close(descriptor)


def _supervise(request: dict[str, Any], descriptors: list[int], place: tuple[int, int], said: tuple[int, int]) -> None:
    """Be the guard and the supervisor of a replica; see `supervisor.py`."""
    control = socket.socket(fileno=descriptors[0])
    if _closed(control):  # the replica was asked to end while it waited
        os._exit(0)
    hidden = _hidden(request)
    if hidden:
        control.sendall(b"cold %s\n" % hidden.encode())
        os._exit(0)
    os.setsid()
    # zip() has `strict` from Python 3.10 on; images have older ones.
    for standard, descriptor in zip((1, 2), descriptors[1:]):  # noqa: B905
        os.dup2(descriptor, standard)
        os.close(descriptor)
        printed = 0
        while True:  # what the imports printed, which a replica prints that makes them itself
            data = os.pread(said[standard - 1], 1 << 16, printed)
            if not data:
                break
            printed += os.write(standard, data)
        os.close(said[standard - 1])
    request["scratch"] = supervisor.scratch_folder(request["isolation"])
    supervisor.fork_below_guard(control, request)  # before the mark is shown, by which the runner kills
    _adopt(request["env"], place)
    parent = os.getpid()

    def begin(write_end: int) -> NoReturn:
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            os.write(write_end, str(error).encode())
            os._exit(127)
        os.close(write_end)
        raise _Begin(request)

    try:
        supervisor.supervise(control, request, request["argv"][0], begin)
    finally:
        # Both processes come here: the replica unwinds further, the supervisor ends without the exit handlers of what
        # was imported.
        if os.getpid() == parent:
            os._exit(0)


def _first_path(request: dict[str, Any]) -> str:
    """Return what Python puts first into sys.path."""
    if request["module"]:
        return str(request["cwd"])
    return os.path.dirname(os.path.realpath(os.path.join(request["cwd"], str(request["script"]))))


def _hidden(request: dict[str, Any]) -> str:
    """Return why the replica has to make its imports itself: its folder has a module of a name that is imported already."""
    try:
        names = {entry.partition(".")[0] for entry in os.listdir(_first_path(request))}
    except OSError:
        return ""
    both = sorted(name for name in names if name in sys.modules and name.isidentifier() and name != "__main__")
    return f"its folder has a module {both[0]}, as an import has" if both else ""


def _prepare(request: dict[str, Any]) -> None:
    """Have the interpreter as it is when it starts a program: arguments, path, signals, random numbers."""
    # The supervisor's pipe is closed here.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Python itself sets this at its start; `supervisor.set_up_child` has put the system's default back.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.argv[:] = [request["script"] or "-m", *request["args"]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = request["argv"]
    sys.path.insert(0, _first_path(request))
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    if "multiprocessing.process" in sys.modules:
        # What multiprocessing makes the path of the main module absolute with, for processes that it spawns.
        sys.modules["multiprocessing.process"].ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # its own state would be the same in every replica; `random` sees to itself
    hook: Any = sys.modules.get("vertexrig_devices")
    if hook is not None:
        hook.held = False
        hook.apply()


def _run(request: dict[str, Any]) -> None:
    """Run the program as `python -m MODULE` or `python SCRIPT` does."""
    if request["module"]:
        runpy._run_module_as_main(request["module"])  # type: ignore[attr-defined]
        return
    from importlib.machinery import SourceFileLoader

    path = os.path.join(request["cwd"], request["script"])
    main = sys.modules["__main__"].__dict__
    main.update(
        __file__=path, __loader__=SourceFileLoader("__main__", path), __cached__=None, __package__=None, __spec__=None
    )
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, main)


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is the runner's to pass on
        signal.signal(number, signal.SIG_IGN)
    # what the imports print is kept in memory, and each replica prints it again
    said = tuple(os.memfd_create(name) for name in ("stdout", "stderr"))
    for standard, file in zip((1, 2), said):  # noqa: B905
        os.dup2(file, standard)
    place = _mark_place()
    first = json.loads(_receive(control)[0])
    hook: Any = sys.modules.get("vertexrig_devices")
    if hook is not None:
        hook.held = True  # devices are the replica's
    # while imports are made the socket is not read; the runner may go meanwhile
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0) if _closed(control) else None)
    # System calls of the imports go on by themselves after the signal.
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
    gc.disable()  # searching what the imports make for garbage takes a sixth of their time
    refused = _import(first["statement"], first["settings"], first["run_time"])
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # What is in a buffer when a process forks is written by both.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    control.send(json.dumps({"refused": refused}).encode())
    if refused:
        _refuse(control, refused)
        return
    gc.collect()  # first, so that no garbage is frozen with the rest
    gc.freeze()  # collections would write to pages that are shared with the replicas
    gc.enable()
    # Nobody waits for the supervisors that are forked here; ignored, they leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _serve(control, first["idle"], place, (said[0], said[1]))


def _refuse(control: socket.socket, reason: str) -> None:
    """Answer the replicas that have waited for the imports."""
    # Later requests find that this process has gone, and start cold by that.
    while select.select([control], [], [], 0.1)[0]:
        data, descriptors = _receive(control)
        if not data:
            return
        with socket.socket(fileno=descriptors[0]) as replica:
            replica.sendall(b"cold %s\n" % reason.replace("\n", " ").encode())
        for descriptor in descriptors[1:]:
            os.close(descriptor)


if __name__ == "__main__":
    _spec = importlib.util.spec_from_file_location(
        "vertexrig_supervisor", os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")
    )
    assert _spec is not None and _spec.loader is not None
    supervisor: Any = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(supervisor)
    _request = None
    try:
        _main()
    except _Begin as _begun:
        _request = _begun.args[0]
    if _request is not None:
        _prepare(_request)
        try:
            _run(_request)
        except SystemExit:
            raise
        except BaseException as _error:
            # the traceback without this file's own frames; the interpreter then does the rest
            _shown = _error.__traceback__.tb_next.tb_next if _error.__traceback__ is not None else None  # type: ignore[union-attr]
            sys.excepthook(type(_error), _error.with_traceback(_shown), _shown)
            sys.excepthook = lambda *_: None
            raise
