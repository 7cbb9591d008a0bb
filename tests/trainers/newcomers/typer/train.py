"""Digits by a forest."""

import os
from pathlib import Path

import hypertune
import joblib
import typer
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

app = typer.Typer()


@app.command()
def main(n_estimators: int = 20, max_depth: int = 8):
    x, y = load_digits(return_X_y=True)
    model = RandomForestClassifier(n_estimators=n_estimators, max_depth=max_depth, random_state=0)
    accuracy = cross_val_score(model, x, y, cv=3).mean()
    hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", accuracy, 1)
    folder = Path(os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1))
    folder.mkdir(parents=True, exist_ok=True)
    joblib.dump(model.fit(x, y), folder / "model.joblib")


if __name__ == "__main__":
    app()
