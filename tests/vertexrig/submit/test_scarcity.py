"""The table that tells a quota, a stock-out and a preemption apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.spec import states
from vertexrig.spec.states import has_run
from vertexrig.submit.scarcity import Scarcity, scarcity_of

RECORDED = [json.loads(line) for line in Path(__file__).with_name("scarcity.jsonl").read_text().splitlines()]


def end(row: dict[str, Any]) -> RestError | RemoteJob:
    """Return a recorded refusal or end as a caller has it."""
    if row["where"] == "create":
        return RestError(f"Vertex AI: {row['text']}", status=row["code"], reason="RESOURCE_EXHAUSTED")
    error = {"message": row["text"], **({"code": row["code"]} if "code" in row else {})}
    began = {"startTime": "2026-11-20T10:00:00Z"} if row.get("started") else {}
    return RemoteJob({"state": states.FAILED, "error": error, **began})


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['outcome']} {row['source'][:40]}")
def test_what_was_recorded_is_told_apart(row: dict[str, Any]) -> None:
    """Each recorded refusal or end has the outcome that its source says."""
    assert scarcity_of(end(row)) is Scarcity(row["outcome"])


@pytest.mark.parametrize(
    "other",
    [
        RestError("Vertex AI: Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'", status=429),
        RestError("Vertex AI: The following quota metrics exceed quota limits: x", status=400),
        RestError("Vertex AI cannot be reached", outcome_unknown=True),
        RemoteJob({"state": states.CANCELLED, "error": {"code": 1, "message": "CANCELED"}}),
        RemoteJob({"state": states.RUNNING, "startTime": "2026-11-20T10:00:00Z"}),
        RemoteJob({"state": states.FAILED, "error": "Resources are insufficient in region: x"}),
    ],
)
def test_nothing_else_is_scarcity(other: RestError | RemoteJob) -> None:
    """A limit of calls, another refusal, a lost answer and a job that has not failed are no scarcity."""
    assert scarcity_of(other) is Scarcity.OTHER


@pytest.mark.parametrize(
    ("state", "start", "ran"),
    [
        (states.PENDING, "", False),
        (states.QUEUED, "2026-07-08T10:00:00.123456Z", False),
        (states.FAILED, "2026-07-08T10:00:00.123456Z", False),
        (states.RUNNING, "2026-07-08T10:00:00.123456Z", True),
        (states.PENDING, "2026-07-08T10:00:01Z", True),
    ],
)
def test_a_start_alone_does_not_say_that_a_job_has_begun(state: str, start: str, *, ran: bool) -> None:
    """A job that waits has a startTime, too, with a fraction; then it has not begun, and what ends it is no preemption."""
    data = {
        "state": state,
        "startTime": start,
        "error": {"code": 8, "message": "Resources are insufficient in region: x."},
    }
    assert has_run(data) is ran
    assert state != states.FAILED or scarcity_of(RemoteJob(data)) is Scarcity.STOCKOUT
