"""Starts a local Vertex in the background, finds it, calls it, and stops it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from localvertex import state
from localvertex.state import ADMIN, DEFAULT_ROOT, HOST, RunningServer, find
from localvertex.state import env as env
from vertexrig.errors import ServiceError, UsageError
from vertexrig.waiting import waiting

if TYPE_CHECKING:
    from localvertex.jobs.settings import Settings

_STATE = frozenset(
    """
    boto.cfg containers envs front gs history jobs logs binding.json rehearsals root scheduler server.json server.log storage
    users.lock
    """.split()
)
"""Names in a state folder, beside the database."""
DEFAULT_PORT = 8642
_SILENT_S = 4.0
"""Seconds to wait for another server that holds the folder without an answer; a dying one takes less."""
_STOP_S = 60.0
"""Seconds allowed for a server to stop its jobs' processes and close its files."""


def up(settings: Settings, port: int | None = None, timeout: float = 30.0) -> RunningServer:
    """Start a server in the background, or find the one that runs on the folder; see `started`."""
    return started(settings, port, timeout)[0]


def started(
    settings: Settings, port: int | None = None, timeout: float = 30.0, *, record: Path | None = None
) -> tuple[RunningServer, bool]:
    """Return the server of a folder, and whether it was started now, in the background, or found.

    Args:
        settings: See `Settings`; a server that already runs keeps its own.
        port: Its port; 0 takes a free one, None the usual one or, if that is taken, a free one.
        timeout: Seconds it may take to answer.
        record: A file to which a server that is started adds every call and its answer, blanked.

    Raises:
        UsageError: The port is taken, or the folder cannot be used.
        ServiceError: It does not come up; the message holds what it wrote.
    """
    for module in ("uvicorn", "optuna", "google_crc32c", "cryptography"):
        import_module(module)  # what the server's own process would miss is reported here
    root = state.bind(settings.root)
    with ExitStack() as undo:  # also after Ctrl-C, which would leave an unknown server behind
        found = _started(settings, port, timeout, root, record, undo)
        undo.pop_all()
    return found


@waiting("the local Vertex to start")
def _started(
    settings: Settings, port: int | None, timeout: float, root: Path, record: Path | None, undo: ExitStack
) -> tuple[RunningServer, bool]:
    """Do what `started` does; `undo` ends the process that it starts."""
    log = root / "server.log"
    process: subprocess.Popen[bytes] | None = None
    began = time.monotonic()
    start, deadline = 0, began + timeout
    while time.monotonic() < deadline:
        held, here = state.look(root)
        # A killed server holds its lock for a while as it dies: only one that answers is taken.
        if here is not None and answers(here, max(0.5, began + _SILENT_S - time.monotonic())):
            ours = process is not None and process.pid == here.pid
            if process is not None and not ours:
                # Ours came too late: it waits for the folder, and would take it after a `down`.
                process.kill()
                process.wait()
            return here, ours
        if process is None and here is not None and time.monotonic() > began + _SILENT_S:
            raise ServiceError(
                f"process {here.pid} holds {root} and does not answer: it may be stopped (`kill -CONT {here.pid}` lets it go on); "
                f"end it with `kill -9 {here.pid}`, or choose another folder"
            )
        if process is None and not held:
            try:
                with bound(usual_port(port)):
                    pass  # so that a taken port is reported here and not in a log file
            except UsageError:
                if state.look(root)[0]:
                    continue  # another `up` on this folder was faster, and its server has the port
                raise
            # The file is appended to: an error shows only what this start has written.
            start = log.stat().st_size if log.exists() else 0
            process = _spawn(settings, port, log, record)
            undo.callback(_end, process)
        elif process is not None and process.poll() is not None and not held:
            break  # where another `up` was faster, the folder is held, and that server is waited for
        time.sleep(0.02)
    written = log.read_bytes()[start:].decode(errors="replace").strip().splitlines()[-5:] if log.exists() else []
    held, here = state.look(root)
    holder = f" (process {here.pid} holds {root} and does not answer)" if here is not None else ""
    raise ServiceError(f"the local Vertex does not come up{holder}; the end of {log}: {' '.join(written) or 'empty'}")


# Not `-m`, which puts the working directory on the path: the server imports what this process would.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; import runpy; "
    "runpy.run_module('localvertex.server', run_name='__main__', alter_sys=True)"
)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server that has just been started, with the jobs that it may have resumed."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    finally:  # also after another Ctrl-C; its jobs end with it
        process.kill()
        process.wait()


def _spawn(settings: Settings, port: int | None, log: Path, record: Path | None) -> subprocess.Popen[bytes]:
    """Return the server's process; its settings go to its stdin."""
    argv = [sys.executable, "-I", "-c", _START, *(os.path.abspath(one) for one in sys.path)]
    with log.open("ab") as out:
        # Its own session: Ctrl-C in the terminal of `local run` must not end the server.
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True)
    assert process.stdin is not None
    settings_and_port = {
        "port": port,
        "settings": {**asdict(settings), "root": settings.root.absolute()},
        "record": str(record.absolute()) if record else None,
    }
    # Not as arguments: settings hold variables of the user's, and every user sees a command line.
    process.stdin.write(json.dumps(settings_and_port, default=str).encode())
    process.stdin.close()
    return process


def answers(here: RunningServer, timeout: float = 5) -> bool:
    """Whether the server that holds a folder answers; a killed one holds it for a moment without answering."""
    try:
        # The pid, because another program may have the port by now.
        return bool(request(here, "GET", f"{ADMIN}/v1/status", None, timeout=timeout)["pid"] == here.pid)
    except ServiceError:
        return False


@waiting("the local Vertex, which stops its jobs")
def down(root: Path = DEFAULT_ROOT) -> bool:
    """Stop the server that runs on a folder; False if none does.

    Raises:
        ServiceError: It does not stop.
    """
    here = find(root)
    if here is None:
        return False
    call(here, "POST", "/v1/stop")
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        # The lock and not the process: it is free once everything is written.
        if not state.look(root)[0]:
            return True
        time.sleep(0.02)
    raise ServiceError(f"the local Vertex (process {here.pid}) did not stop within {_STOP_S:g} seconds")


def forget(root: Path = DEFAULT_ROOT) -> bool:
    """Remove the state of a folder on which no server runs: authority, buckets, jobs; False if there is none.

    Raises:
        UsageError: The folder is not one of a local Vertex, or a server holds it.
    """
    if not root.is_dir():
        return False
    # Only a server makes this file; other folders may have a `jobs`, too.
    if not (root / "vertex.sqlite3").is_file():
        raise UsageError(f"{root} is not the state of a local Vertex: it has no vertex.sqlite3; nothing is removed")
    with state.held(root):
        for path in [path for path in root.iterdir() if path.name in _STATE or path.name.startswith("vertex.sqlite3")]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    with suppress(OSError):  # something else is in it, which stays
        root.rmdir()
    return True


def status(root: Path = DEFAULT_ROOT) -> dict[str, Any] | None:
    """Return what the server on a folder reports about itself, None if none runs."""
    here = find(root)
    return None if here is None else call(here, "GET", "/v1/status")


def kill(here: RunningServer, job: str, replica: str) -> None:
    """Kill one replica, such as `workerpool1-0`, of a job by id or display name, as the loss of its machine would."""
    call(here, "POST", f"/v1/jobs/{quote(job, safe='')}:kill", {"replica": replica})


def preempt(here: RunningServer, job: str, grace: float = 0.0) -> None:
    """Take a job's machines away, as happens to Spot VMs, with so many seconds from SIGTERM to SIGKILL; 0 kills at once."""
    call(here, "POST", f"/v1/jobs/{quote(job, safe='')}:preempt", {"grace": grace})


def add_fault(here: RunningServer, fault: str, speed: float = 1.0) -> None:
    """Add a rule such as `stockout:NVIDIA_L4` or `quota:a2-*:2`, which lasts a `speed`th of its time; see `Fault.parse`."""
    call(here, "POST", "/v1/faults", {"fault": fault, "speed": speed})


def make_bucket(here: RunningServer, name: str) -> bool:
    """Make a Cloud Storage bucket; False if it is there already.

    Raises:
        ServiceError: The name is not one a bucket may have, or the server does not answer.
    """
    try:
        request(here, "POST", "/storage/v1/b?project=local", {"name": name})
    except ServiceError as error:
        if error.status == 409:
            return False
        raise
    return True


def seed(here: RunningServer, resource: Mapping[str, Any]) -> str:
    """Keep a job that has ended under the name in it, for programs that look it up by an id they know.

    Returns:
        Its name, with the number of the project.

    Raises:
        ServiceError: It is not such a job, or the name is used.
    """
    return str(call(here, "POST", "/v1/resources", resource)["name"])


def call(here: RunningServer, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Call the local Vertex's own API.

    Raises:
        ServiceError: It refuses, or does not answer.
    """
    return request(here, method, ADMIN + path, body)


def request(
    here: RunningServer, method: str, path: str, body: Mapping[str, Any] | None, timeout: float = 30
) -> dict[str, Any]:
    connection = HTTPConnection(HOST, here.port, timeout=timeout)  # asks no proxy, whatever the environment says
    try:
        connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        data: dict[str, Any] = json.loads(response.read() or b"{}")
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceError(f"the local Vertex at {here.url} does not answer: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise ServiceError(data.get("error", {}).get("message", f"HTTP {response.status}"), status=response.status)
    return data


def usual_port(port: int | None) -> int:
    """Return the port to take: the one asked for, else the usual one, or 0 (a free one) if that is taken."""
    if port is not None:
        return port
    try:
        with bound(DEFAULT_PORT):
            return DEFAULT_PORT
    except UsageError:
        return 0


@contextmanager
def bound(port: int) -> Iterator[socket.socket]:
    """Provide a socket that listens on a port of this machine.

    Raises:
        UsageError: It is taken.
    """
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it each answer takes 40 ms longer
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # Else a port stays occupied for a minute after a server that had connections (TIME_WAIT).
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()  # by then it is taken: two that only bind it with SO_REUSEADDR both succeed
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} cannot be used ({error}); choose another with --port, or 0 for a free one"
            ) from error
        yield listener
