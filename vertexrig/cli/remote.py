"""Find started jobs on Vertex AI, or among the rehearsals on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vertexrig.cli import next_commands, streams
from vertexrig.cli.options import WhereOptions
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import TUNING, RemoteJob, Vertex, is_local
from vertexrig.errors import JobFailedError, ServiceError, UsageError, nearest
from vertexrig.project import config
from vertexrig.results.history import History, Record
from vertexrig.spec import states


@dataclass(frozen=True)
class FoundJob:
    """A job that was found by its name or number.

    Args:
        job: The job.
        console: The URL of its page in the console, "" for a rehearsal.
        record: The rehearsal, None for a job of Vertex AI.
    """

    job: RemoteJob
    console: str = ""
    record: Record | None = None


def load(file: Path | None, *, deployed: bool = False) -> config.Loaded:
    """Return the project of a verb that works with its services.

    Raises:
        NoEnvironmentError: It has environments and none is chosen, and it is `deployed` or its services are not the local Vertex.
    """
    loaded = config.load(file)
    if deployed or not is_local():
        loaded.require_environment()
    return loaded


def service(loaded: config.Loaded) -> Vertex:
    """Return the API of a project; NoEnvironmentError as `load`."""
    if not is_local():
        loaded.require_environment()
    return Vertex(loaded.project.project, loaded.project.region)


def history(loaded: config.Loaded) -> History:
    """Return the rehearsals of a project."""
    return History(loaded.output(config.STATE_FOLDER))


def bucket(loaded: config.Loaded, kept: str) -> Storage:
    """Return the project's bucket.

    Args:
        loaded: The project.
        kept: What the bucket stores, for the error.

    Raises:
        UsageError: The project file has no bucket.
    """
    if not is_local():
        loaded.require_environment()
    if not loaded.project.bucket:
        raise UsageError(f"the project file needs a `bucket`, which stores the {kept}")
    return Storage(loaded.project.bucket, location=loaded.project.region)


def own(loaded: config.Loaded, kept: str) -> Storage:
    """Return the trigger's folder in the bucket of a project, with what `bucket` raises."""
    return bucket(loaded, kept).below(loaded.project.trigger.prefix)


def find(where: WhereOptions, name: str) -> FoundJob:
    """Return a job or sweep by its name, its number, or a rehearsal's run.

    With `--local`, only rehearsals are searched. Otherwise the number or run of a rehearsal finds the rehearsal; a name finds the
    newest job or rehearsal of that name, or the rehearsal if Vertex AI cannot be reached. stderr says if a rehearsal was chosen.
    """
    loaded = config.load(where.file)
    record = history(loaded).find(name)
    if where.local and record is None:
        file = next_commands.named(where.file)
        if name in loaded.project.entries:
            raise UsageError(
                f"{name} has not been rehearsed yet: `{next_commands.line('rehearse', name, *file)}` does that"
            )
        listing = next_commands.line("jobs", "--local", *file)
        best = nearest(name, loaded.project.entries)
        near = f". Did you mean {best!r}?" if best else ""
        raise UsageError(f"this project has no rehearsal {name!r}{near or '.'} `{listing}` lists its rehearsals")
    # numbers and runs are unique, so the service, which may not be reachable, need not be asked
    if record is not None and (where.local or name in (record.run, record.job.id, record.job.name)):
        return FoundJob(record.job, record=record)
    vertex, place = service(loaded), place_of_jobs()
    try:
        job = lookup(vertex, loaded, name)
    except (UsageError, ServiceError) as error:
        if record is None:
            raise
        absent = isinstance(error, UsageError)
        why = f"{place} has no job of that name" if absent else f"{place} cannot be reached: {error}"
    else:
        # both times are RFC 3339 in UTC: they compare as text
        if record is None or record.created <= job.created:
            return FoundJob(job, vertex.console(job.name))
        why = f"newer than job {job.id} on {place}"
    streams.note(f"using the rehearsal {record.run or record.job.id} on this machine ({why})")
    return FoundJob(record.job, record=record)


def place_of_jobs() -> str:
    """Return the service that has the jobs, in words."""
    return "the local Vertex" if is_local() else "Vertex AI"


def lookup(vertex: Vertex, loaded: config.Loaded, name: str) -> RemoteJob:
    """Return a job of Vertex AI by its name, number or display name, or by its name in the project file."""
    try:
        return vertex.lookup(name)
    except UsageError:
        # The service knows the display name only.
        own = loaded.project.sweeps.get(name) or loaded.project.jobs.get(name)
        if own is None or not own.display_name:
            raise
        return vertex.lookup(own.display_name)


def sweep(where: WhereOptions, name: str) -> FoundJob:
    """Return a sweep by name or number; UsageError if it is a custom job."""
    found = find(where, name)
    if found.job.collection != TUNING:
        raise UsageError(f"{name} is a custom job; it has no trials")
    return found


def must_have_succeeded(job: RemoteJob) -> None:
    """Raise JobFailedError if a job that has ended did not succeed."""
    if job.state != states.SUCCEEDED:
        # the first line is the message; below it a rehearsal's error has the output of the replica
        lines = job.error.splitlines()
        raise JobFailedError(
            f"{job.display_name} ended {states.short(job.state)}: {lines[0] if lines else ''}".rstrip(": ")
        )
