"""Resource names, times and bodies of jobs, as the service writes them."""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from localvertex.http import ApiError, Json, invalid
from localvertex.runner.result import new_job_id
from vertexrig import times
from vertexrig.catalog import load
from vertexrig.spec import messages
from vertexrig.spec.states import CANCELLED, ENDED, FAILED, QUEUED, RUNNING, has_run, of_pipeline

CUSTOM_JOBS, TUNING_JOBS = "customJobs", "hyperparameterTuningJobs"
SCHEDULES = "jobs"
"""Cloud Scheduler's; their names have the project as the client wrote it."""
PIPELINES, STUDIES, MODELS, OPERATIONS = "trainingPipelines", "studies", "models", "operations"
MESSAGES = {CUSTOM_JOBS: "CustomJob", TUNING_JOBS: "HyperparameterTuningJob", PIPELINES: "TrainingPipeline"}
"""The API's message of each collection whose resources run."""

_RUNNING = (RUNNING, of_pipeline(RUNNING))
_ENDED = (*ENDED, *map(of_pipeline, ENDED))
PLACE = re.compile(r"projects/([^/]+)/locations/([^/]+)(?=/|$)")
"""How a resource name begins: project and location."""
NAME = re.compile(PLACE.pattern + r"/([A-Za-z]+)/([^/]+)")
"""The name of a resource right below a location, such as a job: project, location, collection and id."""
# Ids of domain-scoped projects have a colon: `example.com:my-project`.
_PROJECT = re.compile(r"[a-z0-9][a-z0-9:.-]{0,62}")
_LOCATION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def now(after: str = "") -> str:
    """Return the present time in RFC 3339, in microseconds; later than another one."""
    time = times.rfc3339(times.now())
    return time if time > after else times.rfc3339(times.parse(after) + timedelta(microseconds=1))


def etag() -> str:
    """Return a new etag: 50 bytes in base64, as in recordings of 2021 to 2026."""
    return f"AMEw9y{secrets.token_urlsafe(50)[6:]}="


_MOST_IDS = 10_000  # a fuzzer that names a new project with each request must not fill the memory
_ids: dict[str, str] = {}
"""Ids of the projects whose number was asked for, by number; nothing else leads from a number back to its id."""


def project_number(project: str) -> str:
    """Return the number of a project: itself, or twelve digits that are always the same for one id."""
    if project.isdigit():
        return project
    number = str(100_000_000_000 + zlib.crc32(project.encode()) * 200)  # at most 10**11 + 2**32 * 200 < 10**12
    if len(_ids) < _MOST_IDS:
        _ids[number] = project
    return number


def project_id(project: str) -> str:
    """Return the id of a project given by id or number; the number itself where no client has named the id."""
    return _ids.get(project, project)


def is_project(project: str) -> bool:
    """Whether a text may be a project's id or number."""
    return _PROJECT.fullmatch(project) is not None


def parent_name(project: str, location: str) -> str:
    """Return `projects/NUMBER/locations/LOCATION`.

    Raises:
        ApiError: 403 for what is not the id or number of a project, such as its display name; 400 for what is not a location.
    """
    if not _PROJECT.fullmatch(project):
        raise no_consumer(project[:200])
    if not _LOCATION.fullmatch(location):
        raise invalid(f"Invalid resource name: {location[:80]!r} is not a location.")
    return f"projects/{project_number(project)}/locations/{location}"


def no_consumer(project: str) -> ApiError:
    """Return the error of the services for a project that they do not know (training-data-analyst issue 1811, gemini-cli issue 1808)."""
    text, prefix = f"Permission denied on resource project {project}.", "type.googleapis.com/google.rpc."
    metadata = {"consumer": f"projects/{project}", "containerInfo": project, "service": "aiplatform.googleapis.com"}
    link = {"description": "Google developers console", "url": "https://console.developers.google.com"}
    details: list[Json] = [
        {"@type": f"{prefix}ErrorInfo", "reason": "CONSUMER_INVALID", "domain": "googleapis.com", "metadata": metadata},
        {"@type": f"{prefix}LocalizedMessage", "locale": "en-US", "message": text},
        {"@type": f"{prefix}Help", "links": [link]},
    ]
    return ApiError(403, text, details=details)


def new_name(parent: str, kind: str) -> str:
    """Return a new resource's name, with a numeric id."""
    return f"{parent}/{kind}/{new_job_id()}"


def last_part(name: str) -> str:
    """Return the id in a resource name."""
    return name.rpartition("/")[2]


def place_of(name: str) -> str:
    """Return `projects/123/locations/us-central1` of a resource name."""
    return "/".join(name.split("/")[:4])


def location_of(name: str) -> str:
    """Return the location in a resource name."""
    return name.split("/")[3]


def rest_form(kind: str, data: Mapping[str, Any]) -> Json:
    """Canonical data as REST writes it: int64 as text, enums as names."""
    return messages.from_message(messages.to_message(kind, dict(data)))


def new_body(name: str, state: str, fields: Mapping[str, Any]) -> Json:
    """Return the body of a new resource: its name, state and times around what the client gave."""
    time = now()
    return {"name": name, **fields, "state": state, "createTime": time, "updateTime": time}


def has_ended(body: Mapping[str, Any]) -> bool:
    """Whether a job, study or pipeline is in one of its last states."""
    return body["state"] in _ENDED


def move(body: Json, state: str, error: Mapping[str, Any] | None = None) -> bool:
    """Set a resource's state with its times; returns whether it has ended, for `ResourceStore.change`.

    Times have the form of public recordings:

    - createTime, updateTime: microseconds.
    - startTime, endTime: whole seconds if the job has run (recordings of 2021, 2022), microseconds if it only waited (2026).
    - endTime of a job that was cancelled: updateTime (recordings of 2026-02-19).
    """
    # `has_run` goes by the form of startTime, which is set here: whole seconds once it has run, microseconds while it only waited.
    moment, ended, ran = times.now(), state in _ENDED, has_run(body)
    body["state"], body["updateTime"] = state, times.rfc3339(moment)
    if state == QUEUED and not ran:  # one that is queued again after a server was killed keeps its first start
        body["startTime"] = now(after=body["createTime"])
        body["updateTime"] = now(after=body["startTime"])
    if state in _RUNNING and not ran:  # one that starts again keeps its first start
        body["startTime"] = times.whole_second(moment, body["createTime"])
    if ended and not ran:
        body["endTime"] = body["updateTime"]
        if state == FAILED:
            body.pop("startTime", None)  # recorded: a job that failed without machines has no startTime
    elif ended:
        body["endTime"] = times.whole_second(moment, str(body.get("startTime", body["createTime"])))
    # A start and an end in whole seconds may have been rounded up. The update is later than both (recording of 2026-02-19).
    start_and_end = [body[key] for key in ("startTime", "endTime") if key in body]
    whole = [times.rfc3339(times.parse(one)) for one in start_and_end if "." not in one]
    if whole and max(whole) >= body["updateTime"]:
        body["updateTime"] = now(after=max(whole))
    if state == CANCELLED:
        body["endTime"] = body["updateTime"]
    if error:
        body["error"] = dict(error)
    for key in ("createTime", "startTime", "endTime", "updateTime", "error"):  # the order of answers
        if key in body:
            body[key] = body.pop(key)
    return ended


_PROGRAMS = ("containerSpec", "pythonPackageSpec")
"""The service shows them after the disk."""


def filled(spec: Mapping[str, Any]) -> Json:
    """Return a CustomJobSpec in REST form with the boot disk of every pool that makes machines, which the service fills in.

    Source: public recordings of 2021 and 2022 (create and get of custom and tuning jobs).
    """
    pools = [_with_disk(pool) if pool.get("machineSpec") else pool for pool in spec.get("workerPoolSpecs", ())]
    return {**spec, "workerPoolSpecs": pools} if pools else dict(spec)


def filled_tuning(job: Mapping[str, Any]) -> Json:
    """Return a HyperparameterTuningJob in REST form with its trials' job filled in."""
    return {**job, "trialJobSpec": filled(job["trialJobSpec"])} if job.get("trialJobSpec") else dict(job)


def _with_disk(pool: Mapping[str, Any]) -> Json:
    catalog = load()
    disk = {
        "bootDiskType": catalog.default_boot_disk(str(pool["machineSpec"].get("machineType", ""))),
        "bootDiskSizeGb": catalog.limits.integer("boot_disk.default_gb"),
    }
    program = {key: pool[key] for key in _PROGRAMS if key in pool}
    before = {key: value for key, value in pool.items() if key not in program}
    return {**before, "diskSpec": {**disk, **(pool.get("diskSpec") or {})}, **program}
