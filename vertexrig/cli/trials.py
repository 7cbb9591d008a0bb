"""`vertexrig trials`: show the trials of a sweep."""

from __future__ import annotations

import click

from vertexrig.cli import options, remote, studied
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.results import trials
from vertexrig.results.study import read
from vertexrig.studies import report


@click.command("trials")
@studied.sweep_argument
@options.where_options
@options.format_option("text", "json", "markdown")
def command(sweep: str, where: options.WhereOptions, format_: str) -> None:
    """Show the trials of SWEEP (name, id, resource name, or a rehearsal's run), the best first."""
    rows = read(remote.sweep(where, sweep).job).table()
    if format_ == "markdown" or not rows:
        result(format_, {"trials": rows}, "\n".join(report.markdown_table(rows)))
    else:
        result(format_, {"trials": rows}, lambda: table(*trials.columns(rows)))
