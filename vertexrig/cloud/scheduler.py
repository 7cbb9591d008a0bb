"""The only module that talks to Cloud Scheduler, through google-cloud-scheduler's REST transport; imported when it is used.

Only the command line schedules, so the 0.35 s its import takes are paid there and not by the function.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import google.cloud.scheduler_v1 as scheduler_v1  # `from google.cloud` would not say what is missing
from google.api_core.exceptions import GoogleAPIError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.protobuf import json_format
from google.protobuf.field_mask_pb2 import FieldMask
from requests.exceptions import RequestException

from vertexrig.errors import ServiceError
from vertexrig.spec.api_names import location
from vertexrig.waiting import waiting

ENDPOINT_VARIABLE = "VERTEXRIG_SCHEDULER"
"""Environment variable with the base URL of another server; with VERTEXRIG_LOCAL set, the local Vertex's."""


class Scheduler:
    """The schedules of one project and region, as plain JSON data; `url` in place of the service's or the environment's."""

    def __init__(self, project: str, region: str, *, url: str | None = None) -> None:
        self.parent = location(project, region)
        local = os.environ.get("VERTEXRIG_LOCAL")
        url = url or os.environ.get(ENDPOINT_VARIABLE) or (f"{local}/scheduler" if local else None)
        options: dict[str, Any] = {"transport": "rest"}
        if url is not None:
            anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
            # Another server must not see the user's token.
            options |= {"credentials": anonymous, "client_options": {"api_endpoint": url}}
        try:
            with waiting("credentials for Cloud Scheduler"):
                self.client = scheduler_v1.CloudSchedulerClient(**options)
        except Exception as error:  # google.auth has no common base for what reading credentials may raise
            text = " ".join(str(error).split())[:300]
            raise ServiceError(f"no credentials for Cloud Scheduler: {text}", status=401) from None

    def list(self) -> list[dict[str, Any]]:
        """Return all jobs there are, ours or not; ServiceError if the service refused or cannot be reached."""
        return [self._data(job) for job in self._call(lambda: list(self.client.list_jobs(parent=self.parent)))]

    def create(self, job: Mapping[str, Any]) -> None:
        """Add a job; this and what follows raise ServiceError as `list` does, with status 409 for a name that is taken."""
        self._call(lambda: self.client.create_job(parent=self.parent, job=self._message(job)))

    def update(self, job: Mapping[str, Any]) -> None:
        """Replace every field of a job that `job` has."""
        mask = FieldMask()
        mask.FromJsonString(",".join(key for key in job if key != "name"))  # camelCase becomes the API's snake_case
        self._call(lambda: self.client.update_job(job=self._message(job), update_mask=mask))

    def delete(self, name: str) -> None:
        """Remove a job, by its id or its whole name."""
        self._call(lambda: self.client.delete_job(name=self.name(name)))

    def pause(self, name: str) -> None:
        """Stop firing a job."""
        self._call(lambda: self.client.pause_job(name=self.name(name)))

    def resume(self, name: str) -> None:
        """Fire a paused job again."""
        self._call(lambda: self.client.resume_job(name=self.name(name)))

    def run(self, name: str) -> None:
        """Fire a job now."""
        self._call(lambda: self.client.run_job(name=self.name(name)))

    def name(self, short: str) -> str:
        """Return the resource name of a job."""
        return short if short.startswith("projects/") else f"{self.parent}/jobs/{short}"

    def normal(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return a job as the service would write it, so that two can be compared."""
        return self._data(self._message(job))

    def _message(self, job: Mapping[str, Any]) -> Any:
        pb = scheduler_v1.Job.pb()
        try:
            return scheduler_v1.Job.wrap(json_format.ParseDict(dict(job), pb()))
        except json_format.ParseError as error:
            raise ServiceError(f"a schedule does not fit Cloud Scheduler: {error}") from None

    def _data(self, job: Any) -> dict[str, Any]:
        return json_format.MessageToDict(scheduler_v1.Job.pb(job))

    def _call(self, call: Any) -> Any:
        try:
            with waiting("Cloud Scheduler"):
                return call()
        except (GoogleAPIError, GoogleAuthError, RequestException) as error:
            text = " ".join(str(getattr(error, "message", error) or error).split())[:500]
            raise ServiceError(f"Cloud Scheduler: {text}", status=getattr(error, "code", None)) from None
