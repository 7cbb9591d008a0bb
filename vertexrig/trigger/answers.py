"""The trigger's answers: problems, and jobs with one row per field, from which the answer and its schema in /openapi.json are made.

Neither what `Submitter.submit` returns nor what a claim stores (`vertexrig.submit.claims.Recorded`) is an answer: a row here says where
its value comes from.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RESOURCES, RemoteJob
from vertexrig.errors import TemplateError, VertexrigError
from vertexrig.finding import Severity
from vertexrig.spec.labels import ENTRY_LABEL, first_of
from vertexrig.submit.budget import OverBudgetError, estimate_data
from vertexrig.submit.claims import InProgressError, OtherBodyError
from vertexrig.trigger.request import RequestProblem
from vertexrig.workspace import Prepared

TEXT, TRUTH = {"type": "string"}, {"type": "boolean"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
NUMBER = {"type": "number"}
_LABELS = {"type": "object", "additionalProperties": TEXT}
_KIND = {"type": "string", "enum": list(RESOURCES.values())}


_RETRY_S = 30.0


@dataclass(frozen=True)
class Reply:
    """An answer: a status, a JSON object, headers."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return json.dumps(self.body, ensure_ascii=False, indent=1).encode()

    @property
    def flask(self) -> tuple[bytes, int, dict[str, str]]:
        """As Flask takes it."""
        kind = "application/problem+json" if self.status >= 400 else "application/json"
        safe = {"Content-Type": kind, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return b"" if self.status == 304 else self.content, self.status, {**safe, **self.headers}

    def unless(self, known: str) -> Reply:
        """Return it with its ETag; a 304 to a caller whose If-None-Match has that."""
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {**self.headers, "ETag": tag, "Cache-Control": "private, no-cache"}
        same = known.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in known.split(","))
        return Reply(304 if same else self.status, {} if same else self.body, headers)


@dataclass(frozen=True)
class AnswerField:
    """A field of an answer.

    Args:
        value: Takes it from what is answered about; by default the attribute of its name. Where that is None, the field is left out.
        always: It is never left out.
    """

    name: str
    schema: Mapping[str, Any]
    value: Callable[[Any], Any] | None = None
    always: bool = True


def answer(fields: tuple[AnswerField, ...], about: Any, **more: Any) -> dict[str, Any]:
    """Return the answer about something; `more` has the fields that it has no attribute for."""

    def value(one: AnswerField) -> Any:
        if one.name in more:
            return more[one.name]
        if one.value is not None:
            return one.value(about)
        return getattr(about, one.name) if one.always else getattr(about, one.name, None)

    found = {one.name: value(one) for one in fields}
    return {name: value for name, value in found.items() if value is not None}


def schema(fields: tuple[AnswerField, ...]) -> dict[str, Any]:
    """Return the JSON Schema of an answer."""
    always = [one.name for one in fields if one.always]
    return object_schema(*always, **{one.name: one.schema for one in fields})


def object_schema(*required: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object."""
    return {"type": "object", "required": list(required), "properties": properties}


def problem(about: RequestProblem) -> Reply:
    """Return the answer to a request that went wrong."""
    body: dict[str, Any] = {
        "type": f"urn:vertexrig:problem:{about.type}",
        "title": HTTPStatus(about.status).phrase,
        "status": about.status,
        "detail": about.detail,
    }
    if about.findings:
        body["findings"] = [dict(finding) for finding in about.findings]
    headers = {} if about.retry_after is None else {"Retry-After": str(math.ceil(about.retry_after))}
    return Reply(about.status, body, headers)


def explained(error: Exception) -> RequestProblem:
    """Return the problem that a caller sees for an error. The errors named here are about the request and keep their text. Any other
    error says only that it happened: its text may have names, paths or tokens, and goes to the log (`kept`).
    """
    if isinstance(error, RequestProblem):
        return error
    if isinstance(error, OverBudgetError):
        kept = {"limit": error.limit, "estimate": estimate_data(error.estimate)}
        return RequestProblem(422, "over-budget", str(error), retry_after=_room_in(error.limit), kept=kept)
    if isinstance(error, OtherBodyError):
        return RequestProblem(409, "other-body", str(error))
    if isinstance(error, InProgressError):
        return RequestProblem(503, "in-progress", str(error), retry_after=error.retry_after)
    if isinstance(error, RestError):
        return _service_problem(error)
    if isinstance(error, TemplateError):
        kept = {"error": str(error)[:500]}
        return RequestProblem(400, "value", "the job cannot be rendered with these values", kept=kept)
    return RequestProblem(500, "internal", "something went wrong here; the log says what", kept=failure(error))


def _room_in(limit: str) -> float | None:
    """Return the seconds after which a limit may leave room; None if waiting does not help."""
    if limit.endswith("_per_day"):
        now = times.now()
        return 86_400.0 - (now.hour * 3600 + now.minute * 60 + now.second)
    return 60.0 if limit == "live_jobs" else None


def failure(error: Exception) -> dict[str, Any]:
    """Return the log fields of an unexpected error, with the fields that Error Reporting groups by.

    https://docs.cloud.google.com/error-reporting/docs/formatting-error-messages (a `ReportedErrorEvent` with a location)
    """
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    row: dict[str, Any] = {"error": type(error).__name__, "at": at}
    if frames:
        last = frames[-1]
        location = {"filePath": Path(last.filename).name, "lineNumber": last.lineno, "functionName": last.name}
        row["@type"] = "type.googleapis.com/google.devtools.clouderrorreporting.v1beta1.ReportedErrorEvent"
        row["context"] = {"reportLocation": location}
        row["serviceContext"] = {
            "service": os.environ.get("K_SERVICE", "vertexrig"),
            "version": os.environ.get("K_REVISION", ""),
        }
    return row | ({"message_of_error": str(error)[:500]} if isinstance(error, VertexrigError) else {})


def findings(prepared: Prepared) -> tuple[Mapping[str, str], ...]:
    """Return the errors that the checks found."""
    return tuple(
        {"id": one.id, "path": one.path, "message": one.message, "fix": one.fix}
        for one in prepared.findings
        if one.severity is Severity.ERROR
    )


def _service_problem(error: RestError) -> RequestProblem:
    """Return the answer for a service that failed."""
    who, wait = "Vertex AI or Cloud Storage", error.retry_after or _RETRY_S
    kept = {"service": str(error)[:500], "service_status": error.status}
    if error.status == 429:
        detail = f"{who} has no quota left for this; try later"
        return RequestProblem(429, "quota", detail, retry_after=wait, kept=kept)
    if error.retryable:
        detail = f"{who} cannot be reached; nothing is lost or doubled by trying again"
        return RequestProblem(503, "unavailable", detail, retry_after=wait, kept=kept)
    if error.status == 400:
        # the service's message about the job: it shows the caller what to change
        why = {"id": "service", "path": "", "message": str(error)[:1000]}
        return RequestProblem(400, "refused", "Vertex AI refused the job", (why,), kept=kept)
    return RequestProblem(502, "misconfigured", f"{who} refused the trigger itself; its log says why", kept=kept)


_TRIAL = object_schema(
    *("id", "state", "parameters", "metrics"),
    **dict.fromkeys(("id", "state", "reason"), TEXT),
    parameters={"type": "object", "additionalProperties": {"anyOf": [TEXT, NUMBER]}},
    metrics={"type": "object", "additionalProperties": NUMBER},
    seconds=NUMBER,
)


def _trials(job: RemoteJob) -> dict[str, int] | None:
    trials = job.data.get("trials")
    if not isinstance(trials, list):
        return None
    states = [str(trial.get("state", "")) for trial in trials if isinstance(trial, Mapping)]
    return {state: states.count(state) for state in sorted(set(states))}


SUBMITTED = (
    AnswerField("dry_run", TRUTH, always=False),
    AnswerField("run", TEXT),
    AnswerField("name", TEXT),
    AnswerField("kind", _KIND),
    AnswerField("state", TEXT),
    AnswerField("console", TEXT),
    AnswerField("labels", _LABELS),
    AnswerField(
        "estimate",
        object_schema(
            "usd_at_most",
            "arithmetic",
            usd_at_most=NUMBER,
            usd_per_hour=NUMBER,
            complete=TRUTH,
            timeout_s=NUMBER,
            trials={"description": "Of a sweep; null for a job."},
            arithmetic=TEXT,
        ),
    ),
    AnswerField("packages", TEXTS),
    # of the run's first attempt, which is the run's id
    AnswerField("claim", TEXT, lambda about: first_of(about.labels) or about.claim),
    AnswerField("output", TEXT),
    AnswerField("duplicate", TRUTH),
    AnswerField("candidate", TEXT, always=False),
    AnswerField("then", TEXTS, always=False),
    AnswerField("request", {"type": "object"}, always=False),
)
"""To POST /: about a `Submitted`."""

JOB = (
    AnswerField("name", TEXT),
    AnswerField("kind", TEXT),
    AnswerField("run", TEXT, lambda job: job.labels.get(ENTRY_LABEL, "")),
    AnswerField("state", TEXT),
    AnswerField("ended", TRUTH),
    AnswerField("display_name", TEXT),
    AnswerField("labels", _LABELS),
    AnswerField("created", TEXT, lambda job: job.data.get("createTime"), always=False),
    AnswerField("started", TEXT, lambda job: job.data.get("startTime"), always=False),
    AnswerField("ended_at", TEXT, lambda job: job.data.get("endTime"), always=False),
    # the service's own first line, not what the trainer printed
    AnswerField("error", TEXT, lambda job: job.error.splitlines()[0][:300] if job.error else None, always=False),
    AnswerField("trials", {"type": "object", "additionalProperties": {"type": "integer"}}, _trials, always=False),
    AnswerField("best", {"type": "array", "items": _TRIAL}, always=False),
    AnswerField("results", {"type": "array", "items": _TRIAL}, always=False),
    AnswerField("console", TEXT),
)
"""To GET /jobs and /jobs/ID: about a `RemoteJob`; the trials only of one."""
