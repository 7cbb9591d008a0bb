"""The Vertex AI API over the jobs, studies and pipelines of a local Vertex: routes, listing, operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local import http
from vertexrig.local.http import VERB, Coverage, Endpoint, endpoint, in_thread, not_found, query_int
from vertexrig.local.jobs import resources
from vertexrig.local.jobs.listing import page
from vertexrig.local.jobs.resources import CUSTOM_JOBS, OPERATIONS, PIPELINES, TUNING_JOBS, Json
from vertexrig.local.jobs.store import ResourceStore, StoredResource
from vertexrig.local.services.service import Done, operation

_PARENT = "/{version}/projects/{project}/locations/{location}"
_VERSIONS = ("v1", "v1beta1")
_PAGE, _LARGEST_PAGE = 100, 1000
_KINDS = (CUSTOM_JOBS, TUNING_JOBS, PIPELINES)

COVERAGE = (
    Coverage(
        "aiplatform.customJobs.create", "served", "Unknown fields and failed checks are refused in the service's words."
    ),
    Coverage("aiplatform.customJobs.get", "served"),
    Coverage("aiplatform.customJobs.list", "served", "Filter, paging and orderBy; readMask is ignored."),
    Coverage("aiplatform.customJobs.cancel", "served"),
    Coverage(
        "aiplatform.customJobs.delete",
        "approximated",
        "A job that has not ended is refused; the operation is done at once.",
    ),
    Coverage("aiplatform.hyperparameterTuningJobs.create", "served"),
    Coverage("aiplatform.hyperparameterTuningJobs.get", "served"),
    Coverage("aiplatform.hyperparameterTuningJobs.list", "served"),
    Coverage("aiplatform.hyperparameterTuningJobs.cancel", "served"),
    Coverage("aiplatform.hyperparameterTuningJobs.delete", "approximated", "As for custom jobs."),
    Coverage(
        "aiplatform.trainingPipelines.create",
        "approximated",
        "Custom tasks only; of managed datasets, tabular ones with a source in Cloud Storage.",
    ),
    Coverage("aiplatform.trainingPipelines.get", "served"),
    Coverage("aiplatform.trainingPipelines.list", "served"),
    Coverage("aiplatform.trainingPipelines.cancel", "served"),
    Coverage("aiplatform.trainingPipelines.delete", "served"),
    Coverage("aiplatform.operations.get", "served", "Operations are done when they are returned."),
    Coverage(
        "aiplatform.operations.list",
        "served",
        "Those of a location, at whatever resource one asks; the filter is ignored.",
    ),
    Coverage("aiplatform.operations.wait", "served"),
    Coverage("aiplatform.operations.cancel", "approximated", "Operations are done, so nothing happens."),
    Coverage("aiplatform.operations.delete", "served"),
)


class Owner(Protocol):
    """What looks after the resources of a collection; each method raises `ApiError`."""

    def create(self, parent: str, body: Mapping[str, Any]) -> Json: ...
    def get(self, name: str) -> Json: ...
    def cancel(self, name: str) -> None: ...
    def delete(self, name: str) -> None: ...


class VertexApi:
    """Handlers of the API.

    Args:
        store: Where resources are kept.
        owners: By collection.
        shown: By collection, how a stored resource is listed where it is not as stored.
    """

    def __init__(
        self,
        store: ResourceStore,
        owners: Mapping[str, Owner],
        shown: Mapping[str, Callable[[StoredResource], Json]],
    ) -> None:
        self.store, self.owners, self.shown = store, owners, shown

    def table(self) -> list[Endpoint]:
        """The routes, below the API's mount."""
        rows: list[Endpoint] = []
        for kind in _KINDS:
            every, one = f"{_PARENT}/{kind}", f"{_PARENT}/{kind}/{{id}}"
            # Tried in this order: `:cancel` before an id, which would take the verb for its end.
            rows += [
                endpoint("POST", every, partial(self.create, kind)),
                endpoint("POST", f"{one}{VERB}cancel", partial(self.cancel, kind)),
                endpoint("GET", every, partial(self.list, kind)),
                endpoint("GET", one, partial(self.get, kind)),
                endpoint("DELETE", one, partial(self.delete, kind)),
            ]
        every = f"{_PARENT}(?:/[^/]+)*?/{OPERATIONS}"  # at whatever resource a client looks for it
        one = f"{every}/{{id}}"
        return [
            *rows,
            endpoint("GET", one, self.operation),
            endpoint("POST", f"{one}{VERB}wait", self.operation),
            endpoint("POST", f"{one}{VERB}cancel", self.cancel_operation),
            endpoint("DELETE", one, self.delete_operation),
            endpoint("GET", every, partial(self.list, OPERATIONS)),
        ]

    async def create(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """POST to a collection."""
        parent = _parent(path)
        body = await http.read_json(request)
        return JSONResponse(await in_thread(self.owners[kind].create, parent, body))

    async def get(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """GET of one resource."""
        return JSONResponse(await in_thread(self.owners[kind].get, _name(kind, path)))

    async def cancel(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """POST :cancel."""
        # Read, though nothing is wanted of it: with a body unread the connection cannot be used again.
        await http.read_body(request)
        await in_thread(self.owners[kind].cancel, _name(kind, path))
        return JSONResponse({})

    async def delete(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """DELETE of one resource: a long-running operation, done at once."""
        name = _name(kind, path)

        def work() -> Json:
            self.owners[kind].delete(name)
            return operation(self.store, Done(_parent(path), "DeleteOperationMetadata"), path["version"])

        return JSONResponse(await in_thread(work))

    async def operation(self, request: Request, path: Mapping[str, str]) -> Response:
        """An operation; it is done, so that waiting for it is looking at it."""
        await http.read_body(request)
        name = _name(OPERATIONS, path)
        stored = await in_thread(self.store.get, name)
        if stored is None:
            raise not_found(f"The Operation does not exist: {name}")
        return JSONResponse(stored.body)

    async def cancel_operation(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST :cancel of an operation that is done: nothing happens."""
        await self.operation(request, path)
        return JSONResponse({})

    async def delete_operation(self, request: Request, path: Mapping[str, str]) -> Response:
        """DELETE of an operation: it is forgotten."""
        await self.operation(request, path)
        await in_thread(self.store.remove, _name(OPERATIONS, path))
        return JSONResponse({})

    async def list(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """GET of a collection: pageSize, pageToken, and for what is not an operation filter and orderBy."""
        parent, asked = _parent(path), request.query_params
        # 0 is unset, and too much is cut, as AIP-158 asks.
        size = min(query_int(request, "pageSize", default=0) or _PAGE, _LARGEST_PAGE)
        text, order = ("", "") if kind == OPERATIONS else (asked.get("filter", ""), asked.get("orderBy", ""))

        def work() -> Json:
            shown = self.shown.get(kind, _body)
            found, following = page(self.store, kind, parent, text, order, size, asked.get("pageToken", ""))
            answer: Json = {kind: [shown(stored) for stored in found]} if found else {}
            return {**answer, "nextPageToken": following} if following else answer

        return JSONResponse(await in_thread(work))


def _body(stored: StoredResource) -> Json:
    return stored.body


def _parent(path: Mapping[str, str]) -> str:
    if path["version"] not in _VERSIONS:
        raise not_found(f"The local Vertex serves {' and '.join(_VERSIONS)}, not {path['version'][:20]!r}.")
    return resources.parent_name(path["project"], path["location"])


def _name(kind: str, path: Mapping[str, str]) -> str:
    return f"{_parent(path)}/{kind}/{path['id']}"
