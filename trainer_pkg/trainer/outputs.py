"""Where things go: the directories Vertex AI names, or local ones; checked before training, filled after it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer import ending
from trainer.config import Config
from trainer.errors import OutputError, cause
from trainer.framework import PEER_LOST, tf

SUMMARY = "summary.json"
PLOT = "training_curves.png"


@dataclass(frozen=True)
class Directories:
    """Local paths or gs:// URIs.

    Args:
        model: The SavedModel, summary.json and training_curves.png.
        checkpoints: What a restarted run goes on from.
        logs: TensorBoard.
    """

    model: str
    checkpoints: str
    logs: str


def directories(config: Config, environ: Mapping[str, str] = os.environ) -> Directories:
    """AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR; below `--output_dir` where they are not set."""

    def one(variable: str, name: str) -> str:
        path = environ.get(variable, "").strip() or os.path.join(config.output_dir, name)
        return path.rstrip("/") or "/"

    return Directories(
        one("AIP_MODEL_DIR", "model"), one("AIP_CHECKPOINT_DIR", "checkpoints"), one("AIP_TENSORBOARD_LOG_DIR", "logs")
    )


def check_writable(path: str, *, keep: bool = True) -> None:
    """Write and remove a file.

    Args:
        path: A directory, made if it is not there.
        keep: Whether one that was made stays.

    Raises:
        OutputError: any of them fails, before an hour of training is spent.
    """
    probe = os.path.join(path, f".probe-{uuid.uuid4().hex}")
    try:
        there = tf.io.gfile.isdir(path)
        tf.io.gfile.makedirs(path)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("probe")
        tf.io.gfile.remove(probe)
        if not keep and not there:
            with contextlib.suppress(OSError):  # a bucket has no directories to remove
                os.rmdir(path)
    except (tf.errors.OpError, OSError) as error:
        raise OutputError(f"cannot write to {path}: {cause(error)}; give a directory this job may write") from None


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn a failure to write, such as a full disk, into an OutputError.

    The loss of another process, which a save that all take part in meets as well, stays what it is.
    """
    try:
        yield
    except PEER_LOST:
        raise
    except (tf.errors.OpError, OSError) as error:
        raise OutputError(f"cannot write to {path}: {cause(error)}") from error


@contextlib.contextmanager
def temporary_directory() -> Iterator[str]:
    """Provide a directory on the local disk, never inside a shared output directory, removed whatever happens."""
    path = tempfile.mkdtemp(prefix="trainer-")
    ending.TEMPORARY.add(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        ending.TEMPORARY.discard(path)


def write_bytes(path: str, content: bytes) -> None:
    """Write a file whole or not at all: readers never see a part of it."""
    part = f"{path}.part"
    with writing(path):
        with tf.io.gfile.GFile(part, "wb") as file:
            file.write(content)
        tf.io.gfile.rename(part, path, overwrite=True)


def write_json(path: str, value: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: str) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    with tf.io.gfile.GFile(path, "r") as file:
        return dict(json.loads(file.read()))


def copy_tree(source: str, target: str, last: str) -> None:
    """Copy a local directory, the file named `last` at the very end, so that it marks a complete copy."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]
    for path in sorted(files, key=lambda path: (os.path.basename(path) == last, path)):
        place = os.path.join(target, os.path.relpath(path, source))
        with writing(place):
            tf.io.gfile.makedirs(os.path.dirname(place))
            tf.io.gfile.copy(path, place, overwrite=True)


def plot_history(history: list[dict[str, float]], path: str) -> bool:
    """Loss and accuracy over the epochs as a PNG; false where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # no pyplot: it looks for a display
    except ImportError:
        return False
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    epochs = [row["epoch"] for row in history]
    for place, name in enumerate(("loss", "accuracy"), start=1):
        axes = figure.add_subplot(1, 2, place)
        for key, label in ((name, "training"), (f"val_{name}", "validation")):
            axes.plot(epochs, [row.get(key, float("nan")) for row in history], label=label, marker=".")
        axes.set_xlabel("epoch")
        axes.set_title(name)
        axes.legend()
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_bytes(path, content.getvalue())
    return True
