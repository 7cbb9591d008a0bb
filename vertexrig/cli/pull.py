"""`vertexrig pull`: any job of Vertex AI as entries of a project file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import options, remote, steps, targets
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.files import typed

if TYPE_CHECKING:
    from vertexrig.studies.pull import Pulled

into_option = click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="Project file to add it to, or to make; by default a new one is printed.",
)
as_option = click.option("--as", "name", help="Name in the project file; by default the display name's.")


@click.command("pull")
@click.argument("job")
@options.file_option
@options.local_option
@into_option
@as_option
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
    made = pull.pulled(wanted, name, project_text(into), into or Path("vertexrig.yaml"))
    show(made, into, format_)


def _resource_name(job: str) -> Any:
    from vertexrig.cloud.vertex import NAME

    return NAME.fullmatch(job)


def _started(job: str, file: Path | None, local: bool) -> Mapping[str, Any]:
    """A job by its name; a resource name needs no project file."""
    match = _resource_name(job)
    if match is None or local:
        return remote.find(file, job, local=local).job.data
    from vertexrig.cloud.vertex import Vertex

    found = Vertex(match[1], match[2]).get(job)
    if found is None:
        raise UsageError(f"there is no job {job}")
    return found.data


def project_text(into: Path | None) -> str:
    """The project file to add to; empty for a new one."""
    from vertexrig.studies import edit

    return edit.read(into) if into is not None and into.exists() else ""


def show(made: Pulled, into: Path | None, format_: str) -> None:
    """Write or print the project file, and say what to type next."""
    from vertexrig.studies import edit

    if into is not None:
        edit.write(into, made.text)
    data = {
        "name": made.name,
        "into": str(into) if into is not None else None,
        "entries": [{"group": one.group, "name": one.name, "keys": dict(one.data)} for one in made.entries],
        "notes": list(made.notes),
        "text": made.text,
    }
    result(format_, data, "" if into is not None else made.text.rstrip("\n"))
    for line in made.notes:
        options.note(f"note: {line}")
    if into is not None:
        options.note(f"added {' and '.join(one.name for one in made.entries)} to {into}; next:")
        options.note(steps.line("check", made.name, "--file", typed(into)))
