"""The folder of a local Vertex: private to its user, held by one server at a time, and who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vertexrig.errors import UsageError

HOST = "127.0.0.1"
BOTO = "boto.cfg"
AIPLATFORM, LOGGING, SCHEDULER, ADMIN = "/vertex", "/logging", "/scheduler", "/local"
RESOURCE_MANAGER = "/resourcemanager"
DEFAULT_ROOT = Path(".vertexrig")
_LOCK, _USERS = "server.json", "users.lock"
_PATIENCE = 1.0  # seconds; whoever only looks at the lock holds it for an instant


@dataclass(frozen=True)
class RunningServer:
    """A server that runs.

    Args:
        root: Its folder.
        port: Its port.
        pid: Its process.
        grpc_port: Port of its gRPC server, None while none runs.
        front_port: Port of its front, the proxy for programs that nobody changed.
    """

    root: Path
    port: int
    pid: int
    grpc_port: int | None = None
    front_port: int | None = None

    @property
    def url(self) -> str:
        """Its base, without a slash at the end."""
        return f"http://{HOST}:{self.port}"


@contextmanager
def in_use(root: Path, *, begun: int | None = None) -> Iterator[Callable[[int], bool]]:
    """Take part in the use of a server that is stopped when the last command that uses it ends.

    Args:
        root: The state folder.
        begun: Process of the server, if this command started it.

    Yields:
        Leaves: given the server's process, whether it is to be stopped by this command.
    """
    # A lock of flock(2) is of the open file, not of the process: each command has its own, and loses it when it dies. All
    # share it while they use the server; whoever can have it alone as it leaves is the last.
    with os.fdopen(os.open(root / _USERS, os.O_RDWR | os.O_CREAT, 0o600), "r+") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        if begun is not None:
            # In one place and cut afterwards: two commands may both have waited for this server, and write at one time.
            number = str(begun).encode()
            os.pwrite(users.fileno(), number, 0)
            os.ftruncate(users.fileno(), len(number))

        def last(process: int) -> bool:
            # Given up first: of two that leave at one time neither would get it alone.
            fcntl.flock(users, fcntl.LOCK_UN)
            users.seek(0)
            return _locked(users) and users.read().strip() == str(process)

        yield last


def make_private(root: Path) -> Path:
    """The folder, made if it is missing, readable by its owner only; absolute.

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
        # Made by an older version or by hand: the folder holds keys and tokens.
        if found.st_mode & 0o077:
            root.chmod(0o700)
    except OSError as error:
        raise UsageError(f"the state folder {root} cannot be used: {error.strerror or error}") from None
    return root


@contextmanager
def held(root: Path) -> Iterator[IO[str]]:
    """Hold the folder's lock; the system frees it when this process dies.

    Raises:
        UsageError: Another server holds it.
    """
    with (root / _LOCK).open("a+") as lock:
        until = time.monotonic() + _PATIENCE
        while not _locked(lock):
            if time.monotonic() > until:
                raise UsageError(
                    f"a local Vertex already runs on {root}; stop it with `vertexrig local down`, or choose another folder"
                )
            time.sleep(0.02)
        lock.truncate(0)  # what a killed server left must not be read as ours
        try:
            yield lock
        finally:
            lock.truncate(0)


def announce(lock: IO[str], here: RunningServer) -> None:
    """Write into the held lock where its server answers."""
    lock.truncate(0)
    record = {"pid": here.pid, "port": here.port, "url": here.url}
    lock.write(json.dumps({**record, "grpc_port": here.grpc_port, "front_port": here.front_port}))
    lock.flush()


def look(root: Path) -> tuple[bool, RunningServer | None]:
    """Whether a server holds the folder, and which; None while it starts, and it may not answer any more while it ends."""
    # r+ makes no file where there is none; NFS takes an exclusive lock only on a file that is open for writing.
    with suppress(OSError), (root / _LOCK).open("r+") as file:
        if _locked(file):
            return False, None
        with suppress(ValueError, KeyError, TypeError):
            data = json.loads(file.read())
            return True, RunningServer(
                root.absolute(), data["port"], data["pid"], data["grpc_port"], data["front_port"]
            )
        return True, None
    return False, None


def find(root: Path = DEFAULT_ROOT) -> RunningServer | None:
    """The server that holds a folder, None if none does (also after one was killed)."""
    return look(root)[1]


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def env(running: RunningServer, *, project: str = "local-project", region: str = "us-central1") -> dict[str, str]:
    """Variables that point gcloud, the storage clients and vertexrig itself at a local Vertex.

    The Python SDK takes its endpoint as an argument: `aiplatform.init(api_endpoint=os.environ["VERTEXRIG_AIPLATFORM"],
    api_transport="rest", credentials=AnonymousCredentials(), ...)`.

    Args:
        running: The server.
        project: Project for gcloud.
        region: Region for gcloud.
    """
    url = running.url
    return {
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{url}{AIPLATFORM}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{url}{LOGGING}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER": f"{url}{SCHEDULER}/",
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
