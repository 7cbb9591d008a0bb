"""The local Vertex's own API, which `vertexrig local` calls: status, seeded resources, faults on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex import http
from localvertex.front.assembly import Front
from localvertex.http import VERB, ApiError, Endpoint, Json, endpoint, in_thread, invalid, not_found, query_int
from localvertex.jobs import ended_jobs
from localvertex.jobs.manager import Jobs
from localvertex.jobs.resources import CUSTOM_JOBS, PIPELINES, TUNING_JOBS
from localvertex.jobs.settings import Fault
from localvertex.jobs.summaries import summary
from localvertex.runner import engine
from localvertex.runner.environment import local_path
from localvertex.services.jobs import Owner
from localvertex.storage import ObjectStore
from vertexrig.errors import UsageError

RESET_S = 60
"""Most seconds for jobs to end before everything is removed."""
MOST_GRACE = 3600
"""Most seconds between SIGTERM and SIGKILL of a preemption on demand."""


@dataclass(frozen=True)
class Admin:
    """Handlers of the local Vertex's own API; `about` has facts for the status page, and `stop` ends the server."""

    jobs: Jobs
    owners: Mapping[str, Owner]
    objects: ObjectStore
    front: Front
    about: Mapping[str, object]
    stop: Callable[[], None]

    def table(self) -> list[Endpoint]:
        """Return the routes, below the mount."""
        return [
            endpoint("GET", "/v1/status", self.status),
            endpoint("GET", "/v1/made", self.made),
            endpoint("POST", "/v1/runs", self.begin),
            endpoint("POST", "/v1/resources", self.keep),
            endpoint("POST", "/v1/reset", self.reset),
            endpoint("POST", "/v1/stop", self.end),
            endpoint("POST", "/v1/faults", self.faults),
            endpoint("DELETE", "/v1/faults", self.no_faults),
            endpoint("POST", f"/v1/jobs/{{id}}{VERB}kill", self.kill),
            endpoint("POST", f"/v1/jobs/{{id}}{VERB}preempt", self.preempt),
        ]

    async def status(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /v1/status."""

        def work() -> Json:
            store = self.jobs.store
            faults = [
                {"kind": f.kind, "patterns": f.patterns, "times": f.times} for f in self.jobs.settings.faults if f.on
            ]
            counts = {kind: store.count(kind) for kind in (CUSTOM_JOBS, TUNING_JOBS)}
            held = sorted(self.jobs.held)
            return {
                **self.about,
                "engine": engine.wanted(self.jobs.settings.options.engine),
                "queue": self.jobs.queue.state(),
                "faults": faults,
                "held": held,
                **counts,
            }

        return JSONResponse(await in_thread(work))

    async def made(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /v1/made?after=NUMBER&run=ID: jobs made after that number, by one command or all, and requests that were refused,
        not served, or for missing buckets.
        """
        # Beyond every number: without `after` nothing is listed, and `last` tells where to begin.
        after, run = query_int(request, "after", default=2**62), request.query_params.get("run", "")

        def work() -> Json:
            store = self.jobs.store
            rows = [
                {
                    "kind": kind,
                    "name": one.name,
                    "displayName": one.body.get("displayName", ""),
                    "state": one.body.get("state", ""),
                    "ended": ended,
                    "step": self.jobs.progress.get(one.name, ""),
                    "deleted": bool(one.hidden.get("deleted")),
                    "error": (one.body.get("error") or {}).get("message", ""),
                    # Only at its end: of a study it reads the job of each trial.
                    **(summary(store, self.jobs.settings.root, kind, one) if ended else {"warnings": [], "hints": []}),
                    "output": _output(one.body, self.jobs.settings.root),
                    # Of a tuning job: how many have ended, and how many it may make.
                    "trials": kind == TUNING_JOBS
                    and [store.ended_trials(one.name), int(one.body.get("maxTrialCount", 0))],
                }
                for kind, ended, one in store.since(after, (CUSTOM_JOBS, TUNING_JOBS, PIPELINES), run)
            ]
            noted, absent = self.front.journal.noted(run), self.objects.absent(run)
            return {"last": store.last(), "made": rows, "noted": noted, "absent": absent}

        return JSONResponse(await in_thread(work))

    async def begin(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/runs with `{"process": ID}` of a command of `local run`: its name, and its ports."""
        process = (await http.read_json(request)).get("process")
        # In Python a bool is an int.
        if isinstance(process, bool) or not isinstance(process, int) or not 0 < process < 2**31:
            raise invalid(f"Invalid process: {str(process)[:80]!r}. It is the id of a process.")
        try:
            made = await self.front.runs.begin(process)
        except OSError as error:
            raise ApiError(503, f"No further port can be opened: {error}") from None
        return JSONResponse({"run": made.id, "ports": made.ports})

    async def keep(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/resources with a job that has ended, under its own name."""
        body = await http.read_json(request)
        return JSONResponse(await in_thread(ended_jobs.keep, self.jobs.store, body))

    async def end(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/stop."""
        await http.read_body(request)
        self.stop()
        return JSONResponse({})

    async def reset(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/reset: cancel what runs, and remove all resources, buckets and faults."""
        await http.read_body(request)

        def work() -> None:
            store, until = self.jobs.store, time.monotonic() + RESET_S
            # A study or a pipeline whose job is cancelled ends with it; a study may have started another trial meanwhile.
            while any(store.unfinished(kind) for kind in (CUSTOM_JOBS, TUNING_JOBS, PIPELINES)):
                for kind, owner in self.owners.items():
                    for stored in store.unfinished(kind):
                        owner.cancel(stored.name)
                if time.monotonic() > until:
                    raise ApiError(503, f"Jobs did not end within {RESET_S} seconds of their cancellation.")
                time.sleep(0.02)
            store.clear()
            self.objects.clear()
            self.jobs.settings.faults.clear()

        await in_thread(work)
        return JSONResponse({})

    async def faults(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/faults with `{"fault": "quota:NVIDIA_L4:1"}`; `speed` divides how long it lasts."""
        body = await http.read_json(request)
        speed = body.get("speed", 1)
        if not isinstance(speed, (int, float)) or not speed > 0:
            raise invalid(f"speed is {speed!r}; it is a number above 0.")
        try:
            fault = Fault.parse(str(body.get("fault", "")))
        except UsageError as error:
            raise invalid(str(error)) from None
        fault.lasts = None if fault.lasts is None else fault.lasts / speed
        self.jobs.settings.faults.append(fault)
        return JSONResponse({})

    async def no_faults(self, request: Request, path: Mapping[str, str]) -> Response:
        """DELETE /v1/faults."""
        self.jobs.settings.faults.clear()
        return JSONResponse({})

    async def kill(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/jobs/ID:kill with `{"replica": "workerpool1-0"}`."""
        replica = str((await http.read_json(request)).get("replica", ""))
        await in_thread(
            self.jobs.inject_fault, await in_thread(self._find, path["id"]), kill=replica or "workerpool0-0"
        )
        return JSONResponse({})

    async def preempt(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/jobs/ID:preempt with `{"grace": SECONDS}`, by default 0."""
        grace = (await http.read_json(request)).get("grace", 0)
        # In Python a bool is an int, and `true` is not a length of time.
        if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= MOST_GRACE:
            raise invalid(f"Invalid grace: {str(grace)[:80]!r}. It is a number of seconds from 0 to {MOST_GRACE}.")
        await in_thread(self.jobs.inject_fault, await in_thread(self._find, path["id"]), preempt=float(grace))
        return JSONResponse({})

    def _find(self, job: str) -> str:
        """Return the name of an unfinished custom job, by its id or display name."""
        # The newest of several jobs with one display name.
        for stored in reversed(self.jobs.store.unfinished(CUSTOM_JOBS)):
            if job in (stored.name.rpartition("/")[2], stored.body.get("displayName")):
                return stored.name
        raise not_found(f"No unfinished CustomJob has the id or display name {job[:200]!r}.")


def _output(body: Json, root: Path) -> str:
    """Return the folder of this machine with a job's model, or with its other outputs; "" if it has written none."""
    job = body.get("jobSpec") or body.get("trialJobSpec") or {}
    prefix = str((job.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")).rstrip("/")
    model = str((body.get("modelToUpload") or {}).get("artifactUri", ""))
    for uri in filter(None, (model, prefix and f"{prefix}/model", prefix)):
        folder = local_path(uri, root)
        if any(path.is_file() for path in folder.rglob("*")):
            return str(folder)
    return ""
