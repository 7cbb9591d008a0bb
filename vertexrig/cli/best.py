"""`vertexrig best`: a sweep's best trial."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

import click

from vertexrig.cli import options, remote
from vertexrig.cli.output import result, say
from vertexrig.cli.tables import table
from vertexrig.errors import UsageError


@click.command("best")
@click.argument("sweep")
@options.file_option
@options.local_option
@options.format_option("text", "json", "args")
def command(sweep: str, file: Path | None, local: bool, format_: str) -> None:
    """Show the best trial of SWEEP; with several objectives, all that no other trial beats.

    `--format args` prints the first one's parameters as arguments of the trainer.
    """
    from vertexrig.studies import trials

    found = trials.best(remote.sweep(file, sweep, local=local).data)
    if not found:
        raise UsageError(f"no trial of {sweep} succeeded with a value of every metric")
    if format_ == "args":
        say(shlex.join(f"--{name}={value}" for name, value in found[0].parameters.items()))
        return
    rows = [{"trial": trial.id, "metrics": trial.metrics, "parameters": trial.parameters} for trial in found]
    result(format_, {"best": [asdict(trial) for trial in found]}, lambda: table(*trials.columns(rows)))
