"""`vertexrig follow-up`: add a sweep that follows a finished sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vertexrig.bring import edit
from vertexrig.cli import next_commands, options, streams, studied
from vertexrig.cli.options import Integer
from vertexrig.cli.output import result
from vertexrig.spec.estimate import Estimate, elsewhere, estimate
from vertexrig.studies import follow_up
from vertexrig.studies.outcome import outcome
from vertexrig.workspace import Prepared


@click.command("follow-up")
@studied.study_options
@click.option("--grid", type=Integer(2), help="Make the new sweep a grid of at most this many combinations.")
@click.option(
    "--trials", type=Integer(1), help="Trials of the new sweep; by default as many as the finished study had."
)
@click.option(
    "--as",
    "name",
    metavar="NAME",
    help="Name of the new sweep; by default the finished sweep's name with -2, -3 and so on.",
)
@studied.dry_run_option
@options.format_option("text", "json")
def command(
    ended: studied.StudyOptions,
    grid: int | None,
    trials: int | None,
    name: str | None,
    dry_run: bool,
    format_: str,
) -> None:
    """Add a sweep that follows the finished study of SWEEP to the project file.

    SWEEP is a sweep's name, id, display name, or a file from `gcloud ai hp-tuning-jobs describe`. In the new sweep, some
    parameters get a fixed value, and ranges are narrowed around the best trials, or widened if the best trial is at a bound. A comment gives
    the reason for each change. The rest of the file stays unchanged.
    """
    if grid is not None and trials is not None:
        raise click.UsageError("--grid and --trials exclude each other: a grid has a trial for each combination")
    found = ended.found()
    loaded = found.loaded
    text = edit.read(loaded.file)
    name = options.entry_name(name) or follow_up.free_name(loaded, found.sweep)
    known = outcome(ended.sweep, found.job)
    made = follow_up.follow_up(known, edit.data_of(text, str(loaded.file)), found.sweep, name, grid=grid, trials=trials)
    if studied.has_changed(found):
        streams.note(
            f"note: {found.sweep} in {loaded.file} has changed since the study; the parameters of the study are used"
        )
    first = edit.added(text, made.entry, str(loaded.file))
    prepared = studied.rendered(first, loaded.file, name, found.sweep)
    price = _price(prepared) if prepared is not None else None
    entry = made.priced(price, None if found.rehearsed else known.seconds)
    new = edit.added(text, entry, str(loaded.file))
    diff = edit.difference(text, new, str(loaded.file))
    if not dry_run:
        edit.write(loaded.file, text, new, [entry])
    _report(format_, found, made, diff, price, written=not dry_run, file=ended.where.file)


def _price(prepared: Prepared) -> Estimate:
    """Return the price of the new sweep in the project's region."""
    project = prepared.workspace.loaded.project
    price = estimate(prepared.document, prepared.workspace.catalog)
    return elsewhere(price, project.region, project.trigger.budget.price_factor)


def _report(
    format_: str,
    found: studied.Studied,
    made: Any,
    diff: str,
    estimate: Estimate | None,
    *,
    written: bool,
    file: Path | None,
) -> None:
    data = {
        "name": made.name,
        "follows": made.after,
        "written": written,
        "trials": made.trials,
        "grid": made.grid,
        "usd_at_most": round(estimate.usd_at_most, 2) if estimate is not None and estimate.complete else None,
        "decisions": [one.row() for one in made.decisions]
        + [{"parameter": name, "action": "keep", "reason": "it has conditional parameters"} for name in made.kept],
        "diff": diff,
    }
    result(format_, data, diff)
    if not written:
        streams.note(f"dry run: nothing was written to {found.loaded.file}")
        return
    streams.note(f"added sweep {made.name} to {found.loaded.file}; next:")
    streams.note(next_commands.line("check", made.name, *next_commands.named(file)))
    streams.note(next_commands.line("rehearse" if found.rehearsed else "submit", made.name, *next_commands.named(file)))
