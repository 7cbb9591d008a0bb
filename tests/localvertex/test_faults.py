"""Faults on demand: stock-outs, quotas and preemptions by region, machine, number and time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Fault, Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import Api, job, pool, with_trainer
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import UsageError
from vertexrig.submit.scarcity import Scarcity, scarcity_of

L4 = {"machineSpec": {"machineType": "g2-standard-4", "acceleratorType": "NVIDIA_L4", "acceleratorCount": 1}}
STUDY = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "rate", "discreteValueSpec": {"values": [1]}}],
}
TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
WAIT = "import time; time.sleep(600)"


def l4(code: str = "pass", **scheduling: Any) -> dict[str, Any]:
    """A job on a machine with an L4."""
    return job({**pool(code), **L4}, scheduling=scheduling)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("local")
    with_trainer(root)
    with server.running(Settings(root, slots=8, checks=False, options=RunOptions(grace=0.2))) as running:
        yield running


@pytest.fixture
def api(here: server.RunningServer) -> Iterator[Api]:
    api = Api(here.url)
    yield api
    assert api.call("DELETE", f"{server.ADMIN}/v1/faults").status_code == 200


FITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "every job": ("stockout", ("NVIDIA_L4", "g2-standard-4", "us-central1")),
    "an accelerator": ("stockout:NVIDIA_L4", ("NVIDIA_L4",)),
    "a region": ("quota:us-*", ("us-central1",)),
    "a machine in a region": ("stockout:us-central1:g2-*:30m", ("g2-standard-4",)),
    "a machine in another region": ("stockout:europe-*:g2-*:30m", ()),
    "another machine in the region": ("stockout:us-central1:a2-*", ()),
    "none left": ("stockout:0", ()),
    "the time is over": ("stockout:0s", ()),
    "no Spot job": ("preempt", ()),
}


@pytest.mark.parametrize("what", FITS)
def test_a_rule_fits_by_all_its_patterns(what: str) -> None:
    """A rule fits what every pattern names, as often and as long as it says."""
    text, found = FITS[what]
    assert Fault.parse(text).applies_to(l4(), "us-central1") == found


def test_a_rule_has_a_time_and_a_number() -> None:
    """Parts are told by their form, in any order."""
    parsed = Fault.parse("stockout:2:us-central1:1.5s:wait:g2-*")
    assert (parsed.patterns, parsed.times, parsed.lasts, parsed.waits) == (("us-central1", "g2-*"), 2, 1.5, True)
    assert Fault.parse("preempt:g2-*:after=2m").after == 120 and Fault.parse("quota:2h").lasts == 7200
    assert Fault.parse("preempt").applies_to(l4(strategy="SPOT"), "us-central1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flood",
        "stockout:1:2",
        "quota:30m:1h",
        "quota:wait",
        "preempt:wait",
        "stockout:after=3s",
        "quota:30min",
        "quota:for=3s",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    """A text that is no rule is refused with the form of one."""
    with pytest.raises(UsageError, match=r"is not KIND\[:PATTERN\]"):
        Fault.parse(text)


def test_a_timed_stockout_fails_jobs_until_it_is_over(here: server.RunningServer, api: Api) -> None:
    """Jobs on the machine fail in the region in the meantime, with the recorded text and before they begin; after it they run."""
    server.add_fault(here, "stockout:us-central1:g2-*:2s")
    failed = api.wait(api.create(l4())["name"])
    assert failed["error"]["message"].startswith("Resources are insufficient in region: us-central1. ")
    assert "startTime" not in failed
    vertex = Vertex("my-project", "us-central1", url=f"{here.url}/vertex")
    there = vertex.get(failed["name"])
    assert there is not None and scarcity_of(there) is Scarcity.STOCKOUT
    time.sleep(2)
    assert api.wait(api.create(l4())["name"])["state"] == "JOB_STATE_SUCCEEDED"


def test_a_stockout_may_let_jobs_wait(here: server.RunningServer, api: Api) -> None:
    """With `wait` a job stays PENDING, can be cancelled there, and runs when the time is over."""
    server.add_fault(here, "stockout:g2-*:600s:wait")
    waits = api.create(l4())["name"]
    api.wait(waits, "JOB_STATE_PENDING")
    assert api.call("POST", f"/vertex/v1/{waits}:cancel", json={}).status_code == 200
    assert api.wait(waits)["state"] == "JOB_STATE_CANCELLED"
    assert api.call("DELETE", f"{server.ADMIN}/v1/faults").status_code == 200
    server.add_fault(here, "stockout:g2-*:1s:wait")
    begun = time.monotonic()
    assert api.wait(api.create(l4())["name"])["state"] == "JOB_STATE_SUCCEEDED"
    assert time.monotonic() - begun >= 0.9


def test_a_quota_of_a_machine_in_a_region_names_its_metrics(here: server.RunningServer, api: Api) -> None:
    """The refusal names the quota of the accelerator alone, as was recorded."""
    server.add_fault(here, "quota:us-central1:NVIDIA_L4")
    vertex = Vertex("my-project", "us-central1", url=f"{here.url}/vertex")
    with pytest.raises(RestError) as refused:
        vertex.create("customJobs", {"displayName": "x", "jobSpec": l4()})
    assert str(refused.value).endswith("limits: aiplatform.googleapis.com/custom_model_training_nvidia_l4_gpus")
    assert scarcity_of(refused.value) is Scarcity.QUOTA


def test_a_denied_creation_names_permission_and_place(here: server.RunningServer, api: Api) -> None:
    """Jobs, studies and pipelines are refused with 403 by a rule for their machine, each with its own permission; others run."""
    trial = {"displayName": "x", "maxTrialCount": 1, "parallelTrialCount": 1, "studySpec": STUDY, "trialJobSpec": l4()}
    inputs = {"displayName": "x", "trainingTaskDefinition": TASK, "trainingTaskInputs": l4()}
    server.add_fault(here, "denied:g2-*:3")
    asked = {
        "customJobs": {"displayName": "x", "jobSpec": l4()},
        "hyperparameterTuningJobs": trial,
        "trainingPipelines": inputs,
    }
    for kind, body in asked.items():
        answer = api.call("POST", kind, json=body)
        assert answer.status_code == 403
        assert answer.json()["error"]["message"] == (
            f"Permission 'aiplatform.{kind}.create' denied on resource "
            "'//aiplatform.googleapis.com/projects/my-project/locations/us-central1' (or it may not exist)."
        )
    assert api.wait(api.create(l4())["name"])["state"] == "JOB_STATE_SUCCEEDED"


def test_a_spot_job_is_preempted_until_it_gets_no_machines(here: server.RunningServer, api: Api) -> None:
    """A Spot job is taken its machines whenever it runs; the seventh time it fails with a stock-out, having begun."""
    server.add_fault(here, "preempt:g2-*:after=0.1s")
    kept = api.create(l4("pass"))["name"]
    failed = api.wait(api.create(l4(WAIT, strategy="SPOT"))["name"])
    assert failed["state"] == "JOB_STATE_FAILED" and failed["startTime"]
    there = Vertex("my-project", "us-central1", url=f"{here.url}/vertex").get(failed["name"])
    assert there is not None and scarcity_of(there) is Scarcity.PREEMPTED
    assert api.wait(kept)["state"] == "JOB_STATE_SUCCEEDED"


def test_a_spot_job_that_is_preempted_once_starts_again(here: server.RunningServer, api: Api) -> None:
    """A rule with a number takes the machines so often, and the job starts again."""
    server.add_fault(here, "preempt:us-central1:1")
    made = api.create(l4("import time; time.sleep(1)", strategy="SPOT"))["name"]
    assert api.wait(made)["state"] == "JOB_STATE_SUCCEEDED"
    (rule,) = api.call("GET", f"{server.ADMIN}/v1/status").json()["faults"]
    assert rule == {"kind": "preempt", "patterns": ["us-central1"], "times": 0}
