"""`--data=tfrecord:PATTERN`: image classification records, from a bucket, /gcs/ or the disk, plain or gzipped.

The image is a feature of encoded bytes, or of floats from 0 to 1 with a `shape` feature beside it (the flowers records
of "Practical Machine Learning for Computer Vision"); the label is an int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.config import Config
from trainer.data import AUTOTUNE, Shard, Source, Splits, even_shards
from trainer.errors import ConfigError, DataError, cause
from trainer.framework import tf
from trainer.images import decoder, fit

IMAGE_KEYS = ("image", "image/encoded", "image_raw", "image_bytes", "imageBytes")
LABEL_KEYS = ("label_int", "label", "image/class/label")
GZIP_MAGIC = b"\x1f\x8b"
READERS = 16  # files read at the same time
FILES_PER_SPLIT = 5  # with fewer files than this times the held-out share's, single records are held out instead
MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")


@dataclass(frozen=True)
class Layout:
    """How the records of a set are written, found from its first one."""

    image: str
    label: str
    shape: str
    encoded: bool
    compression: str


@dataclass(frozen=True)
class Part:
    """Some records of some files.

    Args:
        files: In order.
        sizes: Records in each file, None where they were not counted.
        every: Hold out one record in so many, counted over all files; 0 for whole files.
        held: Whether this is the held-out part.
    """

    files: tuple[str, ...]
    sizes: tuple[int, ...] | None
    every: int = 0
    held: bool = False


def tfrecords(pattern: str, config: Config, *, split: bool, for_validation: bool) -> Splits:
    """Return the records in the files that match `pattern`, each one checked once unless `--scan=false`.

    Records for validation are scored whole, so they are counted in any case.

    Raises:
        ConfigError: `--scan=false` without the numbers that a scan would find.
        DataError: no file, a damaged record, a missing feature, a label out of range.
    """
    scan = config.scan or for_validation
    if not scan and not (config.examples_per_epoch and config.num_classes):
        raise ConfigError("--scan=false needs --examples_per_epoch and --num_classes: nothing else can tell them")
    files = _files(pattern)
    layout = _layout(files[0], config)
    sizes, highest = (None, -1)
    if scan:
        sizes, highest = _scan(files, layout)
    training, validation = _split(files, sizes, config.validation_split if split else 0.0)
    if sizes is None and validation.files:
        held_sizes, highest = _scan(validation.files, layout)
        validation = replace(validation, sizes=held_sizes)
    return Splits(*(_source(f"tfrecord:{pattern} ({name})", part, layout, highest + 1, config)
                    for name, part in (("training", training), ("validation", validation))))  # fmt: skip


def _files(pattern: str) -> tuple[str, ...]:
    """Sorted, so that all processes share them out in the same way."""
    try:
        files = tuple(sorted(name for part in pattern.split(",") for name in tf.io.gfile.glob(part.strip())))
    except tf.errors.OpError as error:
        raise DataError(f"--data=tfrecord:{pattern}: {cause(error)}") from None
    if not files:
        raise DataError(
            f"--data=tfrecord:{pattern}: no file matches; check the pattern, and that this job may read there"
        )
    return files


def _layout(file: str, config: Config) -> Layout:
    with tf.io.gfile.GFile(file, "rb") as content:
        compression = "GZIP" if content.read(2) == GZIP_MAGIC else ""
    try:
        first = next(iter(tf.data.TFRecordDataset(file, compression)), None)
        example = tf.train.Example.FromString(first.numpy()) if first is not None else None
    except Exception as error:  # DataLossError, or the message class's own DecodeError
        raise DataError(f"{file}: record 1 is not a readable tf.train.Example: {cause(error)}") from None
    if example is None:
        raise DataError(f"{file} holds no record")
    features = example.features.feature
    image = _key(features, config.image_key, IMAGE_KEYS, "image", file)
    label = _key(features, config.label_key, LABEL_KEYS, "label", file)
    if features[label].WhichOneof("kind") != "int64_list":
        raise DataError(f"{file}: feature {label!r} is not int64; labels must be numbers: name one with --label_key")
    encoded = features[image].WhichOneof("kind") == "bytes_list"
    if not encoded and "shape" not in features:
        raise DataError(f"{file}: feature {image!r} holds numbers, and no feature 'shape' says of what shape")
    return Layout(image, label, "" if encoded else "shape", encoded, compression)


def _key(features: Any, given: str, known: Sequence[str], what: str, file: str) -> str:
    for name in (given,) if given else known:
        if name in features:
            return name
    wanted = repr(given) if given else " or ".join(known)
    raise DataError(f"{file}: no feature {wanted} for the {what}; it has {', '.join(sorted(features))}: "
                    f"name one with --{what}_key")  # fmt: skip


def _scan(files: Sequence[str], layout: Layout) -> tuple[tuple[int, ...], int]:
    """Return (records of each file, highest label of all). Reads each record (which checks its checksum), decodes no image.

    Raises:
        DataError: naming the file and the record.
    """
    with ThreadPoolExecutor(min(8, len(files))) as pool:
        scanned = list(pool.map(lambda name: _scan_file(name, layout), files))
    return tuple(size for size, _ in scanned), max(label for _, label in scanned)


def _scan_file(file: str, layout: Layout) -> tuple[int, int]:
    spec = {layout.label: tf.io.FixedLenFeature([], tf.int64)}
    if layout.encoded:
        spec[layout.image] = tf.io.FixedLenFeature([], tf.string)

    def look(record: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_single_example(record, spec)
        start = tf.strings.substr(parsed[layout.image], 0, 4) if layout.encoded else tf.constant(MAGIC[0])
        return parsed[layout.label], start

    seen, highest = 0, -1
    try:
        for label, start in tf.data.TFRecordDataset(file, layout.compression).map(look).as_numpy_iterator():
            seen += 1
            if label < 0:
                raise DataError(f"{file}: record {seen}: label {label} is out of range; labels start at 0")
            if not start.startswith(MAGIC):
                raise DataError(f"{file}: record {seen}: its image is no JPEG, PNG, GIF or BMP")
            highest = max(highest, int(label))
    except tf.errors.OpError as error:
        raise DataError(f"{file}: record {seen + 1} cannot be read: {cause(error)}") from None
    return seen, highest


def _split(files: tuple[str, ...], sizes: tuple[int, ...] | None, share: float) -> tuple[Part, Part]:
    """Hold out one file in `every` where there are enough of them, else one record in `every`."""
    if share <= 0:
        return Part(files, sizes), Part((), ())
    every = max(2, round(1 / share))
    if len(files) < max(every, FILES_PER_SPLIT):
        return Part(files, sizes, every), Part(files, sizes, every, held=True)
    places = range(len(files))
    chosen = {held: [place for place in places if (place % every == 0) == held] for held in (False, True)}
    return tuple(  # type: ignore[return-value]
        Part(tuple(files[place] for place in chosen[held]),
             tuple(sizes[place] for place in chosen[held]) if sizes else None, held=held)
        for held in (False, True)
    )  # fmt: skip


def _source(name: str, part: Part, layout: Layout, classes: int, config: Config) -> Source:
    decode, shape = decoder(config)

    def parse(record: Any) -> tuple[Any, Any]:
        spec: dict[str, Any] = {layout.label: tf.io.FixedLenFeature([], tf.int64)}
        if layout.encoded:
            spec[layout.image] = tf.io.FixedLenFeature([], tf.string)
        else:
            spec[layout.image] = tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)
            spec[layout.shape] = tf.io.FixedLenFeature([3], tf.int64)
        parsed = tf.io.parse_single_example(record, spec)
        label = tf.cast(parsed[layout.label], tf.int32)
        if layout.encoded:
            return decode(parsed[layout.image]), label
        # such records hold pixels from 0 to 1
        image = tf.reshape(parsed[layout.image], parsed[layout.shape]) * 255
        return fit(tf.ensure_shape(image, (None, None, shape[2])), shape[0], shape[2]), label

    def elements(shard: Shard) -> Any:
        raw = _records(part, layout, shard)
        return raw.map(parse, num_parallel_calls=AUTOTUNE, deterministic=config.deterministic)

    return Source(name, lambda parts: shard_sizes(part, parts), elements, classes, shape)


def by_file(part: Part, parts: int) -> bool:
    """Tell whether a part is shared out by whole files: only where each process gets at least one."""
    return not part.every and len(part.files) >= parts


def shard_sizes(part: Part, parts: int) -> list[int] | None:
    """Return the records that each of `parts` processes reads; None where they were not counted."""
    if part.sizes is None:
        return None
    if by_file(part, parts):
        return [int(np.sum(part.sizes[index::parts])) for index in range(parts)]
    total = sum(part.sizes)
    if part.every:
        held = math.ceil(total / part.every)
        total = held if part.held else total - held
    return even_shards(total, parts)


def _records(part: Part, layout: Layout, shard: Shard) -> Any:
    """Return the raw records of one shard: those of its files, or every so manieth of all files."""
    files = tf.data.Dataset.from_tensor_slices(list(part.files))
    whole_files = by_file(part, shard.count)
    if whole_files:
        files = files.shard(shard.count, shard.index)
    readers = min(READERS, max(1, len(part.files) // (shard.count if whole_files else 1)))
    # Deterministic here in any case: the division by records below counts on one order in all processes.
    records = files.interleave(lambda name: tf.data.TFRecordDataset(name, layout.compression),
                               cycle_length=readers, num_parallel_calls=AUTOTUNE, deterministic=True)  # fmt: skip
    if part.every:
        numbered = records.enumerate().filter(lambda place, _: (place % part.every == 0) == part.held)
        records = numbered.map(lambda _, record: record)
    return records if whole_files else records.shard(shard.count, shard.index)
