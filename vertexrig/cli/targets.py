"""What the verbs that take a NAME of the project or any FILE make of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vertexrig import spec
from vertexrig.checks.workspace import Workspace
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.project.model import Project

KINDS = {"custom-job": "CustomJobSpec", "hp-tuning-job": "HyperparameterTuningJob"}


def is_file(target: str) -> bool:
    """True for `-`, a path, a name with a dot, which no job has, and the name of a file that is there."""
    return target == "-" or any(char in target for char in "/\\.") or Path(target).is_file()


def kind(name: str | None) -> spec.Kind | None:
    """The resource kind that `--kind` or a rendered job names."""
    return next((known for known in spec.KINDS if name and known == KINDS.get(name, name)), None)


def read(path: str) -> str:
    """The text of a file, `-` for stdin; UsageError if it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise UsageError(
            f"{path} is a folder and cannot be read as YAML; name its files: {path.rstrip('/')}/*.yaml"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def workspace(
    file: Path | None,
    overrides: Sequence[str],
    target: str | None,
    templates: Path | None,
    *,
    needed: bool,
    region: str | None = None,
    trainer: Path | None = None,
) -> Workspace:
    """The project, or an empty one when it is not needed and there is none."""
    try:
        loaded = config.load(file, overrides=overrides, target=target)
    except UsageError:
        if needed or file is not None or overrides:
            raise
        loaded = config.Loaded(Project(project="", region=""), Path(), {})
    return Workspace(loaded, templates=templates, region=region, trainer=trainer)
