"""The verbs about a study, one after the other, on two backends: the local Vertex, and the real cloud when VERTEXRIG_CLOUD_PROJECT
names a project (see tests/localvertex/test_acceptance_contract.py). What it makes in the cloud it removes.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.tools import typed
from vertexrig.cloud.vertex import Vertex

PROJECT = "VERTEXRIG_CLOUD_PROJECT"
PROGRAM = """
import argparse, os
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
score = 1 - abs(args.rate - 0.4)
hypertune.HyperTune().report_hyperparameter_tuning_metric("score", score, global_step=args.epochs)
os.makedirs(os.environ["AIP_MODEL_DIR"], exist_ok=True)
open(os.path.join(os.environ["AIP_MODEL_DIR"], "weights"), "w").close()
"""


@dataclass(frozen=True)
class Backend:
    """Where the verbs are tried.

    Args:
        project: Project id.
        region: Region.
        bucket: gs:// URI of a bucket that is there.
        variables: Environment variables of the verbs.
        poll: Seconds between two looks at a job.
    """

    project: str
    region: str
    bucket: str
    variables: dict[str, str]
    poll: str


def _local(root: Path) -> Iterator[Backend]:
    (root / "gs/contract").mkdir(parents=True)
    with server.running(Settings(root, slots=2, options=RunOptions(grace=0.5))) as here:
        yield Backend("my-project", "us-central1", "gs://contract", server.env(here, project="my-project"), "0.1")


def _cloud(root: Path) -> Iterator[Backend]:
    project = os.environ.get(PROJECT)
    if not project:
        pytest.skip(f"{PROJECT} is not set: set it to a project, with application default credentials")
    region = os.environ.get("VERTEXRIG_CLOUD_REGION", "us-central1")
    yield Backend(project, region, os.environ.get("VERTEXRIG_CLOUD_BUCKET", f"gs://{project}-vertexrig"), {}, "10")


BACKENDS: dict[str, Callable[[Path], Iterator[Backend]]] = {"local": _local, "cloud": _cloud}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Each backend in turn, its variables set."""
    for found in BACKENDS[request.param](tmp_path / "vertex"):
        for name, value in found.variables.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def run(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Any]]]:
    """A verb with --format json that succeeds, in a new project; jobs and models that it made are removed at the end."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    study = {
        "metrics": {"score": "MAXIMIZE"},
        "algorithm": "RANDOM_SEARCH",
        "parameters": {"rate": {"double_value_spec": {"min_value": 0.1, "max_value": 0.9}}},
    }
    file = {
        "project": backend.project, "region": backend.region, "bucket": backend.bucket,
        "trainer": {"path": "train.py", "module": "train", "image": "sklearn-1.6"},
        "jobs": {"base": {"machine_type": "n1-standard-4", "timeout": "1800s"}},
        "sweeps": {"tune": {"job": "base", "max_trial_count": 3, "parallel_trial_count": 2, "study": study}},
    }  # fmt: skip
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    monkeypatch.chdir(folder)
    made: list[str] = []

    def work(*words: str) -> dict[str, Any]:
        done = typed(*words, "--format=json")
        assert done.exit_code == 0, done.stderr
        data: dict[str, Any] = done.document
        made.extend(str(data[key]) for key in ("name", "model") if str(data.get(key, "")).startswith("projects/"))
        return data

    yield work
    if not backend.variables:
        rest = Vertex(backend.project, backend.region).rest
        for name in made:
            rest.find(f"/{name.partition('@')[0]}", method="DELETE")


@pytest.mark.whole
def test_a_study_from_its_start_to_the_registry(backend: Backend, run: Callable[..., dict[str, Any]]) -> None:
    """submit, watch, trials, best, report, follow-up, promote, register and pull work on one study, and agree about it."""
    sent = run("submit", "tune", "--no-budget")
    watched = run("watch", sent["name"], "--plain", "--poll", backend.poll)
    assert watched["job"]["state"] == "JOB_STATE_SUCCEEDED"
    trials = run("trials", "tune")["trials"]
    assert len(trials) == 3 and trials[0]["note"] == "best"
    (best,) = run("best", "tune")["best"]
    assert (best["id"], best["metrics"]) == (trials[0]["trial"], trials[0]["metrics"])
    assert run("report", "tune")["trials"] == trials
    follow = run("follow-up", "tune")
    assert follow["written"] and "+  tune-2:" in follow["diff"]
    job = run("promote", "tune", "--epochs", "2")
    assert job["keys"]["args"]["rate"] == best["parameters"]["rate"]
    run("watch", run("submit", job["name"], "--no-budget")["name"], "--plain", "--poll", backend.poll)
    alone = f"contract-{uuid.uuid4().hex[:8]}"
    words = ("--as", alone, "--serving-image", "us-docker.pkg.dev/my-project/images/serve:1")
    model = run("register", "tune", *words)
    assert model["registered"] and model["version"] == "1" and model["value"] == best["metrics"]["score"]
    again = run("register", "tune", *words)
    assert not again["registered"] and again["compared"]["version"] == "1"
    pulled = run("pull", sent["name"])
    study = yaml.safe_load(pulled["text"])["sweeps"]["tune"]["study"]
    assert (
        study["metrics"] == {"score": "MAXIMIZE"}
        and study["parameters"]["rate"]["double_value_spec"]["max_value"] == 0.9
    )
