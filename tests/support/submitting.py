"""What tests of submitting share: a submitter for a project, and what it made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import clouds
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.vertex import Vertex
from vertexrig.submit.claims import Claims, request_key
from vertexrig.submit.submission import Request, Submitted, Submitter

Make = Callable[..., Submitter]


def maker(here: clouds.Cloud, folder: Path) -> Make:
    """What makes a submitter for a project in a folder, whose trigger has a given budget."""

    def submitter(*, url: str = "", budget: dict[str, Any] | None = None, **options: Any) -> Submitter:
        data = copy.deepcopy(clouds.PROJECT)
        data["trigger"]["budget"] = budget or {}
        options.setdefault("claims", Claims(clouds.storage(here), lease_s=3.0, wait_s=0.5))
        if url:
            options["vertex"] = Vertex("my-project", "us-central1", url=url)
            options["vertex"].rest = Rest(f"{url}/v1", "Vertex AI", attempts=2, pause=0.01)
        return clouds.submitter(here, folder, data, **options)

    return submitter


def run(submitter: Submitter, id: str, request: Request | None = None) -> Submitted:
    request = request or Request("cpu")
    return submitter.submit(submitter.prepare_candidates(request)[0], request_key(id), request.digest)


def with_claim(here: clouds.Cloud, id: str) -> list[str]:
    """Names of the jobs that were made for a request id."""
    found = clouds.storage(here).read_json(request_key(id).path)
    label = found["id"] if found else "none"
    return [job.name for job in clouds.jobs(here) if job.labels["vertexrig_claim"] == label]
