"""examples/scikit-learn and examples/xgboost: what their trainers leave is what a serving container takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools import REPOSITORY, module, vertexrig


def held_out() -> tuple[Any, Any]:
    """The images and labels that both trainers score their models on."""
    datasets, selection = module("sklearn.datasets"), module("sklearn.model_selection")
    images, labels = datasets.load_digits(return_X_y=True)
    _, test_x, _, test_y = selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return test_x, test_y


@pytest.mark.whole
def test_scikit_learn(tmp_path: Path) -> None:
    """model.joblib has the accuracy that the trainer reported; the example's page runs the sweep."""
    joblib = module("joblib")
    reports, model = tmp_path / "reports", tmp_path / "model"
    env = {**os.environ, "AIP_MODEL_DIR": str(model), "CLOUD_ML_HP_METRIC_FILE": str(reports)}
    words = [sys.executable, "-m", "forest.task", "--trees=20"]
    subprocess.run(words, cwd=REPOSITORY / "examples/scikit-learn/trainer_pkg", env=env, check=True)
    assert [file.name for file in model.iterdir()] == ["model.joblib"]
    reported = float(json.loads(reports.read_text())["accuracy"])
    assert joblib.load(model / "model.joblib").score(*held_out()) == pytest.approx(reported)


@pytest.mark.whole
def test_xgboost(tmp_path: Path) -> None:
    """model.bst of the best of three trials on the local Vertex has the accuracy that the trial reported last."""
    xgb = module("xgboost")
    ignored = shutil.ignore_patterns("__pycache__", ".vertexrig", "build", "outputs")
    project = shutil.copytree(REPOSITORY / "examples/xgboost", tmp_path / "xgboost", ignore=ignored)
    done = vertexrig("rehearse", "search", "--trials", "3", "--format", "json", cwd=project)
    assert done.returncode == 0, done.stderr[-3000:]
    trials = json.loads(done.stdout)["trials"]
    assert trials[0]["note"] == "best" and len(trials) == 3
    (model,) = (project / ".vertexrig/gs").glob(f"*/runs/search/*/{trials[0]['trial']}/model")
    assert [file.name for file in model.iterdir()] == ["model.bst"]
    test_x, test_y = held_out()
    booster = xgb.Booster(model_file=model / "model.bst")
    accuracy = float((booster.predict(xgb.DMatrix(test_x)) == test_y).mean())
    assert accuracy == pytest.approx(trials[0]["metrics"]["accuracy"])
