"""What the console and the status say of jobs that did not run here, but were given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support.jobkit import Api, job, pool

PLACE = "projects/123/locations/us-central1"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[server.RunningServer]:
    with server.running(Settings(tmp_path)) as running:
        yield running


@pytest.mark.parametrize(
    ("more", "replicas"),
    [({}, []), ({"jobSpec": job(pool("pass"), pool("pass"))}, ["workerpool0-0", "workerpool1-0"])],
)
def test_a_given_job_has_the_replicas_of_its_spec(
    here: server.RunningServer, more: dict[str, Any], replicas: list[str]
) -> None:
    """A custom job that was given, and never ran here, has the replicas that its spec names, without a log."""
    server.call(here, "POST", "/v1/resources", {"name": f"{PLACE}/customJobs/77", **more})
    answer = Api(here.url).call("GET", f"/console/v1/{PLACE}/customJobs/77/replicas")
    assert answer.status_code == 200
    assert [(one["name"], one["bytes"]) for one in answer.json()["replicas"]] == [(name, 0) for name in replicas]


def test_a_given_study_without_a_count_is_listed(here: server.RunningServer) -> None:
    """A tuning job that was given without maxTrialCount is among what was made."""
    last = server.call(here, "GET", "/v1/made")["last"]
    server.call(here, "POST", "/v1/resources", {"name": f"{PLACE}/hyperparameterTuningJobs/78"})
    (row,) = server.call(here, "GET", f"/v1/made?after={last}")["made"]
    assert row["trials"] == [0, 0]
