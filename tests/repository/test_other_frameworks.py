"""examples/scikit-learn and examples/xgboost: sweeps whose best trial leaves what a serving container takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.tools import REPOSITORY, module, vertexrig


def swept(example: str, folder: Path) -> tuple[Path, float]:
    """The best trial's model folder and accuracy, of three trials on the local Vertex."""
    project = folder / example
    ignored = shutil.ignore_patterns("__pycache__", ".vertexrig", "build", "outputs")
    shutil.copytree(REPOSITORY / "examples" / example, project, ignore=ignored)
    done = vertexrig("rehearse", "search", "--trials", "3", "--format", "json", cwd=project)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    best = found["trials"][0]
    assert best["note"] == "best" and len(found["trials"]) == 3
    models = list((project / ".vertexrig/gs").glob(f"*/runs/search/*/{best['trial']}/model"))
    assert len(models) == 1, models
    return models[0], best["metrics"]["accuracy"]


@pytest.mark.whole
def test_scikit_learn(tmp_path: Path) -> None:
    """model.joblib of the best trial has the accuracy that the trial reported."""
    joblib = module("joblib")
    datasets, selection = module("sklearn.datasets"), module("sklearn.model_selection")
    model, accuracy = swept("scikit-learn", tmp_path)
    assert [file.name for file in model.iterdir()] == ["model.joblib"]
    images, labels = datasets.load_digits(return_X_y=True)
    _, test_x, _, test_y = selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    assert joblib.load(model / "model.joblib").score(test_x, test_y) == pytest.approx(accuracy)


@pytest.mark.whole
def test_xgboost(tmp_path: Path) -> None:
    """model.bst of the best trial has the accuracy that the trial reported last."""
    xgb = module("xgboost")
    datasets, selection = module("sklearn.datasets"), module("sklearn.model_selection")
    model, accuracy = swept("xgboost", tmp_path)
    assert [file.name for file in model.iterdir()] == ["model.bst"]
    images, labels = datasets.load_digits(return_X_y=True)
    _, test_x, _, test_y = selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    booster = xgb.Booster(model_file=model / "model.bst")
    assert float((booster.predict(xgb.DMatrix(test_x)) == test_y).mean()) == pytest.approx(accuracy)
