"""The methods of google.cloud.location.Locations, which several APIs have: the regions of the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import Endpoint, Json, endpoint, not_found, query_int
from localvertex.jobs import resources
from localvertex.jobs.listing import answer, portion
from vertexrig.catalog import load


def table() -> list[Endpoint]:
    """Return the routes below the mount of an API."""
    above = "/v1(?:beta1)?/projects/{project}/locations"
    return [endpoint("GET", above, _list), endpoint("GET", f"{above}/{{location}}", _get)]


async def _list(request: Request, path: Mapping[str, str]) -> Response:
    regions = sorted(load().regions)
    size = query_int(request, "pageSize", default=0) or len(regions)
    found, following = portion(regions, size, request.query_params.get("pageToken", ""))
    return JSONResponse(answer("locations", [_shown(path["project"], region) for region in found], following))


async def _get(request: Request, path: Mapping[str, str]) -> Response:
    if path["location"] not in load().regions:
        raise not_found(f"Location {path['location'][:80]!r} is not found.")
    return JSONResponse(_shown(path["project"], path["location"]))


def _shown(project: str, region: str) -> Json:
    name = resources.parent_name(project, region)
    return {"name": name, "locationId": region, "labels": {"cloud.googleapis.com/region": region}}
