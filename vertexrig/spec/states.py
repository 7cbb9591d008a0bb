"""The states of jobs and training pipelines.

Source: JobState and PipelineState in google-cloud-aiplatform 2.7.0, read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUEUED = "JOB_STATE_QUEUED"
PENDING = "JOB_STATE_PENDING"
RUNNING = "JOB_STATE_RUNNING"
CANCELLING = "JOB_STATE_CANCELLING"
SUCCEEDED = "JOB_STATE_SUCCEEDED"
FAILED = "JOB_STATE_FAILED"
CANCELLED = "JOB_STATE_CANCELLED"
EXPIRED = "JOB_STATE_EXPIRED"
PARTIALLY_SUCCEEDED = "JOB_STATE_PARTIALLY_SUCCEEDED"
UNSPECIFIED = "JOB_STATE_UNSPECIFIED"

LIVE = (QUEUED, PENDING, RUNNING)
"""States of a job that costs money or will; CANCELLING is on its way out."""
ENDED = (SUCCEEDED, FAILED, CANCELLED, EXPIRED, PARTIALLY_SUCCEEDED)


def short(state: str) -> str:
    """Return `SUCCEEDED` for `JOB_STATE_SUCCEEDED`: how tables and messages show it."""
    return state.removeprefix("JOB_STATE_")


def has_run(body: Mapping[str, Any]) -> bool:
    """Whether a job or study is running or has been, by the form of startTime: whole seconds once it has run, microseconds while it only
    waited.

    The API says that startTime is when it first ran; that of one that ran has whole seconds (recordings of 2021 and 2022). One that is
    QUEUED was seen to have a startTime, too, in microseconds (cloud-custodian, recordings of 2026-07-08).
    """
    start = str(body.get("startTime") or "")
    return bool(start) and (body.get("state") in (RUNNING, of_pipeline(RUNNING)) or "." not in start)


def of_pipeline(state: str) -> str:
    """Return the PipelineState of a training pipeline whose job is in `state`; a queued job's pipeline is PENDING."""
    return f"PIPELINE_STATE_{short(PENDING if state == QUEUED else state)}"
