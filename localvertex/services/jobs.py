"""JobService, PipelineService and operations of Vertex AI, over the jobs, studies and pipelines of a local Vertex.

Lists of resources that are never made here are empty, so that a client which lists everything in a project can continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from localvertex.http import Json, not_found
from localvertex.jobs import resources
from localvertex.jobs.listing import answer, page, page_size
from localvertex.jobs.resources import MESSAGES, OPERATIONS, TUNING_JOBS
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.studies import with_trials
from localvertex.services.router import (
    LONG_RUNNING,
    PACKAGE,
    Done,
    Method,
    Service,
    check_location,
    numbered,
)

EMPTY_LISTS = {
    f"{PACKAGE}.{service}Service": tuple(f"List{plural}" for plural in plurals)
    for service, plurals in {
        "DeploymentResourcePool": ("DeploymentResourcePools",),
        "Endpoint": ("Endpoints",),
        "FeatureOnlineStoreAdmin": ("FeatureOnlineStores",),
        "FeatureRegistry": ("FeatureGroups",),
        "Featurestore": ("Featurestores",),
        "GenAiTuning": ("TuningJobs",),
        "Index": ("Indexes",),
        "IndexEndpoint": ("IndexEndpoints",),
        "Job": ("NasJobs", "BatchPredictionJobs", "DataLabelingJobs", "ModelDeploymentMonitoringJobs"),
        "Notebook": ("NotebookExecutionJobs", "NotebookRuntimeTemplates", "NotebookRuntimes"),
        "Pipeline": ("PipelineJobs",),
        "Schedule": ("Schedules",),
        "SpecialistPool": ("SpecialistPools",),
    }.items()
}
"""Methods by full name of the service: every list of what is directly below a location and never made here."""


class Owner(Protocol):
    """Manages the resources of a collection; each method raises `ApiError`."""

    def create(self, parent: str, body: Mapping[str, Any]) -> Json: ...
    def get(self, name: str) -> Json: ...
    def cancel(self, name: str) -> None: ...
    def delete(self, name: str) -> None: ...


class JobMethods:
    """Methods for what runs, by the owner of each collection, and for operations."""

    def __init__(self, store: ResourceStore, owners: Mapping[str, Owner]) -> None:
        self.store, self.owners = store, owners

    def services(self) -> list[Service]:
        """Return the services; the owners read the requests, and refuse them in the training service's words."""
        jobs, pipelines = (f"{PACKAGE}.{name}Service" for name in ("Job", "Pipeline"))
        tables: dict[str, dict[str, Method]] = {jobs: {}, pipelines: {}}
        for kind, message in MESSAGES.items():
            tables[pipelines if kind == resources.PIPELINES else jobs] |= {
                f"Create{message}": partial(self.create, kind),
                f"Get{message}": lambda request, kind=kind: self.owners[kind].get(_name(request)),  # type: ignore[misc]
                f"List{message}s": partial(self.list, kind),
                f"Delete{message}": partial(self.delete, kind),
                f"Cancel{message}": partial(self.cancel, kind),
            }
        for service, names in EMPTY_LISTS.items():
            tables.setdefault(service, {}).update(dict.fromkeys(names, _nothing))
        operations: dict[str, Method] = {
            "ListOperations": partial(self.list, OPERATIONS),
            "GetOperation": self.operation,
            "WaitOperation": self.operation,  # every operation is done
            "CancelOperation": lambda request: self.operation(request) and {},
            "DeleteOperation": self.delete_operation,
        }
        return [Service(name, table, as_sent=True) for name, table in {**tables, LONG_RUNNING: operations}.items()]

    def create(self, kind: str, request: Json) -> Json:
        """Make a job."""
        message = MESSAGES[kind]
        return self.owners[kind].create(_name(request, "parent"), request[message[0].lower() + message[1:]])

    def cancel(self, kind: str, request: Json) -> Json:
        """Begin to cancel a job."""
        self.owners[kind].cancel(_name(request))
        return {}

    def delete(self, kind: str, request: Json) -> Done:
        """Forget a job: a long-running operation, done at once."""
        name = _name(request)
        self.owners[kind].delete(name)
        return Done(resources.place_of(name), "DeleteOperationMetadata")

    def operation(self, request: Json) -> Json:
        """Return an operation."""
        name = _operation(request)
        stored = self.store.get(name)
        if stored is None:
            raise not_found(f"The Operation does not exist: {name}")
        return stored.body

    def delete_operation(self, request: Json) -> Json:
        self.operation(request)
        self.store.remove(_operation(request))
        return {}

    def list(self, kind: str, request: Json) -> Json:
        """List a collection: pageSize, pageToken, and for what is not an operation filter and orderBy."""
        parent = resources.place_of(_name(request, "name" if kind == OPERATIONS else "parent"))
        text, order = ("" if kind == OPERATIONS else str(request.get(key, "")) for key in ("filter", "orderBy"))
        token = str(request.get("pageToken", ""))
        found, following = page(self.store, kind, parent, text, order, page_size(request), token)
        # With the trials of tuning jobs: four public notebooks of 2022 to 2024 read them from a list, though job_service.proto says
        # that a list does not have them.
        bodies = [with_trials(self.store, one) if kind == TUNING_JOBS else one.body for one in found]
        return answer(kind, bodies, following)


def _name(request: Json, field: str = "name") -> str:
    """Return a name of the request with the project's number; 400 for an invalid project or location."""
    check_location(request[field])
    return str(numbered(request[field]))


def _operation(request: Json) -> str:
    """Return the name by which an operation is stored, which is below its location."""
    name = _name(request)
    return f"{resources.place_of(name)}/{OPERATIONS}/{resources.last_part(name)}"


def _nothing(request: Json) -> Json:
    check_location(request["parent"])
    return {}
