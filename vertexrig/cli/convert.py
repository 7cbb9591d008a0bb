"""`vertexrig convert`: turn a YAML file for gcloud into entries of a project file."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig import files
from vertexrig.bring import convert, pull
from vertexrig.cli import entries, options


@click.command("convert")
@click.argument("source", metavar="FILE")
@entries.into_option
@entries.as_option
@options.format_option("text", "json")
def command(source: str, into: Path | None, name: str | None, format_: str) -> None:
    """Turn FILE into entries of a project file that render to the same job.

    FILE is a configuration for `gcloud ai custom-jobs create` or `gcloud ai hp-tuning-jobs create`; `-` is stdin.
    """
    job = convert.convert(files.read_text(source), source)
    stem = "" if source == "-" else Path(source).stem
    name = options.entry_name(name) or pull.entry_name(job.display_name or stem)
    entries.show(
        pull.pulled(job, name, entries.project_text(into), into or Path("vertexrig.yaml")),
        into,
        format_,
    )
