"""The topology that no page rehearses, with this repository's own trainer. examples/s2-hands-on-ml trains `multi-worker`,
examples/s3-multi-worker `parameter-server`, the demo `cpu` and `sweep`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.tools import REPOSITORY, installed, vertexrig
from vertexrig.project.run_ids import GENERATED

#: The demo and the pages train the default model with its plot and its TensorBoard.
ARGS = ("epochs=1", "model=dense", "plot=false", "tensorboard=false", "intra_op_threads=1")
SMALL = [word for arg in ARGS for word in ("--set", f"args.{arg}")]


@pytest.mark.whole
def test_a_tpu_job_trains(tmp_path: Path) -> None:
    """The job ends SUCCEEDED with a metric and a model that loads; stand-ins for the TPU and the image of IMAGE=build are named."""
    installed("tensorflow")
    shutil.copy(REPOSITORY / "vertexrig.yaml", tmp_path)
    shutil.copytree(REPOSITORY / "trainer_pkg", tmp_path / "trainer_pkg", ignore=shutil.ignore_patterns("__pycache__"))
    done = vertexrig("rehearse", "tpu", *SMALL, "--format", "json", cwd=tmp_path, env={"IMAGE": "build"})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    found = json.loads(done.stdout)
    assert found["state"] == "JOB_STATE_SUCCEEDED"
    assert 0 < found["metrics"]["accuracy"] <= 1
    for stand_in in (
        "8 virtual CPU devices (TRAINER_VIRTUAL_DEVICES) instead of 8 x TPU_V3",
        "the stand-in for image trainer-tpu:",
    ):
        assert any(stand_in in said for said in found["differences"])
    assert GENERATED.fullmatch(found["run"]) and found["run"] in found["output"]
    model = tmp_path / found["model"]
    assert (model / "saved_model.pb").is_file() and json.loads((model / "summary.json").read_text())["epochs"] == 1
    (log,) = tmp_path.glob(".vertexrig/jobs/*/logs/workerpool*.log")
    assert log.stat().st_size
