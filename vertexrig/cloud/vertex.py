"""Jobs of Vertex AI over REST: create, get, list and cancel custom jobs and tuning jobs.

Source of paths and fields: REST reference projects.locations.customJobs and .hyperparameterTuningJobs, v1 (2026-11-20).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from vertexrig.cloud.rest import Rest, RestError, is_loopback
from vertexrig.errors import UsageError
from vertexrig.spec import descriptors, states
from vertexrig.spec.api_names import JOB, location
from vertexrig.spec.descriptors import Field, Message
from vertexrig.text import kind_of, quoted

ENDPOINT_VARIABLE = "VERTEXRIG_AIPLATFORM"
"""Environment variable with the base URL of another server, such as a local Vertex."""
UNIVERSE_VARIABLE = "GOOGLE_CLOUD_UNIVERSE_DOMAIN"
"""Environment variable with the domain of another Google Cloud universe; Google's own libraries read the same one."""

CUSTOM, TUNING = "customJobs", "hyperparameterTuningJobs"
COLLECTIONS = {"CustomJobSpec": CUSTOM, "HyperparameterTuningJob": TUNING}
RESOURCES = {CUSTOM: "CustomJob", TUNING: "HyperparameterTuningJob"}
_LOCAL_API = "/vertex/v1"
"""Path of this API on a local Vertex, whose console is at `/`."""
LIVE_FILTER = "(" + " OR ".join(f'state="{state}"' for state in states.LIVE) + ")"
"""Finds the jobs that have not ended."""
PAGE = 100
"""Rows of a page that are asked for."""

_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
VERSION = re.compile(r"projects/[^/]+/locations/[^/]+/(?:models/[^/@]+@[0-9]+|(?:models/[^/@]+/)?operations/[0-9]+)")
"""Resource name of a version of a model, or of the operation that uploads it."""
_OPEN = frozenset({"google.protobuf.Struct", "google.protobuf.ListValue", "google.protobuf.Any"})
"""Messages that hold any JSON."""
_WELL_KNOWN = "google.protobuf."
"""The other messages of this package are text, a number or a truth value in JSON: times, durations, wrappers. A Value may be
anything, but the one of a job is a trial's parameter."""
_FLOATING, _WHOLE = frozenset({1, 2}), frozenset({3, 4, 5, 6, 7, 13, 15, 16, 17, 18})
"""Types of fields (`Field.type`) that are numbers; 64-bit ones are text in JSON, and so are NaN and Infinity."""


def is_local() -> bool:
    """Whether this shell uses the local Vertex."""
    return is_loopback(os.environ.get(ENDPOINT_VARIABLE, ""))


@dataclass(frozen=True)
class RemoteJob:
    """A custom job or tuning job as the service describes it."""

    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Resource name: `projects/P/locations/R/customJobs/N`."""
        return str(self.data.get("name", ""))

    @property
    def id(self) -> str:
        return self.name.rsplit("/", 1)[-1]

    @property
    def collection(self) -> str:
        """`customJobs` or `hyperparameterTuningJobs`, "" for a name of neither."""
        match = JOB.fullmatch(self.name)
        return match[3] if match else ""

    @property
    def kind(self) -> str:
        """`CustomJob` or `HyperparameterTuningJob`."""
        return RESOURCES.get(self.collection, "")

    @property
    def display_name(self) -> str:
        return str(self.data.get("displayName", ""))

    @property
    def created(self) -> str:
        """When it was created, RFC 3339."""
        return str(self.data.get("createTime", ""))

    @property
    def state(self) -> str:
        """JobState by name."""
        return str(self.data.get("state", states.UNSPECIFIED))

    @property
    def ended(self) -> bool:
        """Whether its state is one of the last."""
        return self.state in states.ENDED

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels, {} if it has none."""
        labels = self.data.get("labels")
        return labels if isinstance(labels, Mapping) else {}

    @property
    def output(self) -> str:
        """gs:// URI of its output folder, "" if it has none."""
        spec = self.data.get("jobSpec") or self.data.get("trialJobSpec") or {}
        return str((spec.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")).rstrip("/")

    @property
    def error(self) -> str:
        """The service's message about a failed job, "" if there is none."""
        error = self.data.get("error")
        return str(error.get("message", "")) if isinstance(error, Mapping) else ""

    @property
    def cause(self) -> str:
        """That message in one line: its first one, and the exception of the traceback that follows it."""
        lines = self.error.splitlines() or [""]
        raised = [line.strip() for line in lines[1:] if _RAISED.match(line.strip())]
        return " ".join([lines[0], *raised[-1:]])[:1000]


class Vertex:
    """The API of one project and region.

    Args:
        region: Region of the jobs; it decides the host.
        url: In place of that host; by default what the environment variable VERTEXRIG_AIPLATFORM says, if it is set.
    """

    def __init__(self, project: str, region: str, *, url: str | None = None) -> None:
        self.project, self.region, self.parent = project, region, location(project, region)
        base = (url or service_url(f"{region}-aiplatform", ENDPOINT_VARIABLE)).rstrip("/")
        self.rest = Rest(f"{base}/v1", "Vertex AI")
        self._url = url

    def in_region(self, region: str) -> Vertex:
        """Return the API of another region of the same project."""
        return Vertex(self.project, region, url=self._url)

    def handle(self, name: str) -> str:
        """Return what `lookup` finds a job by: its number, or its resource name if it is in another region."""
        return name.rpartition("/")[2] if region_of(name) == self.region else name

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        """Create a job. It is tried once: the API has no request id, so a second try may make a second job.

        Raises:
            RestError: It was refused, or (`outcome_unknown`) may have been created.
        """
        job = _job(collection, self.rest.call("POST", f"/{self.parent}/{collection}", json=body).data)
        # A proxy that answers 200 with a page of its own must not count as a job that was made.
        if not JOB.fullmatch(job.name):
            raise RestError("Vertex AI answered a create without a job's name", status=502, outcome_unknown=True)
        return job

    def get(self, name: str) -> RemoteJob | None:
        """Return a job by its resource name, in whatever region that is; None if there is none."""
        match = JOB.fullmatch(name)
        answer = self._of(name).rest.find(f"/{name}")
        return None if answer is None else _job(match[3] if match else CUSTOM, answer.data)

    def list(self, collection: str, *, filter: str = "", limit: int | None = None) -> Iterator[RemoteJob]:
        """Jobs of a collection, the newest first; tuning jobs without their trials.

        Args:
            filter: The API's filter, such as `state="JOB_STATE_RUNNING" AND labels.team=vision`.
        """
        params: dict[str, Any] = {"pageSize": min(limit or PAGE, PAGE)} | ({"filter": filter} if filter else {})
        rows = self.rest.pages(f"/{self.parent}/{collection}", collection, params)
        return map(partial(_job, collection), islice(rows, limit))

    def cancel(self, name: str) -> None:
        """Ask for a job to be cancelled; it ends some time later. Repeating it does no harm."""
        self._of(name).rest.call("POST", f"/{name}:cancel", json={}, repeat=True)

    def _of(self, name: str) -> Vertex:
        region = region_of(name) or self.region
        return self if region == self.region else self.in_region(region)

    def lookup(self, text: str) -> RemoteJob:
        """Return the job of a resource name, a number, or a display name (the newest job of that name); UsageError if there is none."""
        if JOB.fullmatch(text):
            found = self.get(text)
        elif text.isascii() and text.isdigit():
            found = self.by_id(text)
        else:
            # One of each kind: lists are sorted by time, the newest first.
            newest = [
                job for one in RESOURCES for job in self.list(one, filter=f"display_name={in_filter(text)}", limit=1)
            ]
            last = max(newest, key=lambda job: job.created, default=None)
            found = last and (self.get(last.name) or last)  # job_service.proto: a list shows no trials
        if found is None:
            raise UsageError(
                f"there is no job {text!r} in {self.parent}; `vertexrig jobs` lists what there is; a job of another region goes by its "
                "resource name"
            )
        return found

    def by_id(self, number: str) -> RemoteJob | None:
        """Return a custom job or tuning job by its number, None if there is none."""
        for collection in RESOURCES:
            found = self.get(f"{self.parent}/{collection}/{number}")
            if found is not None:
                return found
        return None

    def console(self, name: str) -> str:
        """Return the job's page in the console: Google's, or that of the local Vertex whose API this is."""
        match = JOB.fullmatch(name)
        if match is None:
            return ""
        server = self.rest.url.removesuffix(_LOCAL_API)
        if server != self.rest.url and is_loopback(server):
            return f"{server}/#/jobs/{name}"
        # as google-cloud-aiplatform 2.7.0 makes it for both kinds
        return f"https://console.cloud.google.com/agent-platform/locations/{region_of(name)}/training/{match[4]}?project={self.project}"


def service_url(name: str, variable: str) -> str:
    """Return the base URL of a service of Google: what its environment variable says, or its own in this universe."""
    universe = os.environ.get(UNIVERSE_VARIABLE) or "googleapis.com"
    return (os.environ.get(variable) or f"https://{name}.{universe}").rstrip("/")


def is_reachable(variable: str) -> bool:
    """Return False where jobs are on another server and a service's environment variable does not say where that is."""
    return bool(os.environ.get(variable)) or not os.environ.get(ENDPOINT_VARIABLE)


def region_of(name: str) -> str:
    """Return the region in the resource name of a job, "" if it is none."""
    match = JOB.fullmatch(name)
    return match[2] if match else ""


def _job(collection: str, data: Any) -> RemoteJob:
    """Return a job of an answer; RestError if it has not the shape of one: it may have been made all the same."""
    wrong = misshapen(RESOURCES[collection], data)
    if wrong is not None:
        name = data.get("name") if isinstance(data, Mapping) else None
        text = f"Vertex AI described {f'job {name}' if isinstance(name, str) else 'a job'} in a form that it cannot have: {wrong}"
        raise RestError(text, status=502, outcome_unknown=True)
    return RemoteJob(data)


def job_body(
    kind: str, data: Mapping[str, Any], *, display_name: str, labels: Mapping[str, str], kms_key_name: str | None
) -> dict[str, Any]:
    """Return the body of a create call, with what the API keeps outside the spec.

    Args:
        kind: `CustomJobSpec` or `HyperparameterTuningJob`: what `data` is.
        data: Canonical data of a checked document.
    """
    inner = {"jobSpec": dict(data)} if kind == "CustomJobSpec" else dict(data)
    outer: dict[str, Any] = {"displayName": display_name, "labels": dict(labels)}
    if kms_key_name:
        outer["encryptionSpec"] = {"kmsKeyName": kms_key_name}
    return {**inner, **outer}


def in_filter(text: str) -> str:
    """Return a text as a filter takes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def misshapen(kind: str, data: Any) -> str | None:
    """Return what of an answer is a list, a mapping, a number or another plain value where the API has another of the four.

    Fields and enum values that the shipped schema lacks pass: the service is newer than it.

    Returns:
        The first such place with its value and what belongs there; None if there is none.
    """
    return _message(descriptors.message(kind), data, "")


def _message(message: Message, data: Any, path: str) -> str | None:
    if message.full_name in _OPEN:
        return None
    if message.full_name.startswith(_WELL_KNOWN):
        return _plain(data, path)
    if not isinstance(data, Mapping):
        return _wrong(path, data, "a mapping")
    fields = message.by_name
    for key, value in data.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        found = _field(field, value, f"{path}.{key}" if path else str(key))
        if found is not None:
            return found
    return None


def _field(field: Field, value: Any, path: str) -> str | None:
    if not field.repeated:
        return _one(field, value, path)
    if field.message is not None and field.message.map_entry:
        if not isinstance(value, Mapping):
            return _wrong(path, value, "a mapping")
        inner = field.message.by_name["value"]
        rows = [(inner, one, f"{path}.{key}") for key, one in value.items()]
    elif not isinstance(value, list):
        return _wrong(path, value, "a list")
    else:
        rows = [(field, one, f"{path}[{index}]") for index, one in enumerate(value)]
    return next((found for row in rows if (found := _one(*row)) is not None), None)


def _one(field: Field, value: Any, path: str) -> str | None:
    if field.message is not None:
        return _message(field.message, value, path)
    if field.type in _FLOATING | _WHOLE:
        return _number(value, path, whole=field.type in _WHOLE)
    return _plain(value, path)


def _plain(value: Any, path: str) -> str | None:
    return _wrong(path, value, "text or a number") if isinstance(value, (Mapping, list)) else None


def _number(value: Any, path: str, *, whole: bool) -> str | None:
    try:
        number = float("x" if isinstance(value, bool) else value)
        fits = not whole or number.is_integer()
    except (TypeError, ValueError, OverflowError):
        fits = False
    return None if fits else _wrong(path, value, "a whole number" if whole else "a number")


def _wrong(path: str, value: Any, belongs: str) -> str:
    return f"{path or 'the answer'} is {kind_of(value)}, {quoted(value)}, where {belongs} belongs"
