"""`vertexrig pull`: turn a job of Vertex AI into entries of a project file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vertexrig import files
from vertexrig.bring import pull
from vertexrig.cli import entries, options, remote
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import UsageError
from vertexrig.spec.api_names import JOB


@click.command("pull")
@click.argument("job")
@options.where_options
@entries.into_option
@entries.as_option
@options.format_option("text", "json")
def command(job: str, where: options.WhereOptions, into: Path | None, name: str | None, format_: str) -> None:
    """Turn JOB into entries of a project file that render to the same job.

    JOB is a custom job or sweep: its resource name, id or display name, or a file from `gcloud ai custom-jobs describe`
    or `gcloud ai hp-tuning-jobs describe` (YAML or JSON; `-` is stdin).
    """
    # a resource name has slashes, as a path has
    if options.is_file(job) and JOB.fullmatch(job) is None:
        data: Mapping[str, Any] = pull.resource(files.read_text(job), job)
        source = Path(job).name
    else:
        data = _started(job, where)
        source = str(data.get("name") or job)
    wanted = pull.wanted(data, source)
    name = options.entry_name(name) or pull.entry_name(wanted.display_name or Path(source).stem)
    entries.show(pull.pulled(wanted, name, entries.project_text(into), into or Path("vertexrig.yaml")), into, format_)


def _started(job: str, where: options.WhereOptions) -> Mapping[str, Any]:
    """Return a job by its name; a resource name needs no project file."""
    match = JOB.fullmatch(job)
    if match is None or where.local:
        return remote.find(where, job).job.data
    found = Vertex(match[1], match[2]).get(job)
    if found is None:
        raise UsageError(f"there is no job {job}")
    return found.data
