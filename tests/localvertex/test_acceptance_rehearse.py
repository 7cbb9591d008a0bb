"""The topology that no page rehearses, with this repository's own trainer. docs/rehearse.md trains `multi-worker` and `sweep`,
examples/s3-multi-worker `parameter-server`, the demo `cpu`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tools import REPOSITORY, installed, vertexrig
from vertexrig.project.run_ids import GENERATED

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


@pytest.mark.whole
def test_a_tpu_job_trains(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends SUCCEEDED with a metric and a model that loads; stand-ins for the TPU and the image of IMAGE=build are named."""
    monkeypatch.setenv("IMAGE", "build")
    found = json.loads(rehearse(project, "tpu", *SMALL).stdout)
    assert found["state"] == "JOB_STATE_SUCCEEDED"
    assert 0 < found["metrics"]["accuracy"] <= 1
    for stand_in in (
        "8 virtual CPU devices (TRAINER_VIRTUAL_DEVICES) instead of 8 x TPU_V3",
        "the stand-in for image trainer-tpu:",
    ):
        assert any(stand_in in said for said in found["differences"])
    assert GENERATED.fullmatch(found["run"]) and found["run"] in found["output"]
    model = project / found["model"]
    assert (model / "saved_model.pb").is_file() and json.loads((model / "summary.json").read_text())["epochs"] == 1
    (log,) = project.glob(".vertexrig/jobs/*/logs/workerpool*.log")
    assert log.stat().st_size


@pytest.mark.whole
def test_a_failing_trainer_is_explained(project: Path) -> None:
    """A trainer that fails ends the rehearsal with exit code 1, its replica and its own words."""
    done = vertexrig("rehearse", "cpu", "--set", "args.data=/nowhere", "--format", "json", cwd=project)
    assert done.returncode == 1, done.stderr[-2000:]
    assert json.loads(done.stdout)["state"] == "JOB_STATE_FAILED"
    assert "/nowhere" in done.stderr and done.stderr.count("Traceback (most recent call last)") <= 1
    assert "error: cpu failed: The replica workerpool0-0 exited with a non-zero status" in done.stderr
