"""What verbs about submitted jobs share."""

from __future__ import annotations

from pathlib import Path

from vertexrig.cloud.vertex import TUNING, Job, Vertex
from vertexrig.errors import JobFailedError, UsageError
from vertexrig.project import config
from vertexrig.spec import states


def vertex(file: Path | None) -> Vertex:
    """The API of the project."""
    project = config.load(file).project
    return Vertex(project.project, project.region)


def sweep(file: Path | None, name: str) -> Job:
    """A sweep by name or number; UsageError if it is a custom job."""
    found = vertex(file).lookup(name)
    if found.collection != TUNING:
        raise UsageError(f"{name} is a custom job; it has no trials")
    return found


def must_have_succeeded(job: Job) -> None:
    """Raise JobFailedError if a job that has ended did not succeed."""
    if job.state != states.SUCCEEDED:
        lines = job.error.splitlines()
        raise JobFailedError(
            f"{job.display_name} ended {states.short(job.state)}: {lines[0] if lines else ''}".rstrip(": ")
        )
