"""`vertexrig report`: a job as a Markdown page."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, remote


@click.command("report")
@click.argument("job")
@options.file_option
@options.local_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File; stdout by default.")
def command(job: str, file: Path | None, local: bool, output: Path | None) -> None:
    """Write JOB (number, resource name, display name, or a rehearsal's run) as a Markdown page: how it went, and a sweep's trials."""
    from vertexrig.files import write_text
    from vertexrig.submit import report

    found = remote.find(file, job, local=local)
    text = report.page(found.job, found.console, found.record)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
        options.note(f"wrote {output}")
