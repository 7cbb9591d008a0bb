"""The plugin for pytest, used as other projects use it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import requests

from localvertex.testing import LocalVertex
from tests.support.jobkit import job, pool, sdist

JOBS = "https://us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/us-central1/customJobs"


def create(vertex: LocalVertex, code: str) -> dict[str, Any]:
    sdist(vertex.bucket("packages") / "trainer.tar.gz")
    answer = requests.post(JOBS, json={"displayName": "made", "jobSpec": job(pool(code))})
    answer.raise_for_status()
    return answer.json()  # type: ignore[no-any-return]


def test_jobs_of_a_test_are_awaited_with_their_ends_and_findings(local_vertex: LocalVertex) -> None:
    """Requests to Google's real addresses make jobs here, which `wait` returns in their order, and `findings` checks."""
    create(local_vertex, "open('/gcs/packages/done', 'w').write('x')")
    create(local_vertex, "raise SystemExit(3)")
    done, failed = local_vertex.wait(timeout=120)
    assert done.succeeded and done.display_name == "made" and done.body["name"] == done.name
    assert (local_vertex.bucket("packages") / "done").read_text() == "x"
    assert not failed.succeeded and "non-zero status of 3" in failed.error
    assert [{one.id for one in found} >= {"image-availability"} for found in local_vertex.findings()] == [True, True]


def test_a_job_that_does_not_end_is_named(local_vertex: LocalVertex) -> None:
    """`wait` gives up after its time and names the jobs; the fixture cancels them, as the next test shows."""
    create(local_vertex, "import time; time.sleep(600)")
    with pytest.raises(TimeoutError, match=r"after 0\.1 s these jobs have not ended: made"):
        local_vertex.wait(timeout=0.1)


def test_each_test_starts_with_nothing(local_vertex: LocalVertex) -> None:
    """The jobs and buckets of the tests above are gone, and the credentials are those of the made-up account."""
    assert local_vertex.jobs() == [] and requests.get(JOBS).json() == {}
    assert "items" not in requests.get("https://storage.googleapis.com/storage/v1/b?project=p").json()
    assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"].endswith("front/credentials.json")
