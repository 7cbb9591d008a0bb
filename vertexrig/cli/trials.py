"""`vertexrig trials`: the trials of a sweep."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, remote, studied
from vertexrig.cli.output import result
from vertexrig.cli.tables import table


@click.command("trials")
@click.argument("sweep")
@options.file_option
@options.local_option
@click.option("--chain", is_flag=True, help="With the trials of the sweeps that it follows, as one study.")
@options.format_option("text", "json", "markdown")
def command(sweep: str, file: Path | None, local: bool, chain: bool, format_: str) -> None:
    """Show the trials of SWEEP (number, resource name, or display name), the best first."""
    from vertexrig.studies import report, trials

    rows = trials.table(
        studied.chain(remote.find, file, sweep, local=local) if chain else remote.sweep(file, sweep, local=local).data
    )
    if format_ == "markdown" or not rows:
        result(format_, {"trials": rows}, "\n".join(report.markdown(rows)))
    else:
        result(format_, {"trials": rows}, lambda: table(*trials.columns(rows)))
