"""The kinds of --data, and what is wrong with bad ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from trainer.config import Config
from trainer.errors import ConfigError, DataError

from tests.trainer import makers
from tests.trainer.lazily import data, sources, tf


def labels(source: sources.Source) -> list[int]:
    """All labels of a source, sorted."""
    return sorted(int(label) for _, label in source.elements(data.Shard()).as_numpy_iterator())


def test_digits_are_split_the_same_way_whatever_the_seed() -> None:
    """1,797 digits of 8 x 8, a fifth held out, the same fifth for every seed."""
    splits, other = sources.load(Config()), sources.load(Config(seed=9))
    assert (splits.training.size, splits.validation.size) == (1438, 359)
    assert splits.training.image_shape == (8, 8, 1)
    assert labels(splits.validation) == labels(other.validation)
    image, _ = next(iter(splits.training.elements(data.Shard()).as_numpy_iterator()))
    assert image.dtype == np.uint8 and image.max() > 200


def test_digits_equal_scikit_learns() -> None:
    """The file read directly holds what scikit-learn's own loader gives."""
    bunch = pytest.importorskip("sklearn.datasets").load_digits()
    images, numbers = sources.digits_arrays()
    np.testing.assert_array_equal(numbers, bunch.target)
    np.testing.assert_array_equal(images[:, :, :, 0], np.round(bunch.images * 255 / 16).astype(np.uint8))


def test_digits_become_rgb_of_the_backbones_size() -> None:
    """A backbone gets three channels and at least 32 pixels."""
    source = sources.load(Config(model="mobilenet_v2", image_size=32)).training
    image, _ = next(iter(source.elements(data.Shard()).as_numpy_iterator()))
    assert image.shape == source.image_shape == (32, 32, 3)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("gzip", [False, True])
def test_records_of_both_layouts_and_compressions(tmp_path: Path, floats: bool, gzip: bool) -> None:
    """Encoded images and the book's float images, plain and gzipped, give the same pictures and labels."""
    pattern = makers.tfrecords(tmp_path, 1, 9, floats=floats, gzip=gzip)
    splits = sources.load(Config(data=f"tfrecord:{pattern}", image_size=16))
    assert sorted(labels(splits.training) + labels(splits.validation)) == sorted(n % 3 for n in range(9))
    assert splits.training.num_classes == 3
    image, label = next(iter(splits.training.elements(data.Shard()).as_numpy_iterator()))
    assert abs(image.mean() - makers.picture(int(label), 0).mean()) < 5


def test_separate_validation_records(tmp_path: Path) -> None:
    """--validation_data is scored whole and nothing of --data is held out."""
    training, validation = makers.tfrecords(tmp_path / "a", 2, 5), makers.tfrecords(tmp_path / "b", 1, 4)
    splits = sources.load(Config(data=f"tfrecord:{training}", validation_data=f"tfrecord:{validation}"))
    assert (splits.training.size, splits.validation.size) == (10, 4)


def test_records_without_a_scan(tmp_path: Path) -> None:
    """--scan=false trains on uncounted records and still counts those that are scored, also where both are one."""
    pattern = makers.tfrecords(tmp_path, 6, 5)
    config = Config(data=f"tfrecord:{pattern}", scan=False, examples_per_epoch=20, num_classes=3)
    splits = sources.load(config)
    assert splits.training.size is None and splits.validation.size == 10
    separate = replace(config, validation_data=f"tfrecord:{makers.tfrecords(tmp_path / 'b', 1, 4)}")
    splits = sources.load(separate)
    assert splits.training.size is None and splits.validation.size == 4
    same = sources.load(replace(config, validation_data=config.data))
    assert same.training.size is None and same.validation.size == 30
    with pytest.raises(ConfigError, match="--examples_per_epoch and --num_classes"):
        sources.load(Config(data=f"tfrecord:{pattern}", scan=False))


@pytest.mark.parametrize("heading", [False, True])
def test_csv_of_paths_and_class_names(tmp_path: Path, heading: bool) -> None:
    """Class names get numbers in alphabetical order; paths start at the CSV file."""
    path = makers.csv_images(tmp_path, 10, ("dog", "cat"), heading)
    splits = sources.load(Config(data=f"csv:{path}", image_size=16))
    assert splits.training.class_names == ("cat", "dog")
    assert (splits.training.size, splits.validation.size) == (8, 2)
    for image, label in splits.training.elements(data.Shard()).as_numpy_iterator():
        assert image.shape == (16, 16, 3)
        assert (image.mean() < 50) == (splits.training.class_names[label] == "dog")


def test_csv_with_numbers_and_validation_with_the_same_names(tmp_path: Path) -> None:
    """Whole numbers are labels as they stand; validation labels must be among the training's."""
    numbers = makers.csv_images(tmp_path / "n", 10, ("0", "2"))
    assert sources.load(Config(data=f"csv:{numbers}")).training.num_classes == 3
    names, strange = makers.csv_images(tmp_path / "a", 10), makers.csv_images(tmp_path / "b", 4, ("cat", "cow"))
    with pytest.raises(DataError, match="'cow' is none of the training data's: cat, dog"):
        sources.load(Config(data=f"csv:{names}", validation_data=f"csv:{strange}"))


def test_tfds_by_name(tmp_path: Path) -> None:
    """A prepared TensorFlow Datasets set is found by name, its test split scores, named twice as well, and shards partition it."""
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.features.FeaturesDict({
        "image": tfds.features.Image(shape=(None, None, 3)), "label": tfds.features.ClassLabel(names=["h", "p"]),
    })  # fmt: skip

    def rows(count: int) -> tf.data.Dataset:
        pictures = np.stack([makers.picture(n % 2, n) for n in range(count)])
        return tf.data.Dataset.from_tensor_slices({"image": pictures, "label": np.arange(count) % 2})

    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny", version="1.0.0", features=features, data_dir=str(tmp_path), config="x",
        split_datasets={"train": rows(11), "test": rows(5)},
    )  # fmt: skip
    splits = sources.load(Config(data="tfds:tiny/x", data_dir=str(tmp_path), image_size=16))
    assert (splits.training.size, splits.validation.size) == (11, 5)
    assert splits.training.class_names == ("h", "p")
    both = Config(data="tfds:tiny/x", validation_data="tfds:tiny/x", data_dir=str(tmp_path), image_size=16)
    same = sources.load(both)
    assert (same.training.size, same.validation.size) == (11, 5)
    parts = [[image.tobytes() for image, _ in splits.training.elements(data.Shard(3, index)).as_numpy_iterator()]
             for index in range(3)]  # fmt: skip
    assert [len(part) for part in parts] == splits.training.shard_sizes(3) == [4, 4, 3]
    assert len({image for part in parts for image in part}) == 11
    with pytest.raises(DataError, match="tfds:absent"):
        sources.load(Config(data="tfds:absent", data_dir=str(tmp_path)))


def broken(pattern: str, kind: str) -> str:
    """Damage a set of records in one way."""
    path = Path(sorted(Path(pattern).parent.glob("*.tfrec"))[0])
    content = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(content[:-10])
    elif kind == "flipped":
        path.write_bytes(content[:-40] + bytes([content[-40] ^ 255]) + content[-39:])
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(b"not an example" if kind == "text" else makers.example(-1 if kind == "negative" else 0, 0))
    return pattern


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "record .* cannot be read"),
        ("flipped", "record .* cannot be read"),
        ("empty", "holds no record"),
        ("text", "record 1 is not a readable"),
        ("negative", "label -1 is out of range"),
    ],
)
def test_damaged_records_are_named(tmp_path: Path, kind: str, message: str) -> None:
    """Each kind of damage is found before training, with the file and the record."""
    with pytest.raises(DataError, match=message) as raised:
        sources.load(Config(data=f"tfrecord:{broken(makers.tfrecords(tmp_path, 3, 8), kind)}"))
    assert "part-000.tfrec" in str(raised.value)


def test_an_image_that_is_none(tmp_path: Path) -> None:
    """A record whose bytes are no image is named."""

    def text(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[0]))
    features = tf.train.Features(feature={"image": text(b"<html>"), "label": number})
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrec")) as writer:
        writer.write(tf.train.Example(features=features).SerializeToString())
    with pytest.raises(DataError, match="record 1: its image is no JPEG"):
        sources.load(Config(data=f"tfrecord:{tmp_path}/a.tfrec"))


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("tfrecrod:x", ConfigError, "did you mean 'tfrecord'"),
        ("mnist", ConfigError, "tfds:NAME"),
        ("digits:8", ConfigError, "unknown kind"),
        ("tfrecord:/nowhere/*.tfrec", DataError, "no file matches"),
        ("csv:/nowhere/images.csv", DataError, "cannot read it"),
    ],
)
def test_data_that_is_not_there(spec: str, error: type[Exception], message: str) -> None:
    """A kind that does not exist, a pattern that matches nothing and a missing file each say so."""
    with pytest.raises(error, match=message):
        sources.load(Config(data=spec))


def test_labels_above_num_classes(tmp_path: Path) -> None:
    """A label outside --num_classes is an error before training."""
    pattern = makers.tfrecords(tmp_path, 1, 9)
    with pytest.raises(DataError, match="label 2 is out of range for --num_classes=2"):
        sources.load(Config(data=f"tfrecord:{pattern}", num_classes=2))


def test_csv_with_missing_images_or_labels(tmp_path: Path) -> None:
    """Missing images and rows without a label are named."""
    path = makers.csv_images(tmp_path, 6)
    (tmp_path / "003.png").unlink()
    with pytest.raises(DataError, match="no such image: .*003.png"):
        sources.load(Config(data=f"csv:{path}"))
    path.write_text("000.png,cat\n001.png\n")
    with pytest.raises(DataError, match="images.csv:2: '001.png' is not"):
        sources.load(Config(data=f"csv:{path}"))


def test_wrong_feature_names(tmp_path: Path) -> None:
    """The error lists the features there are and the flag to name one."""
    pattern = makers.tfrecords(tmp_path, 1, 4)
    with pytest.raises(DataError, match=r"no feature 'pixels' .* image/class/label.* --image_key"):
        sources.load(Config(data=f"tfrecord:{pattern}", image_key="pixels"))
