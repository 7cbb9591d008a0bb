"""The processes between the runner and one replica: the supervisor and, on Linux, a guard above it. This file runs alone, on the
standard library only.

The supervisor starts the program in a new process group and sees to it that nothing of it outlives the runner: the socket it is
given closes when the runner dies, however it dies, and then everything below the supervisor is killed. On Linux it
adopts what the program leaves behind (PR_SET_CHILD_SUBREAPER), so that a daemon the program started ends with it, as
it would with its container. The guard (`fork_below_guard`) does the same if the supervisor is killed.

A forker (`forker.py`) calls the same functions in a process that it has forked, and the program is forked, too (`supervise`).

Called as `python supervisor.py FD OPTIONS -- PROGRAM ARGS...`. OPTIONS is JSON:
- `memory`: bytes, 0 for no limit;
- `cwd`: the working directory of the program;
- `cleanup`: a command that is run at the end;
- `inspect`: a command that prints how the container that PROGRAM started has ended;
- `isolation`: what the program gets in place of this machine's own (`children.Isolation`).

`main`, `_try` and the forker add `scratch`, the path that `scratch_folder` returns.

On the socket it reads lines `signal NUMBER` and writes `start PID`, `exit STATUS OOM`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time

# Without `import typing`: this runs before every replica and has to start fast.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# linux/prctl.h, linux/sched.h (CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER) and linux/mount.h (MS_BIND, MS_REC, MS_PRIVATE)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LINUX = sys.platform == "linux"
_NEW_MOUNTS, _NEW_NAME, _NEW_USER = 0x20000, 0x4000000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
GCS, HOSTS, TMP = "/gcs", "/etc/hosts", "/tmp"
# /var/tmp is on a disk, while /tmp may be in memory. A scratch folder cannot be in the state folder, which is often inside the folder that
# is covered: overlayfs does not keep the changes of a folder inside that folder.
_SCRATCH = "/var/tmp"
_OOM_SCORE = 500


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def processes() -> dict[int, tuple[int, int, int, str]]:
    """Return the parent, the session, the resident bytes and the program of each process; empty where there is no /proc."""
    found: dict[int, tuple[int, int, int, str]] = {}
    try:
        pids = os.listdir("/proc")
    except OSError:
        return found
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):  # no process, or one that has ended
            with open(f"/proc/{int(pid)}/stat", errors="replace") as file:
                name, _, rest = file.read().rpartition(")")  # the name in brackets may hold anything
            fields = rest.split()
            # Fields 4 (ppid), 6 (session) and 24 (rss) of proc(5), less 3: fields 1 and 2 end at the bracket, and a list counts from 0.
            found[int(pid)] = int(fields[1]), int(fields[3]), int(fields[21]) * _PAGE, name.partition("(")[2]
    return found


def _descendants() -> dict[int, int]:
    """Process id to resident bytes of everything below this process."""
    table = processes()
    found: dict[int, int] = {}
    frontier = {os.getpid()}
    while frontier:
        frontier = {pid for pid, row in table.items() if row[0] in frontier and pid not in found}
        found.update((pid, table[pid][2]) for pid in frontier)
    return found


def _signal(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def _kill_all() -> None:
    """Kill what is below this process until nothing is left; a process may fork while it is being killed."""
    # About a second: a process of another user (setuid) cannot be killed from here.
    for _ in range(200):
        left = _descendants()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap(None)
        time.sleep(0.005)


def _clean_up(options: dict[str, Any]) -> None:
    if options["scratch"]:
        _remove_scratch(options)
    if options.get("cleanup"):
        import subprocess  # costs 10 ms, and most replicas have nothing to clean up

        subprocess.call(options["cleanup"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def scratch_folder(isolation: dict[str, Any]) -> str:
    """Return a new path for the scratch folder, which a program with this isolation has until its end; "" if it needs none."""
    if not (isolation["tmp"] or isolation["changes"]):
        return ""
    place = _SCRATCH if os.access(_SCRATCH, os.W_OK) else TMP
    return os.path.join(place, "vertexrig-" + os.urandom(8).hex())


def _make_scratch(isolation: dict[str, Any], scratch: str) -> None:
    """Make the scratch folder, with a /tmp and what overlayfs needs."""
    for name in ("", "changes", "overlay", "tmp") if scratch else ():
        os.mkdir(os.path.join(scratch, name), 0o700)
    if isolation["tmp"]:
        os.chmod(os.path.join(scratch, "tmp"), 0o1777)


def _remove_scratch(options: dict[str, Any]) -> None:
    """Remove the scratch folder, and before it move what the program changed to where the runner looks for it."""
    import shutil
    import stat

    scratch, kept = options["scratch"], options["isolation"]["changes"]
    changed = os.path.join(scratch, "changes")
    with contextlib.suppress(OSError):
        os.chmod(os.path.join(scratch, "overlay", "work"), 0o700)  # overlayfs makes it without any rights
    for folder, _, names in os.walk(changed) if kept else ():
        for path in (os.path.join(folder, name) for name in names):
            with contextlib.suppress(OSError):
                # a file that was removed is a device in an overlay
                if stat.S_ISCHR(os.lstat(path).st_mode):
                    os.unlink(path)
    if kept and os.path.isdir(changed):
        shutil.rmtree(kept, ignore_errors=True)
        with contextlib.suppress(OSError, shutil.Error):
            shutil.move(changed, kept)
    shutil.rmtree(scratch, ignore_errors=True)


def fork_below_guard(control: socket.socket, options: dict[str, Any]) -> None:
    """Fork, and continue in the child. The parent stays as a guard: if the child is killed, even together with the runner, the
    guard kills every process that the child left.

    This function forks on Linux only: there, orphans are reparented to the guard, which thus also finds those that `kill_marked` misses.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the runner, which passes on what counts
        signal.signal(number, signal.SIG_IGN)
    if not _LINUX:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # which a forker ignores
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if not pid:
        os.setsid()
        return
    # Otherwise the guard would hold the runner's pipes open.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(control.detach())
    if os.waitpid(pid, 0)[1]:
        _kill_all()
        _clean_up(options)
    os._exit(0)


def _reap(child: int | None) -> int | None:
    """Collect what ended; the status of `child` if it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == child:
            return status


def _oom_kills() -> int:
    """Return how many processes of this control group the kernel killed for want of memory, -1 if that is not known."""
    try:
        with open("/proc/self/cgroup") as file:
            group = file.read().strip().rpartition("::")[2]
        # In a container the path from /proc may be that of the host, and the group's own files are at the root.
        for folder in ("/sys/fs/cgroup" + group, "/sys/fs/cgroup"):
            path = os.path.join(folder, "memory.events")
            if os.path.exists(path):
                with open(path) as file:
                    counts = dict(line.split()[:2] for line in file)
                return int(counts["oom_kill"])
    except (OSError, KeyError, ValueError):
        pass
    return -1


def _machine_oom_kills() -> int:
    """Return how many processes of this machine the kernel killed for want of memory, -1 if that is not known."""
    try:
        with open("/proc/vmstat") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError):
        return -1


def isolate(isolation: dict[str, Any], cwd: str, scratch: str) -> None:
    """Give this process, and what it starts, the folder of the buckets as /gcs, where Vertex AI has them, and all else in `isolation`.

    Nothing changes for other processes: this one gets its own mount namespace, a user namespace unless it is root, and a UTS namespace
    if it gets a host name. If the file system has a folder /gcs, the buckets are mounted on it. If not, this process gets a new root,
    which has /gcs and all that is at the old one.

    Args:
        isolation: The fields of `children.Isolation`. The new root is the folder `root` next to that of the buckets, made if missing.
        cwd: The working directory, which is covered where `isolation` has `changes`.
        scratch: The scratch folder, "" for none (`scratch_folder`).

    Raises:
        OSError: The system has no such namespaces or file system, or does not allow them.
    """
    if not _LINUX:
        raise OSError("no mount namespaces")
    _make_scratch(isolation, scratch)
    libc = ctypes.CDLL(None, use_errno=True)
    buckets, hosts, host = isolation["gcs"], isolation["hosts"], isolation["host"]

    def checked(code: int) -> None:
        if code != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
        texts = [None if not text else os.fsencode(text) for text in (source, target, kind, data)]
        checked(libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))

    user, group = os.geteuid(), os.getegid()
    wanted = _NEW_MOUNTS | (_NEW_NAME if host else 0)
    checked(libc.unshare(wanted if user == 0 else wanted | _NEW_USER))
    if user != 0:
        # in this order: a user without rights may write gid_map only once setgroups is denied (user_namespaces(7))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        _prctl(_PR_SET_DUMPABLE, 1)  # which the new rights have cleared
    if host:
        socket.sethostname(host)
    mount("", "/", "", _RECURSIVE | _PRIVATE)  # or what is mounted below would show in the machine's own namespace
    if hosts:
        mount(hosts, HOSTS, "", _BIND)
    if isolation["changes"]:
        _cover(os.path.realpath(cwd), os.path.realpath(os.path.dirname(buckets)), scratch, mount)
    if isolation["tmp"]:
        mount(os.path.join(scratch, "tmp"), TMP, "", _BIND)
    if os.path.isdir(GCS):
        return mount(buckets, GCS, "", _BIND)
    _enter_copy(os.path.join(os.path.dirname(buckets), "root"), buckets, mount)


def _cover(cwd: str, state: str, scratch: str, mount: Callable[..., None]) -> None:
    """Cover the working directory with an overlay, which keeps what is written there, and leave a state folder in it as it is."""
    below, own = (os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (cwd, state))
    # by descriptors: a comma or a colon in a path would end it in these options
    data = f"lowerdir=/proc/self/fd/{below},upperdir={scratch}/changes,workdir={scratch}/overlay,userxattr"
    mount("overlay", cwd, "overlay", 0, data)
    if os.statvfs(cwd).f_flag & os.ST_RDONLY:  # so the kernel mounts it where it cannot use its folders
        raise OSError("an overlay can only be read here")
    if os.path.commonpath((cwd, state)) == cwd:
        mount(f"/proc/self/fd/{own}", state, "", _BIND | _RECURSIVE)
    os.close(below)
    os.close(own)


def _enter_copy(root: str, folder: str, mount: Callable[..., None]) -> None:
    """Make a root with all that is at the present one, and the folder as /gcs, and go there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(root)  # without its parents: a state folder that was removed is not made again
    mount("tmpfs", root, "tmpfs", 0)
    for entry in os.scandir("/"):
        target = os.path.join(root, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            mount(entry.path, target, "", _BIND | _RECURSIVE)
        elif entry.is_file():
            # A bind mount of a file needs a file to lie on.
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
            mount(entry.path, target, "", _BIND)
    os.mkdir(root + GCS)
    mount(folder, root + GCS, "", _BIND)
    os.chroot(root)
    os.chdir("/")


def set_up_child(parent: int, options: dict[str, Any]) -> None:
    """Set up the process just forked: its own session, default signals, killed when its supervisor dies.

    Raises:
        OSError: It cannot be isolated so.
    """
    os.setsid()
    if options["isolation"]["gcs"]:
        isolate(options["isolation"], options["cwd"], options["scratch"])
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # only after `isolate`, whose new user namespace would clear it
    if os.getppid() != parent:  # the supervisor died before the line above
        os._exit(127)
    _limit()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _limit() -> None:
    """Have the program run out of processes and memory before the server does: a quarter of the user's processes is left to others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft * 3 // 4, hard))
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:  # the kernel kills the highest first, of 1000
            own = int(file.read())
            file.seek(0)
            file.write(str(max(own, _OOM_SCORE)))
    except (OSError, ValueError):  # another system
        pass


def _execute(argv: list[str], cwd: str, write_end: int) -> NoReturn:
    """Become the program; the reason goes through the pipe if that fails."""
    try:
        os.chdir(cwd)
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        os.write(write_end, str(error).encode())
    os._exit(127)


def _try(options: dict[str, Any]) -> None:
    """Exit with 0 if this system can isolate a program so, otherwise with 1."""
    options["scratch"] = scratch_folder(options["isolation"])
    child = os.fork()  # whose namespaces have ended when the scratch folder is removed
    if not child:
        isolate(options["isolation"], options["cwd"], options["scratch"])
        if options["isolation"]["host"]:
            socket.getaddrinfo(options["isolation"]["host"], None)
        return
    status = os.waitpid(child, 0)[1]
    _clean_up(options)
    sys.exit(status != 0)


def main() -> None:
    """Run as a program; see the top of this file for its arguments."""
    if sys.argv[1] == "try":  # `python supervisor.py try OPTIONS`
        return _try(json.loads(sys.argv[2]))
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    options, argv = json.loads(sys.argv[2]), sys.argv[4:]
    options["scratch"] = scratch_folder(options["isolation"])
    fork_below_guard(control, options)
    supervise(control, options, argv[0], lambda write_end: _execute(argv, options["cwd"], write_end))


def supervise(control: socket.socket, options: dict[str, Any], name: str, begin: Callable[[int], NoReturn]) -> None:
    """Start a program, watch it to its end or the runner's, and leave nothing of it behind.

    Args:
        control: To the runner.
        options: Those of the command line, and `scratch`.
        name: The program, for messages.
        begin: Called in the forked process with the write end of a pipe. It never returns: it becomes the program (exec closes the
            pipe), or writes the reason into the pipe and exits, or (`forker.py`) closes the pipe and raises `_Begin`, which unwinds
            through this function to the code that runs the program.
    """
    # select() waits for the socket; a signal at the end of a child has to interrupt it, so its number goes into a pipe
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    # The wakeup descriptor is written for signals with a handler in Python only.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The counters are those of the whole control group and of the machine. A kill counts as this program's if the counter rose while
    # it ran and it died by SIGKILL.
    kills_before, machine_kills_before = _oom_kills(), _machine_oom_kills()
    read_end, write_end = os.pipe()
    own = os.getpid()
    child = os.fork()
    if not child:
        try:
            set_up_child(own, options)
        except OSError as error:
            os.write(write_end, str(error).encode())
            os._exit(127)
        for descriptor in (read_end, control.detach(), wake, wake_end):
            os.close(descriptor)
        begin(write_end)
    os.close(write_end)
    trouble = os.read(read_end, 4096)  # empty once the program has begun: see `begin`
    os.close(read_end)
    if trouble:
        os.write(2, b"cannot start %s: %s\n" % (name.encode(), trouble))
    control.sendall(b"start %d\n" % child)
    status, out_of_memory = _watch(control, wake, child, options["memory"])
    if status is not None and options.get("inspect") and not os.WIFSIGNALED(status):
        status, out_of_memory = _of_container(options["inspect"], status, machine_kills_before)
    # Before the report: the reader of the report may start the program again on the same ports.
    _signal(child, signal.SIGKILL)
    _kill_all()
    _clean_up(options)
    if trouble:
        status = 128 << 8  # as of a container that cannot start (vertex-ai-samples issue 1898)
    if status is not None:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        out_of_memory |= killed and _oom_kills() > kills_before >= 0
        with contextlib.suppress(OSError):  # the runner is gone
            control.sendall(b"exit %d %d\n" % (status, out_of_memory))


def _of_container(inspect: list[str], status: int, before: int) -> tuple[int, bool]:
    """Return the status of a container's program as that of a process, and whether it took too much memory."""
    import subprocess

    said = subprocess.run(inspect, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.split()
    if not said or said[0] in (b"created", b"configured", b"initialized"):
        return 128 << 8, False  # it never began
    code = os.WEXITSTATUS(status)
    # Not every engine says that of a container with a limit, where the kernel has ended the program.
    out_of_memory = b"true" in said or (code == 128 + signal.SIGKILL and _machine_oom_kills() > before >= 0)
    # Engines give the number of a signal as shells do.
    return (code - 128 if 128 < code <= 128 + signal.NSIG else status), out_of_memory


def _watch(control: socket.socket, wake: int, child: int, memory: int) -> tuple[int | None, bool]:
    """Wait for the program's end or the runner's.

    Returns:
        The program's status, None if the runner went; and whether it took too much memory.
    """
    buffer, out_of_memory = b"", False
    sources: list[int] = [control.fileno(), wake]
    while True:
        # Nothing reports memory, so it is sampled; without a limit there is no need to wake.
        ready = select.select(sources, [], [], 0.25 if memory else None)[0]
        if wake in ready:
            os.read(wake, 4096)
        status = _reap(child)
        if status is not None:
            return status, out_of_memory
        if memory and not out_of_memory and sum(_descendants().values()) > memory:
            # SIGKILL at once, as the kernel does.
            out_of_memory = True
            _signal(child, signal.SIGKILL)
        if control.fileno() in ready:
            data = control.recv(4096)
            # The runner has gone, however it died: the system closed its end.
            if not data:
                return None, out_of_memory
            buffer += data
            while b"\n" in buffer:
                line, _, buffer = buffer.partition(b"\n")
                _signal(child, int(line.split()[1]))


if __name__ == "__main__":
    main()
