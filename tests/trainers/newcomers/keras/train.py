"""Tells points on one side of a plane from those on the other."""

import argparse
import os

import hypertune
import numpy as np
from tensorflow import keras


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=0.03)
    args = parser.parse_args()
    x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
    y = (x[:, :4].sum(axis=1) > 0).astype("int32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.Adam(args.learning_rate), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, validation_split=0.25, epochs=args.epochs, verbose=2)
    hypertune.HyperTune().report_hyperparameter_tuning_metric(
        hyperparameter_metric_tag="val_accuracy",
        metric_value=history.history["val_accuracy"][-1],
        global_step=args.epochs,
    )
    model.export(os.environ.get("AIP_MODEL_DIR", "model").replace("gs://", "/gcs/"))


if __name__ == "__main__":
    main()
