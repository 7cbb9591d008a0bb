"""Digits by logistic regression."""

import os

import click
import hypertune
import joblib
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split


@click.command()
@click.option("--c", type=float, default=1.0, help="Inverse of the regularization.")
@click.option("--max-iter", type=int, default=50)
@click.option("--output", envvar="AIP_MODEL_DIR", default="model")
def main(c, max_iter, output):
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0)
    model = LogisticRegression(C=c, max_iter=max_iter).fit(x_train, y_train)
    hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", model.score(x_test, y_test), 1)
    folder = output.replace("gs://", "/gcs/", 1)
    os.makedirs(folder, exist_ok=True)
    joblib.dump(model, os.path.join(folder, "model.joblib"))


if __name__ == "__main__":
    main()
