"""The real gcloud against the local Vertex: custom jobs and tuning jobs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobkit import Api, job, pool, sdist

from vertexrig.local import server
from vertexrig.local.jobs.settings import Settings
from vertexrig.local.runner import RunOptions

Gcloud = Callable[..., subprocess.CompletedProcess[str]]
WAIT = "print('up', flush=True)\nimport time; time.sleep(600)"
REPORT = """
import time
rate = float(next(arg for arg in args if arg.startswith('--rate=')).partition('=')[2])
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:
    file.write(json.dumps({'timestamp': time.time(), 'trial': os.environ['CLOUD_ML_TRIAL_ID'], 'accuracy': str(1 - rate), 'global_step': '1', 'checkpoint_path': ''}) + '\\n')
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("local")
    sdist(root / "gs/packages/trainer.tar.gz")
    with server.running(Settings(root, slots=8, run=RunOptions(grace=0.5))) as running:
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


def test_custom_jobs(ai: Gcloud, here: server.RunningServer, tmp_path: Path) -> None:
    """create --config, describe, list and cancel do what they do in the cloud; a refusal reads as there."""
    api = Api(here.url)
    config = write(tmp_path / "job.yaml", job(pool("print('trained', args)", "--epochs=1"), pool(WAIT, replicas=2)))
    made = ai(
        "custom-jobs",
        "create",
        "--display-name=from-gcloud",
        f"--config={config}",
        "--labels=team=vision",
        "--format=json",
    )
    name = json.loads(made.stdout)["name"]
    assert api.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    shown = ai("custom-jobs", "describe", name.rpartition("/")[2], "--format=json").stdout
    assert json.loads(shown)["state"] == "JOB_STATE_SUCCEEDED" and json.loads(shown)["labels"] == {"team": "vision"}
    listed = json.loads(ai("custom-jobs", "list", "--filter=labels.team=vision", "--format=json").stdout)
    assert [found["name"] for found in listed] == [name]
    waiting = write(tmp_path / "wait.yaml", job(pool(WAIT)))
    second = json.loads(ai("custom-jobs", "create", "--display-name=x", f"--config={waiting}", "--format=json").stdout)[
        "name"
    ]
    api.wait(second, "JOB_STATE_RUNNING")
    ai("custom-jobs", "cancel", second.rpartition("/")[2])
    assert api.wait(second)["state"] == "JOB_STATE_CANCELLED"
    wrong = write(tmp_path / "wrong.yaml", job(pool("pass", acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=3)))
    refused = ai("custom-jobs", "create", "--display-name=x", f"--config={wrong}", check=False)
    assert refused.returncode == 1
    assert "INVALID_ARGUMENT: List of found errors:" in refused.stderr
    assert "job_spec.worker_pool_specs[0].machine_spec.accelerator_count; Message:" in refused.stderr
    missing = ai("custom-jobs", "describe", "1", check=False)
    assert missing.returncode == 1 and "NOT_FOUND" in missing.stderr


def test_stream_logs(ai: Gcloud, here: server.RunningServer, tmp_path: Path) -> None:
    """stream-logs shows what every replica said, under its name, and ends for a job that has ended.

    gcloud 528 reads the job once, when it begins: a stream begun while the job ran goes on until it is interrupted.
    """
    code = "print('first from', json.loads(os.environ['CLUSTER_SPEC'])['task']['type'], flush=True)\n"
    chief = (
        code + "import time; time.sleep(1)\nprint(json.dumps({'message': 'structured', 'severity': 'WARNING'}))\n1 / 0"
    )
    config = write(tmp_path / "job.yaml", job(pool(chief), pool(code + WAIT)))
    made = ai("custom-jobs", "create", "--display-name=logs", f"--config={config}", "--format=json")
    name = json.loads(made.stdout)["name"]
    Api(here.url).wait(name)
    streamed = ai("custom-jobs", "stream-logs", name.rpartition("/")[2], "--polling-interval=1")
    said = streamed.stdout + streamed.stderr
    for text in ("first from workerpool0", "structured", "ZeroDivisionError", "workerpool1-0", "Job failed"):
        assert text in said, said


def test_tuning_jobs(ai: Gcloud, here: server.RunningServer, tmp_path: Path) -> None:
    """create --config, describe with trials, list and cancel; each trial is a custom job that can be described."""
    api = Api(here.url)
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
        "algorithm": "RANDOM_SEARCH",
    }
    config = write(tmp_path / "hp.yaml", {"studySpec": study, "trialJobSpec": job(pool(REPORT, "--fixed=1"))})
    flags = [
        "--display-name=sweep",
        f"--config={config}",
        "--max-trial-count=3",
        "--parallel-trial-count=2",
        "--format=json",
    ]
    name = json.loads(ai("hp-tuning-jobs", "create", *flags).stdout)["name"]
    assert api.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    shown = json.loads(ai("hp-tuning-jobs", "describe", name.rpartition("/")[2], "--format=json").stdout)
    assert [trial["id"] for trial in shown["trials"]] == ["1", "2", "3"]
    for trial in shown["trials"]:
        assert trial["state"] == "SUCCEEDED"
        value = trial["parameters"][0]["value"]
        assert trial["finalMeasurement"]["metrics"] == [{"metricId": "accuracy", "value": pytest.approx(1 - value)}]
        own = json.loads(ai("custom-jobs", "describe", trial["customJob"].rpartition("/")[2], "--format=json").stdout)
        args = own["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
        assert own["state"] == "JOB_STATE_SUCCEEDED" and args[1:] == ["--fixed=1", f"--rate={value}"]
    listed = json.loads(ai("hp-tuning-jobs", "list", "--format=json").stdout)
    assert name in [found["name"] for found in listed]
    config = write(tmp_path / "slow.yaml", {"studySpec": study, "trialJobSpec": job(pool(WAIT))})
    second = json.loads(ai("hp-tuning-jobs", "create", *flags[:1], f"--config={config}", *flags[2:]).stdout)["name"]
    api.wait(second, "JOB_STATE_RUNNING")
    ai("hp-tuning-jobs", "cancel", second.rpartition("/")[2])
    done = api.wait(second)
    assert done["state"] == "JOB_STATE_CANCELLED"
    assert {api.get(trial["customJob"])["state"] for trial in done["trials"]} == {"JOB_STATE_CANCELLED"}
