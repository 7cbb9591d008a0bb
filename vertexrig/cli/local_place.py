"""Where the local Vertex of a command line is: the folder of its state, its project, the server that runs there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.cli import streams
from vertexrig.errors import ServiceError, UsageError
from vertexrig.project import config

if TYPE_CHECKING:
    from vertexrig.local.jobs.settings import Settings
    from vertexrig.local.state import RunningServer
    from vertexrig.project.config import Loaded

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="Folder of its state; by default .vertexrig beside the project file.",
)


cold_option = click.option(
    "--cold",
    is_flag=True,
    help="Start every replica cold; by default the second of an environment is forked after its imports.",
)
discrete_option = click.option(
    "--discrete",
    type=click.Choice(["retry", "decimal", "whole"]),
    help="Send a discrete 128 to trainers as 128.0 (decimal), as 128 (whole), or as the one and, if the trainer refuses it, "
    "the other (retry); by default what the project file says, or retry.",
)


def make_bucket(here: RunningServer, loaded: Loaded | None) -> None:
    """Jobs put their packages and outputs into the project's bucket, which nobody made on this machine yet."""
    from vertexrig.local import control

    name = loaded.project.bucket_name if loaded else ""
    if not name:
        return
    try:
        control.make_bucket(here, name)
    except ServiceError as error:
        streams.note(f"warning: the bucket {name} of the project file is not here: {error}")


def project(file: Path | None, root: Path | None) -> tuple[Loaded | None, Path]:
    """The project if there is one (the server also serves people without), and the folder of the server's state."""
    place = folder(file, root)
    if file is None and not _has_project(note=True):
        return None, place
    return config.load(file), place


def folder(file: Path | None, root: Path | None) -> Path:
    """The folder of the server's state; the project file is not read for it."""
    # The folder of a file that is not there would be a new, empty state, and `down` would find nothing to stop.
    if file is not None and not file.is_file():
        raise UsageError(f"there is no file {file}")
    if root is not None:
        return root
    if file is None and not _has_project():
        return Path(config.STATE_FOLDER)
    return (config.find(Path.cwd()) if file is None else file).parent / config.STATE_FOLDER


def _has_project(*, note: bool = False) -> bool:
    try:
        config.find(Path.cwd())
    except UsageError as error:
        if note and isinstance(error, config.ForeignProjectError):
            streams.note(error)
        return False
    return True


def running(folder: Path) -> RunningServer:
    from vertexrig.local import state

    here = state.find(folder)
    if here is None:
        raise ServiceError(f"no local Vertex runs on {folder}; start it with `vertexrig local up --detach`")
    return here


def settings(
    loaded: Loaded | None,
    folder: Path,
    *,
    gs_paths: str | None = None,
    slots: int | None = None,
    cold: bool = False,
    discrete: str | None = None,
    credentials: bool = False,
    transparent: bool = False,
) -> Settings:
    """The settings of a server as the project file gives them.

    Args:
        loaded: The project, if there is one.
        folder: The server's state.
        gs_paths: `mapped` or `kept`, over what the project file says. If neither does: `kept`, unless trainers see the
            user's credentials, or this system cannot show them /gcs, which many put in place of `gs://`.
        slots: Replicas at one time, over what the project file says.
        cold: Start every replica cold, whatever the project file says.
        discrete: How discrete values reach trainers, over what the project file says.
        credentials: Trainers see the user's credentials.
        transparent: For a program that nobody changed, which also names buckets by `gs://` in the code of its trainers.

    Raises:
        UsageError: `kept` and the user's credentials: trainers that have them go to Google.
    """
    from vertexrig.local.jobs.settings import Settings
    from vertexrig.local.runner.children import shows_buckets
    from vertexrig.local.runner.configured import of_project
    from vertexrig.local.runner.options import RunOptions
    from vertexrig.project.model import LocalSettings

    local = loaded.project.local if loaded else LocalSettings()
    run = replace(of_project(loaded), project=loaded.project.project) if loaded else RunOptions()
    wanted = gs_paths or local.gs_paths
    if wanted == "kept" and credentials:
        raise UsageError("--pass-credentials is for trainers that go to Google; with gs_paths: kept they never do")
    # A program nobody changed writes gs:// into the code of its trainers, where no argument can be mapped.
    keep = wanted == "kept" or (wanted is None and not credentials and (transparent or shows_buckets()))
    run = replace(run, warm=run.warm and not cold, keep_gs=keep, credentials=credentials)
    made = Settings(folder, run=run, allow_hosts=local.allow_hosts, discrete=discrete or local.discrete)
    slots = slots or local.slots
    return replace(made, slots=slots) if slots else made
