"""Where rows are tried: the services of one project, here or in the cloud, and requests to them as they are."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from localvertex.state import AIPLATFORM, LOGGING, SCHEDULER, RunningServer, env
from vertexrig import times
from vertexrig.cloud.rest import Rest, is_loopback
from vertexrig.errors import ServiceError

IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
"""What jobs of the rows run on; none of them imports TensorFlow."""
WAIT_S = 60.0

_HOSTS = {
    "vertex": ("https://{region}-aiplatform.googleapis.com", "AIPLATFORM"),
    "storage": ("https://storage.googleapis.com", "STORAGE"),
    "logging": ("https://logging.googleapis.com", "LOGGING"),
    "scheduler": ("https://cloudscheduler.googleapis.com", "CLOUDSCHEDULER"),
}


@dataclass(frozen=True)
class Target:
    """The services of one project and region.

    Args:
        cloud: Whether this is the real service: jobs cost money and take minutes to start.
        project: Project id.
        region: Region of the jobs.
        bucket: Name of a bucket for packages and outputs.
        urls: Base URL of each service.
        environment: Variables that point gcloud and the SDK there.
        server: The local Vertex, where it is one.
    """

    cloud: bool
    project: str
    region: str
    bucket: str
    urls: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    server: RunningServer | None = None

    @property
    def poll_s(self) -> float:
        """Seconds between two looks at a job."""
        return 0.1 if is_loopback(self.urls["vertex"]) else 5.0

    @property
    def patience(self) -> float:
        """How much longer than on this machine anything may take."""
        return 1.0 if is_loopback(self.urls["vertex"]) else 30.0

    @property
    def package(self) -> str:
        """Where the package of the rows' trainer lies."""
        return f"gs://{self.bucket}/fidelity/fidelity_trainer-1.0.tar.gz"

    def words(self) -> dict[str, Any]:
        """Return what `${...}` in a script means, beside its own steps."""
        return {
            "project": self.project,
            "region": self.region,
            "bucket": self.bucket,
            "parent": f"projects/{self.project}/locations/{self.region}",
            "package": self.package,
            "image": IMAGE,
            "scratch": f"fidelity-{secrets.token_hex(6)}",
            # Two moments that have passed, so that `late` is later than `early` and no service finds them in the
            # future.
            "now": {name: times.rfc3339(times.now().timestamp() - ago) for name, ago in (("early", 2), ("late", 1))},
        }

    def names(self) -> dict[str, str]:
        """Return what a recording must not show, and what takes its place."""
        return {self.bucket: "<bucket>", self.project: "<project>"}


def local(server: RunningServer, bucket: str) -> Target:
    """Return a local Vertex."""
    project, region = "my-project", "us-central1"
    urls = {
        "vertex": f"{server.url}{AIPLATFORM}",
        "storage": server.url,
        "logging": f"{server.url}{LOGGING}",
        "scheduler": f"{server.url}{SCHEDULER}",
    }
    return Target(False, project, region, bucket, urls, env(server, project=project, region=region), server)


def cloud(project: str, region: str, bucket: str) -> Target:
    """Return the real service, or what gcloud's own endpoint overrides in the environment name in its place."""
    urls = {}
    for api, (host, name) in _HOSTS.items():
        named = os.environ.get(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}", "").rstrip("/")
        # gcloud's override for Cloud Storage holds the path of the API, and the scripts' own paths hold it, too.
        urls[api] = re.sub(r"/storage/v1$", "", named) or host.format(region=region)
    variables = {"CLOUDSDK_CORE_PROJECT": project, "CLOUDSDK_AI_REGION": region}
    return Target(True, project, region, bucket, urls, variables)


class Caller:
    """Makes requests and returns what came, also errors.

    Args:
        target: Where to.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._services = {api: Rest(url, api) for api, url in target.urls.items()}

    def __call__(
        self,
        api: str,
        method: str,
        path: str,
        body: Any = None,
        data: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return one request: `{"status", "headers", "body"}`, the body as JSON where it is JSON.

        Raises:
            ServiceError: The service cannot be reached, or there are no credentials for it.
        """
        service = self._services[api]

        def sent() -> requests.Response:
            return service.session.request(
                method, service.url + path, json=body, data=data, headers=dict(headers or {}), timeout=WAIT_S
            )

        try:
            try:
                answer = sent()
            except requests.ConnectionError:
                if method != "GET":
                    raise
                answer = sent()  # the connection that was kept had just been closed
        except requests.RequestException as error:
            raise ServiceError(f"{api} at {service.url} does not answer: {_line(error)}") from None
        except Exception as error:
            # By its name: google.auth is imported only where credentials are looked for.
            if not type(error).__module__.startswith("google.auth"):
                raise
            raise ServiceError(f"no credentials for {api} at {service.url}: {_line(error)}", status=401) from None
        found: Any = answer.text
        if "json" in answer.headers.get("Content-Type", ""):
            try:
                found = json.loads(answer.content)
            except ValueError:
                pass
        return {
            "status": answer.status_code,
            "headers": {name.lower(): value for name, value in answer.headers.items()},
            "body": found,
        }


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
