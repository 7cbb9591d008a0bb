"""`vertexrig schedule`: make Cloud Scheduler match the project file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import extras, options, streams
from vertexrig.cli.groups import Group
from vertexrig.cli.names import NameArgument
from vertexrig.cli.output import result
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.project import config
from vertexrig.project.then import name_of

if TYPE_CHECKING:
    from vertexrig.cloud.scheduler import Scheduler
    from vertexrig.project.config import Loaded
    from vertexrig.trigger.schedules import Step


@click.group("schedule", cls=Group)
def command() -> None:
    """Make Cloud Scheduler match the `schedules:` of the project file; jobs of others are left alone."""


def _client(loaded: Loaded) -> Scheduler:
    from vertexrig.cloud.scheduler import Scheduler

    return Scheduler(loaded.project.project, loaded.project.region)


def _plan(loaded: Loaded) -> tuple[Scheduler, list[Step]]:
    from vertexrig.trigger import schedules

    extras.need("croniter", "cron_descriptor", "requests", "google.cloud.scheduler_v1")
    schedules.wanted(loaded)  # a wrong file is refused before the service is asked
    if schedules.ticks(loaded):
        from vertexrig.checks.workspace import Workspace
        from vertexrig.trigger import promotion

        # The job that a chain promotes is checked now: when its tick comes, nobody is looking.
        promotion.check(Workspace(loaded))
    client = _client(loaded)
    return client, schedules.plan(loaded, client.list(), client.normal)


@command.command("plan")
@options.file_option
@options.format_option("text", "json")
def plan(file: Path | None, format_: str) -> None:
    """Print what `apply` would change."""
    _, steps = _plan(config.load(file))
    _print(steps, format_)


def _print(steps: list[Step], format_: str) -> None:
    from vertexrig.trigger import schedules

    rows = [
        {
            "action": step.action,
            "name": step.name,
            "changes": [{"field": field, "from": old, "to": new} for field, old, new in step.changes],
        }
        for step in steps
    ]
    result(format_, {"steps": rows}, schedules.diff(steps) or "no schedules, here or there")
    streams.note(_summary(steps))


@command.command("apply")
@options.file_option
@options.format_option("text", "json")
def apply(file: Path | None, format_: str) -> None:
    """Make the schedules match; a second call changes nothing."""
    client, steps = _plan(config.load(file))
    for step in steps:
        # An action has the name of the client's method; `create` and `update` take the whole job, the others its name.
        if step.action != "keep":
            getattr(client, step.action)(step.job if step.action in ("create", "update") else step.name)
    _print(steps, format_)


@command.command("list", short_help="Show the schedules in words, with their next runs.")
@options.file_option
@click.option(
    "--next",
    "count",
    type=options.Integer(0, 1000),
    default=5,
    show_default=True,
    help="How many of the next runs to show.",
)
@options.format_option("text", "json")
def list_(file: Path | None, count: int, format_: str) -> None:
    """Show the project file's schedules in words, with their next runs in their own time zone."""
    from vertexrig.cloud import cron

    loaded = config.load(file)
    rows = []
    for name, one in loaded.project.schedules.items():
        try:
            runs = cron.next_runs(one.cron, one.time_zone, count)
            words = cron.words(one.cron)
        except cron.ScheduleError as error:
            raise loaded.error(str(error), "schedules", name, error.key) from None
        rows.append({"name": name, "run": one.run, "cron": one.cron, "time_zone": one.time_zone, "words": words,
                     "then": [name_of(step) for step in one.steps], "paused": one.paused,
                     "next": [run.isoformat() for run in runs]})  # fmt: skip
    tick = loaded.project.trigger.tick if any(row["then"] for row in rows) else None
    data = {"schedules": rows, "tick": tick}
    if not rows:
        streams.note(f"{loaded.file} has no schedules")
    result(format_, data, lambda: "\n".join([*map(_listed, rows), *([_ticking(loaded)] if tick else [])]))


def _listed(row: Mapping[str, Any]) -> str:
    then = f", then {', '.join(row['then'])}" if row["then"] else ""
    head = f"{row['name']}: {row['run']}{then} {row['words']} ({row['time_zone']}){', paused' if row['paused'] else ''}"
    return "\n".join([head, *(f"  {run}" for run in row["next"])])


def _ticking(loaded: Loaded) -> str:
    from vertexrig.cloud import cron

    line = loaded.project.trigger.tick
    try:
        return f"{config.TICK}: takes the next steps, {cron.words(line)}"
    except UsageError as error:
        raise loaded.error(str(error), "trigger", "tick") from None


@command.command("chains", short_help="Show the steps that follow runs, and how they ended.")
@options.file_option
@click.option(
    "--last", type=options.Integer(0, 1000), default=10, show_default=True, help="How many of those that ended to show."
)
@options.format_option("text", "json")
def chains(file: Path | None, last: int, format_: str) -> None:
    """Show which runs have steps that follow (`then` of a schedule), and how the last ones ended.

    Where an open one is, the next tick says in the function's log; `schedule run tick` fires one now.
    """
    from dataclasses import asdict

    from vertexrig.cli import remote
    from vertexrig.submit.chains import Chains

    kept = Chains(remote.bucket(config.load(file), "chains"))
    rows = [asdict(one) for one in kept.open() if not isinstance(one, str)]
    ends = [asdict(one) for one in kept.ends(last)]
    shown = [
        *(f"{row['begun']}  {row['schedule']}: {row['run']}, then {', '.join(row['steps'])}: open" for row in rows),
        *(_ended(row) for row in ends),
    ]
    result(format_, {"open": rows, "ended": ends}, "\n".join(shown) or "no run has had steps that follow")


def _ended(row: Mapping[str, Any]) -> str:
    model = f" {row['model'].rpartition('/')[2]}" if row["model"] else ""
    return f"{row['begun']}  {row['schedule']}: {row['outcome']}{model} at {row['step']}: {row['reason']}"


def _verb(name: str, doc: str) -> None:
    @command.command(name, help=doc)
    @click.argument("schedule", cls=NameArgument, among=("schedules",))
    @options.file_option
    @options.format_option("text", "json")
    def verb(schedule: str, file: Path | None, format_: str) -> None:
        from vertexrig.trigger import schedules

        loaded = config.load(file)
        # The tick is a job of Cloud Scheduler that the file does not list under schedules.
        known = [*loaded.project.schedules, *([config.TICK] if schedules.ticks(loaded) else [])]
        if schedule not in known:
            raise UsageError(f"there is no schedule {schedule!r}. {did_you_mean(schedule, known)}")
        id = schedules.job_id(loaded, schedule)
        getattr(_client(loaded), name)(id)
        result(format_, {"name": schedule, "job": id, "action": name}, "")
        streams.note(f"{id}: {name}")


_verb("run", "Fire a schedule now.")
_verb("pause", "Pause a schedule, until `resume` or `apply`.")
_verb("resume", "Let a paused schedule fire again.")


def _summary(steps: list[Step]) -> str:
    counts = {action: sum(step.action == action for step in steps) for action in ("create", "update", "delete", "pause", "resume", "keep")}  # fmt: skip
    return ", ".join(f"{count} to {action}" for action, count in counts.items() if count) or "nothing to do"
