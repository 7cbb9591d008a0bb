"""The endpoints of Cloud Scheduler v1."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local.http import (
    VERB,
    ApiError,
    Endpoint,
    endpoint,
    invalid,
    not_found,
    place_of_token,
    query_int,
    read_json,
    token_of,
)
from vertexrig.local.services.scheduler_engine import SchedulerEngine
from vertexrig.local.services.scheduler_jobs import NAME, changed, complete, read
from vertexrig.local.services.scheduler_store import StoredSchedule
from vertexrig.times import rfc3339

Values = Mapping[str, str]


class SchedulerApi:
    """The handlers, over one engine and its store.

    SQLite is called on the event loop here: the tables are small, and the engine's state must not change in between.
    """

    def __init__(self, engine: SchedulerEngine) -> None:
        self.engine, self.store = engine, engine.store

    def _stored(self, values: Values) -> StoredSchedule:
        name = _name(values)
        stored = self.store.get(name)
        if stored is None:
            raise not_found(f"Job not found: {name[:600]}")
        return stored

    async def create(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.create."""
        parent = f"projects/{values['project']}/locations/{values['location']}"
        job = read(await read_json(request))
        # The service, too, gives a name to a job that has none.
        name = job.get("name") or f"{parent}/jobs/{secrets.token_hex(10)}"
        if not NAME.fullmatch(name) or not name.startswith(parent + "/"):
            raise invalid(
                f'Job name must be formatted: "{parent}/jobs/<JOB_ID>", where <JOB_ID> has 1 to 500 letters, digits, '
                f"'-' and '_', not {name[:200]!r}."
            )
        stored = StoredSchedule(complete({**job, "name": name}), "ENABLED", rfc3339(self.engine.clock.now(), None))
        if not self.store.insert(stored):
            raise ApiError(409, f"Job [{name}] already exists.")
        return JSONResponse(self.engine.plan(stored).resource())

    async def list_jobs(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.list."""
        parent = f"projects/{values['project']}/locations/{values['location']}"
        limit = min(query_int(request, "pageSize", default=500, high=2**31 - 1) or 500, 500)
        after = place_of_token(request.query_params.get("pageToken", ""))
        found, last = self.store.page(parent, after, limit)
        body: dict[str, object] = {"jobs": [stored.resource() for stored in found]} if found else {}
        if last:
            body["nextPageToken"] = token_of(last)
        return JSONResponse(body)

    async def get(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.get."""
        return JSONResponse(self._stored(values).resource())

    async def patch(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.patch."""
        asked = request.query_params
        body = read(await read_json(request))
        old = self._stored(values)
        job = complete(changed(old.job, body, asked.get("updateMask") or asked.get("update_mask") or ""))
        new = self.store.save(replace(old, job=job, updated=rfc3339(self.engine.clock.now(), None)))
        return JSONResponse(self.engine.plan(new).resource())

    async def delete(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.delete."""
        stored = self._stored(values)
        # The store first: an execution under way looks there before each attempt.
        self.store.delete(stored.name)
        self.engine.forget(stored.name)
        return JSONResponse({})

    async def run(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.run."""
        await read_json(request)
        stored = self._stored(values)
        self.engine.run_now(stored)
        return JSONResponse((self.store.get(stored.name) or stored).resource())

    async def _set_state(self, request: Request, values: Values, old: str, new: str) -> Response:
        await read_json(request)
        stored = self._stored(values)
        if stored.state != old:
            reason = f"Job is {stored.state}; a job must be {old} to become {new}."
            raise ApiError(400, reason, status="FAILED_PRECONDITION", reason="failedPrecondition")
        return JSONResponse(self.engine.plan(self.store.save(replace(stored, state=new))).resource())

    async def pause(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.pause."""
        return await self._set_state(request, values, "ENABLED", "PAUSED")

    async def resume(self, request: Request, values: Values) -> Response:
        """projects.locations.jobs.resume."""
        return await self._set_state(request, values, "PAUSED", "ENABLED")

    async def locations(self, request: Request, values: Values) -> Response:
        """projects.locations.list: the regions of the catalog."""
        from vertexrig.catalog import load

        found = [_location(values["project"], region) for region in sorted(load().regions)]
        return JSONResponse({"locations": found})

    async def location(self, request: Request, values: Values) -> Response:
        """projects.locations.get."""
        return JSONResponse(_location(values["project"], values["location"]))

    def table(self) -> list[Endpoint]:
        """The routes below the mount."""
        location = "/v1/projects/{project}/locations/{location}"
        job = location + "/jobs/{job}"
        return [
            endpoint("GET", "/v1/projects/{project}/locations", self.locations),
            endpoint("GET", location, self.location),
            endpoint("POST", location + "/jobs", self.create),
            endpoint("GET", location + "/jobs", self.list_jobs),
            endpoint("POST", job + VERB + "run", self.run),
            endpoint("POST", job + VERB + "pause", self.pause),
            endpoint("POST", job + VERB + "resume", self.resume),
            endpoint("GET", job, self.get),
            endpoint("PATCH", job, self.patch),
            endpoint("DELETE", job, self.delete),
        ]


def _name(values: Values) -> str:
    return f"projects/{values['project']}/locations/{values['location']}/jobs/{values['job']}"


def _location(project: str, region: str) -> dict[str, object]:
    name = f"projects/{project}/locations/{region}"
    return {"name": name, "locationId": region, "labels": {"cloud.googleapis.com/region": region}}
