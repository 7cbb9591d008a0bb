"""The state folder of a local Vertex: private to its user, and held by one server at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vertexrig.errors import UsageError
from vertexrig.files import locked, must_stay, place_of, write_text

HOST = "127.0.0.1"
BOTO = "boto.cfg"
AIPLATFORM, LOGGING, SCHEDULER, ADMIN = "/vertex", "/logging", "/scheduler", "/local"
RESOURCE_MANAGER, CLOUD_BUILD = "/resourcemanager", "/cloudbuild"
DEFAULT_ROOT = Path(".vertexrig")
LOCK, _USERS, _BINDING = "server.json", "users.lock", "binding.json"
_ACTING = ("vertex.sqlite3", "envs", "rehearsals", "scheduler")
"""Parts of the state that run, or decide what runs: queued jobs, schedules, environments."""
_ROOM = 1 << 20
"""Bytes that are written to test whether the disk is full."""
_MARK = 20
"""Width of a process id in the file of a server's users."""
_PATIENCE = 1.0  # seconds; a process that only tests the lock holds it for an instant
NAMES = "VERTEXRIG_NAMES"
"""Variable with the address of the front's TLS port; the scripts that Python and Node load at their start read it."""


@dataclass(frozen=True)
class RunningServer:
    """A server that runs.

    Args:
        grpc_port: Port of its gRPC server, None while none runs.
        front_port: Port of its front, the proxy for unchanged programs.
        tls_port: Port of the front where connections begin with TLS, for clients that use no proxy.
    """

    root: Path
    port: int
    pid: int
    grpc_port: int | None = None
    front_port: int = 0
    tls_port: int = 0

    @property
    def url(self) -> str:
        """Its base URL, without a slash at the end."""
        return f"http://{HOST}:{self.port}"


class Use:
    """One command's use of a server: the last command that leaves stops the server, if a command started it."""

    def __init__(self, users: IO[str]) -> None:
        self._users = users

    def begun(self, process: int) -> None:
        """Record that a command has started the server of this process, so that the last command stops it."""
        os.pwrite(self._users.fileno(), f"{process:<{_MARK}}".encode(), 0)

    def keep(self, process: int) -> None:
        """Record that no command may stop the server of this process."""
        # A separate field: the command that has started the server may not have called `begun` yet.
        os.pwrite(self._users.fileno(), f"{process:<{_MARK}}".encode(), _MARK)

    def last(self, process: int) -> bool:
        """Stop using the server; returns whether this command has to stop it."""
        # Released first: otherwise neither of two commands that leave at the same time would get the exclusive lock.
        fcntl.flock(self._users, fcntl.LOCK_UN)
        self._users.seek(0)
        if not _locked(self._users):
            return False
        marks = self._users.read()
        begun, kept = (text.strip(" \0") for text in (marks[:_MARK], marks[_MARK:]))
        return begun == str(process) != kept


@contextmanager
def in_use(root: Path) -> Iterator[Use]:
    """Use a server that is stopped when the last command that uses it ends.

    The lock is released after the server has stopped.
    """
    # A lock of flock(2) is of the open file, not of the process: each command has its own, and loses it when it dies. All
    # share it while they use the server; a command that can have it alone as it leaves is the last, and has it until the
    # server has stopped.
    with os.fdopen(os.open(root / _USERS, os.O_RDWR | os.O_CREAT, 0o600), "r+") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield Use(users)


def make_private(root: Path) -> Path:
    """Return the absolute path of the folder, which is made if it is missing, and readable by its owner alone.

    Raises:
        UsageError: It cannot be made, belongs to another user, or anyone may write into it.
    """
    root = root.absolute()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = root.stat()
        if os.geteuid() not in (0, found.st_uid):
            raise UsageError(f"the state folder {root} belongs to the user with id {found.st_uid}; choose another one")
        if found.st_mode & stat.S_IWOTH:
            raise UsageError(f"anyone may write into {root}; choose a folder of your own for the state")
        # The folder holds keys and tokens, and may have been made by hand.
        if found.st_mode & 0o077:
            root.chmod(0o700)
        # On a full disk a server cannot even log the reason, so test it first. Buffered, because one os.write may write only a
        # part.
        with tempfile.TemporaryFile(dir=root) as probe:
            probe.write(bytes(_ROOM))
    except OSError as error:
        if error.errno == errno.EFBIG:  # a limit on the size of files, in spite of which a server works
            return root
        raise UsageError(f"the state folder {root} cannot be used: {error.strerror or error}") from None
    return root


class ForeignStateError(UsageError):
    """The state was made in another folder, on another machine, or by another user; its queued jobs must not run."""


def bind(root: Path, *, adopt: bool = False) -> Path:
    """Return the state folder, private, and bound to its path, machine and user; `adopt` accepts state made elsewhere.

    Raises:
        ForeignStateError: Its state was made elsewhere, and `adopt` is not set.
        UsageError: See `make_private`.
    """
    root = make_private(root)
    here, file = place_of(root), root / _BINDING
    with locked(root):
        try:
            kept = json.loads(file.read_bytes()) if file.is_file() else None
        except (OSError, ValueError):
            kept = {}
        if kept != here:
            acts = any((root / name).exists() for name in _ACTING)
            # What a server writes to a link or a pipe goes elsewhere.
            odd = any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in root.rglob("*"))
            if not adopt and (kept is not None or acts or odd):
                raise ForeignStateError(
                    f"the state in {root} was made in another folder, on another machine or by another user; its queued jobs "
                    f"would run, and its links be followed. Remove it (rm -r {shlex.quote(str(root))}), or, if you trust it, "
                    f"type: vertexrig local up --adopt --root {shlex.quote(str(root))}"
                )
            write_text(file, json.dumps(here), below=root)
    return root


@contextmanager
def held(root: Path) -> Iterator[IO[str]]:
    """Hold the folder's lock; the system frees it when this process dies.

    Raises:
        UsageError: Another server holds it.
    """
    with must_stay(root / LOCK, root).open("a+") as lock:
        until = time.monotonic() + _PATIENCE
        while not _locked(lock):
            if time.monotonic() > until:
                raise UsageError(
                    f"a local Vertex already runs on {root}; stop it with `vertexrig local down`, or choose another folder"
                )
            time.sleep(0.02)
        # What an earlier server left must not be read as ours.
        lock.truncate(0)
        with suppress(FileNotFoundError):
            os.truncate(root / _USERS, 0)
        try:
            yield lock
        finally:
            lock.truncate(0)


def announce(lock: IO[str], here: RunningServer) -> None:
    """Write into the held lock where its server answers."""
    lock.truncate(0)
    record = {"pid": here.pid, "port": here.port, "url": here.url}
    ports = {"grpc_port": here.grpc_port, "front_port": here.front_port, "tls_port": here.tls_port}
    lock.write(json.dumps({**record, **ports}))
    lock.flush()


def look(root: Path) -> tuple[bool, RunningServer | None]:
    """Return whether a server holds the folder, and which one: None while it starts; one that stops may not answer."""
    # r+ makes no file where there is none; NFS takes an exclusive lock only on a file that is open for writing.
    with suppress(OSError), (root / LOCK).open("r+") as file:
        if _locked(file):
            return False, None
        with suppress(ValueError, KeyError, TypeError):
            data = json.loads(file.read())
            ports = (data[name] for name in ("port", "pid", "grpc_port", "front_port", "tls_port"))
            return True, RunningServer(root.absolute(), *ports)
        return True, None
    return False, None


def lost(root: Path, lock: IO[str]) -> bool:
    """Whether the folder in which `lock` was opened was removed (another one may have its path now)."""
    try:
        return not os.path.samestat(os.fstat(lock.fileno()), (root / LOCK).stat())
    except (FileNotFoundError, NotADirectoryError):
        return True


def find(root: Path = DEFAULT_ROOT) -> RunningServer | None:
    """Return the server that holds a folder, None if none does (also after one was killed)."""
    return look(root)[1]


def lives(process: int) -> bool:
    """Whether a process of this machine has not ended."""
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # another user's, such as root's
    return True


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def env(running: RunningServer, *, project: str = "local-project", region: str = "us-central1") -> dict[str, str]:
    """Variables that point gcloud, the storage clients and vertexrig itself at a local Vertex.

    The Python SDK takes its endpoint as an argument: `aiplatform.init(api_endpoint=os.environ["VERTEXRIG_AIPLATFORM"],
    api_transport="rest", credentials=AnonymousCredentials(), ...)`. Project and region are for gcloud.
    """
    url = running.url
    return {
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{url}{AIPLATFORM}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{url}{LOGGING}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER": f"{url}{SCHEDULER}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD": f"{url}{CLOUD_BUILD}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{url}/storage/v1/",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_AI_REGION": region,
        "GOOGLE_CLOUD_PROJECT": project,
        "BOTO_CONFIG": str(running.root / BOTO),
        "STORAGE_EMULATOR_HOST": url,
        "VERTEXRIG_LOCAL": url,
        "VERTEXRIG_AIPLATFORM": f"{url}{AIPLATFORM}",
        **({"VERTEXRIG_GRPC": f"{HOST}:{running.grpc_port}"} if running.grpc_port else {}),
    }
