"""From a source of images to batches: sharding, cache, shuffle, epochs, batches, prefetch.

Training batches come from one endless stream, epoch after epoch, in which each epoch holds each example of the shard
once, in an order given by (seed, epoch). Batches run on over the end of an epoch, so all are full and none is dropped,
and the place in the stream follows from the number of the step: a resumed run goes on with the very next example.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainer import augment
from trainer.config import Config
from trainer.framework import tf

CACHE_BYTES = 1 << 30  # "auto" caches shards whose decoded images fit in this
SHUFFLE_BYTES = 1 << 28  # the default buffer holds as many images as fit in this
AUTOTUNE = tf.data.AUTOTUNE
MOST_CALLS = 1024  # of one function at one time; TensorFlow makes no more than there are cores


@dataclass(frozen=True)
class Shard:
    """Part `index` (an int, or a tensor on a parameter-server worker) of `count` parts."""

    count: int = 1
    index: Any = 0


@dataclass(frozen=True)
class Source:
    """Where labelled images come from.

    Args:
        name: For messages.
        shard_sizes: Number of parts -> examples in each part; None where they were not counted.
        elements: Shard -> dataset of (uint8 image (side, side, channels), int32 label), in a fixed order.
        num_classes: Labels are below it.
        image_shape: Shape of the images.
        class_names: Names of the classes where the data has them.
    """

    name: str
    shard_sizes: Callable[[int], list[int] | None]
    elements: Callable[[Shard], Any]
    num_classes: int
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """Examples in all."""
        sizes = self.shard_sizes(1)
        return sizes[0] if sizes else None


class Splits(NamedTuple):
    """What to train on and what to score on."""

    training: Source
    validation: Source


def even_shards(size: int, parts: int) -> list[int]:
    """Sizes of the parts when element i goes to part i modulo `parts`."""
    return [(size - part + parts - 1) // parts for part in range(parts)]


def steps_per_epoch(source: Source, global_batch: int, config: Config) -> int:
    """Whole batches in an epoch, at least 1. `--examples_per_epoch` makes the epoch a virtual one."""
    examples = config.examples_per_epoch or source.size or 0
    return max(1, examples // global_batch)


def training_stream(source: Source, shard: Shard, config: Config, first_example: int, first_epoch: int) -> Any:
    """Return the endless stream of (uint8 image, label) of one shard.

    Args:
        first_example: Examples of this shard already used, where its size is known.
        first_epoch: Epochs already done, for the order of the examples where the size is not known.
    """
    sizes = source.shard_sizes(shard.count)
    # on a parameter-server worker the index is a tensor: which of the shards it is, is known only there
    size = sizes[shard.index] if sizes and isinstance(shard.index, int) else (min(sizes) if sizes else None)
    offset = 0
    if size:
        first_epoch, offset = divmod(first_example, size)
    elements = _cached(source.elements(shard), source, size, shard, config)
    if not config.shuffle:
        return elements.repeat().skip(offset)
    buffer = config.shuffle_buffer or max(1, min(size or SHUFFLE_BYTES, SHUFFLE_BYTES // math.prod(source.image_shape)))

    def epoch(number: Any) -> Any:
        # The seed is a function of the epoch: shuffle's own reshuffling could not start in the middle of a run.
        seed = number * 1_000_003 + config.seed * 7919 + tf.cast(shard.index, tf.int64) + 1
        return elements.shuffle(buffer, seed=seed, reshuffle_each_iteration=False)

    return tf.data.Dataset.counter(first_epoch).flat_map(epoch).skip(offset)


def training_batches(
    source: Source, shard: Shard, batch: int, config: Config, *, first_batch: int = 0, first_epoch: int = 0
) -> Any:
    """Endless batches of (float32 images, int32 labels) of one shard.

    Args:
        batch: Examples in a batch.
        first_batch: Batches of this shard already used.
        first_epoch: Epochs already done.
    """
    stream = training_stream(source, shard, config, first_batch * batch, first_epoch)
    batches = stream.batch(batch, drop_remainder=True, num_parallel_calls=AUTOTUNE)

    def finish(number: Any, element: tuple[Any, Any]) -> tuple[Any, Any]:
        images = tf.cast(element[0], tf.float32)
        if augment.wanted(config):
            seed = tf.stack([number, config.seed * 7919 + tf.cast(shard.index, tf.int64)])
            images = augment.augment(images, seed, config)
        return images, element[1]

    numbered = tf.data.Dataset.zip((tf.data.Dataset.counter(first_batch), batches))
    finished = numbered.map(finish, num_parallel_calls=AUTOTUNE).prefetch(AUTOTUNE)
    # Without it, each step of a cluster asks all processes first whether anyone's data has ended.
    endless = finished.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return endless.with_options(_options(config))


def validation_steps(source: Source, parts: int, batch: int) -> int:
    """Batches that every part needs so that the largest part is seen whole."""
    return math.ceil(max(source.shard_sizes(parts) or [0]) / batch)


def validation_batches(source: Source, shard: Shard, batch: int, config: Config, steps: int) -> Any:
    """Exactly `steps` batches of (images, labels, weights): each example once with weight 1, then padding of weight 0.

    All batches have one shape and all parts equally many, which TPUs and collectives need; the weights keep the
    metrics exact.
    """
    size = max(source.shard_sizes(shard.count) or [0])
    elements = _cached(source.elements(shard), source, size, shard, config, part="validation")
    elements = elements.map(lambda image, label: (image, label, 1.0))
    nothing = (tf.zeros(source.image_shape, tf.uint8), tf.constant(0, tf.int32), tf.constant(0.0))
    padded = elements.concatenate(tf.data.Dataset.from_tensors(nothing).repeat()).take(steps * batch)
    batches = padded.batch(batch, drop_remainder=True)
    finished = batches.map(lambda x, y, weight: (tf.cast(x, tf.float32), y, weight), num_parallel_calls=AUTOTUNE)
    return finished.prefetch(AUTOTUNE).with_options(_options(config))


def _cached(elements: Any, source: Source, size: int | None, shard: Shard, config: Config, part: str = "train") -> Any:
    """Keep decoded images, in memory or in a directory, as `--cache` says."""
    if config.cache == "none":
        return elements
    if config.cache == "memory" or not isinstance(shard.index, int):  # a remote worker has no name for its file
        return elements.cache()
    if config.cache == "auto":
        fits = size is not None and size * math.prod(source.image_shape) <= CACHE_BYTES
        return elements.cache() if fits else elements
    tf.io.gfile.makedirs(config.cache)
    return elements.cache(os.path.join(config.cache, f"{part}-{shard.index}-of-{shard.count}"))


def _options(config: Config) -> Any:
    options = tf.data.Options()
    options.deterministic = config.deterministic
    # The thread that tunes a pipeline misses the end of its iterator when it looks at the wrong moment, and `fit` then waits for it:
    # as long as the training took, at most a minute (TensorFlow 2.17 and 2.21, 2026-11-30). Without it, AUTOTUNE means 16 calls at one
    # time, or `initial_parallelism`, but no more than the machine has cores.
    options.autotune.enabled = False
    if hasattr(options.autotune, "initial_parallelism"):  # not in the oldest versions
        options.autotune.initial_parallelism = MOST_CALLS
    # Sharding is explicit; a second one by the strategy would lose examples.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options
