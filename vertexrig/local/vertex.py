"""The Vertex AI API over the jobs, studies and pipelines of a local Vertex: routes, listing, operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local import http
from vertexrig.local.http import Coverage, Endpoint, endpoint, in_thread, not_found, query_int
from vertexrig.local.jobs import resources
from vertexrig.local.jobs.listing import page
from vertexrig.local.jobs.resources import CUSTOM_JOBS, OPERATIONS, PIPELINES, TUNING_JOBS, Json
from vertexrig.local.jobs.store import ResourceStore, StoredResource

_PARENT = "/{version}/projects/{project}/locations/{location}"
_VERSIONS = ("v1", "v1beta1")
_PAGE, _LARGEST_PAGE = 100, 1000
_TYPES = {
    CUSTOM_JOBS: "DeleteOperationMetadata", TUNING_JOBS: "DeleteOperationMetadata",
    PIPELINES: "DeleteOperationMetadata",
}  # fmt: skip

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
        more: Routes of further services.
    """

    def __init__(
        self,
        store: ResourceStore,
        owners: Mapping[str, Owner],
        shown: Mapping[str, Callable[[StoredResource], Json]],
        more: Sequence[Endpoint] = (),
    ) -> None:
        self.store, self.owners, self.shown, self.more = store, owners, shown, more

    def table(self) -> list[Endpoint]:
        """The routes, below the API's mount."""
        rows: list[Endpoint] = []
        for kind in (CUSTOM_JOBS, TUNING_JOBS, PIPELINES):
            rows.append(endpoint("POST", f"{_PARENT}/{kind}", self._bound(self.create, kind)))
            rows.append(endpoint("POST", f"{_PARENT}/{kind}/{{id}}(?::|%3A)cancel", self._bound(self.cancel, kind)))
        for kind in (CUSTOM_JOBS, TUNING_JOBS, PIPELINES):
            rows.append(endpoint("GET", f"{_PARENT}/{kind}", self._bound(self.list, kind)))
            rows.append(endpoint("GET", f"{_PARENT}/{kind}/{{id}}", self._bound(self.get, kind)))
            rows.append(endpoint("DELETE", f"{_PARENT}/{kind}/{{id}}", self._bound(self.delete, kind)))
        operation = f"{_PARENT}(?:/[^/]+)*?/operations"  # at whatever resource a client looks for it
        rows.append(endpoint("GET", f"{operation}/{{id}}", self.operation))
        rows.append(endpoint("POST", f"{operation}/{{id}}(?::|%3A)wait", self.operation))
        rows.append(endpoint("POST", f"{operation}/{{id}}(?::|%3A)cancel", self.cancel_operation))
        rows.append(endpoint("DELETE", f"{operation}/{{id}}", self.delete_operation))
        rows.append(endpoint("GET", operation, self.operations))
        return [*rows, *self.more]

    @staticmethod
    def _bound(handler: Callable[..., Any], kind: str) -> http.Handler:
        async def handle(request: Request, path: Mapping[str, str]) -> Response:
            response: Response = await handler(kind, request, path)
            return response

        return handle

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
        await http.read_body(request)
        await in_thread(self.owners[kind].cancel, _name(kind, path))
        return JSONResponse({})

    async def delete(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """DELETE of one resource: a long-running operation, done at once."""
        name = _name(kind, path)

        def work() -> Json:
            self.owners[kind].delete(name)
            parent = _parent(path)
            operation = resources.new_name(parent, OPERATIONS)
            time = resources.now()
            body: Json = {
                "name": operation,
                "metadata": {
                    "@type": f"type.googleapis.com/google.cloud.aiplatform.{path['version']}.{_TYPES[kind]}",
                    "genericMetadata": {"createTime": time, "updateTime": time},
                },
                "done": True,
                "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
            }
            self.store.add(OPERATIONS, parent, operation, body)
            return body

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

    async def operations(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET of a location's operations, the newest first."""
        parent, size = _parent(path), query_int(request, "pageSize", default=0) or _PAGE
        token = request.query_params.get("pageToken", "")

        def work() -> Json:
            found, following = page(self.store, OPERATIONS, parent, "", "", min(size, _LARGEST_PAGE), token)
            answer: Json = {"operations": [stored.body for stored in found]} if found else {}
            return {**answer, "nextPageToken": following} if following else answer

        return JSONResponse(await in_thread(work))

    async def list(self, kind: str, request: Request, path: Mapping[str, str]) -> Response:
        """GET of a collection: filter, pageSize, pageToken, orderBy."""
        parent = _parent(path)
        size = query_int(request, "pageSize", default=0) or _PAGE
        token, text = request.query_params.get("pageToken", ""), request.query_params.get("filter", "")
        order = request.query_params.get("orderBy", "")

        def work() -> Json:
            shown = self.shown.get(kind, _body)
            found, following = page(self.store, kind, parent, text, order, min(size, _LARGEST_PAGE), token)
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
