"""Readable names of a call: the method's full name, the resource, and the calling program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

from localvertex import bindings
from localvertex.state import AIPLATFORM, CLOUD_BUILD, LOGGING, RESOURCE_MANAGER, SCHEDULER

APIS = {
    "aiplatform": (AIPLATFORM, "google.cloud.aiplatform."),
    "logging": (LOGGING, "google.logging."),
    "cloudscheduler": (SCHEDULER, "google.cloud.scheduler."),
    "cloudbuild": (CLOUD_BUILD, "google.devtools.cloudbuild."),
    "cloudresourcemanager": (RESOURCE_MANAGER, "google.cloud.resourcemanager."),
}
"""The APIs whose methods the shipped table names, by the first part of their hosts' names: the path on the server's own port,
and how their services begin."""
_OPERATIONS = "google.longrunning."
# Regional (`us-central1-aiplatform.`) and regional endpoints of the newer form (`aiplatform.us.rep.`), too.
_HOST = re.compile(r"(?:[a-z0-9-]+-)?([a-z0-9]+)\.(?:[a-z0-9-]+\.rep\.)?googleapis\.com")
_STORAGE = re.compile(r"/(?:resumable/)?(?P<kind>upload/|download/|batch/)?storage/v1(?P<rest>/.*)?")
_RPC = re.compile(r"/(google(?:\.\w+)+)/(\w+)")
"""Path of a gRPC call, which is how one that has no REST route is kept."""
_STORAGE_NAMES = (
    (r"/b", {"GET": "buckets.list", "POST": "buckets.insert"}),
    (r"/b/[^/]+", {"GET": "buckets.get", "PATCH": "buckets.patch", "PUT": "buckets.update", "DELETE": "buckets.delete"}),
    (r"/b/[^/]+/iam", {"GET": "buckets.getIamPolicy", "PUT": "buckets.setIamPolicy"}),
    (r"/b/[^/]+/iam/testPermissions", {"GET": "buckets.testIamPermissions"}),
    (r"/b/[^/]+/o", {"GET": "objects.list", "POST": "objects.insert", "PUT": "objects.insert"}),
    (r"/b/[^/]+/o/[^/]+/compose", {"POST": "objects.compose"}),
    (r"/b/[^/]+/o/[^/]+/rewriteTo/.*", {"POST": "objects.rewrite"}),
    (r"/b/[^/]+/o/[^/]+/copyTo/.*", {"POST": "objects.copy"}),
    (r"/b/[^/]+/o/[^/]+", {"GET": "objects.get", "PATCH": "objects.patch", "PUT": "objects.update", "DELETE": "objects.delete"}),
)  # fmt: skip
"""Methods of Cloud Storage by path below its version and by HTTP method, by the names of the page of coverage."""
_PLAIN = frozenset(
    {
        *("gax", "grpc", "rest", "gl-python", "gl-node", "gl-java", "gl-go", "gapic", "gccl", "auth", "cred-type"),
        *("auth-request-type", "environment", "invocation-id", "gccl-invocation-id", "interactive", "from-script"),
        *("python", "term", "pb", "grpc-python", "grpc-c", "grpc-node-js", "grpc-java-netty", "user-agent", "linux"),
        "google-cloud-sdk",
    }
)
"""Products in the header fields of clients that every client of a kind has, or that differ from call to call."""
_LANGUAGES = {"gl-python": "Python", "gl-node": "Node", "gl-java": "Java", "gl-go": "Go"}
_GCLOUD = re.compile(r"\bgcloud/(\S+) command/gcloud\.(\S+)")
_PRODUCT = re.compile(r"([A-Za-z][\w.-]*)/([\w.+-]+)")
_LONGEST = 60


@lru_cache(maxsize=2048)
def method(http: str, host: str, path: str) -> tuple[str, str]:
    """Return the full name of the method of a request, and the resource; the REST route for a method in no table.

    Args:
        http: GET, POST and so on.
        host: Of Google's APIs, or "" on the server's own port.
        path: Undecoded, without its query.
    """
    api, below = _below(host, path)
    if api:
        for one in bindings.bindings():
            if one.http != http or not one.service.startswith((APIS[api][1], _OPERATIONS)):
                continue
            match = one.pattern.fullmatch(below)
            if match is not None:
                version = match.groupdict().get("version")
                # The table has the names of v1 alone.
                service = one.service.replace(".v1.", ".v1beta1.") if version == "v1beta1" else one.service
                return f"{service}.{one.method}", _resource(below)
    found = _STORAGE.fullmatch(path)
    if found is not None:
        return _storage(http, found)
    found = _RPC.fullmatch(path)
    if found is not None:
        return f"{found[1]}.{found[2]}", ""
    return f"{http} {host}{unquote(path)}"[:300], ""


def _below(host: str, path: str) -> tuple[str, str]:
    """Return the API of a request, "" for another one, and the path below it."""
    if host:
        found = _HOST.fullmatch(host)
        return (found[1], path) if found and found[1] in APIS else ("", path)
    for api, (prefix, _) in APIS.items():
        if path.startswith(f"{prefix}/"):
            return api, path[len(prefix) :]
    return "", path


def _resource(path: str) -> str:
    """Return the part of a path after its location, or all of it."""
    text = unquote(path)
    # The location is the same in most calls, and the page is narrow.
    return re.sub(r"^/v\d\w*/(?:projects/[^/]+/locations/[^/]+/?)?", "", text)[:200]


def _storage(http: str, found: re.Match[str]) -> tuple[str, str]:
    if found["kind"] == "batch/":
        return "storage.batch", ""
    rest = found["rest"] or ""
    for pattern, by_http in _STORAGE_NAMES:
        if http in by_http and re.fullmatch(pattern, rest):
            parts = rest.split("/")
            # Of /b/BUCKET/o/OBJECT.
            named = [unquote(part) for part in (parts[2:3] + parts[4:5])]
            return f"storage.{by_http[http]}", f"gs://{'/'.join(named)}"[:200] if named else ""
    return f"{http} {unquote(found[0])}"[:300], ""


def client(headers: Mapping[str, str]) -> str:
    """Return a short name of the calling program, from its User-Agent and x-goog-api-client."""
    agent, api = headers.get("user-agent", ""), headers.get("x-goog-api-client", "")
    found = _GCLOUD.search(agent)
    if found:
        return f"gcloud {found[1]} {found[2].replace('.', ' ')}"[:_LONGEST]
    products = [*_PRODUCT.findall(agent), *_PRODUCT.findall(api)]
    language = next((_LANGUAGES[name] for name, _ in products if name in _LANGUAGES), "")
    own = list(dict.fromkeys(f"{name} {version}" for name, version in products if name.lower() not in _PLAIN))[:2]
    generated = next((f"gapic {version}" for name, version in products if name in ("gapic", "gccl")), "")
    words = own or ([generated] if generated else [" ".join(products[0])] if products else [])
    shown = " · ".join([*([language] if language else []), *words])
    return (shown or agent or "not named")[:_LONGEST]
