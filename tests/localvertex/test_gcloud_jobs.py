"""The real gcloud against the local Vertex: custom jobs and tuning jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions, servicelog
from tests.localvertex.conftest import environment
from tests.support.jobkit import Api, job, pool, with_trainer
from tests.support.tools import need

Gcloud = Callable[..., subprocess.CompletedProcess[str]]
WAIT = "print('up', flush=True)\nimport time; time.sleep(600)"
REPORT = """
import time
rate = float(next(arg for arg in args if arg.startswith('--rate=')).partition('=')[2])
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:
    file.write(json.dumps({'timestamp': time.time(), 'trial': os.environ['CLOUD_ML_TRIAL_ID'], 'accuracy': str(1 - rate), 'global_step': '1', 'checkpoint_path': ''}) + '\\n')
"""

# What gcloud prints in public recordings of the real service (2022 to 2026-04), numbers and addresses blanked.
CREATED = """\
Using endpoint [ENDPOINT]
CustomJob [projects/N/locations/us-central1/customJobs/N] is submitted successfully.

Your job is still active. You may view the status of your job with the command

  $ gcloud ai custom-jobs describe projects/N/locations/us-central1/customJobs/N

or continue streaming the logs with the command

  $ gcloud ai custom-jobs stream-logs projects/N/locations/us-central1/customJobs/N
"""
CANCELLED = """\
Using endpoint [ENDPOINT]
Request to cancel CustomJob [projects/my-project/locations/us-central1/customJobs/N] has been sent.

You may view the status of your job with the command

  $ gcloud ai custom-jobs describe projects/my-project/locations/us-central1/customJobs/N

"""
TUNING_CANCELLED = """\
Using endpoint [ENDPOINT]
Request to cancel hyperparameter tuning job [N] has been sent.

You may view the status of your job with the command

  $ gcloud ai hp-tuning-jobs describe N --region=us-central1

"""
DESCRIBED = """\
createTime: 'MICROSECONDS'
displayName: from-gcloud
endTime: 'SECONDS'
jobSpec:
  workerPoolSpecs:
  - diskSpec:
      bootDiskSizeGb: 100
      bootDiskType: pd-ssd
    machineSpec:
      machineType: n1-standard-4
    pythonPackageSpec:
      args:
      - print('trained', args)
      - --epochs=1
      executorImageUri: us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest
      packageUris:
      - gs://packages/trainer.tar.gz
      pythonModule: trainer.task
    replicaCount: '1'
labels:
  team: vision
name: projects/N/locations/us-central1/customJobs/N
startTime: 'SECONDS'
state: JOB_STATE_SUCCEEDED
updateTime: 'MICROSECONDS'
"""
TUNING = """\
Using endpoint [ENDPOINT]
Hyperparameter tuning job [N] submitted successfully.

Your job is still active. You may view the status of your job with the command

  $ gcloud ai hp-tuning-jobs describe N --region=us-central1

Job State: JOB_STATE_PENDING
"""


def blanked(text: str) -> str:
    """A text of gcloud without what differs from run to run."""
    for pattern, word in (
        (r"(?<=\[)http://[^\]]*", "ENDPOINT"), (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "MICROSECONDS"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", "NANOSECONDS"), (r"(?m)(elapsedDuration: ).*", r"\1SECONDS"),
        (r"(?m)(value: )0\.\d+$", r"\1VALUE"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "SECONDS"), (r"projects/\d+", "projects/N"), (r"\d{15,}", "N"),
    ):  # fmt: skip
        text = re.sub(pattern, word, text)
    return text


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("local")
    with_trainer(root)
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5))) as running:
        yield running


@pytest.fixture
def ai(gcloud: Gcloud, here: server.RunningServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`gcloud ai ... --region=us-central1`."""

    def run(*args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return gcloud("ai", *args, "--region=us-central1", url=here.url, check=check)

    return run


def write(path: Path, data: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(data))
    return str(path)


@pytest.mark.whole
def test_custom_jobs(ai: Gcloud, here: server.RunningServer, tmp_path: Path) -> None:
    """Create --config, describe, list and cancel do what they do in the cloud; a refusal reads as there."""
    api = Api(here.url)
    config = write(tmp_path / "job.yaml", job(pool("print('trained', args)", "--epochs=1")))
    flags = ("--display-name=from-gcloud", f"--config={config}", "--labels=team=vision", "--format=json")
    made = ai("custom-jobs", "create", *flags)
    name = json.loads(made.stdout)["name"]
    assert blanked(made.stderr) == CREATED
    assert api.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert blanked(ai("custom-jobs", "describe", name.rpartition("/")[2]).stdout) == DESCRIBED
    assert blanked(ai("custom-jobs", "list", "--filter=labels.team=vision").stdout) == f"---\n{DESCRIBED}"
    second = api.create(job(pool(WAIT)))["name"]
    api.wait(second, "JOB_STATE_RUNNING")
    assert blanked(ai("custom-jobs", "cancel", second.rpartition("/")[2]).stderr) == CANCELLED
    assert api.wait(second)["state"] == "JOB_STATE_CANCELLED"
    wrong = write(tmp_path / "wrong.yaml", job(pool("pass", acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=3)))
    refused = ai("custom-jobs", "create", "--display-name=x", f"--config={wrong}", check=False)
    assert refused.returncode == 1
    assert "INVALID_ARGUMENT: List of found errors:" in refused.stderr
    assert "job_spec.worker_pool_specs[0].machine_spec.accelerator_count; Message:" in refused.stderr
    missing = ai("custom-jobs", "describe", "1", check=False)
    assert missing.returncode == 1 and "NOT_FOUND" in missing.stderr


@pytest.mark.whole
def test_stream_logs(ai: Gcloud, here: server.RunningServer) -> None:
    """stream-logs shows what every replica said, once, in order and under its name, and ends for a job that has ended.

    gcloud 528 reads the job once, when it begins: a stream begun while the job ran goes on until it is interrupted.
    """
    code = "print('first from', json.loads(os.environ['CLUSTER_SPEC'])['task']['type'], flush=True)\n"
    chief = f"{code}for n in range(30): print('line', n)\nimport time; time.sleep(1)\n"
    chief += "print(json.dumps({'message': 'structured', 'severity': 'WARNING'}))\n1 / 0"
    api = Api(here.url)
    name = api.create(job(pool(chief), pool(code + WAIT)))["name"]
    api.wait(name)
    streamed = ai("custom-jobs", "stream-logs", name.rpartition("/")[2], "--polling-interval=1")
    said = streamed.stdout + streamed.stderr
    for text in ("first from workerpool0", "structured", "ZeroDivisionError", "workerpool1-0", "Job failed"):
        assert text in said, said
    rows = [line.split("\t") for line in streamed.stdout.splitlines()]
    lines = [(severity, task, text) for severity, _, task, text in rows if text.startswith("line ")]
    assert lines == [("INFO", "workerpool0-0", f"line {number}") for number in range(30)]
    assert {(severity, text) for severity, *_, text in rows} >= {
        ("WARNING", "structured"),
        ("ERROR", "ZeroDivisionError: division by zero"),
    }
    ours = ("Difference: ", "Hint: ")
    service = [(severity, text) for severity, _, task, text in rows if task == "service" and not text.startswith(ours)]
    assert service[:6] == [("INFO", text) for text in (*servicelog.BEFORE, servicelog.RUNNING)]
    assert service[-1] == ("INFO", servicelog.FAILED)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", row[1]) for row in rows)


@pytest.mark.whole
def test_stream_logs_follows_a_job_that_runs(here: server.RunningServer, tmp_path: Path) -> None:
    """stream-logs prints a line while the job that said it still runs.

    gcloud 528 looks at the job's state once, at its start, so on a job that runs it goes on until it is interrupted.
    """
    api = Api(here.url)
    name = api.create(job(pool(WAIT)))["name"]
    overrides = {
        name: value for name, value in server.env(here, project="my-project").items() if name.startswith("CLOUDSDK_")
    }
    stream = ("ai", "custom-jobs", "stream-logs", "--region=us-central1", "--polling-interval=1")
    argv = [need("gcloud"), *stream, name.rpartition("/")[2]]
    env = environment(tmp_path, PYTHONUNBUFFERED="1", **overrides)
    with subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as follower:
        assert follower.stdout is not None
        patience = threading.Timer(60, os.killpg, (follower.pid, signal.SIGKILL))
        patience.start()
        try:
            assert any(line.rstrip().endswith(b"\tup") for line in follower.stdout)
            assert api.get(name)["state"] == "JOB_STATE_RUNNING"
        finally:
            patience.cancel()
            os.killpg(follower.pid, signal.SIGKILL)
    api.call("POST", f"/vertex/v1/{name}:cancel", json={})
    assert api.wait(name)["state"] == "JOB_STATE_CANCELLED"


@pytest.mark.whole
def test_tuning_jobs(
    ai: Gcloud, here: server.RunningServer, golden: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Create --config, describe with trials, list without them, and cancel; each trial is a custom job of its own."""
    api = Api(here.url)
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
        "algorithm": "RANDOM_SEARCH",
    }
    config = write(tmp_path / "hp.yaml", {"studySpec": study, "trialJobSpec": job(pool(REPORT, "--fixed=1"))})
    flags = ("--display-name=sweep", "--max-trial-count=3", "--parallel-trial-count=2", "--format=json")
    made = ai("hp-tuning-jobs", "create", *flags, f"--config={config}")
    assert blanked(made.stderr) == TUNING
    name = json.loads(made.stdout)["name"]
    assert api.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    described = blanked(ai("hp-tuning-jobs", "describe", name.rpartition("/")[2]).stdout)
    shown = api.get(name)
    golden("gcloud/tuning-described.txt", described)
    assert (
        blanked(ai("hp-tuning-jobs", "list", "--filter=displayName=sweep", "--limit=1").stdout) == f"---\n{described}"
    )
    assert [trial["id"] for trial in shown["trials"]] == ["1", "2", "3"]
    jobs = {job["displayName"]: job for job in api.call("GET", "customJobs").json()["customJobs"]}
    for trial in shown["trials"]:
        assert trial["state"] == "SUCCEEDED"
        value = trial["parameters"][0]["value"]
        assert trial["finalMeasurement"]["metrics"] == [{"metricId": "accuracy", "value": pytest.approx(1 - value)}]
        own = jobs[f"sweep-trial-{trial['id']}"]
        args = own["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
        assert own["state"] == "JOB_STATE_SUCCEEDED" and args[1:] == ["--fixed=1", f"--rate={value}"]
    config = write(tmp_path / "slow.yaml", {"studySpec": study, "trialJobSpec": job(pool(WAIT))})
    second = json.loads(ai("hp-tuning-jobs", "create", *flags, f"--config={config}").stdout)["name"]
    # A trial that is REQUESTED has no job yet.
    trials = api.wait(second, "JOB_STATE_RUNNING")["trials"]
    while not (running := {trial["customJob"] for trial in trials if "customJob" in trial}):
        time.sleep(0.1)
        trials = api.get(second)["trials"]
    assert blanked(ai("hp-tuning-jobs", "cancel", second.rpartition("/")[2]).stderr) == TUNING_CANCELLED
    done = api.wait(second)
    assert done["state"] == "JOB_STATE_CANCELLED"
    jobs = {job["name"]: job for job in api.call("GET", "customJobs").json()["customJobs"] if job["name"] in running}
    assert {job["state"] for job in jobs.values()} == {"JOB_STATE_CANCELLED"}
