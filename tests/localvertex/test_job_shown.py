"""Trials whose jobs wait, the end of a cancelled job, a job of another project, and a table of BigQuery that the SDK sends as a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support.jobkit import Api, job, pool, with_trainer

STUDY = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
    "algorithm": "RANDOM_SEARCH",
}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with server.running(Settings(with_trainer(tmp_path), slots=1)) as here:
        yield Api(here.url)


def test_a_trial_is_requested_until_its_job_runs(api: Api) -> None:
    """With a place for one job, one trial of a first wave of two is active and the other requested, without a start and a job."""
    body = {"displayName": "s", "studySpec": STUDY, "trialJobSpec": job(pool("import time; time.sleep(30)"))}
    counts = {"maxTrialCount": 3, "parallelTrialCount": 2}
    name = api.call("POST", "hyperparameterTuningJobs", json={**body, **counts}).json()["name"]
    seen: list[tuple[str, bool, bool]] = []
    while [state for state, *_ in seen] != ["ACTIVE", "REQUESTED"]:
        trials = api.get(name).get("trials", [])
        seen = sorted((one["state"], "startTime" in one, "customJob" in one) for one in trials)
    assert seen == [("ACTIVE", True, True), ("REQUESTED", False, False)]
    api.call("POST", f"/vertex/v1/{name}:cancel", json={})
    api.wait(name)


def test_a_cancelled_job_ends_with_its_last_update(api: Api) -> None:
    """Its endTime has microseconds and is the updateTime, other than that of a job which ends by itself."""
    name = api.create(job(pool("import time; time.sleep(60)")))["name"]
    api.wait(name, "JOB_STATE_RUNNING")
    api.call("POST", f"/vertex/v1/{name}:cancel", json={})
    done = api.wait(name)
    assert done["endTime"] == done["updateTime"] and "." in done["endTime"]


def test_the_log_of_a_job_is_that_of_its_project(api: Api) -> None:
    """A job of a project that only the request names has its entries below that project's id."""
    body = {"displayName": "c", "jobSpec": job(pool("print('here')"))}
    answer = api.call("POST", "/vertex/v1/projects/of-its-own/locations/us-central1/customJobs", json=body)
    name = answer.json()["name"]
    api.wait(name)
    wanted = {"resourceNames": ["projects/of-its-own"], "filter": f'resource.labels.job_id="{name.rpartition("/")[2]}"'}
    found = api.call("POST", "/logging/v2/entries:list", json=wanted).json()["entries"]
    assert {one["logName"].split("/")[1] for one in found} == {"of-its-own"}


def test_a_table_of_bigquery_is_read_back_as_text(api: Api) -> None:
    """A list of one table, as the SDK sends it, is shown as that table."""
    table = {"inputConfig": {"bigquerySource": {"uri": ["bq://p.d.t"]}}}
    schema = "gs://google-cloud-aiplatform/schema/dataset/metadata/time_series_1.0.0.yaml"
    body = {"displayName": "d", "metadataSchemaUri": schema, "metadata": table}
    api.call("POST", "datasets", json=body)
    (made,) = api.call("GET", "datasets").json()["datasets"]
    assert made["metadata"]["inputConfig"]["bigquerySource"]["uri"] == "bq://p.d.t"
