"""`python -m boosting.task --rounds=20`: train, report the accuracy after each round, and save `model.bst`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import xgboost as xgb
from hypertune import HyperTune
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

# The serving containers for XGBoost look for model.bst, model.joblib or model.pkl at the top of the artifact's folder.
ARTIFACT = "model.bst"


class Reporting(xgb.callback.TrainingCallback):
    """Reports the accuracy on the test images after each round, so that a study can stop a trial early."""

    def __init__(self) -> None:
        self.tuner = HyperTune()

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.tuner.report_hyperparameter_tuning_metric("accuracy", 1 - evals_log["test"]["merror"][-1], epoch + 1)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="Train boosted trees on scikit-learn's digits.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--eta", type=float, default=0.3)
    parser.add_argument("--max_depth", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train, test = xgb.DMatrix(train_x, train_y), xgb.DMatrix(test_x, test_y)
    settings = {
        "objective": "multi:softmax",
        "num_class": 10,
        "eval_metric": "merror",
        "eta": options.eta,
        "max_depth": options.max_depth,
        "seed": options.seed,
    }
    model = xgb.train(
        settings, train, options.rounds, evals=[(test, "test")], callbacks=[Reporting()], verbose_eval=False
    )
    accuracy = float((model.predict(test) == test_y).mean())
    save(model, folder(os.environ.get("AIP_MODEL_DIR", "outputs/model")))
    print(f"accuracy {accuracy:.4f}")


def folder(uri: str) -> Path:
    """The folder of an output URI: Vertex AI mounts every bucket at /gcs, where plain files work."""
    return Path(uri.replace("gs://", "/gcs/", 1) if uri.startswith("gs://") else uri)


def save(model: xgb.Booster, target: Path) -> None:
    """Write the artifact whole: a process killed in between leaves none."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".saving-") as scratch:
        model.save_model(Path(scratch) / ARTIFACT)
        os.replace(Path(scratch) / ARTIFACT, target / ARTIFACT)


if __name__ == "__main__":
    main()
