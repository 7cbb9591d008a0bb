"""The last lines that the replicas of jobs printed, from Cloud Logging.

Source of the fields: LogEntry in the Logging API v2, and `gcloud ai custom-jobs stream-logs` of gcloud 528, which filters by
`resource.labels.job_id` and names a replica by `resource.labels.task_name` (read 2026-11-21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vertexrig.cloud.rest import Rest
from vertexrig.cloud.vertex import in_filter, service_url

LOGGING_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING"
"""gcloud's own variable for another server; `vertexrig local env` sets it."""
LINES = 100
"""Longest answer, in lines."""


@dataclass(frozen=True)
class PrintedLine:
    """A line of a replica.

    Args:
        job: Number of its job.
        replica: Its name, such as workerpool0-0; "service" for the service's own lines.
    """

    job: str
    replica: str
    text: str


class JobLogs:
    """The logs of one project's jobs."""

    def __init__(self, project: str) -> None:
        self.project = project
        # One attempt: `watch` asks again.
        self.rest = Rest(f"{service_url('logging', LOGGING_VARIABLE)}/v2", "Cloud Logging", attempts=1)

    def tail(self, jobs: Sequence[str], since: str) -> list[PrintedLine]:
        """Return the last `LINES` lines of some jobs, over all of them, the oldest first.

        Args:
            jobs: Numbers of custom jobs.
            since: RFC 3339; older lines are left out.
        """
        if not jobs:
            return []
        wanted = " OR ".join(f"resource.labels.job_id={in_filter(job)}" for job in jobs)
        body = {
            "resourceNames": [f"projects/{self.project}"],
            "filter": f"({wanted}) AND timestamp>={in_filter(since)}",
            # The newest first, because the page is cut at its end.
            "orderBy": "timestamp desc",
            "pageSize": LINES,
        }
        entries = self.rest.call("POST", "/entries:list", json=body, repeat=True).data.get("entries") or []
        return [line for entry in reversed(entries) if (line := _line(entry)) is not None]


def _line(entry: Mapping[str, Any]) -> PrintedLine | None:
    labels = (entry.get("resource") or {}).get("labels") or {}
    payload = entry.get("jsonPayload")
    text = entry.get("textPayload") or (payload.get("message") if isinstance(payload, Mapping) else "") or ""
    if not str(text).strip():
        return None
    return PrintedLine(str(labels.get("job_id", "")), str(labels.get("task_name") or "service"), str(text).rstrip("\n"))
