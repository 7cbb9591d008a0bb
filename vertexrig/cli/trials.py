"""`vertexrig trials`: the trials of a sweep."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, remote
from vertexrig.cli.output import result
from vertexrig.cli.tables import table


@click.command("trials")
@click.argument("sweep")
@options.file_option
@options.local_option
@options.format_option("text", "json", "markdown")
def command(sweep: str, file: Path | None, local: bool, format_: str) -> None:
    """Show the trials of SWEEP (number, resource name, or display name), the best first."""
    from vertexrig.studies import report, trials

    rows = trials.table(remote.sweep(file, sweep, local=local).data)
    if format_ == "markdown" or not rows:
        result(format_, {"trials": rows}, "\n".join(report.markdown(rows)))
    else:
        result(format_, {"trials": rows}, lambda: table(*trials.columns(rows)))
