"""The console's routes: the page, its files, and read-only answers that no API of Google has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata, resources
from pathlib import Path
from threading import Lock

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import vertexrig
from localvertex.front import job_views
from localvertex.front.calls import Calls
from localvertex.front.job_views import Resources
from localvertex.front.proxy import Journal
from localvertex.http import STATUSES, ApiError, Endpoint, Json, endpoint, in_thread, mount, not_found, query_int
from localvertex.jobs.manager import Jobs
from localvertex.services.log_store import LogStore
from vertexrig import files
from vertexrig.cloud.rest import RestError
from vertexrig.errors import install
from vertexrig.results import drawing

PREFIX = "/console"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page runs its own files and asks its own server; no inline script, no other host, no frame around it."""
SANDBOX = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""Policy of all other answers that a browser opens as a page: an HTML file in a bucket must not act as the console."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_FILES = {"index.html", "console.css", "console.js", "dom.js", "views.js", "jobs.js"}
_SHARED = {"shared.js", "charts.js", "shared.css"}
"""The report of a study has them, too."""
_LIBRARY = "vega.js"
"""Draws the charts; the page loads it with the first study."""


class Console:
    """The page, and what it shows of the jobs in a store.

    Args:
        root: Folder that keeps the drawing library.
    """

    def __init__(self, store: Resources, root: Path) -> None:
        self.store, self.root = store, root
        self._bundling = Lock()

    def routes(self) -> list[BaseRoute]:
        """Return the page at `/`, and all else below `/console`."""
        return [Route("/", self.index, methods=["GET"]), mount(PREFIX, self.table())]

    def table(self) -> list[Endpoint]:
        """Return the routes below `/console`."""
        store = self.store
        return [
            endpoint("GET", "/v1/pulse", self.pulse),
            read_endpoint("/v1/jobs", lambda _: job_views.jobs(store)),
            read_endpoint("/v1/{name*}/replicas", lambda name: job_views.replicas(store, self.log_root(), name)),
            read_endpoint("/v1/{name*}/candidates", lambda name: job_views.candidates(store, name)),
            read_endpoint("/v1/{name*}/study", lambda name: job_views.study(store, name)),
            read_endpoint("/v1/{name*}/charts", lambda name: job_views.charts(store, name)),
            endpoint("GET", "/{file}", self.file),
        ]

    def log_root(self) -> Path | None:
        """Return the folder of the jobs' log files, None where logs are no files."""
        return None

    async def pulse(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /console/v1/pulse: facts of the server, and what tells whether something has changed."""
        raise NotImplementedError

    async def index(self, request: Request) -> Response:
        """GET /: the page."""
        return _file("index.html")

    async def file(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /console/FILE."""
        name = path["file"]
        if name == _LIBRARY:
            return _answer(name, await in_thread(self._library))
        if name not in _FILES | _SHARED:
            raise not_found(f"The console has no file {name[:80]!r}.")
        return _file(name)

    def _library(self) -> bytes:
        """Return the drawing library, which is bundled once for a folder and version.

        The bundler takes 100 MiB and 2 to 5 s (2026-11-26, two busy cores): it is a process of its own, which ends.
        """
        try:
            version = metadata.version("vl-convert-python")
        except metadata.PackageNotFoundError:
            raise not_found(f"The charts need the package vl-convert-python: {install('local')}.") from None
        kept = self.root / "console" / f"vega-{drawing.VEGA_LITE}-{version}.js"
        with self._bundling:
            if not kept.is_file():
                words = [sys.executable, "-c", "from vertexrig.results import drawing; print(drawing.library())"]
                home = Path(vertexrig.__file__).parents[1]  # where -c finds the package
                text = subprocess.run(words, cwd=home, capture_output=True, check=True).stdout.decode()
                files.write_text(kept, text)
        return kept.read_bytes()


class LocalConsole(Console):
    """The console of the local Vertex; `about` has facts of the server: url, root, version."""

    def __init__(self, jobs: Jobs, logs: LogStore, calls: Calls, journal: Journal, about: Mapping[str, object]) -> None:
        super().__init__(jobs.store, jobs.settings.root)
        self.jobs, self.calls, self.journal, self.about = jobs, calls, journal, about
        self._databases = [jobs.store.database, logs.database]

    def table(self) -> list[Endpoint]:
        return [
            endpoint("GET", "/v1/calls", self.called),
            read_endpoint("/v1/disk", lambda _: job_views.disk(self.root)),
            read_endpoint("/v1/locations", lambda _: job_views.locations(self.jobs.store)),
            *super().table(),
        ]

    def log_root(self) -> Path:
        return self.root

    async def pulse(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /console/v1/pulse: numbers that rise when something has changed; it reads memory alone."""
        # SQLite counts rows changed by this connection, and each store has one: no query is needed.
        changes = sum(one.connection.total_changes for one in self._databases)
        return JSONResponse(
            {
                **self.about,
                "changes": changes,
                "queue": self.jobs.queue.state(),
                "calls": self.calls.version,
                "missing": self.calls.missing,
                "refused": sum(self.journal.refused().values()),
            }
        )

    async def called(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /console/v1/calls?after=NUMBER: the calls after that one, methods that are not served, what was refused."""
        shown = await in_thread(self.calls.shown, query_int(request, "after", default=0))
        refused = [{"what": what, "count": count} for what, count in self.journal.refused().items()]
        return JSONResponse({**shown, "refused": refused})


def read_endpoint(pattern: str, view: Callable[[str], Json]) -> Endpoint:
    """Return the route of a view, which is given the resource's name in the path, "" if the path has none."""

    async def handle(request: Request, path: Mapping[str, str]) -> Response:
        return await answered(lambda: view(path.get("name", "")))

    return endpoint("GET", pattern, handle)


async def answered(view: Callable[[], Json]) -> Response:
    """Return what a view shows; an error of a service that it asks is the answer's error."""
    try:
        return JSONResponse(await in_thread(view))
    except RestError as error:
        raise ApiError(error.status if error.status in STATUSES else 503, str(error)) from None


def _file(name: str) -> Response:
    package = "vertexrig.results" if name in _SHARED else "localvertex.front"
    return _answer(name, (resources.files(package) / "page" / name).read_bytes())


def _answer(name: str, data: bytes) -> Response:
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        # The files change with an upgrade of vertexrig, at the same address.
        "cache-control": "no-cache",
    }
    return Response(data, media_type=f"{_TYPES[Path(name).suffix]}; charset=utf-8", headers=headers)


def sandboxed(app: ASGIApp) -> ASGIApp:
    """Return an application whose answers run no script where a browser opens them as a page, unless they have a policy."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or ())
        if scope["type"] != "http" or headers.get(b"sec-fetch-mode") not in (b"navigate", b"nested-navigate"):
            return await app(scope, receive, send)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = list(message.get("headers", ()))
                # The console's own page has its policy, which lets its scripts run.
                if not any(key.lower() == b"content-security-policy" for key, _ in kept):
                    kept += [(b"content-security-policy", SANDBOX.encode()), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": kept}
            await send(message)

        return await app(scope, receive, guarded)

    return answer
