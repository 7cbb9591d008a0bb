"""`vertexrig best`: show a sweep's best trial."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from vertexrig import yamltext
from vertexrig.cli import options, remote, streams, studied
from vertexrig.cli.output import result, say
from vertexrig.cli.tables import table
from vertexrig.errors import UsageError
from vertexrig.results import study as studies
from vertexrig.results import trials
from vertexrig.studies.certainty import certainty
from vertexrig.studies.reproduce import flags


@click.command("best")
@studied.sweep_argument
@options.where_options
@options.format_option("text", "json", "yaml", "flags", "args")
def command(sweep: str, where: options.WhereOptions, format_: str) -> None:
    """Show the best trial of SWEEP (name, id, resource name, or a rehearsal's run), and how certain the result is: its lead
    over the second trial, and the noise between trials with the same parameters.

    A study with several objectives has several best trials: no other trial is at least as good in every objective and better
    in one.

    `--format flags` (or args) prints the parameters as arguments of the trainer, `--format yaml` as a mapping. If there are several
    best trials, it prints those of the first one.
    """
    study = studies.read(remote.sweep(where, sweep).job)
    if not study.best:
        raise UsageError(studies.why_no_best(sweep, study))
    if format_ in ("flags", "args"):
        say(flags(study.best[0]))
        return
    if format_ == "yaml":
        say(yamltext.dump(study.best[0].parameters).rstrip("\n"))
        return
    sure = certainty(study)
    # A conditional parameter that no shown trial has would be an empty column.
    names = [name for name in study.parameters if any(name in trial.parameters for trial in study.best)]
    rows = [
        {"trial": one.id, "metrics": one.metrics, "parameters": {name: one.parameters.get(name) for name in names}}
        for one in study.best
    ]
    data: dict[str, Any] = {"best": [asdict(trial) for trial in study.best]}
    data["certainty"] = {**asdict(sure), "within_noise": sure.within_noise} if sure else None
    result(format_, data, lambda: table(*trials.columns(rows)))
    if sure is not None and format_ == "text":
        streams.note(sure.text())
