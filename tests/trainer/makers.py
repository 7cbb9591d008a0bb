"""Small data of the shapes the walk-throughs use, made on the spot."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def picture(label: int, number: int, size: tuple[int, int] = (24, 20)) -> np.ndarray:
    """A uint8 RGB picture whose brightness tells the label and whose first pixels tell the number."""
    random = np.random.RandomState(number)
    pixels = random.randint(0, 40, (*size, 3)) + 60 * label
    return np.clip(pixels, 0, 255).astype(np.uint8)


def png(label: int, number: int, size: tuple[int, int] = (24, 20)) -> bytes:
    """The picture as a PNG file."""
    content = io.BytesIO()
    Image.fromarray(picture(label, number, size)).save(content, "PNG")
    return content.getvalue()


def example(label: int, number: int, *, floats: bool = False) -> bytes:
    """A serialised tf.train.Example: encoded image and label, or the flowers book's floats and shape."""
    import tensorflow as tf

    def ints(*values: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    if floats:
        image = picture(label, number) / 255
        features = {
            "image": tf.train.Feature(float_list=tf.train.FloatList(value=image.ravel())),
            "shape": ints(*image.shape),
            "label": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"daisy"])),
            "label_int": ints(label),
        }
    else:
        image_bytes = tf.train.Feature(bytes_list=tf.train.BytesList(value=[png(label, number)]))
        features = {"image/encoded": image_bytes, "image/class/label": ints(label), "number": ints(number)}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def tfrecords(folder: Path, files: int, each: int, classes: int = 3, *, floats: bool = False, gzip: bool = False,
              sizes: Sequence[int] | None = None) -> str:  # fmt: skip
    """Write records; returns the pattern that matches them."""
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for place, size in enumerate(sizes or [each] * files):
        with tf.io.TFRecordWriter(str(folder / f"part-{place:03}.tfrec"), "GZIP" if gzip else "") as writer:
            for _ in range(size):
                writer.write(example(number % classes, number, floats=floats))
                number += 1
    return str(folder / "*.tfrec")


def csv_images(folder: Path, number: int, classes: Sequence[str] = ("cat", "dog"), heading: bool = False) -> Path:
    """Write PNG files and a CSV file that lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["image,label"] if heading else []
    for place in range(number):
        name = f"{place:03}.png"
        (folder / name).write_bytes(png(place % len(classes), place))
        rows.append(f"{name},{classes[place % len(classes)]}")
    path = folder / "images.csv"
    path.write_text("\n".join(rows) + "\n")
    return path
