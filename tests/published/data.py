"""What the published code reads, generated: the same formats under the same names, in the local storage.

The data sets themselves are not here. Everything lies where the code looks for it: TFRecords and tfds data sets by their
`gs://` names, what Keras downloads by the URL's bucket and path on storage.googleapis.com. The rest is the interpreter's that
replaces the images: it has Keras 2 as they have, a TF-Hub module in TF-Hub's cache, a home for each replica, and it keeps
Keras from comparing the hash of a generated file with the published one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

HUB_MODULE = "https://tfhub.dev/google/tf2-preview/mobilenet_v2/feature_vector/4"

_IMAGE = '''"""What the images have and this machine has not: see tests/published/data.py."""

import importlib.abc
import importlib.util
import os
import sys
import tempfile

HASHES = (
    "tf_keras.src.utils.data_utils", "keras.src.utils.file_utils", "tensorflow.python.keras.utils.data_utils",
)


class Unhashed(importlib.abc.MetaPathFinder):
    """Keras takes generated files, whose hashes it does not know."""

    def find_spec(self, name, path=None, target=None):
        if name not in HASHES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module.validate_file = lambda *_, **__: True

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Unhashed())
os.environ["TFHUB_CACHE_DIR"] = {hub!r}
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # their TensorFlow is older than Keras 3
if os.environ.get("CLUSTER_SPEC"):
    os.environ["HOME"] = tempfile.mkdtemp()  # each replica downloads for itself, as its own machine does
'''


def make_image(folder: Path) -> Path:
    """An interpreter in place of the walk-throughs' images: this one, with TensorFlow Hub; returns its program."""
    python = folder / "bin/python"
    if not (folder / "ready").is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "base.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        (site / "sitecustomize.py").write_text(_IMAGE.replace("{hub!r}", repr(str(folder.parent / "hub"))))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
        subprocess.run(
            [*pip, "tensorflow-hub==0.16.1", "setuptools<81"], check=True
        )  # with pkg_resources, as the images
        (folder / "ready").touch()
    return python


def make_prebuilt(image: str, work: Path, home: Path) -> None:
    """The environment of a prebuilt image, by `vertexrig local python`, in the cache of that home."""
    env = {**os.environ, "XDG_CACHE_HOME": str(home / ".cache")}
    words = [sys.executable, "-m", "vertexrig", "local", "python", "--image", image]
    python = Path(
        subprocess.run(words, cwd=work, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    )
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "sitecustomize.py").write_text(_IMAGE.replace("{hub!r}", repr(str(work / "hub"))))


def mnist(buckets: Path) -> None:
    """tf.keras.datasets.mnist: 5,256 digits to train with, of which the book sets 5,000 apart, and 100 to test with."""
    random = np.random.default_rng(0)

    def made(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = random.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 8] += 180
        return images, labels

    folder = buckets / "tensorflow/tf-keras-datasets"
    folder.mkdir(parents=True, exist_ok=True)
    (x_train, y_train), (x_test, y_test) = made(5256), made(100)
    np.savez(folder / "mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def pictures(
    buckets: Path, name: str, version: str, splits: dict[str, int], size: int, labels: list[str], *, named: str = ""
) -> None:
    """A tfds data set of images, as `tfds.load` finds it with `TFDS_DATA_DIR=gs://tfds-data/datasets`."""
    folder = buckets / "tfds-data/datasets"
    if (folder / name / version).is_dir():
        return
    import tensorflow as tf
    import tensorflow_datasets as tfds

    random = np.random.default_rng(0)

    def rows(count: int) -> tf.data.Dataset:
        label = np.arange(count) % len(labels)
        image = random.integers(0, 60, (count, size, size, 3), dtype=np.uint8) + (label * (190 // len(labels)))[
            :, None, None, None
        ].astype(np.uint8)
        columns = {"image": image, "label": label}
        if named:
            columns[named] = np.array([f"{number}.jpg" for number in range(count)])
        return tf.data.Dataset.from_tensor_slices(columns)

    kinds = {"image": tfds.features.Image(shape=(None, None, 3)), "label": tfds.features.ClassLabel(names=labels)}
    features = tfds.features.FeaturesDict({**kinds, **({named: tfds.features.Text()} if named else {})})
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name, version=version, data_dir=str(folder), features=features,
        split_datasets={split: rows(count) for split, count in splits.items()},
    )  # fmt: skip
    info = folder / name / version / "dataset_info.json"
    keys = {"tuple": {"items": [{"featureKey": key} for key in kinds]}}
    info.write_text(json.dumps({**json.loads(info.read_text()), "supervisedKeys": keys}))


def horses(buckets: Path) -> None:
    """horses_or_humans: 128 pictures to train with, 64 to validate with: whole batches for each of two GPUs.

    A last batch that leaves one of two virtual devices nothing ends TensorFlow 2.21's convolutions on a CPU with an error.
    """
    pictures(buckets, "horses_or_humans", "3.0.0", {"train": 128, "test": 64}, 300, ["horses", "humans"])


def cassava(buckets: Path) -> None:
    """cassava, 8 pictures, and the weights that ResNet50 begins from."""
    labels = ["cbb", "cbsd", "cgm", "cmd", "healthy"]
    pictures(buckets, "cassava", "0.1.0", {"train": 8, "test": 4, "validation": 4}, 320, labels, named="image/filename")
    import tf_keras

    folder = buckets / "tensorflow/keras-applications/resnet"
    folder.mkdir(parents=True, exist_ok=True)
    network = tf_keras.applications.ResNet50(weights=None, include_top=False)
    network.save_weights(str(folder / "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5"))


def flowers(buckets: Path, hub: Path) -> None:
    """The book's TFRecords (floats, GZIP) in its bucket, and MobileNetV2 without its weights in TF-Hub's cache."""
    import hashlib

    import tensorflow as tf
    import tf_keras

    folder = buckets / "practical-ml-vision-book-data/flowers_tfr"
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    names = ["daisy", "dandelion", "roses", "sunflowers", "tulips"]
    for split, files, each in (("train", 4, 16), ("valid", 2, 16)):  # whole batches of 32, as with `horses`
        for number in range(files):
            path = folder / f"{split}-{number:05}-of-{files:05}"
            with tf.io.TFRecordWriter(str(path), "GZIP") as out:
                for row in range(each):
                    label = row % len(names)
                    image = random.random((96, 128, 3)) * 0.3 + label * 0.15
                    out.write(_flower(image, names[label], label))
    module = hub / hashlib.sha1(HUB_MODULE.encode()).hexdigest()
    network = tf_keras.applications.MobileNetV2((224, 224, 3), include_top=False, weights=None, pooling="avg")
    network.save(str(module), save_format="tf")


def _flower(image: np.ndarray, name: str, label: int) -> bytes:
    import tensorflow as tf

    train = tf.train
    features = {
        "image": train.Feature(float_list=train.FloatList(value=image.ravel())),
        "shape": train.Feature(int64_list=train.Int64List(value=image.shape)),
        "label": train.Feature(bytes_list=train.BytesList(value=[name.encode()])),
        "label_int": train.Feature(int64_list=train.Int64List(value=[label])),
    }
    return bytes(train.Example(features=train.Features(feature=features)).SerializeToString())


def cifar10(buckets: Path) -> None:
    """cifar10: 512 pictures to train with, 128 to test with."""
    labels = "airplane automobile bird cat deer dog frog horse ship truck".split()
    pictures(buckets, "cifar10", "3.0.2", {"train": 512, "test": 128}, 32, labels, named="id")


def tf_flowers(buckets: Path) -> None:
    """tf_flowers: 160 pictures."""
    labels = "dandelion daisy tulips sunflowers roses".split()
    pictures(buckets, "tf_flowers", "3.0.1", {"train": 160}, 160, labels)


MAKERS = {"mnist": mnist, "horses": horses, "cassava": cassava, "cifar10": cifar10, "tf_flowers": tf_flowers}


def make(name: str, buckets: Path, hub: Path) -> None:
    """Generate a data set by its name, once per state folder; TensorFlow is imported in a process of its own."""
    mark = buckets.parent / f"published-{name}"
    if mark.is_file():
        return
    code = "import sys; from tests.published import data; data.here(sys.argv[1:])"
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", code, name, str(buckets), str(hub)], env=env, cwd=root, check=True)
    mark.touch()


def here(words: list[str]) -> None:
    """Generate a data set in this process: its name, the folder of the buckets, TF-Hub's cache."""
    name, buckets, hub = words[0], Path(words[1]), Path(words[2])
    if name == "flowers":
        flowers(buckets, hub)
    else:
        MAKERS[name](buckets)
