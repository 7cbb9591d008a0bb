"""What of Cloud Scheduler v1 is served, as data for the coverage page."""

from __future__ import annotations

from vertexrig.local.http import Coverage

_JOBS = "cloudscheduler.projects.locations.jobs"

COVERAGE: tuple[Coverage, ...] = (
    Coverage(
        f"{_JOBS}.create",
        "approximated",
        "HTTP targets only; unix-cron, and of the English-like format 'every N minutes|hours' and 'every DAYS HH:MM'.",
    ),
    Coverage(f"{_JOBS}.get", "served"),
    Coverage(f"{_JOBS}.list", "served"),
    Coverage(f"{_JOBS}.patch", "served"),
    Coverage(f"{_JOBS}.delete", "served"),
    Coverage(f"{_JOBS}.pause", "served"),
    Coverage(f"{_JOBS}.resume", "served"),
    Coverage(f"{_JOBS}.run", "approximated", "While an execution is under way the run waits for its end."),
    Coverage("cloudscheduler.projects.locations.list", "served", "The regions of the catalog."),
    Coverage("cloudscheduler.projects.locations.get", "served"),
    Coverage("cloudscheduler: OIDC and OAuth tokens", "approximated", "An unsigned stand-in that says so."),
    Coverage("cloudscheduler: targets", "approximated", "This machine only."),
    Coverage("cloudscheduler: Pub/Sub and App Engine targets", "not served"),
    Coverage("cloudscheduler: cmekConfig", "not served"),
    Coverage("cloudscheduler: gRPC", "served"),
)
