"""Where a run writes, and files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

SUMMARY = "summary.json"


class OutputError(Exception):
    """A file cannot be written, or holds something else than it should."""


def folder(uri: str) -> Path:
    """The folder of an output URI: Vertex AI mounts every bucket at /gcs, where plain files work."""
    return Path(uri.replace("gs://", "/gcs/", 1) if uri.startswith("gs://") else uri)


def directories(environ: Mapping[str, str], default: str) -> tuple[Path, Path]:
    """The folders of the model and of the checkpoints: those of the job, or below `default`."""
    model = environ.get("AIP_MODEL_DIR") or os.path.join(default, "model")
    checkpoints = environ.get("AIP_CHECKPOINT_DIR") or os.path.join(default, "checkpoints")
    return folder(model), folder(checkpoints)


def write(path: Path, save: Callable[[BinaryIO], Any]) -> None:
    """Let `save` write the file; a process killed in between leaves what was there before.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                save(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write(path, lambda file: file.write(json.dumps(value, indent=1).encode()))
