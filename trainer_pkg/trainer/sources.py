"""The kinds of `--data`: digits, tfds:NAME, tfrecord:PATTERN, csv:FILE."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trainer import models
from trainer.config import Config
from trainer.data import AUTOTUNE, Shard, Source, even_shards
from trainer.errors import ConfigError, DataError, did_you_mean
from trainer.framework import tf

KINDS = ("digits", "tfds", "tfrecord", "csv")
DEFAULT_IMAGE_SIZE = 150  # the codelab's


class Splits(NamedTuple):
    """What to train on and what to score on."""

    training: Source
    validation: Source


def load(config: Config) -> Splits:
    """The sources `--data` and `--validation_data` name, checked.

    Raises:
        ConfigError: a kind that does not exist.
        DataError: nothing there, not readable, or labels out of range.
    """
    splits = _open(config.data, config, split=not config.validation_data, class_names=())
    if config.validation_data:
        names = splits.training.class_names
        splits = Splits(splits.training, _open(config.validation_data, config, split=False, class_names=names).training)
    splits = _agree(splits, config)
    if splits.validation.size == 0 or splits.training.size == 0:
        raise DataError(
            f"--data={config.data}: {splits.training.size} training and {splits.validation.size} validation examples; "
            f"both need some: change --validation_split={config.validation_split} or give --validation_data"
        )
    return splits


def _open(spec: str, config: Config, *, split: bool, class_names: tuple[str, ...]) -> Splits:
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

        return tfrecords(rest, config, split=split)
    from trainer.tfdatasets import tfds_data

    return tfds_data(rest, config, split=split, for_validation=spec == config.validation_data)


def _agree(splits: Splits, config: Config) -> Splits:
    """One number of classes for both, `--num_classes` where given.

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


def decoder(config: Config, data_channels: int = 3) -> tuple[Callable[[Any], Any], tuple[int, int, int]]:
    """(image file's bytes -> uint8 image, its shape) for the model's size and channels."""
    side = models.image_size(config, DEFAULT_IMAGE_SIZE)
    wanted = models.channels(config, data_channels)

    def decode(content: Any) -> Any:
        image = tf.io.decode_image(content, channels=wanted, expand_animations=False)
        return fit(tf.ensure_shape(image, (None, None, wanted)), side, wanted)

    return decode, (side, side, wanted)


def fit(image: Any, side: int, wanted: int) -> Any:
    """An image of any size as uint8 (side, side, wanted channels)."""
    if image.shape[-1] == 1 and wanted == 3:
        image = tf.image.grayscale_to_rgb(image)
    if image.shape[:2] != (side, side):
        image = tf.image.resize(image, (side, side))
        image = tf.cast(tf.clip_by_value(tf.round(image), 0.0, 255.0), tf.uint8)
    return tf.cast(tf.ensure_shape(image, (side, side, wanted)), tf.uint8)


def hold_out(size: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the validation part: always the same, whatever `--seed` is."""
    order = np.random.RandomState(0).permutation(size)
    cut = round(size * share)
    return np.sort(order[cut:]), np.sort(order[:cut])


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
    """The bundled digits."""
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
