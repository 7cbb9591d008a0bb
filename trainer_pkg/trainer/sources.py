"""The kinds of `--data`: digits, tfds:NAME, tfrecord:PATTERN, csv:FILE."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from typing import Any

import numpy as np

from trainer import models
from trainer.config import Config
from trainer.data import AUTOTUNE, Shard, Source, Splits, even_shards
from trainer.errors import ConfigError, DataError, did_you_mean
from trainer.framework import tf
from trainer.images import fit, hold_out

KINDS = ("digits", "tfds", "tfrecord", "csv")


def load(config: Config) -> Splits:
    """Return the sources `--data` and `--validation_data` name, checked.

    Raises:
        ConfigError: a kind that does not exist.
        DataError: nothing there, not readable, or labels out of range.
    """
    splits = _open(config.data, config, split=not config.validation_data)
    if config.validation_data:
        names = splits.training.class_names
        held = _open(config.validation_data, config, split=False, for_validation=True, class_names=names)
        splits = Splits(splits.training, held.training)
    splits = _agree(splits, config)
    if splits.validation.size == 0 or splits.training.size == 0:
        raise DataError(
            f"--data={config.data}: {splits.training.size} training and {splits.validation.size} validation examples; "
            f"both need some: change --validation_split={config.validation_split} or give --validation_data"
        )
    return splits


def _open(
    spec: str, config: Config, *, split: bool, for_validation: bool = False, class_names: tuple[str, ...] = ()
) -> Splits:
    kind, _, rest = spec.partition(":")
    if kind not in KINDS or (kind == "digits") == bool(rest):
        raise ConfigError(
            f"--data={spec}: unknown kind {kind!r}; it must be digits, tfds:NAME, tfrecord:PATTERN or csv:FILE"
            + did_you_mean(kind, KINDS)
        )
    if kind == "digits":
        return digits(config, split=split)
    if kind == "csv":
        from trainer.csvfiles import csv_files

        return csv_files(rest, config, split=split, class_names=class_names)
    if kind == "tfrecord":
        from trainer.tfrecords import tfrecords

        return tfrecords(rest, config, split=split, for_validation=for_validation)
    from trainer.tfdatasets import tfds_data

    return tfds_data(rest, config, split=split, for_validation=for_validation)


def _agree(splits: Splits, config: Config) -> Splits:
    """Return one number of classes for both, `--num_classes` where given.

    Raises:
        DataError: more classes than `--num_classes`.
    """
    found = max(splits.training.num_classes, splits.validation.num_classes)
    if config.num_classes and found > config.num_classes:
        raise DataError(
            f"--data={config.data}: label {found - 1} is out of range for --num_classes={config.num_classes} "
            f"(labels go from 0 to {config.num_classes - 1})"
        )
    classes = config.num_classes or found
    if classes < 2:
        raise DataError(f"--data={config.data}: {classes} class; a classifier needs at least 2: give --num_classes")
    return Splits(replace(splits.training, num_classes=classes), replace(splits.validation, num_classes=classes))


def digits_arrays() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's 1,797 digits: uint8 (1797, 8, 8, 1) scaled from 0..16 to 0..255, and int32 labels.

    Its file is read directly: importing scikit-learn costs more than reading it.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise DataError(
            "--data=digits needs the package scikit-learn, which brings the images; pip install scikit-learn"
        )
    path = os.path.join(os.path.dirname(found.origin), "datasets", "data", "digits.csv.gz")
    if not os.path.exists(path):  # moved in some release: ask scikit-learn
        from sklearn.datasets import load_digits

        bunch = load_digits()
        table = np.column_stack([bunch.data, bunch.target])
    else:
        table = np.loadtxt(path, delimiter=",")
    images = np.round(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return images, table[:, -1].astype(np.int32)


def digits(config: Config, *, split: bool) -> Splits:
    """Return the bundled digits."""
    images, labels = digits_arrays()
    side, wanted = models.image_size(config, 8), models.channels(config, 1)
    kept, held = hold_out(len(images), config.validation_split if split else 0.0)

    def source(part: str, indices: np.ndarray) -> Source:
        def elements(shard: Shard) -> Any:
            data = tf.data.Dataset.from_tensor_slices((images[indices], labels[indices])).shard(
                shard.count, shard.index
            )
            if (side, wanted) == (8, 1):
                return data
            return data.map(lambda image, label: (fit(image, side, wanted), label), num_parallel_calls=AUTOTUNE)

        return Source(f"digits ({part})", lambda parts: even_shards(len(indices), parts), elements, 10,
                      (side, side, wanted), tuple("0123456789"))  # fmt: skip

    return Splits(source("training", kept), source("validation", held))
