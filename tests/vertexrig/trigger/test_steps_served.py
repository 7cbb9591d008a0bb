"""The staged function takes the steps of a schedule on the local Vertex: real sweeps, jobs and versions, killed in the middle."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from localvertex import server
from localvertex.runner import RunOptions
from tests.support import clouds, functions
from tests.support.tools import brief
from vertexrig import times
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.storage import Storage
from vertexrig.project.local import LocalImage
from vertexrig.trigger import stage
from vertexrig.trigger.history import Deliveries

PROGRAM = """
import argparse, json, os
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--bonus", type=float, default=0)
args = parser.parse_args()
folder = os.environ["AIP_MODEL_DIR"]
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, "saved_model.pb"), "w").close()
with open(os.path.join(folder, "summary.json"), "w") as file:
    json.dump({"accuracy": args.bonus}, file)
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", args.lr, global_step=1)
"""
IMAGE = "us-docker.pkg.dev/my-project/images/quick:1"
DATA: dict[str, Any] = {
    "project": "my-project",
    "region": "us-central1",
    "bucket": clouds.BUCKET,
    "jobs": {"quick": {"machine_type": "n1-standard-4", "timeout": "600s", "container": {"image_uri": IMAGE}}},
    "sweeps": {
        "tune": {
            "job": "quick", "max_trial_count": 1,
            "study": {
                "metrics": {"accuracy": "MAXIMIZE"},
                "parameters": {"lr": {"double_value_spec": {"min_value": 0.1, "max_value": 0.9}}},
            },
        }
    },
    "schedules": {"nightly": {"run": "tune", "cron": "0 3 * * *", "then": ["promote", "register"]}},
    "trigger": {"allow_args": {"bonus": {"min": 0, "max": 1000}}, "allow_then": True, "budget": {"trials_per_day": 100_000}, "timeout": "20s"},
}  # fmt: skip


@dataclass
class Served:
    """The function on a local Vertex.

    Args:
        here: The local Vertex.
        folder: The staged folder.
        url: Where the function is served.
    """

    here: server.RunningServer
    folder: Path
    url: str

    def begin(self, number: int) -> str:
        """Start a sweep with steps, and wait for its end: its chain's id."""
        body = {"run": "tune", "args": {"bonus": number}, "then": "nightly", "request_id": f"run-{number}"}
        answer = functions.until_done(self.url, body).json()
        self.ended(answer["name"])
        return str(answer["claim"])

    def ended(self, name: str) -> None:
        vertex, until = clouds.vertex(self.here), time.monotonic() + 120
        while (found := vertex.get(name)) is None or not found.ended:
            assert time.monotonic() < until, found
            time.sleep(0.05)

    def end(self, run: str) -> dict[str, Any]:
        """Tick until the run has ended."""
        until, own = time.monotonic() + 120, Storage(clouds.BUCKET, url=self.here.url).below("vertexrig/vertexrig")
        since = times.now() - timedelta(days=1)
        while not (
            found := [row["end"] for row in Deliveries(own).rows(since) if row.get("claim") == run and "end" in row]
        ):
            answer = requests.post(f"{self.url}/tick", timeout=60)
            assert answer.status_code == 200 and time.monotonic() < until, answer.text
            assert "unknown" not in [row["state"] for row in answer.json()["runs"]], answer.text
            time.sleep(0.1)
        return dict(found[0])

    def made(self, chain: str) -> tuple[list[str], list[str]]:
        """The promoted jobs of a chain that were not cancelled, and its versions."""
        jobs = [one for one in clouds.jobs(self.here) if one.labels.get("vertexrig_step_of") == chain]
        models = ModelsClient(clouds.vertex(self.here))
        rows = [row for model in models.find("tune") for row in models.versions(model["name"])]
        versions = [row for row in rows if row["versionDescription"].endswith(f"(run {chain})")]
        return [one.name for one in jobs if "CANCEL" not in one.state], [
            f"{row['name']}@{row['versionId']}" for row in versions
        ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("served")
    (root / "image").mkdir()
    (root / "image/main.py").write_text(PROGRAM)
    run = RunOptions(grace=0.5, images={"*quick*": LocalImage(root / "image", (sys.executable, "main.py"))})
    with clouds.cloud(root, options=run) as here:
        folder = stage.stage(clouds.loaded(root, DATA), root / "build/function").folder
        env = {**clouds.variables(here), "LEASE": "3", "WAIT": "1"}
        with functions.serving(folder, env, wrapped=True) as url:
            yield Served(here, folder, url)


POINTS = [
    "after:POST .*/customJobs$", "after:POST .*/models:upload", "after:POST .*:mergeVersionAliases", "before:DELETE .*runs",
]  # fmt: skip


@pytest.mark.parametrize("point", brief(POINTS, 3))
def test_a_tick_killed_anywhere_leaves_one_job_and_one_version(served: Served, point: str) -> None:
    """A tick killed with -9 after its call, and then ticks as ever: one promoted job, one version, the champion."""
    number = 10 + POINTS.index(point)
    chain = served.begin(number)
    env = {**clouds.variables(served.here), "KILL": point, "LEASE": "3", "WAIT": "1"}
    with functions.serving(served.folder, env, wrapped=True) as url:
        until = time.monotonic() + 60
        while functions.deliver(f"{url}/tick", {}) is not None:
            assert time.monotonic() < until, "no tick came to the point"
            time.sleep(0.1)
    end = served.end(chain)
    assert end["outcome"] == "registered", end
    jobs, versions = served.made(chain)
    assert jobs == [end["jobs"]["tune-best"]] and versions == [end["model"]]
    champion = ModelsClient(clouds.vertex(served.here)).version(end["model"], "champion")
    assert champion is not None and champion["versionId"] == end["model"].rpartition("@")[2]
    assert {"champion", "default"} <= set(champion["versionAliases"]) and champion["labels"][
        "vertexrig_step_of"
    ] == chain


@pytest.mark.whole
def test_many_ticks_at_one_time(served: Served) -> None:
    """Forty ticks at one time to two functions, at each step: one promoted job, one version; and a repeat of the run starts nothing."""
    chain = served.begin(50)
    with functions.serving(served.folder, clouds.variables(served.here)) as other, ThreadPoolExecutor(20) as pool:
        for _ in range(2):
            urls = [(served.url, other)[n % 2] for n in range(40)]
            answers = list(pool.map(lambda url: functions.deliver(f"{url}/tick", {}), urls))
            assert {answer.status_code for answer in answers if answer is not None} == {200}
            for name in served.made(chain)[0]:
                served.ended(name)
    end = served.end(chain)
    jobs, versions = served.made(chain)
    assert end["outcome"] == "registered" and jobs == [end["jobs"]["tune-best"]] and versions == [end["model"]]
    assert served.begin(50) == chain and requests.post(f"{served.url}/tick", timeout=60).json() == {"runs": []}
    assert "registered" in json.dumps(_log(served))


def _log(served: Served) -> list[Any]:
    lines = [line for file in served.folder.parent.glob("function-*.log") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]
