"""`vertexrig trials`: the trials of a sweep."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, studied
from vertexrig.cli.names import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.tables import table


@click.command("trials")
@click.argument("sweep", cls=NameArgument, among=("sweeps",))
@options.file_option
@options.local_option
@studied.chain_option
@options.format_option("text", "json", "markdown")
def command(sweep: str, file: Path | None, local: bool, chain: bool, format_: str) -> None:
    """Show the trials of SWEEP (name, number, resource name, or a rehearsal's run), the best first."""
    from vertexrig.studies import report, trials

    rows = trials.table(studied.tuning_job(file, sweep, local=local, whole_chain=chain).data)
    if format_ == "markdown" or not rows:
        result(format_, {"trials": rows}, "\n".join(report.markdown(rows)))
    else:
        result(format_, {"trials": rows}, lambda: table(*trials.columns(rows)))
