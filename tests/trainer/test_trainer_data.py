"""Sharding, epochs, order and padding of the input pipeline."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from trainer.config import Config

from tests.trainer import makers
from tests.trainer.lazily import augment, data, sources, tf

CONFIG = Config(image_size=8)


def numbered(size: int) -> data.Source:
    """A source of `size` images whose label is their own number."""

    def elements(shard: data.Shard) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(size).shard(shard.count, shard.index)
        return numbers.map(lambda n: (tf.fill((2, 2, 1), tf.cast(n % 256, tf.uint8)), tf.cast(n, tf.int32)))

    return data.Source("numbered", lambda parts: data.even_shards(size, parts), elements, size, (2, 2, 1))


def stream(source: data.Source, shard: data.Shard, config: Config, number: int, first: int = 0) -> list[int]:
    """The labels of `number` examples of the training stream from the `first`."""
    return [int(label) for _, label in islice(iter(data.training_stream(source, shard, config, first, 0)), number)]


@pytest.mark.parametrize(("size", "parts"), [(21, 1), (21, 2), (21, 3), (100, 7)])
def test_shards_partition_the_data_in_every_epoch(size: int, parts: int) -> None:
    """What all shards read in one epoch is the data set, each example once."""
    source = numbered(size)
    sizes = source.shard_sizes(parts)
    assert sum(sizes) == size
    read = [stream(source, data.Shard(parts, index), CONFIG, sizes[index] * 2) for index in range(parts)]
    for epoch in range(2):
        numbers = [one[epoch * part : (epoch + 1) * part] for one, part in zip(read, sizes, strict=True)]
        assert sorted(itertools.chain(*numbers)) == list(range(size))


@pytest.mark.parametrize(("files", "parts"), [(6, 1), (6, 3), (2, 3), (1, 2)])
def test_record_shards_partition_by_file_or_by_record(tmp_path: Path, files: int, parts: int) -> None:
    """Record shards partition training and validation data, with enough files and with too few."""
    pattern = makers.tfrecords(tmp_path, files, 0, sizes=[5 + place for place in range(files)])
    splits = sources.load(Config(data=f"tfrecord:{pattern}", image_size=16))
    everything: list[bytes] = []
    for source in splits:
        sizes = source.shard_sizes(parts)
        assert sum(sizes) == source.size
        seen = [[image.tobytes() for image, _ in source.elements(data.Shard(parts, index)).as_numpy_iterator()]
                for index in range(parts)]  # fmt: skip
        assert [len(part) for part in seen] == sizes
        everything += [image for part in seen for image in part]
    assert len(everything) == len(set(everything)) == sum(5 + place for place in range(files))


def test_order_changes_with_epoch_and_seed_and_is_repeated_by_both() -> None:
    """An epoch's order is a function of seed and epoch."""
    source = numbered(50)
    two = stream(source, data.Shard(), CONFIG, 100)
    assert two[:50] != two[50:]
    assert two == stream(source, data.Shard(), CONFIG, 100)
    assert two[:50] != stream(source, data.Shard(), replace(CONFIG, seed=7), 50)
    assert stream(source, data.Shard(), replace(CONFIG, shuffle=False), 60) == [*range(50), *range(10)]


@pytest.mark.parametrize("first", [0, 1, 13, 50, 77])
def test_stream_goes_on_with_the_very_next_example(first: int) -> None:
    """A stream that starts at example n equals the undisturbed one from its example n on."""
    source = numbered(50)
    assert stream(source, data.Shard(), CONFIG, 30, first) == stream(source, data.Shard(), CONFIG, first + 30)[first:]


def test_decoded_images_are_cached_once() -> None:
    """With a cache each element is made once, however many epochs and streams read it."""
    made: list[int] = []

    def elements(shard: data.Shard) -> tf.data.Dataset:
        def make(number: tf.Tensor) -> tf.Tensor:
            made.append(int(number))
            return number

        numbers = tf.data.Dataset.range(10).map(lambda n: tf.ensure_shape(tf.py_function(make, [n], tf.int64), ()))
        return numbers.map(lambda n: (tf.zeros((2, 2, 1), tf.uint8), tf.cast(n, tf.int32)))

    source = data.Source("counted", lambda parts: data.even_shards(10, parts), elements, 10, (2, 2, 1))
    assert len(stream(source, data.Shard(), CONFIG, 45)) == 45
    assert sorted(made) == list(range(10))


def test_batches_are_full_and_nothing_is_dropped() -> None:
    """Batches run over the end of an epoch: 5 batches of 10 from 25 examples hold each example twice."""
    batches = data.training_batches(numbered(25), data.Shard(), 10, CONFIG)
    labels = np.concatenate([labels.numpy() for _, labels in batches.take(5)])
    assert sorted(labels) == sorted([*range(25), *range(25)])


@pytest.mark.parametrize("shuffle", [True, False])
def test_training_batches_say_that_they_never_end(shuffle: bool) -> None:
    """The strategy knows that no worker's data ends, and so does not ask all of them before each step."""
    batches = data.training_batches(numbered(10), data.Shard(), 4, replace(CONFIG, shuffle=shuffle))
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    assert len(list(islice(iter(batches), 9))) == 9


def test_no_thread_tunes_a_pipeline_and_all_cores_read_it() -> None:
    """`fit` would wait for the thread's end, as long as the training took; without it a function is called on each core at one time."""
    steps = data.validation_steps(numbered(10), 1, 4)
    for batches in (
        data.training_batches(numbered(10), data.Shard(), 4, CONFIG),
        data.validation_batches(numbered(10), data.Shard(), 4, CONFIG, steps),
    ):
        tuning = batches.options().autotune
        assert tuning.enabled is False and getattr(tuning, "initial_parallelism", 1024) == 1024


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_validation_sees_each_example_once_whatever_the_padding(parts: int) -> None:
    """Weights of 1 mark each example once; all parts give the same number of equal batches."""
    source = numbered(23)
    steps = data.validation_steps(source, parts, 4)
    seen: list[int] = []
    for index in range(parts):
        batches = list(data.validation_batches(source, data.Shard(parts, index), 4, CONFIG, steps))
        assert len(batches) == steps
        assert {batch[0].shape for batch in batches} == {(4, 2, 2, 1)}
        seen += [
            int(label)
            for _, labels, weights in batches
            for label, weight in zip(labels, weights, strict=False)
            if weight == 1
        ]
    assert sorted(seen) == list(range(23))


def test_virtual_epochs_set_the_number_of_steps() -> None:
    """--examples_per_epoch, not the size of the data, makes the epoch."""
    assert data.steps_per_epoch(numbered(100), 10, CONFIG) == 10
    assert data.steps_per_epoch(numbered(100), 10, replace(CONFIG, examples_per_epoch=250)) == 25
    assert data.steps_per_epoch(numbered(5), 10, CONFIG) == 1


@pytest.mark.parametrize("cache", ["none", "memory", "directory"])
def test_cache_changes_nothing_but_speed(tmp_path: Path, cache: str) -> None:
    """The stream is the same with every kind of cache."""
    config = replace(CONFIG, cache=str(tmp_path / "cache") if cache == "directory" else cache)
    assert stream(numbered(20), data.Shard(), config, 50) == stream(numbered(20), data.Shard(), CONFIG, 50)


def images(count: int = 6) -> tf.Tensor:
    """A batch of grey-to-white ramps, all alike."""
    ramp = tf.reshape(tf.range(16 * 16 * 3, dtype=tf.float32), (16, 16, 3)) / 3.1
    return tf.tile(ramp[None], (count, 1, 1, 1))


@pytest.mark.parametrize("flags", [{"flip": True}, {"crop_ratio": 0.5}, {"with_color_distort": True}])
def test_each_image_of_each_batch_is_changed_in_its_own_way(flags: dict[str, object]) -> None:
    """Equal images come out different from one another and from batch to batch, in range, and repeatably."""
    config = replace(CONFIG, **flags)  # type: ignore[arg-type]
    first, second = (
        augment.augment(images(32), tf.constant([number, 3], tf.int64), config).numpy() for number in (0, 1)
    )
    assert first.shape == (32, 16, 16, 3)
    assert len({image.tobytes() for image in first}) > 1
    assert not np.array_equal(first, second)
    assert first.min() >= 0 and first.max() <= 255
    again = augment.augment(images(32), tf.constant([0, 3], tf.int64), config).numpy()
    np.testing.assert_array_equal(first, again)


def test_crops_keep_their_share_of_the_side() -> None:
    """A crop of half the side of a ramp spans half of its range."""
    ramp = tf.tile(tf.reshape(tf.range(101, dtype=tf.float32), (1, 101, 1, 1)), (4, 1, 101, 1))
    cropped = augment.augment(ramp, tf.constant([0, 0], tf.int64), replace(CONFIG, crop_ratio=0.5)).numpy()
    spans = cropped.max(axis=(1, 2, 3)) - cropped.min(axis=(1, 2, 3))
    np.testing.assert_allclose(spans, 50, atol=0.1)
