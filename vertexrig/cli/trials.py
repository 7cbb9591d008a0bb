"""`vertexrig trials`: the trials of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vertexrig.cli import options, remote


@click.command("trials")
@click.argument("sweep")
@options.file_option
@options.local_option
@options.format_option("text", "json", "markdown")
def command(sweep: str, file: Path | None, local: bool, format_: str) -> None:
    """Show the trials of SWEEP (number, resource name, or display name), the best first."""
    from vertexrig.submit import report, trials

    rows = trials.table(remote.sweep(file, sweep, local=local).data)
    if format_ == "json":
        click.echo(json.dumps({"trials": rows}, indent=2))
    elif format_ == "markdown" or not rows:
        click.echo("\n".join(report.markdown(rows)))
    else:
        click.echo(options.table(rows[0], (row.values() for row in rows)))
