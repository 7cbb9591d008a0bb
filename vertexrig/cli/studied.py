"""Finding a study of the project: a started sweep, a rehearsal, or a file that describes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig import files
from vertexrig.bring import pull
from vertexrig.cli import options, remote, steps, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.options import WhereOptions
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError, VertexrigError, did_you_mean
from vertexrig.project import config
from vertexrig.results import trials
from vertexrig.studies import chain as chains
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
        found: How it was found; None for a file.
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
        sweep: The project's sweep that it ran, where its display name does not say so.

    Raises:
        UsageError: There is no such study, or it is of no sweep of the project.
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


chain_option = click.option(
    "--chain", is_flag=True, help="With the studies that it follows (`vertexrig follow-up`), as one."
)


sweep_argument = click.argument("sweep", cls=NameArgument, among=("sweeps",))


@dataclass(frozen=True)
class StudyOptions:
    """The ended study that a verb goes on from."""

    sweep: str = options.shared(sweep_argument)
    where: WhereOptions = options.shared(options.where_options)
    ran: str | None = options.option(
        "--sweep", metavar="NAME", help="The project's sweep that it ran, if its display name is another."
    )

    def found(self) -> Studied:
        """Return the study."""
        return study(self.where, self.sweep, self.ran)


study_options = options.group("ended", StudyOptions)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be added, and write nothing.")


def chain(where: WhereOptions, name: str) -> list[Studied]:
    """Return a study and those that it follows, the first one first: each the newest run of its sweep."""
    last = study(where, name)
    before = chains.names(last.loaded, last.sweep)[:-1]
    return [*(study(where, one) for one in before), last]


def tuning_job(where: WhereOptions, name: str, *, whole_chain: bool) -> RemoteJob:
    """Return a sweep by name or number, if asked for with the studies that it follows as one; UsageError if it is a custom job."""
    if not whole_chain:
        return remote.sweep(where, name).job
    parts = chain(where, name)
    return RemoteJob(chains.joined([part.job for part in parts], [part.sweep for part in parts]))


def has_files(where: Studied, uri: str) -> bool:
    """Tell whether a gs:// folder holds anything: of a rehearsal on this machine, otherwise in Cloud Storage."""
    if where.rehearsed:
        folder = where.loaded.output(config.STATE_FOLDER) / "gs" / uri.removeprefix("gs://")
        return any(path.is_file() for path in folder.rglob("*"))
    return any(True for _ in Storage(uri).list(""))


def has_changed(where: Studied) -> bool:
    """Tell whether the project's sweep has other parameters now than the study that ran."""
    try:
        now = Workspace(where.loaded).prepare(where.sweep, check=False).document.study or {}
    except VertexrigError:
        return False
    return bool(now.get("parameters") != trials.study_spec(where.job).get("parameters"))


def rendered(text: str, file: Path, name: str, before: str) -> Prepared | None:
    """Return a new entry of a project file, rendered before it is written; None where nothing of the project can be rendered yet.

    Args:
        text: The project file with the entry.
        file: Its path.
        name: The entry.
        before: A job or sweep that was there: if it cannot be rendered either, the entry is not at fault.

    Raises:
        VertexrigError: The entry is wrong.
    """
    # An editor's byte order mark is kept in the file, and does not belong to the YAML.
    workspace = Workspace(config.loads(text.removeprefix("\ufeff"), file=file), program=steps.program())
    try:
        return workspace.prepare(name)
    except VertexrigError as error:
        try:
            # Which of them is at fault: if the entry before fails in the same way, the project was broken before this
            # verb.
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
        f"{name} (display name {shown!r}) is of no sweep of {loaded.file}: name the sweep that it ran with --sweep, or add it: "
        f"vertexrig pull {name} --into {loaded.file}"
    )
