"""The clusters and the sweep, rehearsed with this repository's own trainer: one epoch each, really trained. Demo and pages train the others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tools import REPOSITORY, installed, vertexrig
from vertexrig.project.runs import RUN

# job -> how many replicas there are, and what is said of the accelerators that are not here ("" without any)
JOBS = {
    "multi-worker": (3, "1 virtual CPU device (TRAINER_VIRTUAL_DEVICES) for 1 x NVIDIA_TESLA_T4"),
    "parameter-server": (5, ""),
    "tpu": (1, "8 virtual CPU devices (TRAINER_VIRTUAL_DEVICES) for 8 x TPU_V3"),
}
#: The demo and the pages train the default model with its plot and its TensorBoard.
ARGS = ("epochs=1", "model=dense", "plot=false", "tensorboard=false", "intra_op_threads=1")
SMALL = [word for arg in ARGS for word in ("--set", f"args.{arg}")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository's project file and trainer, in a folder that the tests share: the package is installed once."""
    installed("tensorflow")
    tmp_path = tmp_path_factory.mktemp("project")
    shutil.copy(REPOSITORY / "vertexrig.yaml", tmp_path)
    shutil.copytree(REPOSITORY / "trainer_pkg", tmp_path / "trainer_pkg", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def rehearse(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = vertexrig("rehearse", *words, "--format", "json", cwd=project)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done


@pytest.mark.parametrize(
    ("name", "image"),
    [
        pytest.param("tpu", "tf-tpu.2-15.cp310", marks=pytest.mark.whole),
        pytest.param("tpu", "build", marks=pytest.mark.whole),
        *(pytest.param(name, "", marks=pytest.mark.whole) for name in JOBS if name != "tpu"),
    ],
)
def test_a_job_trains(project: Path, name: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends SUCCEEDED with all its replicas, a metric and a model that loads as one; stand-ins are named, for the
    prebuilt image as for the one of IMAGE=build.
    """
    replicas, stand_in = JOBS[name]
    monkeypatch.setenv("IMAGE", "build" if image == "build" else "")
    expected = "for 2.15.0 of the image trainer-tpu:" if image == "build" else f"for 2.15 of the image {image}"
    before = set(project.glob(".vertexrig/jobs/*/logs"))
    found = json.loads(rehearse(project, name, *SMALL).stdout)
    assert found["state"] == "JOB_STATE_SUCCEEDED"
    assert 0 < found["metrics"]["accuracy"] <= 1
    assert not stand_in or any(stand_in in said for said in found["stand_ins"])
    assert name != "tpu" or any(expected in said for said in found["stand_ins"])
    assert RUN.fullmatch(found["run"]) and found["run"] in found["output"]
    model = project / found["model"]
    assert (model / "saved_model.pb").is_file() and json.loads((model / "summary.json").read_text())["epochs"] == 1
    (logs,) = set(project.glob(".vertexrig/jobs/*/logs")) - before
    spoke = {path.stem for path in logs.glob("workerpool*.log") if path.stat().st_size}
    assert len(spoke) == replicas, sorted(spoke)


@pytest.mark.whole
def test_a_sweep_trains(project: Path) -> None:
    """Four trials, two at a time, all measured, the best of them first; the values are within the study's bounds."""
    done = rehearse(project, "sweep", "--trials", "4", "--set", "parallel_trial_count=2", *SMALL)
    found = json.loads(done.stdout)
    assert found["state"] == "JOB_STATE_SUCCEEDED" and len(found["trials"]) == 4
    measured = [trial["metrics"]["accuracy"] for trial in found["trials"]]
    assert measured == sorted(measured, reverse=True) and min(measured) > 0
    for trial in found["trials"]:
        chosen = trial["parameters"]
        assert trial["state"] == "SUCCEEDED" and chosen["num_units"] in (64, 128, 512)
        assert 0.0005 <= chosen["learning_rate"] <= 0.02 and 0 <= chosen["dropout"] <= 0.5
    assert found["trials"][0]["note"] == "best"


@pytest.mark.whole
def test_a_failing_trainer_is_explained(project: Path) -> None:
    """A trainer that fails ends the rehearsal with exit code 1, its replica and its own words."""
    done = vertexrig("rehearse", "cpu", "--set", "args.data=/nowhere", "--format", "json", cwd=project)
    assert done.returncode == 1, done.stderr[-2000:]
    assert json.loads(done.stdout)["state"] == "JOB_STATE_FAILED"
    assert "/nowhere" in done.stderr and done.stderr.count("Traceback (most recent call last)") <= 1
    assert "error: cpu failed: The replica workerpool0-0 exited with a non-zero status" in done.stderr
