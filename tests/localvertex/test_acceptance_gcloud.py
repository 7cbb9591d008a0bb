"""The real gcloud against the whole server: from a package copied up to a job's log and output, and a schedule that fires."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.localvertex.conftest import environment
from tests.support.jobkit import Api, job, pool, sdist, with_trainer
from tests.support.tools import need

Gcloud = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = """
for number in range(20):
    print('line', number, flush=True)
print('a warning', file=sys.stderr)
import time; time.sleep(5)  # the end of the chief is the end of the worker, which is to say its line first
with open(os.environ['AIP_MODEL_DIR'] + '/summary.json', 'w') as file:
    file.write(json.dumps({'cluster': sorted(json.loads(os.environ['TF_CONFIG'])['cluster'])}))
"""
STREAM = ("ai", "custom-jobs", "stream-logs", "--region=us-central1", "--polling-interval=1")
WAIT = "print('up', flush=True)\nimport time; time.sleep(600)"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("local")
    with server.running(Settings(root, slots=8, run=RunOptions(grace=0.5))) as running:
        yield running


@pytest.mark.whole
def test_package_to_output(gcloud: Gcloud, here: server.RunningServer, tmp_path: Path) -> None:
    """Storage cp brings the package, custom-jobs create runs it, stream-logs prints it, storage ls and cat show its output."""
    sdist(tmp_path / "trainer.tar.gz")
    gcloud("storage", "buckets", "create", "gs://bkt", url=here.url)
    gcloud("storage", "cp", "trainer.tar.gz", "gs://bkt/packages/trainer.tar.gz", url=here.url)
    package = "gs://bkt/packages/trainer.tar.gz"
    both = job(
        pool(TRAIN, package=package), pool(WAIT, package=package), baseOutputDirectory={"outputUriPrefix": "gs://bkt/out"}
    )  # fmt: skip
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(both))
    create = ("ai", "custom-jobs", "create", "--display-name=whole", "--config=job.yaml", "--region=us-central1")
    name = json.loads(gcloud(*create, "--format=json", url=here.url).stdout)["name"]
    done = Api(here.url).wait(name)
    assert done["state"] == "JOB_STATE_SUCCEEDED", done
    follow = (*STREAM, name.rpartition("/")[2])
    rows = [line.split("\t") for line in gcloud(*follow, url=here.url).stdout.splitlines()]
    chief = [row[3] for row in rows if row[2] == "workerpool0-0"]
    assert [text for text in chief if text.startswith("line ")] == [f"line {i}" for i in range(20)]
    assert [row[0] for row in rows if row[3] == "a warning"] == ["ERROR"]
    assert ["workerpool1-0", "up"] in [row[2:4] for row in rows]
    assert gcloud("storage", "ls", "gs://bkt/out/**", url=here.url).stdout.split() == [
        "gs://bkt/out/model/summary.json"
    ]
    shown = gcloud("storage", "cat", "gs://bkt/out/model/summary.json", url=here.url).stdout
    assert json.loads(shown) == {"cluster": ["chief", "worker"]}
    gcloud("storage", "rm", "-r", "gs://bkt/out", url=here.url)
    assert [path for path in (here.root / "gs/bkt/out").rglob("*") if path.is_file()] == []


@pytest.mark.whole
def test_stream_logs_follows_a_job_that_runs(here: server.RunningServer, tmp_path: Path) -> None:
    """stream-logs prints a line while the job that said it still runs.

    gcloud 528 looks at the job's state once, at its start, so on a job that runs it goes on until it is interrupted.
    """
    with_trainer(here.root)
    api = Api(here.url)
    name = api.create(job(pool(WAIT)))["name"]
    overrides = {
        name: value for name, value in server.env(here, project="my-project").items() if name.startswith("CLOUDSDK_")
    }
    argv = [need("gcloud"), *STREAM, name.rpartition("/")[2]]
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
def test_a_schedule_submits_a_job(gcloud: Gcloud, here: server.RunningServer) -> None:
    """Scheduler jobs create, list, describe, pause, resume, run and delete; the run posts a CustomJob, which trains."""
    with_trainer(here.root)
    where = "--location=us-central1"

    def scheduler(*words: str) -> str:
        return gcloud("scheduler", "jobs", *words, where, url=here.url).stdout

    body = json.dumps({"displayName": "nightly", "jobSpec": job(pool("print('woken')"))})
    parent = f"{here.url}/vertex/v1/projects/my-project/locations/us-central1/customJobs"
    target = (f"--uri={parent}", f"--message-body={body}", "--headers=Content-Type=application/json")
    scheduler("create", "http", "nightly", "--schedule=0 3 * * *", "--time-zone=Europe/Berlin", *target)
    assert "nightly" in scheduler("list")
    scheduler("pause", "nightly")
    assert json.loads(scheduler("describe", "nightly", "--format=json"))["state"] == "PAUSED"
    scheduler("resume", "nightly")
    scheduler("run", "nightly")
    api, until = Api(here.url), time.monotonic() + 60
    while not (found := api.call("GET", "customJobs", params={"filter": 'display_name="nightly"'}).json()):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert api.wait(found["customJobs"][0]["name"])["state"] == "JOB_STATE_SUCCEEDED"
    scheduler("delete", "nightly")
    assert "nightly" not in scheduler("list")
