"""Collections that are there and always empty, so that a client that lists everything of a project goes on."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local import http, methods
from vertexrig.local.http import Coverage, Endpoint
from vertexrig.local.services.service import PACKAGE, check_place

# service, method, and the method's name on the coverage page
_LISTS = (
    ("EndpointService", "ListEndpoints", "aiplatform.endpoints.list"),
    ("PipelineService", "ListPipelineJobs", "aiplatform.pipelineJobs.list"),
    ("JobService", "ListNasJobs", "aiplatform.nasJobs.list"),
    ("JobService", "ListBatchPredictionJobs", "aiplatform.batchPredictionJobs.list"),
)

METHODS = frozenset((f"{PACKAGE}.{service}", method) for service, method, _ in _LISTS)
"""Full name of the service, and the method."""
COVERAGE = tuple(Coverage(name, "approximated", "Always empty.") for _, _, name in _LISTS)


def rows() -> list[Endpoint]:
    """The routes of these lists."""
    return [
        Endpoint(binding.http, binding.pattern, _nothing)
        for service, method, _ in _LISTS
        for binding in methods.of_service(f"{PACKAGE}.{service}")[method]
        if binding.variables  # not the one without a project
    ]


async def _nothing(request: Request, path: Mapping[str, str]) -> Response:
    """An empty list; 400 for a place that is none."""
    await http.read_body(request)
    check_place(path["v0"])
    return JSONResponse({})
