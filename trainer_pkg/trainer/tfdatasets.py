"""`--data=tfds:NAME`: a TensorFlow Datasets data set, downloaded or already in `--data_dir`."""

from __future__ import annotations

from typing import Any

from trainer.config import Config
from trainer.data import AUTOTUNE, Shard, Source, Splits, even_shards
from trainer.errors import DataError, cause
from trainer.framework import tf
from trainer.images import decoder


def tfds_data(name: str, config: Config, *, split: bool, for_validation: bool) -> Splits:
    """Return an image classification set of TensorFlow Datasets; `NAME`, `NAME:VERSION` or `NAME/CONFIG`.

    Its "validation" or else "test" split scores; without either, `--validation_split` of "train" does.

    Raises:
        DataError: not installed, not found, or no image classification set.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(f"--data=tfds:{name} needs the package tensorflow-datasets ({error}); "
                        "add it to the trainer's requirements.txt") from None  # fmt: skip
    try:
        builder = tfds.builder(name, data_dir=config.data_dir or None)
        builder.download_and_prepare()
    except Exception as error:  # tfds raises many kinds, by what it tried
        raise DataError(f"--data=tfds:{name}: cannot be had: {cause(error)}") from error
    features = builder.info.features
    if not {"image", "label"} <= set(features or ()):
        raise DataError(f"--data=tfds:{name} has {', '.join(features or ())}; it must have an image and a label")
    if split:
        training, validation = _split_names(builder.info.splits, config.validation_split)
    else:
        wanted = ("validation", "test", "train") if for_validation else ("train",)
        training = next((part for part in wanted if part in builder.info.splits), "train")
        validation = f"{training}[:0]"
    return Splits(_source(tfds, builder, training, config), _source(tfds, builder, validation, config))


def _split_names(splits: Any, share: float) -> tuple[str, str]:
    for name in ("validation", "test"):
        if name in splits:
            return "train", name
    size = splits["train"].num_examples
    cut = size - round(size * share)
    return f"train[:{cut}]", f"train[{cut}:]"


def _source(tfds: Any, builder: Any, split: str, config: Config) -> Source:
    info = builder.info
    size = int(info.splits[split].num_examples)
    grey = info.features["image"].shape[-1] == 1
    decode, shape = decoder(config, 1 if grey else 3)
    names = tuple(info.features["label"].names or ())

    def elements(shard: Shard) -> Any:
        # Encoded images: they are decoded once, in parallel, after sharding. One order in all processes.
        read = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False, shuffle_seed=0)
        raw = builder.as_dataset(split=split, decoders={"image": tfds.decode.SkipDecoding()},
                                 shuffle_files=False, read_config=read)  # fmt: skip
        mine = raw.shard(shard.count, shard.index)
        return mine.map(lambda row: (decode(row["image"]), tf.cast(row["label"], tf.int32)),
                        num_parallel_calls=AUTOTUNE, deterministic=config.deterministic)  # fmt: skip

    return Source(f"tfds:{info.full_name} {split}", lambda parts: even_shards(size, parts), elements,
                  int(info.features["label"].num_classes), shape, names)  # fmt: skip
