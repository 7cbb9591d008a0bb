"""Resource Manager's GetProject, v1 and v3: the id and number of a project, which the SDK and Terraform look up."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import VERB, Endpoint, endpoint, invalid, read_json
from localvertex.jobs import resources

_MADE = "2026-01-01T00:00:00Z"
SERVICE = "google.cloud.resourcemanager.v3.Projects"


def table() -> list[Endpoint]:
    """Return the routes below the API's mount; unlike Google's template they accept the colon of domain-scoped projects."""
    return [
        endpoint("GET", "/v(?P<version>[13])/projects/{project}", _project),
        endpoint("POST", f"/v[13]/projects/{{project}}{VERB}testIamPermissions", _permissions),
    ]


async def _project(request: Request, path: Mapping[str, str]) -> Response:
    """GET /v3/projects/ID_OR_NUMBER, and the same of v1."""
    given = path["project"]
    if not resources.is_project(given):
        raise invalid(f"Invalid resource name: {given[:80]!r} is not a project id.")
    # The number stands for an id that no client has sent.
    id_, number = resources.project_id(given), resources.project_number(given)
    if path["version"] == "1":
        v1 = {"projectNumber": number, "projectId": id_, "name": id_, "lifecycleState": "ACTIVE", "createTime": _MADE}
        return JSONResponse(v1)
    about = {"projectId": id_, "displayName": id_, "state": "ACTIVE", "createTime": _MADE, "updateTime": _MADE}
    return JSONResponse({"name": f"projects/{number}", **about})


async def _permissions(request: Request, path: Mapping[str, str]) -> Response:
    """POST /v1/projects/ID:testIamPermissions: every permission is held."""
    return JSONResponse({"permissions": (await read_json(request)).get("permissions", [])})
