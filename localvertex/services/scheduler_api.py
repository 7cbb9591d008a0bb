"""The methods of Cloud Scheduler v1."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from localvertex.http import ApiError, Endpoint, Json, invalid, no_method_routes, not_found, precondition
from localvertex.jobs import resources
from localvertex.jobs.listing import answer, page, page_size
from localvertex.jobs.resources import SCHEDULES
from localvertex.services import locations, scheduler_log
from localvertex.services.router import Service
from localvertex.services.scheduler_engine import SchedulerEngine
from localvertex.services.scheduler_jobs import ID, NEVER_RAN, changed, complete, read, shown
from vertexrig.catalog import load
from vertexrig.times import rfc3339

SERVICE = "google.cloud.scheduler.v1.CloudScheduler"
# The methods of v1beta1 and of CMEK configurations are in no table here.
_ELSEWHERE = re.compile(r"/(?!v1beta1/).*(?<!/cmekConfig)")


class SchedulerApi:
    """The methods, over one engine and its store.

    SQLite is called on the event loop here: the tables are small, and the engine's state must not change in between.
    """

    def __init__(self, engine: SchedulerEngine) -> None:
        self.engine, self.store = engine, engine.store
        methods = {
            "CreateJob": self.create,
            "ListJobs": self.list_jobs,
            "GetJob": lambda request: shown(self._stored(request["name"])),
            "UpdateJob": self.update,
            "DeleteJob": self.delete,
            "RunJob": self.run,
            "PauseJob": lambda request: self._set_state(request, "PauseJob", "ENABLED", "PAUSED"),
            "ResumeJob": lambda request: self._set_state(request, "ResumeJob", "PAUSED", "ENABLED"),
        }
        self.service = Service(SERVICE, methods, as_sent=True, on_loop=True)

    def table(self) -> list[Endpoint]:
        """Return the routes below the mount, with those of locations, which the service itself does not have."""
        return [*self.service.routes(), *locations.table(), *no_method_routes(_ELSEWHERE)]

    def _stored(self, name: str) -> Json:
        _checked(name.partition("/jobs/")[0])
        job = self.engine.get(name)
        if job is None:
            raise not_found("Job not found.")
        return job

    def create(self, request: Json) -> Json:
        parent, job = _checked(request["parent"]), read(request["job"])
        # The service, too, gives a name to a job that has none.
        name = job.get("name") or f"{parent}/jobs/{secrets.token_hex(10)}"
        found = resources.NAME.fullmatch(name)
        if found is None or found[3] != "jobs" or not ID.fullmatch(found[4]) or not name.startswith(parent + "/"):
            raise invalid(
                f'Job name must be formatted: "{parent}/jobs/<JOB_ID>", where <JOB_ID> has 1 to 500 letters, digits, '
                f"'-' and '_', not {name[:200]!r}."
            )
        made = {**complete({**job, "name": name}), "state": "ENABLED", "status": dict(NEVER_RAN)}
        made["userUpdateTime"] = self._now()
        with self.store.database.transaction():
            if self.store.get(name) is not None:
                raise ApiError(409, f"Job {name} already exists.")
            self.store.add(SCHEDULES, parent, name, made)
        return shown(self.engine.plan(made))

    def list_jobs(self, request: Json) -> Json:
        """ListJobs, by name (`gcloud scheduler jobs list` of a public note, index id 20081597105, 2021-07)."""
        limit = page_size(request, 500, 500)
        token = str(request.get("pageToken", ""))
        found, following = page(self.store, SCHEDULES, _checked(request["parent"]), "", "name", limit, token)
        return answer("jobs", [shown(stored.body) for stored in found], following)

    def _changed(self, name: str, change: Callable[[Json], Json]) -> Json:
        """Replace a job by `change` of it."""

        def edit(body: Json, _: Json) -> None:
            made = change(body)
            body.clear()
            body.update(made)

        self._stored(name)
        return shown(self.engine.plan(self.store.change(name, edit) or {}))

    def update(self, request: Json) -> Json:
        given, mask = read(request["job"]), str(request.get("updateMask", ""))
        return self._changed(
            request["job"]["name"],
            lambda job: {**complete(changed(job, given, mask)), "userUpdateTime": self._now()},
        )

    def delete(self, request: Json) -> Json:
        name = self._stored(request["name"])["name"]
        # The store first: an execution under way looks there before each attempt.
        self.store.remove(name)
        self.engine.forget(name)
        return {}

    def run(self, request: Json) -> Json:
        job = self._stored(request["name"])
        if job["state"] != "ENABLED":
            raise _wrong_state("ENABLED", "RunJob")
        self.engine.run_now(job["name"])
        return shown(self.engine.get(job["name"]) or job)

    def _set_state(self, request: Json, method: str, old: str, new: str) -> Json:
        job = self._stored(request["name"])
        if job["state"] != old:
            raise _wrong_state(old, method)
        self.engine.log(scheduler_log.audit(job, method))
        # Whoever pauses a job has updated it (index ids 58912428894 and 58582388654, 2026-06-08).
        return self._changed(job["name"], lambda job: {**job, "state": new, "userUpdateTime": self._now()})

    def _now(self) -> str:
        # In whole seconds until January 2026; gets have the digits, too (index ids 58582388654, 58912428894 and 71465843041).
        return rfc3339(self.engine.clock.now())


def _checked(parent: str) -> str:
    """Return the name of a location; 400 if the catalog has no such region."""
    if (location := resources.last_part(parent)) not in load().regions:
        raise invalid(f"Location {location[:80]!r} is not a valid location. Use ListLocations to list valid locations.")
    return parent


def _wrong_state(needed: str, method: str) -> ApiError:
    """Return the error of a method that takes a job in another state (messages of gcloud, 2026)."""
    return precondition(f"Job.state must be {needed} for {method}.")
