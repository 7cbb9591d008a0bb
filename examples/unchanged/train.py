"""A random forest on scikit-learn's digits; Vertex AI shows the bucket of AIP_MODEL_DIR as a folder below /gcs."""

import argparse
import os
from pathlib import Path

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--trees", type=int, default=10)
args = parser.parse_args()

x_train, x_test, y_train, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
forest = RandomForestClassifier(args.trees, random_state=0).fit(x_train, y_train)
print(f"accuracy {forest.score(x_test, y_test):.3f} with {args.trees} trees", flush=True)

folder = Path(os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1))
folder.mkdir(parents=True, exist_ok=True)
joblib.dump(forest, folder / "model.joblib")
