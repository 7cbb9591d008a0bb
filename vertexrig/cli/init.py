"""`vertexrig init`: a project file to begin with."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from vertexrig.cli import options
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.files import write_text
from vertexrig.project.config import DEFAULT_NAME


@click.command("init")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path(DEFAULT_NAME),
    show_default=True,
    help="File to write.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@options.format_option("text", "json")
def command(output: Path, force: bool, format_: str) -> None:
    """Write a small project file with a job and a sweep, ready to edit."""
    if output.exists() and not force:
        raise UsageError(f"{output} is there already; --force replaces it")
    text = resources.files("vertexrig").joinpath("starter.yaml").read_text(encoding="utf-8")
    write_text(output, text)
    result(format_, {"path": str(output)}, "")
    options.note(f"wrote {output}: set project and bucket, then try `vertexrig render cpu`")
