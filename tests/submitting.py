"""What tests of submitting share: a submitter for a project on a local Vertex, and what it made."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import clouds
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.storage import Storage
from vertexrig.local import server
from vertexrig.submit.claims import Claims, InProgressError
from vertexrig.submit.request import Request
from vertexrig.submit.submission import Submitted, Submitter, request_key

Make = Callable[..., Submitter]


def maker(here: server.RunningServer, folder: Path) -> Make:
    """What makes a submitter for a project in a folder, whose trigger has a given budget."""

    def submitter(*, url: str = "", budget: dict[str, Any] | None = None, **options: Any) -> Submitter:
        data = copy.deepcopy(clouds.PROJECT)
        data["trigger"]["budget"] = budget or {}
        options.setdefault("claims", Claims(Storage(clouds.BUCKET, url=here.url), lease_s=3.0, wait_s=0.5))
        made = clouds.submitter(here, folder, data, **options)
        if url:
            made.vertex.rest = Rest(f"{url}/v1", "Vertex AI", attempts=2, pause=0.01)
        return made

    return submitter


def run(submitter: Submitter, id: str, request: Request | None = None) -> Submitted:
    request = request or Request("cpu")
    return submitter.submit(submitter.prepare(request), request_key(id), request.digest)


def run_after_the_lease(submitter: Submitter, id: str) -> Submitted:
    """Deliver until the lease is out: its age comes in whole seconds by a server that may be a second late."""
    for _ in range(100):
        try:
            return run(submitter, id)
        except InProgressError:
            time.sleep(0.2)
    raise AssertionError(f"the lease of {id} does not end")


def with_claim(here: server.RunningServer, id: str) -> list[str]:
    """Names of the jobs that were made for a request id."""
    found = Storage(clouds.BUCKET, url=here.url).read_json(request_key(id).path)
    label = found["id"] if found else "none"
    return [job.name for job in clouds.jobs(here) if job.labels["vertexrig_claim"] == label]
