"""What of the services beside jobs is served, as data for the coverage page; Vertex AI's tables of methods say the rest."""

from __future__ import annotations

from collections.abc import Iterable

from vertexrig.local import methods
from vertexrig.local.http import Coverage

NOTES: dict[str, str] = {
    "SuggestTrials": "By the same engine as tuning jobs; the operation is done at once.",
    "CheckTrialEarlyStoppingState": "The documented rules; the service's formulas are not public.",
    "ListOptimalTrials": "Safety metrics count as in tuning jobs.",
    "CreateDataset": "A resource; pipelines read tabular datasets whose source is in Cloud Storage.",
    "UploadModel": "A resource; nothing is deployed or served.",
    "UpdateModel": "Of the fields that describe a model.",
    "ListModelVersions": "All on one page.",
    "CreatePersistentResource": "Kept; a job that names it starts at once, and no machine is held.",
    "UpdatePersistentResource": "As CreatePersistentResource.",
    "RebootPersistentResource": "Sets its start time; jobs on it go on.",
    "ReadTensorboardBlobData": "Of blobs where the SDK's uploader puts them.",
    "ReadTensorboardTimeSeriesData": "The filter is ignored; points are thinned out evenly.",
    "ExportTensorboardTimeSeriesData": "Filter and order are ignored.",
    "QueryArtifactLineageSubgraph": "The filter is ignored.",
    "GetProject": "Every id is a project; its number is made from the id.",
}
"""What differs from the service, by method; a method that is not here is served as the service does it."""

_SCHEDULES = "cloudscheduler.projects.locations.jobs"

LOGGING: tuple[Coverage, ...] = (
    Coverage(
        "logging.entries.list",
        "approximated",
        "All projects are one; filters with comparisons, ':', AND, OR, NOT and parentheses; no regular expressions "
        "and no functions.",
    ),
    Coverage("logging.entries.write", "served", "No deduplication by insertId."),
    Coverage("logging.logs.list", "approximated", "All projects are one."),
    Coverage("logging.entries.tail", "served", "Over gRPC, as in the clients; in order of arrival, without a window."),
    Coverage("logging.entries.copy", "not served"),
    Coverage("logging.logs.delete", "not served"),
    Coverage("logging: sinks, buckets, views, metrics", "not served"),
    Coverage("logging: names of a job's logs and labels", "approximated", "logName is projects/P/logs/TASK."),
)
SCHEDULER: tuple[Coverage, ...] = (
    Coverage(
        f"{_SCHEDULES}.create",
        "approximated",
        "HTTP targets only; unix-cron, and of the English-like format 'every N minutes|hours' and 'every DAYS HH:MM'.",
    ),
    Coverage(f"{_SCHEDULES}.get", "served"),
    Coverage(f"{_SCHEDULES}.list", "served"),
    Coverage(f"{_SCHEDULES}.patch", "served"),
    Coverage(f"{_SCHEDULES}.delete", "served"),
    Coverage(f"{_SCHEDULES}.pause", "served"),
    Coverage(f"{_SCHEDULES}.resume", "served"),
    Coverage(f"{_SCHEDULES}.run", "approximated", "While an execution is under way the run waits for its end."),
    Coverage("cloudscheduler.projects.locations.list", "served", "The regions of the catalog."),
    Coverage("cloudscheduler.projects.locations.get", "served"),
    Coverage("cloudscheduler: OIDC and OAuth tokens", "approximated", "An unsigned stand-in that says so."),
    Coverage("cloudscheduler: targets", "approximated", "This machine only."),
    Coverage("cloudscheduler: Pub/Sub and App Engine targets", "not served"),
    Coverage("cloudscheduler: cmekConfig", "not served"),
    Coverage("cloudscheduler: gRPC", "served"),
)


def coverage(service: str, served: Iterable[str]) -> tuple[Coverage, ...]:
    """A row for each method of a service.

    Args:
        service: Full name.
        served: The methods that are.
    """
    own = service.rpartition(".")[2]
    known = set(served)

    def state(name: str) -> str:
        return "not served" if name not in known else "approximated" if name in NOTES else "served"

    return tuple(
        Coverage(f"{own}.{name}", state(name), NOTES.get(name, "") if name in known else "")
        for name in methods.of_service(service)
    )
