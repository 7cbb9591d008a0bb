"""What the console and the status say of jobs that did not run here, but were given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support.jobkit import IMAGE, Api, job, pool, sdist

PLACE = "projects/123/locations/us-central1"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    with server.running(Settings(tmp_path_factory.mktemp("views"))) as running:
        yield running


@pytest.mark.parametrize(
    ("number", "more", "replicas"),
    [(76, {}, []), (77, {"jobSpec": job(pool("pass"), pool("pass"))}, ["workerpool0-0", "workerpool1-0"])],
)
def test_a_given_job_has_the_replicas_of_its_spec(
    here: server.RunningServer, number: int, more: dict[str, Any], replicas: list[str]
) -> None:
    """A custom job that was given, and never ran here, has the replicas that its spec names, without a log."""
    server.call(here, "POST", "/v1/resources", {"name": f"{PLACE}/customJobs/{number}", **more})
    answer = Api(here.url).call("GET", f"/console/v1/{PLACE}/customJobs/{number}/replicas")
    assert answer.status_code == 200
    assert [(one["name"], one["bytes"]) for one in answer.json()["replicas"]] == [(name, 0) for name in replicas]


def test_a_given_study_without_a_count_is_listed(here: server.RunningServer) -> None:
    """A tuning job that was given without maxTrialCount is among what was made."""
    last = server.call(here, "GET", "/v1/made")["last"]
    server.call(here, "POST", "/v1/resources", {"name": f"{PLACE}/hyperparameterTuningJobs/78"})
    (row,) = server.call(here, "GET", f"/v1/made?after={last}")["made"]
    assert row["trials"] == [0, 0]


def test_an_installation_shows_what_it_does(here: server.RunningServer) -> None:
    """While pip installs a job's package, what was made says so, and no more once the job runs or has failed."""
    setup = "import time\nfrom setuptools import setup\ntime.sleep(1)\nsetup(name='slow', packages=['slow'])\n"
    sdist(here.root / "gs/packages/slow.tar.gz", name="slow", task="print(1)", setup=setup)
    spec = {
        "machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1,
        "pythonPackageSpec": {"executorImageUri": IMAGE, "packageUris": ["gs://packages/slow.tar.gz"], "pythonModule": "slow.task"},
    }  # fmt: skip
    last, api = server.call(here, "GET", "/v1/made")["last"], Api(here.url)
    name = api.call("POST", "customJobs", json={"displayName": "slow", "jobSpec": job(spec)}).json()["name"]
    steps = set()
    while not (row := server.call(here, "GET", f"/v1/made?after={last}")["made"][0])["ended"]:
        steps.add(row["step"])
        time.sleep(0.1)
    assert any("gs://packages/slow.tar.gz" in step or "slow.tar.gz" in step for step in steps), steps
    assert row["step"] == "" and api.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
