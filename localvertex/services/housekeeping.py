"""Stand-ins for what programs do to a project before they train: services, repositories, accounts, policies. Nothing is really done."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import VERB, ApiError, Endpoint, Json, endpoint, in_thread, not_found, read_json
from localvertex.jobs import resources

ENABLED = tuple(
    f"{name}.googleapis.com"
    for name in (
        "aiplatform",
        "artifactregistry",
        "cloudbuild",
        "cloudresourcemanager",
        "cloudscheduler",
        "iam",
        "logging",
        "storage",
    )
)
_REGISTRY = "type.googleapis.com/google.devtools.artifactregistry.v1."
_GCR = re.compile(r"((?:us\.|eu\.|asia\.)?gcr\.io)/([^/]+)/")
_PLACES = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}
"""Where Artifact Registry has the repositories of Container Registry's hosts."""
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
        package = f"{repositories}/{{id}}/packages/{{package}}"
        policy = f"{_PROJECT}{VERB}"
        found = {
            "serviceusage": (
                endpoint("GET", services, self._list_services),
                endpoint("GET", f"{services}/{{service}}", self._service),
                endpoint("POST", f"{services}/{{service}}{VERB}enable", self._enable),
                endpoint("POST", f"{services}{VERB}batchEnable", self._enable),
            ),
            "artifactregistry": (
                endpoint("GET", repositories, self._list_repositories),
                endpoint("POST", repositories, self._make_repository),
                endpoint("GET", f"{repositories}/{{id}}", self._repository),
                endpoint("DELETE", f"{repositories}/{{id}}", self._delete_repository),
                endpoint("GET", f"{repositories}/{{id}}/dockerImages", self._list_images),
                endpoint("GET", f"{repositories}/{{id}}/packages", self._list_packages),
                endpoint("GET", f"{package}/(?P<kind>tags|versions)", self._list_parts),
                endpoint("GET", f"{package}/(?P<kind>tags|versions)/{{part}}", self._part),
                endpoint("GET", f"{_PROJECT}/projectSettings", self._settings),
                endpoint("GET", f"{_PROJECT}/locations", self._list_locations),
                endpoint("GET", f"{_PROJECT}/locations/{{location}}/operations/{{id}}", self._get),
            ),
            # What `gcloud artifacts docker images describe` asks about an image: nothing scans it.
            "containeranalysis": (
                endpoint("GET", f"{_PROJECT}(?:/locations/{{location}})?/occurrences", self._nothing),
            ),
            "iam": (
                endpoint("GET", accounts, self._list_accounts),
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

    async def _list_accounts(self, request: Request, path: Mapping[str, str]) -> Response:
        found = [one for key, one in self._made.items() if key.startswith(f"{_name(request)}/")]
        return JSONResponse({"accounts": found})

    async def _in(self, path: Mapping[str, str]) -> dict[str, dict[str, list[str]]]:
        """Return the tags of the images of a repository (of all, without an id) by `REPOSITORY/IMAGE` and digest."""
        start = f"{path['location']}-docker.pkg.dev/{path['project']}/"
        below = f"{path['id']}/" if "id" in path else ""
        found: dict[str, dict[str, list[str]]] = {}
        for name, digest in (await in_thread(self._images)).items():
            image, _, tag = _GCR.sub(_redirected, name).rpartition(":")
            if image.startswith(start + below):
                found.setdefault(image.removeprefix(start), {}).setdefault(digest, []).append(tag)
        return found

    async def _list_images(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET …/repositories/ID/dockerImages: those on this machine, with the tags of each."""
        rows = []
        for image, digests in (await self._in(path)).items():
            for digest, tags in digests.items():
                name = f"{_name(request)}/{image.partition('/')[2]}@{digest}"
                uri = f"{path['location']}-docker.pkg.dev/{path['project']}/{image}@{digest}"
                rows.append({"name": name, "uri": uri, "tags": tags})
        return JSONResponse({"dockerImages": rows})

    async def _repository(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET …/repositories/ID: one that was made, or that an image of this machine names."""
        if _name(request) not in self._made and await self._in(path):
            return JSONResponse(_implied(_name(request)))
        return await self._get(request, path)

    async def _list_locations(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET …/locations: those with a repository."""
        images = [_GCR.sub(_redirected, name) for name in await in_thread(self._images)]
        named = re.compile(rf"([a-z0-9-]+)-docker\.pkg\.dev/{re.escape(path['project'])}/")
        found = {match[1] for name in images if (match := named.match(name))}
        found |= {key.split("/")[3] for key in self._made if key.startswith(f"{_name(request)}/")}
        rows = [{"name": f"{_name(request)}/{one}", "locationId": one} for one in sorted(found)]
        return JSONResponse({"locations": rows})

    async def _list_repositories(self, request: Request, path: Mapping[str, str]) -> Response:
        names = {f"{_name(request)}/{image.partition('/')[0]}" for image in await self._in(path)}
        made = {key: one for key, one in self._made.items() if key.startswith(f"{_name(request)}/")}
        return JSONResponse({"repositories": [*made.values(), *map(_implied, sorted(names - set(made)))]})

    async def _list_packages(self, request: Request, path: Mapping[str, str]) -> Response:
        images = [image.partition("/")[2] for image in await self._in(path)]
        names = [f"{_name(request)}/{image.replace('/', '%2F')}" for image in images]
        return JSONResponse({"packages": [{"name": name} for name in names]})

    async def _parts(self, path: Mapping[str, str]) -> dict[str, Json]:
        """Return the tags or versions of an image by their ids; 404 where the image is not here."""
        # gcloud encodes the slashes of a name, and then the percent signs.
        path = {**path, "package": unquote(path["package"])}
        found = (await self._in(path)).get(f"{path['id']}/{path['package']}")
        if found is None:
            raise not_found()
        repository = f"projects/{path['project']}/locations/{path['location']}/repositories/{path['id']}"
        above = f"{repository}/packages/{path['package'].replace('/', '%2F')}"
        tags = {
            tag: {"name": f"{above}/tags/{tag}", "version": f"{above}/versions/{digest}"}
            for digest, tags in found.items() for tag in tags
        }  # fmt: skip
        if path["kind"] == "tags":
            return tags
        return {
            digest: {"name": f"{above}/versions/{digest}", "relatedTags": [tags[tag] for tag in named]}
            for digest, named in found.items()
        }

    async def _list_parts(self, request: Request, path: Mapping[str, str]) -> Response:
        # gcloud filters tags by `version="…"`.
        wanted = request.query_params.get("filter", "").removeprefix("version=").strip('"')
        rows = [one for one in (await self._parts(path)).values() if not wanted or one.get("version") == wanted]
        return JSONResponse({path["kind"]: rows})

    async def _part(self, request: Request, path: Mapping[str, str]) -> Response:
        found = (await self._parts(path)).get(path["part"])
        if found is None:
            raise not_found()
        return JSONResponse(found)

    async def _settings(self, request: Request, path: Mapping[str, str]) -> Response:
        name = f"projects/{path['project']}/projectSettings"
        return JSONResponse({"name": name, "legacyRedirectionState": "REDIRECTION_FROM_GCR_IO_ENABLED"})

    async def _nothing(self, request: Request, path: Mapping[str, str]) -> Response:
        return JSONResponse({})

    async def _get(self, request: Request, path: Mapping[str, str]) -> Response:
        found = self._made.get(_name(request))
        if found is None:
            raise not_found()
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
        return self._done(name, {"@type": f"{_REGISTRY}Repository", **made})

    async def _delete_repository(self, request: Request, path: Mapping[str, str]) -> Response:
        """DELETE …/repositories/ID: the images of this machine stay, and so does a repository that one of them names."""
        name = _name(request)
        if name not in self._made and not await self._in(path):
            raise not_found()
        self._made.pop(name, None)
        return self._done(name, {"@type": "type.googleapis.com/google.protobuf.Empty"})

    def _done(self, repository: str, answer: Json) -> Response:
        """Return an operation that is done; gcloud looks it up all the same."""
        name = f"{repository.partition('/repositories/')[0]}/operations/{uuid.uuid4()}"
        metadata = {"@type": f"{_REGISTRY}OperationMetadata"}
        return JSONResponse(self._keep(name, {"name": name, "done": True, "metadata": metadata, "response": answer}))

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


def _redirected(match: re.Match[str]) -> str:
    return f"{_PLACES[match[1]]}-docker.pkg.dev/{match[2]}/{match[1]}/"


def _implied(name: str) -> Json:
    return {"name": name, "format": "DOCKER", "mode": "STANDARD_REPOSITORY"}


def _name(request: Request) -> str:
    """Return the resource's name, which is the path behind the version."""
    return request.url.path.split("/", 2)[2]
