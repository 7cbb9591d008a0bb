"""Read an argument that is a NAME of the project or any FILE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from vertexrig import files, spec, yamltext
from vertexrig.catalog import Catalog
from vertexrig.checks.regions import why_unknown
from vertexrig.cli import next_commands, streams
from vertexrig.cli.options import ProjectOptions
from vertexrig.errors import ConfigError, UsageError
from vertexrig.project import config, environments
from vertexrig.project.mistakes import sound_part
from vertexrig.project.model import Project
from vertexrig.spec.reading import is_project
from vertexrig.workspace import Workspace

KINDS = {"custom-job": "CustomJobSpec", "hp-tuning-job": "HyperparameterTuningJob"}
kind_option = click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    help="How to read a FILE, if its keys do not show whether it is a job or a sweep.",
)
region_option = click.option(
    "--region",
    metavar="REGION",
    help="Region whose machines, quota and prices apply; by default that of the candidate or the project.",
)


def check_region(region: str | None, catalog: Catalog) -> None:
    """Raise UsageError if `--region` names no region that jobs train in."""
    message = why_unknown(region, catalog)[0] if region else ""
    if message:
        raise UsageError(f"--region {region}: {message}")


def check_overrides(overrides: Sequence[str], file: str) -> None:
    """Raise UsageError if `--set` changes a job or sweep of the project file, which a file for gcloud is not made from."""
    for text in overrides:
        group, _, path = text.partition(".")
        if group in ("jobs", "sweeps") and path:
            name = path.partition(".")[0]
            raise UsageError(
                f"--set {text} changes {name} of the project file, and {file} stays as it is: change {file}, or name {name} in its place"
            )


def kind(name: str | None) -> spec.Kind | None:
    """Return the resource kind that `--kind` or a rendered job names; None if there is none of that name."""
    return next((known for known in spec.KINDS if name and known == KINDS.get(name, name)), None)


def project(text: str, path: str, overrides: Sequence[str], mistakes: list[ConfigError]) -> config.Loaded | None:
    """Return the project that a file holds, or None if it is not a project file.

    Entries with mistakes are left out, and the mistakes are added to `mistakes`.
    """
    # Most files are no project files, and a search is cheaper than a second parse of the YAML.
    if "jobs" not in text and "sweeps" not in text:
        return None
    try:
        data = yamltext.read(text).data
    except yamltext.YamlError:
        return None
    if not is_project(data):
        return None
    chosen, given = environments.selected(), data.get(environments.KEY)
    env = chosen if isinstance(given, dict) and chosen in given else ""
    return sound(partial(config.loads, text, file=Path(path), overrides=overrides, env=env), mistakes, text)


def sound(load: Callable[..., config.Loaded], mistakes: list[ConfigError], text: str | None = None) -> config.Loaded:
    """Return a project without the entries that have mistakes, and add these to `mistakes`. If all are wrong, it has no jobs."""
    try:
        loaded, found = sound_part(lambda left: load(without=left), text)
    except (
        environments.NoEnvironmentError
    ) as error:  # the first environment stands for a file that is not whole without one
        return sound(partial(load, env=error.names[0]), mistakes, text)
    except ConfigError as error:
        # an error of the command line is not a finding in a file
        if error.file is None or any(one.file != error.file for one in error.errors) or not Path(error.file).is_file():
            raise
        file = Path(error.file)
        loaded, found = (
            config.Loaded(
                Project(project="", region=""), file, config.ProjectOrigins(str(file)), text=files.read_text(file)
            ),
            error.errors,
        )
    mistakes += found
    return loaded


def workspace(
    given: ProjectOptions,
    target: str | None,
    *,
    needed: bool,
    region: str | None = None,
    trainer: Path | None = None,
    mistakes: list[ConfigError] | None = None,
) -> Workspace:
    """Return the project, or an empty one if there is no project file and none is needed.

    If a list of `mistakes` is given, entries with mistakes are left out, and their mistakes are added to the list.

    Raises:
        UsageError: There is no project although one is needed, or no folder at `trainer`.
    """
    if trainer is not None and not trainer.exists():
        raise UsageError(
            f"--trainer {trainer}: this folder does not exist. Name the folder of the trainer or of its Dockerfile"
        )
    try:
        load = partial(config.load, given.file, overrides=given.overrides, target=target)
        loaded = load() if mistakes is None else sound(load, mistakes)
    except UsageError as error:
        if needed or given.file is not None or given.overrides or environments.selected():
            raise
        if isinstance(error, config.ForeignProjectError):
            streams.note(error)
        loaded = config.Loaded(Project(project="", region=""), Path())
    return Workspace(loaded, region=region, trainer=trainer, program=next_commands.program())
