"""`vertexrig convert`: a YAML file for gcloud, or for AI Platform, as entries of a project file."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig import catalog, files
from vertexrig.bring import convert, pull
from vertexrig.cli import entries, options


@click.command("convert")
@click.argument("source", metavar="FILE")
@entries.into_option
@entries.as_option
@click.option(
    "--machine-type",
    metavar="TYPE",
    help="In place of AI Platform's own machine types, such as standard_gpu, and scale tiers.",
)
@options.format_option("text", "json")
def command(source: str, into: Path | None, name: str | None, machine_type: str | None, format_: str) -> None:
    """Turn FILE into entries of a project file that render to the same job.

    FILE is what `gcloud ai custom-jobs create --config` or `gcloud ai hp-tuning-jobs create --config` takes, or a
    `trainingInput` of AI Platform Training, which is retired. - is stdin.
    """
    made = convert.convert(files.read_text(source), source, catalog.load(), machine_type=machine_type)
    stem = "" if source == "-" else Path(source).stem
    name = options.entry_name(name) or pull.entry_name(made.job.display_name or stem)
    entries.show(
        pull.pulled(made.job, name, entries.project_text(into), into or Path("vertexrig.yaml"), made.absent),
        into,
        format_,
    )
