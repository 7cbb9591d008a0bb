"""What goes wrong with a job, one server: each a clear state and message, and the server goes on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import Api, job, pool, sdist, with_trainer

BROKEN_METRICS = """
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'wb') as file:
    file.write(b'\\xff\\x00 no json {"accuracy": \\n{"accuracy": "high"}\\n[1]\\n')
"""
STUDY: dict[str, Any] = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
    "algorithm": "RANDOM_SEARCH",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("local")
    with_trainer(root)
    sdist(root / "gs/packages/broken.tar.gz", setup="raise SystemExit('this package has no home')")
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5))) as running:
        yield running


@pytest.fixture
def api(here: server.RunningServer) -> Iterator[Api]:
    """A client; when the test is done the server still runs a job."""
    api = Api(here.url)
    yield api
    assert api.wait(api.create(job(pool("print('fine')")))["name"])["state"] == "JOB_STATE_SUCCEEDED"


def changed(name: str, **python: Any) -> dict[str, Any]:
    """A job whose Python package spec differs in something."""
    spec = job(pool("pass", package=f"gs://packages/{name}.tar.gz"))
    spec["workerPoolSpecs"][0]["pythonPackageSpec"].update(python)
    return spec


EXITED = "The replica workerpool0-0 exited with a non-zero status of {}."
# what is run -> what the job's error says
FAILURES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a package that does not build": (
        changed("broken"), (EXITED.format(1), "package broken.tar.gz cannot be installed", "this package has no home"),
    ),
    "a package that is not there": (
        changed("none"), ("No URLs matched: gs://packages/none.tar.gz", "the local Vertex looks for it at {root}/gs/packages/none.tar.gz"),
    ),
    "a module that is not there": (changed("trainer", pythonModule="trainer.tusk"), ("No module named trainer.tusk",)),
    "a trainer that dies at once": (
        job(pool("os.kill(os.getpid(), 9)"), scheduling={"disableRetries": True}), (EXITED.format(137),),
    ),
    "a trainer that never ends": (
        job(pool("import time; time.sleep(600)"), scheduling={"timeout": "1s"}),
        ("The job ran longer than its timeout of 1 seconds.",),
    ),
}  # fmt: skip


def test_jobs_that_fail_say_why(api: Api, here: server.RunningServer) -> None:
    """Each job ends as FAILED with a message that names the cause, in no words of our own code."""
    made = {what: api.create(spec)["name"] for what, (spec, _) in FAILURES.items()}
    for what, (_, said) in FAILURES.items():
        done = api.wait(made[what])
        message = done["error"]["message"]
        assert done["state"] == "JOB_STATE_FAILED", what
        assert all(text.format(root=here.root) in message for text in said), (what, message)
        assert "vertexrig/" not in message


@pytest.mark.whole
def test_a_trainer_that_prints_much(api: Api, here: server.RunningServer) -> None:
    """Of a job that prints 20 MB the log holds every line in order, and the server answers while it runs."""
    code = "line = 'x' * 990\nfor i in range(20_000): sys.stdout.write(f'{i:09d}{line}\\n')\nprint('the last line')"
    name = api.create(job(pool(code)))["name"]
    seen, until = [api.get(name)["state"]], time.monotonic() + 180
    while seen[-1] not in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED"):
        assert api.call("GET", "customJobs", params={"pageSize": 1}).status_code == 200
        assert time.monotonic() < until
        time.sleep(0.1)
        seen.append(api.get(name)["state"])
    # a server that is held up by the lines answers once, when the last one is stored
    assert seen[-1] == "JOB_STATE_SUCCEEDED" and seen.count("JOB_STATE_RUNNING") > 1, seen
    number = name.rpartition("/")[2]
    body = {
        "resourceNames": ["projects/my-project"], "filter": f'resource.labels.job_id="{number}"', "orderBy": "timestamp desc",
        "pageSize": 5,
    }  # fmt: skip
    entries = api.call("POST", "/logging/v2/entries:list", json=body).json()["entries"]
    texts = [entry.get("textPayload") or entry["jsonPayload"]["message"] for entry in entries]
    assert "the last line" in texts
    with (here.root / "jobs" / number / "logs/workerpool0-0.log").open() as log:
        numbers = [int(line[-1000:-991]) for line in log if line.endswith("xxx\n")]
    assert numbers == list(range(20_000))


def test_a_broken_metric_file(api: Api) -> None:
    """Trials that write nonsense for metrics are infeasible and say so; the study ends."""
    counts = {"maxTrialCount": 2, "parallelTrialCount": 2}
    body = {"displayName": "broken", "studySpec": STUDY, "trialJobSpec": job(pool(BROKEN_METRICS)), **counts}
    done = api.wait(api.call("POST", "hyperparameterTuningJobs", json=body).json()["name"])
    assert [trial["state"] for trial in done["trials"]] == ["INFEASIBLE"] * 2
    assert all(trial["infeasibleReason"].startswith("Invalid objective value: ") for trial in done["trials"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    """With the disk full an upload and a create are refused in Google's format, and when there is room again jobs run."""
    root = small_disk / "state"
    here = server.up(Settings(root, slots=2), 0)
    try:
        with_trainer(root)
        api = Api(here.url)
        assert api.wait(api.create(job(pool("pass")))["name"])["state"] == "JOB_STATE_SUCCEEDED"
        stuffing = small_disk / "stuffing"
        with stuffing.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"x" * 4096)
        upload = api.call("POST", "/upload/storage/v1/b/packages/o?uploadType=media&name=big", content=b"x" * 100_000)
        assert upload.status_code == 503 and "No space left" in upload.json()["error"]["message"]
        answers: list[httpx.Response] = []
        while len(answers) < 50 and not (answers and answers[-1].status_code != 200):
            body = {"displayName": "full", "jobSpec": job(pool("pass", "x" * 50_000))}
            answers.append(api.call("POST", "customJobs", json=body))
        assert answers[-1].status_code == 503 and answers[-1].json()["error"]["status"] == "UNAVAILABLE"
        accepted = [answer.json()["name"] for answer in answers if answer.status_code == 200]
        stuffing.unlink()
        for name in accepted:
            assert api.wait(name)["state"] in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED")
        assert api.wait(api.create(job(pool("pass")))["name"])["state"] == "JOB_STATE_SUCCEEDED"
    finally:
        server.down(root)


@pytest.mark.whole
def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """A server that may write files of 300 kB only says so of a larger upload, and goes on."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    argv = [sys.executable, "-m", "vertexrig", "local", "up", "--root", str(tmp_path / "state"), "--port", "0"]
    with subprocess.Popen(argv, preexec_fn=limit, stdin=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            while (here := server.find(tmp_path / "state")) is None:
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.05)
            api = Api(here.url)
            api.call("POST", "/storage/v1/b?project=p", json={"name": "bkt"})
            path = "/upload/storage/v1/b/bkt/o?uploadType=media&name="
            refused = api.call("POST", f"{path}big", content=b"x" * 400_000)
            assert refused.status_code == 503 and "File too large" in refused.json()["error"]["message"]
            assert api.call("POST", f"{path}small", content=b"x").status_code == 200
        finally:
            process.terminate()
            assert process.wait(30) == 0
