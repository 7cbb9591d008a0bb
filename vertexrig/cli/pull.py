"""`vertexrig pull`: turn a job of Vertex AI into entries of a project file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vertexrig import files
from vertexrig.bring import pull
from vertexrig.bring.pull import Pulled, Wanted
from vertexrig.cli import entries, extras, options, remote, steps, streams
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.spec.api_names import JOB
from vertexrig.workspace import emulator


@click.command("pull")
@click.argument("job")
@options.where_options
@entries.into_option
@entries.as_option
@click.option(
    "--seed-local",
    is_flag=True,
    help="Also add the finished job, with its trials, to the local Vertex of the project file.",
)
@options.format_option("text", "json")
def command(
    job: str, where: options.WhereOptions, into: Path | None, name: str | None, seed_local: bool, format_: str
) -> None:
    """Turn JOB into entries of a project file that render to the same job.

    JOB is a custom job or sweep: its resource name, number or display name, or a file from `gcloud ai custom-jobs describe`
    or `gcloud ai hp-tuning-jobs describe` (YAML or JSON; `-` is stdin).
    """
    if seed_local:
        extras.need("starlette")
    # a resource name has slashes, as a path has
    if options.is_file(job) and JOB.fullmatch(job) is None:
        data: Mapping[str, Any] = pull.resource(files.read_text(job), job)
        source = Path(job).name
    else:
        data = _started(job, where)
        source = str(data.get("name") or job)
    wanted = pull.wanted(data, source)
    name = options.entry_name(name) or pull.entry_name(wanted.display_name or Path(source).stem)
    made = pull.pulled(wanted, name, entries.project_text(into), into or Path("vertexrig.yaml"))
    seeded = _seeded(data, wanted, made, into, where.file) if seed_local else None
    entries.show(made, into, format_, {"seeded": seeded} if seeded is not None else {})
    if seeded is not None:
        _next(seeded, "studySpec" in data, into or where.file)


def _seeded(data: Mapping[str, Any], wanted: Wanted, made: Pulled, into: Path | None, file: Path | None) -> str:
    """Add the job to the local Vertex of the project file, and return its resource name there."""
    loaded = None if into else options.project_if_any(file)
    home = into.parent if into else loaded.file.parent if loaded else Path()
    folder = files.output(home, config.STATE_FOLDER)
    # Without a project file, the text that was just made is read, which names the job's own project.
    if loaded is None:
        loaded = config.loads(made.text.removeprefix("\ufeff"), file=into or Path(config.DEFAULT_NAME))
    region = wanted.region or loaded.project.region
    if region != loaded.project.region:
        streams.note(f"note: the job is in {region}, but verbs use the project's region, {loaded.project.region}")
    local = emulator.load("pull --seed-local")
    return local.seed(folder, data, loaded.project.project, region, wanted.source)


def _next(seeded: str, is_sweep: bool, file: Path | None) -> None:
    """Print where the job was added, and the commands that show it."""
    kind, _, number = seeded.rpartition("/")
    streams.note(f"put {kind.rpartition('/')[2]}/{number} into the local Vertex; to look at it there:")
    streams.note(steps.on_local_vertex(file, "trials" if is_sweep else "report", number))


def _started(job: str, where: options.WhereOptions) -> Mapping[str, Any]:
    """Return a job by its name; a resource name needs no project file."""
    match = JOB.fullmatch(job)
    if match is None or where.local:
        return remote.find(where, job).job.data
    found = Vertex(match[1], match[2]).get(job)
    if found is None:
        raise UsageError(f"there is no job {job}")
    return found.data
