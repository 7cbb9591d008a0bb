"""Find a study of the project: a started sweep, a rehearsal, or a file that describes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig import files
from vertexrig.bring import pull
from vertexrig.cli import next_commands, options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.options import WhereOptions
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError, VertexrigError, did_you_mean
from vertexrig.project import config, environments
from vertexrig.results.study import read
from vertexrig.workspace import Prepared, Workspace

if TYPE_CHECKING:
    from vertexrig.cli.remote import FoundJob


@dataclass(frozen=True)
class Studied:
    """A study and the sweep of the project that it ran.

    Args:
        loaded: The project.
        sweep: The sweep's name in it.
        job: The HyperparameterTuningJob as the service describes it.
        found: The job that was found; None for a file.
    """

    loaded: config.Loaded
    sweep: str
    job: Mapping[str, Any]
    found: FoundJob | None = None

    @property
    def rehearsed(self) -> bool:
        """Whether it ran on this machine."""
        return self.found is not None and self.found.record is not None


def study(where: WhereOptions, name: str, sweep: str | None = None) -> Studied:
    """Return a study by a sweep's name, a display name, a number, a rehearsal's run, or a file with its description.

    Args:
        where: Where to look for it.
        name: What the user wrote.
        sweep: The project's sweep that the study ran, if its display name is another.

    Raises:
        UsageError: There is no such study, or it ran no sweep of the project.
    """
    loaded = config.load(where.file)
    if options.is_file(name):
        job = pull.resource(files.read_text(name), name)
        return Studied(loaded, _sweep_of(loaded, job, sweep, name), job)
    found = remote.sweep(where, name)
    job = dict(found.job.data)
    known = found.record.name if found.record is not None else ""
    # A rehearsal has recorded the sweep's name; on Vertex AI only the display name says it.
    ran = sweep or (known if known in loaded.project.sweeps else _sweep_of(loaded, job, None, name))
    return Studied(loaded, ran, job, found)


sweep_argument = click.argument("sweep", cls=NameArgument, among=("sweeps",))


@dataclass(frozen=True)
class StudyOptions:
    """The finished study that a verb starts from."""

    sweep: str = options.shared(sweep_argument)
    where: WhereOptions = options.shared(options.where_options)
    ran: str | None = options.option(
        "--sweep",
        metavar="NAME",
        help="Sweep of the project file that the study belongs to, if the study's display name is not the sweep's name.",
    )

    def found(self) -> Studied:
        """Return the study."""
        return study(self.where, self.sweep, self.ran)


study_options = options.group("ended", StudyOptions)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be added to the project file, and write nothing."
)


def has_files(where: Studied, uri: str) -> bool:
    """Whether a gs:// folder has files: on this machine for a rehearsal, otherwise in Cloud Storage."""
    if where.rehearsed:
        folder = where.loaded.output(config.STATE_FOLDER) / "gs" / uri.removeprefix("gs://")
        return any(path.is_file() for path in folder.rglob("*"))
    return any(True for _ in Storage(uri).list(""))


def has_changed(where: Studied) -> bool:
    """Whether the parameters of the project's sweep differ from those of the study."""
    try:
        now = Workspace(where.loaded).prepare(where.sweep, check=False).document.study or {}
    except VertexrigError:
        return False
    return bool(now.get("parameters") != read(RemoteJob(where.job)).spec.get("parameters"))


def rendered(text: str, file: Path, name: str, before: str) -> Prepared | None:
    """Render a new entry of a project file before it is written; return None if the project cannot be rendered at all.

    Args:
        text: The project file with the entry.
        file: Its path.
        name: The entry.
        before: An existing job or sweep; if it cannot be rendered either, the error is not in the new entry.

    Raises:
        VertexrigError: The entry is wrong.
    """
    # a byte order mark is kept in the file, but is not part of the YAML
    workspace = Workspace(
        config.loads(text.removeprefix("\ufeff"), file=file, env=environments.selected()),
        program=next_commands.program(),
    )
    try:
        return workspace.prepare(name)
    except VertexrigError as error:
        try:
            workspace.prepare(before, check=False)
        except VertexrigError:
            streams.note(f"note: {error}")
            return None
        raise


def _sweep_of(loaded: config.Loaded, job: Mapping[str, Any], given: str | None, name: str) -> str:
    """Return the sweep of the project that a study ran, by its display name."""
    sweeps = loaded.project.sweeps
    if given is not None:
        if given not in sweeps:
            raise UsageError(f"{loaded.file} has no sweep {given!r}. {did_you_mean(given, sweeps, most=30)}")
        return given
    shown = str(job.get("displayName", ""))
    for key, one in sweeps.items():
        if shown in (key, one.display_name):
            return key
    raise UsageError(
        f"{name} (display name {shown!r}) belongs to no sweep of {loaded.file}: name its sweep with --sweep, or add it with "
        f"`vertexrig pull {name} --into {loaded.file}`"
    )
