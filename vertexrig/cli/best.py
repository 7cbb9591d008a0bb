"""`vertexrig best`: what a sweep found."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from vertexrig.cli import options, remote
from vertexrig.errors import UsageError


@click.command("best")
@click.argument("sweep")
@options.file_option
@options.local_option
@options.format_option("text", "json", "args")
def command(sweep: str, file: Path | None, local: bool, format_: str) -> None:
    """Show the best trial of SWEEP; of several objectives, all that none beats.

    `--format args` prints the first one's parameters as arguments of the trainer.
    """
    from vertexrig.submit import trials

    found = trials.best(remote.sweep(file, sweep, local=local).data)
    if not found:
        raise UsageError(f"no trial of {sweep} succeeded with a value of every metric")
    if format_ == "json":
        click.echo(json.dumps({"best": [asdict(trial) for trial in found]}, indent=2))
    elif format_ == "args":
        click.echo(" ".join(f"--{name}={value}" for name, value in found[0].parameters.items()))
    else:
        rows = [(trial.id, *trial.metrics.values(), *trial.parameters.values()) for trial in found]
        click.echo(options.table(("trial", *found[0].metrics, *found[0].parameters), rows))
