"""Digits, with arguments as transformers reads them."""

import os
from dataclasses import dataclass, field

import hypertune
import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.linear_model import SGDClassifier
from transformers import HfArgumentParser


@dataclass
class ModelArguments:
    learning_rate: float = field(default=0.1, metadata={"help": "Of each step."})
    penalty: str = field(default="l2", metadata={"help": "Of large weights."})


def main():
    (args,) = HfArgumentParser(ModelArguments).parse_args_into_dataclasses()
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    model = SGDClassifier(eta0=args.learning_rate, learning_rate="constant", penalty=args.penalty, random_state=0).fit(x_train, y_train)
    hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", model.score(x_test, y_test), 1)
    folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
    os.makedirs(folder, exist_ok=True)
    joblib.dump(model, os.path.join(folder, "model.joblib"))


if __name__ == "__main__":
    main()
