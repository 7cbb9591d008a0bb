"""Stand-ins for what programs do to a project before they train: services, repositories, accounts, policies. Nothing is really done."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import VERB, ApiError, Endpoint, Json, endpoint, in_thread, not_found, read_json
from localvertex.jobs import resources

ENABLED = tuple(
    f"{name}.googleapis.com"
    for name in (
        "aiplatform",
        "artifactregistry",
        "cloudresourcemanager",
        "cloudscheduler",
        "iam",
        "logging",
        "storage",
    )
)
_REGISTRY = "type.googleapis.com/google.devtools.artifactregistry.v1."
_PROJECT = "/v[^/]+/projects/{project}"


class Housekeeping:
    """Plausible answers of Service Usage, Artifact Registry, IAM and a project's policy, kept in memory.

    `images` gives the images on this machine by name, each with the digest of its content.
    """

    def __init__(self, images: Callable[[], Mapping[str, str]]) -> None:
        self._images = images
        self._enabled: dict[str, None] = dict.fromkeys(ENABLED)
        self._made: dict[str, Json] = {}
        self._policies: dict[str, Json] = {}

    def apis(self) -> dict[str, tuple[str, list[Endpoint]]]:
        """Return, by the first part of an API's host, the beginning of its paths and its routes."""
        services, accounts = f"{_PROJECT}/services", f"{_PROJECT}/serviceAccounts"
        repositories = f"{_PROJECT}/locations/{{location}}/repositories"
        policy = f"{_PROJECT}{VERB}"
        found = {
            "serviceusage": (
                endpoint("GET", services, self._list_services),
                endpoint("GET", f"{services}/{{service}}", self._service),
                endpoint("POST", f"{services}/{{service}}{VERB}enable", self._enable),
                endpoint("POST", f"{services}{VERB}batchEnable", self._enable),
            ),
            "artifactregistry": (
                endpoint("GET", repositories, self._list),
                endpoint("POST", repositories, self._make_repository),
                endpoint("GET", f"{repositories}/{{id}}", self._get),
                endpoint("GET", f"{repositories}/{{id}}/dockerImages", self._list_images),
                endpoint("GET", f"{_PROJECT}/locations/{{location}}/operations/{{id}}", self._get),
            ),
            "iam": (
                endpoint("GET", accounts, self._list),
                endpoint("POST", accounts, self._make_account),
                endpoint("GET", f"{accounts}/{{id}}", self._account),
            ),
            "cloudresourcemanager": (
                endpoint("POST", f"{policy}getIamPolicy", self._policy),
                endpoint("POST", f"{policy}setIamPolicy", self._set_policy),
            ),
        }
        # Resource Manager itself is served; only its policies have a stand-in.
        paths = {"cloudresourcemanager": f"/v[^/]+/projects/[^/]+{VERB}[gs]etIamPolicy$"}
        return {name: (paths.get(name, ""), list(rows)) for name, rows in found.items()}

    def _shown(self, project: str, service: str) -> Json:
        name = f"projects/{resources.project_number(project)}/services/{service}"
        state = "ENABLED" if service in self._enabled else "DISABLED"
        return {"name": name, "state": state, "config": {"name": service, "title": service}}

    async def _list_services(self, request: Request, path: Mapping[str, str]) -> Response:
        return JSONResponse({"services": [self._shown(path["project"], one) for one in sorted(self._enabled)]})

    async def _service(self, request: Request, path: Mapping[str, str]) -> Response:
        return JSONResponse(self._shown(path["project"], path["service"]))

    async def _enable(self, request: Request, path: Mapping[str, str]) -> Response:
        named = [path["service"]] if "service" in path else (await read_json(request)).get("serviceIds") or []
        self._enabled |= dict.fromkeys(map(str, named))
        shown = [self._shown(path["project"], one) for one in map(str, named)]
        return JSONResponse({"name": "operations/done", "done": True, "response": {"services": shown}})

    async def _list(self, request: Request, path: Mapping[str, str]) -> Response:
        name = _name(request)
        field = "repositories" if name.endswith("/repositories") else "accounts"
        return JSONResponse({field: [one for key, one in self._made.items() if key.startswith(f"{name}/")]})

    async def _list_images(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET …/repositories/ID/dockerImages: those on this machine, with the tags of each."""
        start = f"{path['location']}-docker.pkg.dev/{path['project']}/{path['id']}/"
        found: dict[str, Json] = {}
        for name, digest in (await in_thread(self._images)).items():
            if name.startswith(start):
                repository, _, tag = name.rpartition(":")
                uri = f"{repository}@{digest}"
                listed = found.setdefault(
                    uri, {"name": f"{_name(request)}/{uri.removeprefix(start)}", "uri": uri, "tags": []}
                )
                listed["tags"].append(tag)
        return JSONResponse({"dockerImages": list(found.values())})

    async def _get(self, request: Request, path: Mapping[str, str]) -> Response:
        found = self._made.get(_name(request))
        if found is None:
            raise not_found("Requested entity was not found.")
        return JSONResponse(found)

    async def _account(self, request: Request, path: Mapping[str, str]) -> Response:
        name = f"/serviceAccounts/{path['id']}"
        # gcloud names no project here: it writes `-`.
        found = next((one for key, one in self._made.items() if key.endswith(name)), None)
        return JSONResponse(found) if found and path["project"] == "-" else await self._get(request, path)

    async def _make_repository(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST …/repositories: the answer's fields and words are those of recordings (k8s-config-connector, 2026-08)."""
        id_ = request.query_params.get("repositoryId", "repository")
        name, time = f"{_name(request)}/{id_}", resources.now()
        if name in self._made:
            raise ApiError(409, "the repository already exists")
        made = {"mode": "STANDARD_REPOSITORY", **await read_json(request), "name": name}
        host = f"{path['location']}-{made.get('format', 'docker').lower()}.pkg.dev"
        times = {"createTime": time, "updateTime": time}
        self._keep(name, {**made, **times, "registryUri": f"{host}/{path['project'].replace(':', '/')}/{id_}"})
        # gcloud looks the operation up, though it is done.
        operation = f"{name.partition('/repositories/')[0]}/operations/{uuid.uuid4()}"
        done: Json = {"done": True, "metadata": {"@type": f"{_REGISTRY}OperationMetadata"}}
        done |= {"response": {"@type": f"{_REGISTRY}Repository", **made}}
        return JSONResponse(self._keep(operation, {"name": operation, **done}))

    async def _make_account(self, request: Request, path: Mapping[str, str]) -> Response:
        body, project = await read_json(request), path["project"]
        email = f"{body.get('accountId', '')}@{project.rpartition(':')[2]}.iam.gserviceaccount.com"
        name = f"{_name(request)}/{email}"
        more = {"name": name, "email": email, "projectId": project, "uniqueId": str(10**20 + len(self._made))}
        return JSONResponse(self._keep(name, {**(body.get("serviceAccount") or {}), **more}))

    def _keep(self, name: str, made: Json) -> Json:
        if name in self._made:
            raise ApiError(409, f"Requested entity already exists: {name[:200]}")
        self._made[name] = made
        return made

    async def _policy(self, request: Request, path: Mapping[str, str]) -> Response:
        empty = {"version": 1, "etag": "BwAAAAAAAAA=", "bindings": []}
        return JSONResponse(self._policies.get(path["project"], empty))

    async def _set_policy(self, request: Request, path: Mapping[str, str]) -> Response:
        policy = (await read_json(request)).get("policy") or {}
        self._policies[path["project"]] = policy
        return JSONResponse(policy)


def _name(request: Request) -> str:
    """Return the resource's name, which is the path behind the version."""
    return request.url.path.split("/", 2)[2]
