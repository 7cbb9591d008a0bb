"""`python -m forest.task --trees=100`: train, report the accuracy, and save `model.joblib`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import joblib
from hypertune import HyperTune
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

# The serving containers for scikit-learn look for model.joblib or model.pkl at the top of the artifact's folder.
ARTIFACT = "model.joblib"


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a random forest on scikit-learn's digits.")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--max_depth", type=int, default=12)
    parser.add_argument("--max_features", type=float, default=0.2, help="share of the pixels that a split looks at")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    model = RandomForestClassifier(
        options.trees, max_depth=options.max_depth, max_features=options.max_features, random_state=options.seed
    )
    model.fit(train_x, train_y)
    accuracy = float(model.score(test_x, test_y))
    save(model, folder(os.environ.get("AIP_MODEL_DIR", "outputs/model")))
    HyperTune().report_hyperparameter_tuning_metric("accuracy", accuracy, 1)
    print(f"accuracy {accuracy:.4f}")


def folder(uri: str) -> Path:
    """The folder of an output URI: Vertex AI mounts every bucket at /gcs. joblib would make a local folder `gs:`."""
    return Path(uri.replace("gs://", "/gcs/", 1) if uri.startswith("gs://") else uri)


def save(model: RandomForestClassifier, target: Path) -> None:
    """Write the artifact whole: a process killed in between leaves none."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".saving-") as scratch:
        joblib.dump(model, Path(scratch) / ARTIFACT)
        os.replace(Path(scratch) / ARTIFACT, target / ARTIFACT)


if __name__ == "__main__":
    main()
