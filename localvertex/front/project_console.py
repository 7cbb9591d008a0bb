"""The console over a project of Google Cloud: the same page, read with the user's credentials, which changes nothing.

What the page asks of the local Vertex's APIs is read from the services; no other call passes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from localvertex.front import job_views
from localvertex.front.console import Console, answered, read_endpoint
from localvertex.http import Endpoint, Json, endpoint, mount, not_found, read_json
from localvertex.jobs.resources import STUDIES
from localvertex.jobs.store import StoredResource
from localvertex.state import AIPLATFORM, LOGGING, SCHEDULER
from vertexrig import __version__
from vertexrig.cloud import scheduler
from vertexrig.cloud.logs import JobLogs
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import CUSTOM, PAGE, TUNING, Vertex, service_url
from vertexrig.project.config import Loaded
from vertexrig.spec.api_names import location
from vertexrig.spec.labels import CLAIM_LABEL

UNKNOWN = -1
"""Number of resources where the service does not tell it."""
_ENTRIES = ("filter", "orderBy", "pageSize", "pageToken")


class ProjectResources:
    """Jobs and studies of a project, as `job_views` reads them.

    Args:
        regions: Where its jobs may be, the project file's region first.
    """

    def __init__(self, project: str, regions: list[str]) -> None:
        self._regions = {region: Vertex(project, region) for region in regions}
        self._studies: dict[str, Json] = {}

    @property
    def places(self) -> list[str]:
        """`projects/P/locations/R` of each region."""
        return [one.parent for one in self._regions.values()]

    def rest(self, region: str) -> Rest:
        """Return the API of a region; a 404 for one that the project file does not have."""
        if region not in self._regions:
            raise not_found(f"The console shows {', '.join(self._regions)}, not the region {region[:100]!r}.")
        return self._regions[region].rest

    def newest(self, kind: str, most: int) -> tuple[int, list[StoredResource]]:
        """Return how many resources of a kind there are, UNKNOWN for more than `most`, and the newest of them.

        The jobs of the trials of vertexrig's sweeps are left out, which have the labels of the sweep, and the studies, of which each
        tuning job has one.
        """
        if kind == STUDIES:
            return 0, []
        runs = {_run(sweep) for sweep in self._listed(TUNING, most)} - {""} if kind == CUSTOM else set()
        rows = list(self._listed(kind, most + 1, without=runs))
        rows.sort(key=lambda row: str(row.get("createTime")), reverse=True)
        if kind == TUNING:
            self._studies |= {str(row.get("name")): row for row in rows[:most]}
        found = [StoredResource(str(row.get("name", "")), 0, row, {}) for row in rows[:most]]
        return (UNKNOWN if len(rows) > most else len(rows)), found

    def _listed(self, kind: str, most: int, without: Collection[str] = ()) -> Iterator[Json]:
        for one in self._regions.values():
            rows = one.rest.pages(f"/{one.parent}/{kind}", kind, {"pageSize": PAGE})
            yield from islice((row for row in rows if _run(row) not in without), most)

    def get(self, name: str) -> StoredResource | None:
        answer = self.rest(name.split("/")[3]).find(f"/{name}") if name.count("/") >= 5 else None
        if answer is None:
            return None
        if f"/{TUNING}/" in name:  # before its trials are asked for: `job_views` reads a study, then its trials
            self._studies[name] = answer.data
        return StoredResource(name, 0, answer.data, {})

    def trials(self, study: str) -> list[Json]:
        return list(self._studies.get(study, {}).get("trials") or [])

    def child(self, study: str, trial: str) -> str:
        return next((str(one.get("customJob", "")) for one in self.trials(study) if one.get("id") == trial), "")


def _run(job: Json) -> str:
    """Return the run that a job's labels name, "" if vertexrig did not start it."""
    return str((job.get("labels") or {}).get(CLAIM_LABEL, ""))


class ProjectConsole(Console):
    """The console of a project file's project, regions and bucket.

    Args:
        root: Folder that keeps the drawing library.
    """

    def __init__(self, loaded: Loaded, root: Path) -> None:
        project = self.project = loaded.project
        self.resources = ProjectResources(project.project, _regions(loaded))
        super().__init__(self.resources, root)
        self.scheduler = Rest(f"{_scheduler_url()}/v1", "Cloud Scheduler")
        self.schedules = location(project.project, project.region)
        self.logs = JobLogs(project.project).rest
        self.storage = Storage(project.bucket, location=project.region).rest if project.bucket else None
        budget = {
            key: value for key, value in asdict(project.trigger.budget).items() if isinstance(value, (int, float))
        }
        self.about = {
            "version": __version__, "pid": os.getpid(), "project": project.project, "region": project.region, "changes": 0,
            "function": project.trigger.function, "budget": budget,
        }  # fmt: skip

    def routes(self) -> list[BaseRoute]:
        return [
            mount(AIPLATFORM, [endpoint("GET", "/v1/projects/{project}/locations/{region}/{name*}", self.vertex)]),
            mount(SCHEDULER, [endpoint("GET", f"/v1/{self.schedules}/jobs", self.jobs)]),
            mount(LOGGING, [endpoint("POST", "/v2/entries:list", self.entries)]),
            mount(
                "/storage", [endpoint("GET", "/v1/b", self.buckets), endpoint("GET", "/v1/b/{bucket}/o", self.objects)]
            ),
            *super().routes(),
            mount("", []),
        ]

    def table(self) -> list[Endpoint]:
        return [read_endpoint("/v1/locations", lambda _: self.locations()), *super().table()]

    async def pulse(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /console/v1/pulse: whose console this is; no service is asked."""
        return JSONResponse(self.about)

    def locations(self) -> Json:
        """Return the locations of the project file, since the APIs list by location."""
        counts = {"models": UNKNOWN, "schedules": UNKNOWN, "most": job_views.MOST_LISTED}
        return {"vertex": self.resources.places, "scheduler": [self.schedules], **counts}

    async def vertex(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET of a resource or list of Vertex AI."""
        name = "/projects/{project}/locations/{region}/{name}".format_map(path)
        return await _read(self.resources.rest(path["region"]), name, request)

    async def jobs(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET of the jobs of Cloud Scheduler."""
        return await _read(self.scheduler, f"/{self.schedules}/jobs", request)

    async def buckets(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /storage/v1/b: the project file's bucket alone."""
        return JSONResponse({"items": [{"name": self.project.bucket_name}] if self.storage else []})

    async def objects(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /storage/v1/b/BUCKET/o: the objects of that bucket."""
        if self.storage is None or path["bucket"] != self.project.bucket_name:
            raise not_found(f"The console shows the bucket {self.project.bucket_name!r}, not {path['bucket'][:200]!r}.")
        return await _read(self.storage, f"/storage/v1/b/{self.project.bucket_name}/o", request)

    async def entries(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /logging/v2/entries:list: log entries of the project."""
        asked = await read_json(request)
        body = {key: asked[key] for key in _ENTRIES if key in asked}
        body["resourceNames"] = [f"projects/{self.project.project}"]
        return await answered(lambda: self.logs.call("POST", "/entries:list", json=body, repeat=True).data)


def _regions(loaded: Loaded) -> list[str]:
    """Return the regions of a project file: its own, and those of candidates."""
    project = loaded.project
    candidates = [one for table in (project.jobs, project.sweeps) for own in table.values() for one in own.candidates]
    others = {str(one["region"]) for one in candidates if one.get("region")}
    return [project.region, *sorted(others - {project.region})]


def _scheduler_url() -> str:
    local = os.environ.get("VERTEXRIG_LOCAL")
    url = f"{local}/scheduler" if local else service_url("cloudscheduler", scheduler.ENDPOINT_VARIABLE)
    return os.environ.get(scheduler.ENDPOINT_VARIABLE, url).rstrip("/")


async def _read(rest: Rest, path: str, request: Request) -> Response:
    """Return what a service answers to a GET with the parameters of a request."""
    return await answered(lambda: rest.call("GET", path, params=dict(request.query_params)).data)
