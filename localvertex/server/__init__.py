"""The local Vertex as one server on one port of this machine.

Each API has its path prefix (Cloud Storage is at the root, where its clients expect it). State lies in one folder, which
one server holds at a time; a server that was killed leaves nothing to clean up.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp

from localvertex import http, state, storage
from localvertex.front.assembly import Front
from localvertex.front.calls import GRPC, Calls
from localvertex.front.console import LocalConsole, sandboxed
from localvertex.front.control import (
    DEFAULT_PORT,
    add_fault,
    bound,
    call,
    down,
    env,
    kill,
    make_bucket,
    preempt,
    status,
    up,
    usual_port,
)
from localvertex.front.proxy import allow_files
from localvertex.front.public_buckets import PublicBuckets
from localvertex.front.serving import protocol, server_with
from localvertex.front.variables import of_replica, programs
from localvertex.jobs.manager import Jobs, Watcher
from localvertex.jobs.resources import CUSTOM_JOBS, PIPELINES, TUNING_JOBS
from localvertex.jobs.settings import Fault, Settings
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.studies import Studies
from localvertex.recording import CallRecorder
from localvertex.runner.options import RunOptions, TrainerSources
from localvertex.server.admin import Admin
from localvertex.services import Registry, locations, projects
from localvertex.services.builds import Builds
from localvertex.services.jobs import JobMethods, Owner
from localvertex.services.log_store import LogStore
from localvertex.services.logging_api import LoggingApi, tail
from localvertex.services.pipelines import Pipelines
from localvertex.services.router import unserved_routes
from localvertex.services.scheduler_api import SchedulerApi
from localvertex.services.scheduler_engine import SchedulerEngine
from localvertex.state import (
    ADMIN,
    AIPLATFORM,
    BOTO,
    CLOUD_BUILD,
    HOST,
    LOGGING,
    RESOURCE_MANAGER,
    SCHEDULER,
    RunningServer,
    find,
)
from vertexrig import __version__
from vertexrig.errors import UsageError
from vertexrig.files import write_text
from vertexrig.guard import LOOPBACK, LoopbackGuard
from vertexrig.project.local import LocalImage

if TYPE_CHECKING:
    from localvertex.front.rpc import RpcServer


__all__ = [
    "ADMIN", "AIPLATFORM", "BOTO", "DEFAULT_PORT", "HOST", "LOGGING", "RESOURCE_MANAGER", "SCHEDULER", "Local", "RunningServer", "add_fault",
    "call", "down", "env", "find", "kill", "make_bucket", "preempt", "running", "serve", "settings_of", "status", "up",
]  # fmt: skip

_LOG = logging.getLogger(__name__)
_CHECK_EVERY_S = 2.0
"""Seconds between two checks that the server's folder still exists."""
BOTO_TEXT = "[GSUtil]\nuse_gcloud_storage = True\n"
"""Makes gsutil use `gcloud storage`, which finds the server; gsutil's own client speaks https only."""


def _job_env(here: RunningServer, run: RunOptions) -> dict[str, str]:
    """Variables by which the storage clients in a job find the server; gcloud's login stays on with `credentials`."""
    if run.keep_gs:
        return of_replica(here, os.environ, project=run.project)
    names = ["BOTO_CONFIG", "STORAGE_EMULATOR_HOST", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"]
    names += [] if run.credentials else ["CLOUDSDK_AUTH_DISABLE_CREDENTIALS"]
    variables = env(here)
    return {name: variables[name] for name in names}


def rpc_server(app: ASGIApp, calls: Calls, logs: LogStore, front: Front) -> RpcServer | None:
    """Return the gRPC server over the REST application; None, with a line in the log, where grpcio is not installed."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        _LOG.warning("grpcio is not installed: the local Vertex answers REST alone (pip install grpcio)")
        return None
    from localvertex.front.rpc import RpcServer

    streams, piped = {"google.logging.v2.LoggingServiceV2/TailLogEntries": partial(tail, logs)}, front.journal.piped
    return RpcServer(calls.around(front.runs.around(app, piped), GRPC, piped), streams, calls, front.runs, piped)


class Local:
    """All parts of a local Vertex, wired together."""

    def __init__(
        self,
        settings: Settings,
        front: Front,
        about: Mapping[str, object],
        stop: Callable[[], None],
        *,
        grpc: bool,
        record: Path | None,
        watcher: Watcher | None,
    ) -> None:
        self.store = ResourceStore(settings.root)
        self.objects = storage.ObjectStore(settings.root)
        self.logs = LogStore(settings.root, settings.options.project, self.store.study_of)
        self.scheduler = SchedulerEngine(
            self.store, at_least_twice=settings.at_least_twice, log=lambda entry: self.logs.keep([(entry, None)])
        )
        self.registry = Registry(self.store, settings, self.objects)
        self.jobs = Jobs(
            settings,
            self.store,
            self.logs.write,
            admit=self.registry.admit,
            begin_experiment_run=self.registry.metadata.begin_experiment_run,
            watcher=watcher,
        )
        self.jobs.listen(self.registry.boards.note)
        self.studies = Studies(self.jobs)
        self.pipelines = Pipelines(self.jobs, self.registry.models, self.registry.datasets)
        self.builds = Builds(
            settings, self.store, self.objects, self.logs, front.identity.email, partial(programs, settings.root)
        )
        self.calls = Calls(front.journal.note)
        self.xml = storage.XmlApi(self.objects)
        self.apis = self._apis(self._routes(front, about, stop), record)
        self.app = sandboxed(LoopbackGuard(self.apis, LOOPBACK.union(settings.hosts)))
        self.public = partial(PublicBuckets, names=settings.public_buckets, is_here=self.objects.files.has_bucket)
        self.rpc = rpc_server(self.apis, self.calls, self.logs, front) if grpc else None

    def _routes(self, front: Front, about: Mapping[str, object], stop: Callable[[], None]) -> list[BaseRoute]:
        """Return every route of the server's own port."""
        owners: dict[str, Owner] = {CUSTOM_JOBS: self.jobs, TUNING_JOBS: self.studies, PIPELINES: self.pipelines}
        jobs = JobMethods(self.store, owners)
        vertex = [row for one in (*jobs.services(), *self.registry.services) for row in one.routes(self.store)]
        return [
            http.mount(AIPLATFORM, [*vertex, *locations.table(), *unserved_routes()]),
            http.mount(RESOURCE_MANAGER, projects.table()),
            http.mount(ADMIN, Admin(self.jobs, owners, self.objects, front, about, stop).table()),
            http.mount(LOGGING, LoggingApi(self.logs).service.routes()),
            http.mount(SCHEDULER, SchedulerApi(self.scheduler).table()),
            http.mount(CLOUD_BUILD, self.builds.table()),
            *storage.routes(self.objects),
            *LocalConsole(self.jobs, self.logs, self.calls, front.journal, about).routes(),
            # Last: it answers what no mount has, a bucket's path by the XML API and all else by one of Google's errors.
            Mount("", app=storage.BucketPaths(self.xml, http.Api([]))),
        ]

    def _apis(self, routes: list[BaseRoute], record: Path | None) -> ASGIApp:
        """Return the application behind the guard, with the recorder of calls around it if there is one."""
        apis: ASGIApp = Starlette(routes=routes, lifespan=lambda _: self._parts_running())
        if record is None:
            return apis

        mounts = {AIPLATFORM: "vertex", LOGGING: "logging", SCHEDULER: "scheduler", ADMIN: "local"}
        return CallRecorder(apis, record, mounts)

    @asynccontextmanager
    async def _parts_running(self) -> AsyncIterator[None]:
        """Schedules fire, and gRPC is answered, while the HTTP server runs."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.scheduler.running())
            if self.rpc is not None:
                await stack.enter_async_context(self.rpc.running())
            yield

    @property
    def grpc_port(self) -> int | None:
        """Where gRPC is answered, None if it is not."""
        return self.rpc.port if self.rpc is not None else None

    def start(self) -> None:
        """Resume the unfinished work in the folder."""
        # In this order: a job may end as soon as it is taken up, and its pipeline must know it by then.
        self.pipelines.recover()
        self.jobs.recover()
        self.studies.recover()
        self.builds.recover()

    def close(self) -> None:
        """Stop every process; unfinished jobs continue with the next server on this folder."""
        # Studies first, or they would start further trials while jobs stop.
        self.studies.close()
        self.jobs.close()
        self.builds.close()
        for part in (self.store, self.objects, self.logs):
            part.close()


def _http_server(front: Front, local: Local, proxy: socket.socket, tls: socket.socket) -> Any:
    """Uvicorn for the server's own port, on sockets that its `run` is given, and for the front's."""
    config = uvicorn.Config(
        http.dated(local.calls.around(front.app(local.app, local.apis, local.xml, local.public))),
        log_level="warning",
        access_log=False,
        # A client must not choose its own address, by which the guard decides.
        proxy_headers=False,
        server_header=False,  # each API has the service's own
        date_header=False,  # `dated` does it
        lifespan="on",
        # Seconds; a client that keeps reading would keep the server open for good.
        timeout_graceful_shutdown=3,
        # uvloop, the default where it is installed, has other transports than asyncio.
        loop="asyncio",
        http=protocol(front.journal.note),
    )
    return server_with(config, front, proxy, tls)


@contextmanager
def running(
    settings: Settings,
    port: int | None = 0,
    *,
    grpc: bool = False,
    on_stop: Callable[[], None] = lambda: None,
    record: Path | None = None,
    watcher: Watcher | None = None,
) -> Iterator[RunningServer]:
    """Provide a server in threads of this process, for as long as the block lasts.

    Args:
        settings: See `Settings`.
        port: Its port; 0 takes a free one, None the usual one or, if that is taken, a free one.
        grpc: Answer gRPC too, on a free port, if grpcio is installed.
        on_stop: Called when a client asks the server to stop.
        record: A file to which every call and its answer are added, blanked.
        watcher: Called as jobs and studies run, in their threads.

    Raises:
        UsageError: The port is taken, another server runs on the folder, or the folder cannot be used.
    """
    root = state.bind(settings.root)
    # A server that is started in a shell of `local env` must not lead its own connections to itself.
    os.environ.pop(state.NAMES, None)
    allow_files()
    # The folder before the ports: of two that start at once the later one must not take a port.
    with (
        state.held(root) as lock, bound(usual_port(port)) as listener, _beside(listener, port) as proxy, bound(0) as tls,
    ):  # fmt: skip
        own, front_port, tls_port = (one.getsockname()[1] for one in (listener, proxy, tls))
        here = RunningServer(root, own, os.getpid(), front_port=front_port, tls_port=tls_port)
        about: dict[str, object] = {"version": __version__, "pid": here.pid, "root": str(root), "url": here.url}
        front, local = _parts(settings, here, about, on_stop, grpc=grpc, record=record, watcher=watcher)
        server = _http_server(front, local, proxy, tls)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server", daemon=True)
        try:
            write_text(root / BOTO, BOTO_TEXT)
            # Before the first request: a client must not see jobs as they were when the last server died.
            local.start()
            thread.start()
            while not server.started and thread.is_alive():  # uvicorn has no event for it
                time.sleep(0.005)
            # Chosen by the system while the server started.
            here = replace(here, grpc_port=local.grpc_port)
            about["grpc_port"] = here.grpc_port
            # Only now: a client that reads it calls at once.
            state.announce(lock, here)
            yield here
        finally:
            server.should_exit = True
            # It was never started where `local.start` failed.
            if thread.ident is not None:
                thread.join(10)
            local.close()


def _parts(
    settings: Settings,
    here: RunningServer,
    about: Mapping[str, object],
    on_stop: Callable[[], None],
    *,
    grpc: bool,
    record: Path | None,
    watcher: Watcher | None,
) -> tuple[Front, Local]:
    """Return the front and the local Vertex of a server that is about to run.

    Raises:
        UsageError: The folder cannot be used.
    """
    try:
        options = settings.options
        front = Front(here.root, options.project, options.project_number, settings.allow_hosts, options.engine)
        options = replace(options, extra_env={**_job_env(here, options), **options.extra_env})
        own = replace(settings, root=here.root, options=options)
        return front, Local(own, front, about, on_stop, grpc=grpc, record=record, watcher=watcher)
    except OSError as error:
        raise UsageError(
            f"the state folder {here.root} cannot be used: {error}; move it away or choose another with --root"
        ) from None


@contextmanager
def _beside(listener: socket.socket, port: int | None) -> Iterator[socket.socket]:
    """Provide a socket for the front, at the port after the server's if it is free: a shell with that port can use the next server."""
    with ExitStack() as stack:
        try:
            proxy = stack.enter_context(bound(listener.getsockname()[1] + 1 if port != 0 else 0))
        except UsageError:
            proxy = stack.enter_context(bound(0))
        yield proxy


def serve(
    settings: Settings,
    port: int | None = None,
    on_start: Callable[[RunningServer], None] = lambda here: None,
    record: Path | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT, a client's stop, or the removal of the folder; unfinished jobs continue with the next server.

    `on_start` is called once it answers; for the other arguments see `running`.

    Raises:
        KeyboardInterrupt: SIGINT came; all is closed.
    """
    # not an Event: a handler that sets one waits for ever where it interrupts the wait for it
    ends: SimpleQueue[int] = SimpleQueue()
    # An ignored signal stays ignored, as in a shell's background job.
    for number in (one for one in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(one) is not signal.SIG_IGN):
        signal.signal(number, lambda number, _: ends.put(number))
    with (
        running(settings, port, grpc=True, on_stop=lambda: ends.put(0), record=record) as here,
        (here.root / state.LOCK).open() as lock,
    ):
        on_start(here)
        end = None
        while end is None and not state.lost(here.root, lock):
            with suppress(Empty):
                end = ends.get(timeout=_CHECK_EVERY_S)
    if end == signal.SIGINT:
        raise KeyboardInterrupt


def settings_of(data: Mapping[str, Any]) -> Settings:
    """Return settings from their JSON form, which is `dataclasses.asdict`'s."""
    options = dict(data["options"])
    images = {key: LocalImage(**{**one, "command": tuple(one["command"])}) for key, one in options["images"].items()}
    options |= {"images": images, "built": {key: TrainerSources(**one) for key, one in options["built"].items()}}
    faults = [Fault(**{**one, "patterns": tuple(one["patterns"])}) for one in data["faults"]]
    more = {"root": Path(data["root"]), "options": RunOptions(**options), "faults": faults}
    listed = {name: tuple(data[name]) for name in ("allow_hosts", "public_buckets", "hosts")}
    return Settings(**{**data, **more, **listed})


def main() -> None:
    """Serve with the settings and port that stdin holds as JSON; see `localvertex.front.control.up`."""
    given = json.load(sys.stdin)
    record = given.get("record")
    serve(settings_of(given["settings"]), given["port"], record=Path(record) if record else None)
