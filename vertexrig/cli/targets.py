"""How verbs read an argument that is a NAME of the project or any FILE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vertexrig import spec, yamltext
from vertexrig.checks.workspace import Workspace
from vertexrig.cli import steps, streams
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.project.model import Project
from vertexrig.spec.foreign import is_project

KINDS = {"custom-job": "CustomJobSpec", "hp-tuning-job": "HyperparameterTuningJob"}


def kind(name: str | None) -> spec.Kind | None:
    """The resource kind that `--kind` or a rendered job names."""
    return next((known for known in spec.KINDS if name and known == KINDS.get(name, name)), None)


def project(text: str, path: str, overrides: Sequence[str] = ()) -> config.Loaded | None:
    """The project that a file holds; None if it is not a project file.

    Raises:
        ConfigError: It is one, and something is wrong with it.
    """
    # Most files do not hold a project, and a search is cheaper than a second parse of the YAML.
    if "jobs" not in text and "sweeps" not in text:
        return None
    try:
        data = yamltext.read(text).data
    except yamltext.YamlError:
        return None
    return config.loads(text, file=Path(path), overrides=overrides) if is_project(data) else None


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
    """The project, or an empty one when it is not needed and there is none.

    Raises:
        UsageError: There is no project although one is needed, or no folder at `trainer`.
    """
    if trainer is not None and not trainer.exists():
        raise UsageError(
            f"--trainer {trainer}: the folder does not exist. Name the folder of the trainer, or of its Dockerfile"
        )
    try:
        loaded = config.load(file, overrides=overrides, target=target)
    except UsageError as error:
        if needed or file is not None or overrides:
            raise
        if isinstance(error, config.ForeignProjectError):
            streams.note(error)
        loaded = config.Loaded(Project(project="", region=""), Path(), {})
    return Workspace(loaded, templates=templates, region=region, trainer=trainer, program=steps.program())
