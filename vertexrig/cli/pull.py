"""`vertexrig pull`: any job of Vertex AI as entries of a project file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vertexrig.cli import entries, options, targets
from vertexrig.errors import UsageError


@click.command("pull")
@click.argument("job")
@options.file_option
@options.local_option
@entries.into_option
@entries.as_option
@options.format_option("text", "json")
def command(job: str, file: Path | None, local: bool, into: Path | None, name: str | None, format_: str) -> None:
    """Turn JOB into entries of a project file that render to the same job.

    JOB is a custom job or sweep: a resource name, number or display name, or a FILE from `gcloud ai custom-jobs describe`
    or `gcloud ai hp-tuning-jobs describe` (YAML or JSON; - is stdin).
    """
    from vertexrig.studies import pull

    if targets.is_file(job) and _resource_name(job) is None:
        data: Mapping[str, Any] = pull.resource(options.text(job), job)
        source = Path(job).name
    else:
        data = _started(job, file, local)
        source = str(data.get("name") or job)
    wanted = pull.wanted(data, source)
    name = options.entry_name(name) or pull.entry_name(wanted.display_name or Path(source).stem)
    made = pull.pulled(wanted, name, entries.project_text(into), into or Path("vertexrig.yaml"))
    entries.show(made, into, format_)


_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/(customJobs|hyperparameterTuningJobs)/([0-9]+)")


def _resource_name(job: str) -> re.Match[str] | None:
    return _NAME.fullmatch(job)


def _started(job: str, file: Path | None, local: bool) -> Mapping[str, Any]:
    """A job by its name; a resource name needs no project file."""
    match = _resource_name(job)
    if match is None or local:
        from vertexrig.cli import remote

        return remote.find(file, job, local=local).job.data
    from vertexrig.cloud.vertex import Vertex

    found = Vertex(match[1], match[2]).get(job)
    if found is None:
        raise UsageError(f"there is no job {job}")
    return found.data
