"""Images per second: the trainer's input pipeline against the codelabs', same model, data, batch and cores.

The codelabs' way (Vertex AI codelabs "distributed hyperparameter tuning" and "multi-worker training"): decode and resize
in every epoch in a serial map, shuffle, batch; no cache, no prefetch. Both read the same TFRecord files of JPEG photos
and feed the same compiled model, for as many epochs as the codelab trains. The bar, 3, holds for the small dense model:
its step takes about as long on one core as a large model's takes on an accelerator. With a convolutional model on a CPU
the model itself takes most of the time, whatever feeds it; those rows are printed too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer_pkg"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

BATCH, EPOCHS = 32, 10


def write_photos(folder: Path, number: int, side: tuple[int, int]) -> str:
    """TFRecords of JPEG files that are as hard to decode as photos: smooth, with some noise."""
    import numpy as np
    import tensorflow as tf

    random = np.random.RandomState(0)
    for part in range(4):
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrec")) as writer:
            for place in range(number // 4):
                coarse = tf.image.resize(random.uniform(0, 255, (12, 16, 3)), side, method="bicubic")
                pixels = tf.cast(tf.clip_by_value(coarse + random.normal(0, 8, (*side, 3)), 0, 255), tf.uint8)
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.encode_jpeg(pixels).numpy()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[place % 2])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return str(folder / "*.tfrec")


def codelab_batches(pattern: str, size: int) -> Any:
    """The codelabs' pipeline."""
    import tensorflow as tf

    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: Any) -> tuple[Any, Any]:
        row = tf.io.parse_single_example(record, spec)
        image = tf.io.decode_jpeg(row["image"], channels=3)
        return tf.image.resize(image, (size, size)), row["label"]

    records = tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern)))
    return records.map(parse).shuffle(1000).repeat().batch(BATCH)


def our_batches(pattern: str, size: int) -> Any:
    """The trainer's pipeline with its defaults."""
    from trainer import data
    from trainer.config import Config
    from trainer.tfrecords import tfrecords

    config = Config(data=f"tfrecord:{pattern}", image_size=size)
    source = tfrecords(pattern, config, split=False, for_validation=False).training
    return data.training_batches(source, data.Shard(), BATCH, config)


def seconds(batches: Any, model: Any, steps: int) -> float:
    """Wall time of `steps` training steps from a fresh iterator: first epoch, and filling of buffers, included."""
    began = time.perf_counter()
    if model is None:
        for _ in zip(range(steps), batches, strict=False):
            pass
    else:
        model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0)
    return time.perf_counter() - began


def compare(number: int, side: tuple[int, int], size: int, name: str, rounds: int) -> tuple[float, float]:
    """(codelab, ours) in images per second over EPOCHS epochs, medians of interleaved rounds."""
    from trainer import models
    from trainer.config import Config
    from trainer.framework import keras

    model = None
    if name:
        model = models.build(Config(model=name, num_units=64), (size, size, 3), 2)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy())
    steps = number * EPOCHS // BATCH
    taken: dict[str, list[float]] = {"codelab": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        pattern = write_photos(Path(folder), number, side)
        seconds(codelab_batches(pattern, size), model, 2)  # traces the step
        for _ in range(rounds):
            taken["codelab"].append(seconds(codelab_batches(pattern, size), model, steps))
            taken["ours"].append(seconds(our_batches(pattern, size), model, steps))
    return tuple(steps * BATCH / statistics.median(taken[name]) for name in ("codelab", "ours"))  # type: ignore[return-value]


def main() -> None:
    """Print one row per setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    print(
        f"trainer input, {arguments.cores} cores, batch {BATCH}, {EPOCHS} epochs | codelab img/s | ours img/s | ratio | bar"
    )
    for title, number, side, size, model, rounds, bar in (
        ("640x480 JPEG to 64, dense", 640, (480, 640), 64, "dense", 5, "3"),
        ("640x480 JPEG to 64, no model", 640, (480, 640), 64, "", 3, ""),
        ("640x480 JPEG to 64, cnn", 320, (480, 640), 64, "cnn", 3, ""),
        ("300x300 JPEG to 150, cnn", 192, (300, 300), 150, "cnn", 3, ""),
    ):
        theirs, ours = compare(number, side, size, model, rounds)
        print(f"{title} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} | {bar}", flush=True)


if __name__ == "__main__":
    main()
