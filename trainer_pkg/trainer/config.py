"""The settings of a run: one frozen dataclass, and the readers that turn Vertex's way of writing values into Python's.

Vertex AI sends every hyperparameter as text, and DISCRETE values as floats (`--num_units=128.0`).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from dataclasses import dataclass

STRATEGIES = ("auto", "one-device", "mirrored", "central-storage", "multi-worker", "parameter-server", "tpu")
MODELS = ("cnn", "dense", "resnet50", "mobilenet_v2", "efficientnet_b0")
OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
SCHEDULES = ("constant", "cosine", "linear")

LARGEST = 2**31 - 2  # of a size or a seed: TensorFlow's are 32 bits
TRUE_WORDS = frozenset({"true", "1", "1.0", "yes", "on", "t", "y"})
FALSE_WORDS = frozenset({"false", "0", "0.0", "no", "off", "f", "n"})


def number(text: str) -> float:
    """Return a finite float; `1e-3`, `0.5` and `3` are all fine."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def integer(text: str) -> int:
    """Return an int, also from the way Vertex AI writes DISCRETE values: `128.0`, `1.28e2`."""
    value = number(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    if abs(value) > LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {LARGEST:,}")
    return int(value)


def positive_integer(text: str) -> int:
    """Return an int of at least 1."""
    value = integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return value


def count(text: str) -> int:
    """Return an int of at least 0."""
    value = integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def not_negative(text: str) -> float:
    """Return a finite float of at least 0."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def fraction(text: str) -> float:
    """Return a float from 0 to 1."""
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def boolean(text: str) -> bool:
    """Return a bool as people and Vertex AI write it (CATEGORICAL `true`, DISCRETE `1.0`)."""
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is not true or false")


def step_range(text: str) -> tuple[int, ...]:
    """Return `FIRST,LAST` as two ints; empty text as none."""
    if not text:
        return ()
    first, _, last = text.partition(",")
    steps = (positive_integer(first), positive_integer(last or first))
    if steps[0] > steps[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return steps


@dataclass(frozen=True)
class Config:
    """All settings of a run; `task.py` says what each field means. 0 and "" mean "find out by yourself"."""

    # data
    data: str = "digits"
    validation_data: str = ""
    validation_split: float = 0.2
    data_dir: str = ""
    image_key: str = ""
    label_key: str = ""
    image_size: int = 0
    num_classes: int = 0
    cache: str = "auto"
    shuffle: bool = True
    shuffle_buffer: int = 0
    deterministic: bool = True
    scan: bool = True
    examples_per_epoch: int = 0
    batch_size: int = 32
    global_batch_size: int = 0
    crop_ratio: float = 1.0
    with_color_distort: bool = False
    flip: bool = False
    # model
    model: str = "cnn"
    num_units: int = 128
    n_hidden: int = 2
    n_neurons: int = 100
    num_hidden: int = 0
    weights: str = "imagenet"
    fine_tune: int = 0
    dropout: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    # optimizer
    optimizer: str = "adam"
    learning_rate: float = 0.003
    momentum: float = 0.9
    weight_decay: float = 0.004
    clip_norm: float = 0.0
    schedule: str = "constant"
    warmup_steps: int = 0
    # loop
    epochs: int = 12
    patience: int = 0
    save_every: int = 0
    resume: bool = True
    resume_from: str = ""
    warm_start_from: str = ""
    evaluate: bool = False
    champion: str = ""
    challenger: str = ""
    seed: int = 42
    # machine
    strategy: str = "auto"
    collective: str = "auto"
    tpu: str = "local"
    precision: str = "float32"
    jit: bool = False
    steps_per_execution: int = 0
    intra_op_threads: int = 0
    # outputs
    output_dir: str = "outputs"
    tensorboard: bool = True
    histograms: bool = False
    profile_steps: tuple[int, ...] = ()
    plot: bool = True
    started: float = dataclasses.field(default=0.0, compare=False)

    def identity(self) -> dict[str, object]:
        """Return what must be equal for a run to go on from another's checkpoint: the shapes and the data."""
        names = ("data", "validation_data", "validation_split", "image_size", "model", "num_units", "n_hidden",
                 "n_neurons", "num_hidden", "optimizer", "precision")  # fmt: skip
        return {name: getattr(self, name) for name in names}
