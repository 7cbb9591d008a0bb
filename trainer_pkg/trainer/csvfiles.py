"""`--data=csv:FILE`: rows of an image's path and its label, with or without a heading."""

from __future__ import annotations

import csv
import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from trainer.config import Config
from trainer.data import AUTOTUNE, Shard, Source, Splits, even_shards
from trainer.errors import DataError, cause
from trainer.framework import tf
from trainer.images import decoder, hold_out

HEADINGS = frozenset({"label", "labels", "class", "target"})
CHECKED = 10_000  # paths looked up before the first step; in a bucket each look takes milliseconds
SHOWN = 3


def csv_files(path: str, config: Config, *, split: bool, class_names: tuple[str, ...]) -> Splits:
    """Return the images a CSV file lists. Relative paths start at `--data_dir`, or at the CSV file's own directory.

    Args:
        class_names: The classes of the training data, when this is its validation data.

    Raises:
        DataError: no such file, a row without a label, an image that is missing, a label out of range.
    """
    rows = _rows(path)
    base = config.data_dir or os.path.dirname(path)
    images = np.array([name if _absolute(name) else os.path.join(base, name) for name, _ in rows])
    labels, names = _labels([label for _, label in rows], path, class_names)
    _check_images(images, path, config)
    decode, shape = decoder(config)
    kept, held = hold_out(len(images), config.validation_split if split else 0.0)
    classes = len(names) or int(labels.max(initial=-1)) + 1

    def source(part: str, indices: np.ndarray) -> Source:
        def elements(shard: Shard) -> Any:
            listed = tf.data.Dataset.from_tensor_slices((images[indices], labels[indices]))
            mine = listed.shard(shard.count, shard.index)
            return mine.map(lambda name, label: (decode(tf.io.read_file(name)), label),
                            num_parallel_calls=AUTOTUNE, deterministic=config.deterministic)  # fmt: skip

        return Source(
            f"csv:{path} ({part})", lambda parts: even_shards(len(indices), parts), elements, classes, shape, names
        )

    return Splits(source("training", kept), source("validation", held))


def _rows(path: str) -> list[tuple[str, str]]:
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            lines = list(csv.reader(io.StringIO(file.read())))
    except (tf.errors.OpError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"--data=csv:{path}: cannot read it: {cause(error)}") from None
    rows: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        if not any(cell.strip() for cell in line):
            continue
        if len(line) < 2 or not line[0].strip() or not line[1].strip():
            raise DataError(f"{path}:{number}: {','.join(line)!r} is not an image's path and its label")
        rows.append((line[0].strip(), line[1].strip()))
    # a heading is known by its label's column; a file without one begins with data
    if rows and rows[0][1].lower() in HEADINGS:
        rows = rows[1:]
    if not rows:
        raise DataError(f"--data=csv:{path}: no rows; each must be an image's path and its label")
    return rows


def _labels(labels: list[str], path: str, class_names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers as they are; words by their place in the alphabetical list of all."""
    if not class_names and all(_whole(label) for label in labels):
        numbers = np.array([int(float(label)) for label in labels], np.int32)
        if numbers.min() < 0:
            raise DataError(f"--data=csv:{path}: label {numbers.min()} is out of range; labels start at 0")
        return numbers, ()
    names = class_names or tuple(sorted(set(labels)))
    places = {name: place for place, name in enumerate(names)}
    for label in labels:
        if label not in places:
            raise DataError(f"--data=csv:{path}: label {label!r} is none of the training data's: {', '.join(names)}")
    return np.array([places[label] for label in labels], np.int32), names


def _whole(text: str) -> bool:
    try:
        return float(text) == int(float(text))
    except (ValueError, OverflowError):
        return False


def _absolute(name: str) -> bool:
    return name.startswith("/") or "://" in name


def _check_images(images: np.ndarray, path: str, config: Config) -> None:
    """Look at the images.

    Raises: DataError naming the first images that are missing, or the first one if it cannot be decoded.
    """
    # looks at a bucket wait for the network, not for the processor
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(tf.io.gfile.exists, images[:CHECKED].tolist()))
    missing = [str(name) for name, there in zip(images, found, strict=False) if not there]
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise DataError(f"--data=csv:{path}: no such image: {', '.join(missing[:SHOWN])}{more}; "
                        "relative paths start at --data_dir, or at the CSV file's directory")  # fmt: skip
    decode, _ = decoder(config)
    try:
        decode(tf.io.read_file(images[0]))
    except tf.errors.OpError as error:
        raise DataError(f"{images[0]} is not a readable image: {cause(error)}") from None
