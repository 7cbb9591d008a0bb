"""Resource Manager's GetProject, v1 and v3: the id and number of a project, which the SDK and Terraform look up."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local.http import VERB, Endpoint, endpoint, invalid, read_json
from vertexrig.local.jobs import resources
from vertexrig.local.jobs.resources import Json

SERVICE = "google.cloud.resourcemanager.v3.Projects"
_MADE = "2026-01-01T00:00:00Z"


class Projects:
    """Every project id is a project here; its number is made from the id.

    Args:
        project: The project of which the number is known before any client names it.
    """

    def __init__(self, project: str) -> None:
        # Only this call leads from the number back to the id.
        resources.project_number(project)

    def table(self) -> list[Endpoint]:
        """The routes, below the API's mount."""
        return [
            endpoint("GET", "/v3/projects/{project}", self.get),
            endpoint("GET", "/v1/projects/{project}", self.get_v1),
            endpoint("POST", f"/v[13]/projects/{{project}}{VERB}testIamPermissions", self.permissions),
        ]

    async def get(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /v3/projects/ID_OR_NUMBER."""
        id_, number = _names(path["project"])
        body: Json = {
            "name": f"projects/{number}", "projectId": id_, "displayName": id_, "state": "ACTIVE",
            "createTime": _MADE, "updateTime": _MADE,
        }  # fmt: skip
        return JSONResponse(body)

    async def get_v1(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET /v1/projects/ID_OR_NUMBER."""
        id_, number = _names(path["project"])
        body = {"projectNumber": number, "projectId": id_, "name": id_, "lifecycleState": "ACTIVE", "createTime": _MADE}
        return JSONResponse(body)

    async def permissions(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /v1/projects/ID:testIamPermissions: every permission is held."""
        return JSONResponse({"permissions": (await read_json(request)).get("permissions", [])})


def _names(given: str) -> tuple[str, str]:
    """Id and number of a project given by either; a number of which no client gave the id is both."""
    if not resources.is_project(given):
        raise invalid(f"Invalid resource name: {given[:80]!r} is not a project id.")
    return resources.project_id(given), resources.project_number(given)
