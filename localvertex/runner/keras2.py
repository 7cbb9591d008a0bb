"""The framework of an image, and which Keras a trainer has in its place: TensorFlow before 2.16 has Keras 2, later ones Keras 3.

Source: TensorFlow's release notes, 2.16.1 of 2024-03-07 (github.com/tensorflow/tensorflow/releases/tag/v2.16.1, read 2026-11-22):
Keras 3.0 is the default Keras version; tf-keras and TF_USE_LEGACY_KERAS=1 keep Keras 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localvertex.runner.packages import Interpreter
from vertexrig.catalog import load

_KERAS_3 = (2, 16)
# deep learning containers (tf2-gpu.2-5), prebuilt images (tf-cpu.2-11) and TensorFlow's own (tensorflow/tensorflow:2.8.0-gpu)
_NAMED = re.compile(r"(?:/tf2?-(?:cpu|gpu|tpu)\.|/tensorflow:)([0-9]+)[.-]([0-9]+)")
# the same places, of any framework: pytorch-gpu.1-13, sklearn-cpu.1-0, pytorch/pytorch:2.4.0
_FRAMEWORK = re.compile(r"/(tf|pytorch|sklearn|xgboost)2?-(?:cpu|gpu|tpu|xla)\.|/(tensorflow|pytorch|jax):")
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)", re.IGNORECASE | re.MULTILINE)

KerasChoice = tuple[dict[str, str], str]
"""Variables of the replica, and a sentence on the TensorFlow and the Keras that it has, "" if they are the image's."""


def framework(image: str, folder: Path | None = None) -> str:
    """Return the framework by the name of an image, or of those that a folder's Dockerfile is built from; "" if no name tells."""
    for name in (image, *(_bases(folder) if folder is not None else ())):
        prebuilt, named = load().image(name), _FRAMEWORK.search(f"/{name}")
        if prebuilt is not None:
            return prebuilt.framework
        if named is not None:
            return (named[1] or named[2]).replace("tensorflow", "tf")
    return ""


def of_image(base: Interpreter, image: str) -> KerasChoice:
    """Return the `KerasChoice` for an image whose name has its TensorFlow."""
    return of_version(base, _named_version(image))


def of_folder(base: Interpreter, image: str, folder: Path) -> KerasChoice:
    """Return the `KerasChoice` for a custom image: by its name, or by what the Dockerfile in its folder is built from."""
    for name in (image, *_bases(folder)):
        version = _named_version(name)
        if not version:
            continue
        settings, sentence = of_version(base, version)
        here = base.installed.get("tensorflow", "")
        if not sentence and _minor(here) == _minor(version):
            return settings, ""
        ran = (
            f"{f'tensorflow {here}' if here else 'no tensorflow'} instead of the {version} of {name.rpartition('/')[2]}"
        )
        return settings, f"{ran}; {sentence}" if sentence else ran
    return {}, ""


def of_version(base: Interpreter, version: str) -> KerasChoice:
    """Return the `KerasChoice` for an image with this TensorFlow; `version` is "" if it has none or it is not known."""
    here, keras = base.installed.get("tensorflow", ""), base.installed.get("tf_keras", "")
    wanted = _minor(version)
    if not wanted or not here or wanted >= _KERAS_3 or _minor(here) < _KERAS_3:
        return {}, ""
    if _minor(keras) == _minor(here):
        sentence = f"tf-keras {keras} (TF_USE_LEGACY_KERAS=1) instead of the Keras 2 of TensorFlow {version}"
        return {"TF_USE_LEGACY_KERAS": "1"}, sentence
    why = f"tf-keras {keras} is for another TensorFlow version" if keras else "tf-keras is not installed here"
    return {}, f"Keras 3 instead of the Keras 2 of TensorFlow {version}, because {why}"


def _named_version(image: str) -> str:
    """Return the version of TensorFlow in an image's name, "" if it has none."""
    named = _NAMED.search(image)
    return f"{named[1]}.{named[2]}" if named else ""


def _bases(folder: Path) -> Iterator[str]:
    """Yield the images that the stages of a folder's Dockerfile are built from, the last one first."""
    with suppress(OSError, UnicodeDecodeError):
        yield from reversed(_FROM.findall((folder / "Dockerfile").read_text(encoding="utf-8")))


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2])
