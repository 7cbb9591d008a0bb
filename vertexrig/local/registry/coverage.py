"""What of the services beside jobs is served, as data for the coverage page; the tables of methods say the rest."""

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
