"""`vertexrig promote`: add a job with a sweep's best parameters to the project file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from vertexrig.bring import edit
from vertexrig.bring.edit import Entry
from vertexrig.cli import next_commands, options, streams, studied
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.results.trials import TrialResult
from vertexrig.studies import outcome, promote
from vertexrig.workspace import Workspace


@dataclass(frozen=True)
class PromoteOptions:
    """What is different in the new job."""

    trial: str | None = options.option("--trial", metavar="ID", help="Promote this trial instead of the best one.")
    name: str | None = options.option(
        "--as", metavar="NAME", help="Name of the new job; by default the sweep's name with -best."
    )
    epochs: int | None = options.option(
        "--epochs", type=options.Integer(1), help="Value of the argument epochs, in every worker pool."
    )
    topology: str | None = options.option(
        "--topology", metavar="NAME", help="Topology of the new job; by default that of the sweep's job."
    )
    machine_type: str | None = options.option(
        "--machine-type", metavar="TYPE", help="Machine type of the new job; by default that of the sweep's job."
    )
    changes: tuple[str, ...] = options.option(
        "--set", multiple=True, metavar="KEY=VALUE", help="Set any other key of the new job."
    )
    warm_start: bool = options.option("--warm-start", is_flag=True, help="Start from the model that the trial saved.")
    warm_start_flag: str | None = options.option(
        "--warm-start-flag",
        metavar="NAME",
        help="The trainer's flag for that model, if it cannot be recognized by its name.",
    )


@click.command("promote")
@studied.study_options
@options.group("asked", PromoteOptions)
@studied.dry_run_option
@options.format_option("text", "json")
def command(ended: studied.StudyOptions, asked: PromoteOptions, dry_run: bool, format_: str) -> None:
    """Add a job with the best trial's parameters as arguments to the project file.

    SWEEP is a finished sweep: its name, id, display name, or a file from `gcloud ai hp-tuning-jobs describe`. The new job is a
    copy of the sweep's job with the changes that the options name.
    """
    found = ended.found()
    loaded = found.loaded
    text = edit.read(loaded.file)
    name = options.entry_name(asked.name) or promote.free_name(loaded, found.sweep)
    known = outcome.outcome(ended.sweep, found.job, least=1)
    chosen = outcome.chosen(known, asked.trial)
    args: dict[str, Any] = {} if asked.epochs is None else {"epochs": asked.epochs}
    if asked.warm_start or asked.warm_start_flag:
        args |= _warm_start(found, chosen, asked.warm_start_flag)
    entry = promote.promoted(
        known,
        chosen,
        edit.data_of(text, str(loaded.file)),
        found.sweep,
        name,
        args=args,
        topology=asked.topology,
        machine_type=asked.machine_type,
        changes=asked.changes,
    )
    new = edit.added(text, entry, str(loaded.file))
    studied.rendered(new, loaded.file, name, found.sweep)
    if not dry_run:
        edit.write(loaded.file, text, new, [entry])
    _report(format_, found, chosen, entry, edit.difference(text, new, str(loaded.file)), written=not dry_run)
    if not dry_run:
        streams.note("next:")
        for verb in ("check", "rehearse" if found.rehearsed else "submit"):
            streams.note(next_commands.line(verb, name, *next_commands.named(ended.where.file)))


def _report(
    format_: str, found: studied.Studied, chosen: TrialResult, entry: Entry, diff: str, *, written: bool
) -> None:
    """Show the job that was added, or that would be added."""
    data = {"name": entry.name, "sweep": found.sweep, "trial": chosen.id, "metrics": chosen.metrics}
    result(format_, {**data, "written": written, "keys": dict(entry.data), "diff": diff}, diff)
    file = found.loaded.file
    if written:
        streams.note(f"added job {entry.name} to {file}")
    else:
        streams.note(f"dry run: nothing was written to {file}")


def _warm_start(found: studied.Studied, chosen: TrialResult, given: str | None) -> dict[str, str]:
    """Return the trainer's flag for a saved model, and the URI of a trial's model."""
    folder = outcome.trial_folder(found.job, chosen.id)
    uri = f"{folder}/model"
    if not folder or not studied.has_files(found, uri):
        where = f"nothing is in {uri}" if folder else "the study has no output folder"
        raise UsageError(f"trial {chosen.id} saved no model to start from: {where}; leave --warm-start out")
    project = found.loaded.project
    module = project.jobs[project.sweeps[found.sweep].job].module or project.trainer.module
    source = Workspace(found.loaded).trainer(module)
    flags = source.flags if source is not None else ()
    return {promote.warm_start_flag(flags, given, project.trainer.path): uri}
