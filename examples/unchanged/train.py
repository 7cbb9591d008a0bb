"""A random forest on scikit-learn's digits; its model goes to the bucket that Vertex AI names."""

import argparse
import os

import joblib
from google.cloud import storage
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--trees", type=int, default=10)
args = parser.parse_args()

x_train, x_test, y_train, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
forest = RandomForestClassifier(args.trees, random_state=0).fit(x_train, y_train)
print(f"accuracy {forest.score(x_test, y_test):.3f} with {args.trees} trees", flush=True)

joblib.dump(forest, "model.joblib")
bucket, _, folder = os.environ["AIP_MODEL_DIR"].removeprefix("gs://").partition("/")
storage.Client().bucket(bucket).blob(f"{folder}model.joblib").upload_from_filename("model.joblib")
