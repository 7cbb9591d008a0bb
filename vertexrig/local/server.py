"""The local Vertex as one server on one port of this machine: `serve`, `up`, `down`, `status` and `env`.

Each API stands under a path prefix of its own (Cloud Storage at the root, where its clients expect it). State lies in
one folder; a lock file in it says whether a server runs there, so a server that was killed leaves nothing to clean up.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from vertexrig import __version__
from vertexrig.errors import ServiceError, UsageError
from vertexrig.files import write_text
from vertexrig.local.jobs.settings import Fault, Settings
from vertexrig.local.runner import LocalImage, RunOptions

HOST = "127.0.0.1"
DEFAULT_PORT = 8642
DEFAULT_ROOT = Path(".vertexrig")
BOTO = "boto.cfg"
BOTO_TEXT = "[GSUtil]\nuse_gcloud_storage = True\n"
"""Has gsutil hand its work to `gcloud storage`, which finds the server: gsutil's own JSON client speaks https only."""
AIPLATFORM, LOGGING, SCHEDULER, ADMIN = "/vertex", "/logging", "/scheduler", "/local"


@dataclass(frozen=True)
class RunningServer:
    """A server that runs.

    Args:
        root: Its folder.
        port: Its port.
        pid: Its process.
    """

    root: Path
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


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
    }


def _job_env(here: RunningServer, run: RunOptions) -> dict[str, str]:
    """Variables by which the storage clients in a job find the server; gcloud's login stays on with `credentials`."""
    names = ["BOTO_CONFIG", "STORAGE_EMULATOR_HOST", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"]
    names += [] if run.credentials else ["CLOUDSDK_AUTH_DISABLE_CREDENTIALS"]
    variables = env(here)
    return {name: variables[name] for name in names}


class Local:
    """All parts of a local Vertex, wired together.

    Args:
        settings: See `Settings`.
        about: Facts for the status page.
    """

    def __init__(self, settings: Settings, about: Mapping[str, object]) -> None:
        from starlette.applications import Starlette
        from starlette.routing import BaseRoute

        from vertexrig.local import http, parts, storage
        from vertexrig.local.admin import Admin
        from vertexrig.local.jobs.manager import Jobs
        from vertexrig.local.jobs.pipelines import Pipelines
        from vertexrig.local.jobs.store import ResourceStore
        from vertexrig.local.jobs.studies import Studies
        from vertexrig.local.vertex import VertexApi

        self.settings = settings
        settings.root.mkdir(parents=True, exist_ok=True)
        self.store = ResourceStore(settings.root)
        self.objects = storage.ObjectStore(settings.root)
        self.extras = parts.Extras(settings.root, settings.run.project, at_least_twice=settings.at_least_twice)
        self.jobs = Jobs(settings, self.store, self.extras.sink)
        self.studies = Studies(self.jobs)
        self.pipelines = Pipelines(self.jobs)
        self.stopping = threading.Event()
        vertex = VertexApi(self.store, self.jobs, self.studies, self.pipelines)
        admin = Admin(self.jobs, about, self.stopping.set)
        routes: list[BaseRoute] = [
            http.mount(AIPLATFORM, vertex.table()),
            http.mount(ADMIN, admin.table()),
            *self.extras.routes(LOGGING, SCHEDULER),
            *storage.routes(self.objects),
        ]
        self.app = http.LoopbackGuard(
            Starlette(routes=[*routes, http.mount("", [])], lifespan=lambda _: self.extras.running())
        )

    def start(self) -> None:
        """Take up what an earlier server left."""
        self.pipelines.recover()
        self.jobs.recover()
        self.studies.recover()

    def close(self) -> None:
        """Stop every process; what ran goes on with the next server on this folder."""
        self.studies.close()
        self.jobs.close()
        for part in (self.store, self.objects, self.extras):
            part.close()


@contextmanager
def running(settings: Settings, port: int = 0, *, on_stop: Any = None) -> Iterator[RunningServer]:
    """A server in threads of this process, for as long as the block lasts.

    Args:
        settings: See `Settings`.
        port: Its port; 0 takes a free one.
        on_stop: Called when a client asks the server to stop.

    Raises:
        UsageError: The port is taken, or another server runs on the folder.
    """
    import uvicorn

    root = settings.root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    with _only_one(root) as lock, _bound(port) as listener:
        here = RunningServer(root, listener.getsockname()[1], os.getpid())
        run = replace(settings.run, extra_env={**_job_env(here, settings.run), **settings.run.extra_env})
        about = {"version": __version__, "pid": here.pid, "root": str(root), "url": here.url}
        local = Local(replace(settings, root=root, run=run), about)
        server = uvicorn.Server(
            uvicorn.Config(local.app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=3)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server", daemon=True)
        try:
            write_text(root / BOTO, BOTO_TEXT)
            local.start()
            thread.start()
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            _write(lock, here)
            watch = threading.Thread(target=lambda: (local.stopping.wait(), on_stop and on_stop()), daemon=True)
            watch.start()
            yield here
        finally:
            server.should_exit = True
            if thread.ident is not None:
                thread.join(10)
            local.close()


def serve(
    settings: Settings, port: int = DEFAULT_PORT, on_start: Callable[[RunningServer], None] | None = None
) -> None:
    """Serve until SIGTERM, SIGINT or a client's stop; jobs that ran go on with the next server.

    Args:
        settings: See `Settings`.
        port: Its port; 0 takes a free one.
        on_start: Called once it answers.
    """
    import signal

    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    with running(settings, port, on_stop=done.set) as here:
        if on_start is not None:
            on_start(here)
        while not done.wait(3600):
            pass


def find(root: Path = DEFAULT_ROOT) -> RunningServer | None:
    """The server that runs on a folder, None if none does (also after one was killed)."""
    path = root / "server.json"
    with suppress(OSError, ValueError, KeyError), path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            data = json.loads(file.read())
            return RunningServer(root.absolute(), int(data["port"]), int(data["pid"]))
    return None


def up(
    root: Path = DEFAULT_ROOT, port: int = DEFAULT_PORT, options: list[str] | None = None, timeout: float = 30.0
) -> RunningServer:
    """Start a server in the background, or find the one that runs on the folder.

    Args:
        root: Its folder.
        port: Its port; 0 takes a free one.
        options: Further options of `python -m vertexrig.local.server`.
        timeout: Seconds it may take to answer.

    Raises:
        UsageError: The port is taken.
        ServiceError: It does not come up; the message holds what it said.
    """
    here = find(root)
    if here is not None:
        return here
    for module in ("uvicorn", "optuna", "google_crc32c"):
        import_module(module)  # what the server's own process would miss is said here
    root.mkdir(parents=True, exist_ok=True)
    with _bound(port):
        pass  # so that a taken port is told here and not in a log file
    log = root / "server.log"
    argv = [
        sys.executable,
        "-m",
        "vertexrig.local.server",
        "--root",
        str(root.absolute()),
        "--port",
        str(port),
        *(options or []),
    ]
    with log.open("ab") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        here = find(root)
        if here is not None and here.pid == process.pid:
            return here
        if process.poll() is not None:
            break
        time.sleep(0.02)
    said = log.read_text(errors="replace").strip().splitlines()[-5:]
    raise ServiceError(f"the local Vertex does not come up; {log} says: {' '.join(said) or 'nothing'}")


def down(root: Path = DEFAULT_ROOT, timeout: float = 60.0) -> bool:
    """Stop the server that runs on a folder; False if none does.

    Raises:
        ServiceError: It does not stop.
    """
    here = find(root)
    if here is None:
        return False
    call(here, "POST", "/v1/stop")
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if find(root) is None:
            return True
        time.sleep(0.02)
    raise ServiceError(f"the local Vertex (process {here.pid}) did not stop within {timeout:g} seconds")


def status(root: Path = DEFAULT_ROOT) -> dict[str, Any] | None:
    """What the server on a folder says of itself, None if none runs."""
    here = find(root)
    return None if here is None else call(here, "GET", "/v1/status")


def kill(here: RunningServer, job: str, replica: str) -> None:
    """Kill one replica of a running job, as the loss of its machine would.

    Args:
        here: The server.
        job: Id or display name of the custom job.
        replica: Such as `workerpool1-0`.
    """
    call(here, "POST", f"/v1/jobs/{_quoted(job)}:kill", {"replica": replica})


def preempt(here: RunningServer, job: str) -> None:
    """Take the machines of a running job away, as happens to Spot VMs."""
    call(here, "POST", f"/v1/jobs/{_quoted(job)}:preempt")


def add_fault(here: RunningServer, fault: str) -> None:
    """Add a rule such as `stockout:NVIDIA_L4` or `quota:a2-*:2`; see `Fault.parse`."""
    call(here, "POST", "/v1/faults", {"fault": fault})


def make_bucket(here: RunningServer, name: str) -> bool:
    """Make a Cloud Storage bucket; False if it is there already.

    Raises:
        ServiceError: The name is no bucket's name, or the server does not answer.
    """
    try:
        _request(here, "POST", "/storage/v1/b", {"name": name})
    except ServiceError as error:
        if error.status == 409:
            return False
        raise
    return True


def call(here: RunningServer, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Call the local Vertex's own API.

    Raises:
        ServiceError: It refuses, or does not answer.
    """
    return _request(here, method, ADMIN + path, body)


def _request(here: RunningServer, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(HOST, here.port, timeout=30)
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


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


@contextmanager
def _only_one(root: Path) -> Iterator[IO[str]]:
    """Hold the folder's lock; the system frees it when this process dies."""
    with (root / "server.json").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"a local Vertex already runs on {root}; stop it with `vertexrig local down`, or choose another folder"
            ) from None
        try:
            yield lock
        finally:
            lock.truncate(0)


def _write(lock: IO[str], here: RunningServer) -> None:
    lock.truncate(0)
    lock.write(json.dumps({"pid": here.pid, "port": here.port, "url": here.url}))
    lock.flush()


def is_free(port: int) -> bool:
    """Whether a server may listen on a port of this machine now."""
    try:
        with _bound(port):
            return True
    except UsageError:
        return False


@contextmanager
def _bound(port: int) -> Iterator[socket.socket]:
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it each answer takes 40 ms longer
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} cannot be used ({error}); choose another with --port, or 0 for a free one"
            ) from error
        yield listener


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vertexrig.local.server", description="The local Vertex, in the foreground."
    )
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--slots", type=int, default=0, help="replicas that run at a time")
    parser.add_argument("--slow-start", type=float, default=0.0, help="seconds each replica takes to become available")
    parser.add_argument("--fault", action="append", default=[], help="stockout|quota[:PATTERN[:TIMES]]")
    parser.add_argument("--interpreter", action="append", default=[], metavar="IMAGE=PYTHON")
    parser.add_argument("--image", action="append", default=[], metavar="IMAGE=FOLDER[=COMMAND]")
    parser.add_argument("--no-checks", action="store_true", help="accept jobs the service would refuse")
    parser.add_argument("--pass-credentials", action="store_true", help="let trainers see the user's cloud credentials")
    parser.add_argument("--at-least-twice", action="store_true", help="schedules deliver duplicates on purpose")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def settings_from(options: argparse.Namespace) -> Settings:
    """Settings from the options of the command line."""
    import shlex

    images = {}
    for entry in options.image:
        pattern, folder, *command = entry.split("=", 2)
        images[pattern] = LocalImage(str(Path(folder).absolute()), tuple(shlex.split(command[0])) if command else ())
    run = RunOptions(
        interpreters=dict(entry.split("=", 1) for entry in options.interpreter), images=images,
        credentials=options.pass_credentials, slow_start=options.slow_start,
    )  # fmt: skip
    extra = {"slots": options.slots} if options.slots else {}
    faults = [Fault.parse(text) for text in options.fault]
    return Settings(
        options.root,
        checks=not options.no_checks,
        run=run,
        faults=faults,
        seed=options.seed,
        at_least_twice=options.at_least_twice,
        **extra,
    )


def main(words: list[str] | None = None, on_start: Callable[[RunningServer], None] | None = None) -> None:
    """Serve with options as on the command line of `python -m vertexrig.local.server`."""
    chosen = _parser().parse_args(words)
    serve(settings_from(chosen), chosen.port, on_start)


if __name__ == "__main__":
    try:
        main()
    except UsageError as problem:
        sys.exit(f"error: {problem}")
