"""`vertexrig schedule`: make Cloud Scheduler match the project file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig import extras
from vertexrig.cli import options
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.project import config

if TYPE_CHECKING:
    from vertexrig.cloud.scheduler import Scheduler
    from vertexrig.project.config import Loaded
    from vertexrig.trigger.schedules import Step


@click.group("schedule")
def command() -> None:
    """Make Cloud Scheduler match the `schedules:` of the project file; jobs of others are left alone."""


def _client(loaded: Loaded) -> Scheduler:
    from vertexrig.cloud.scheduler import Scheduler

    return Scheduler(loaded.project.project, loaded.project.region)


def _plan(loaded: Loaded) -> tuple[Scheduler, list[Step]]:
    from vertexrig.trigger import schedules

    extras.need("starlette", "croniter", "requests", "google.cloud.scheduler_v1")
    schedules.wanted(loaded)  # so that a wrong file is told before the service is asked
    client = _client(loaded)
    return client, schedules.plan(loaded, client.list(), client.normal)


@command.command("plan")
@options.file_option
def plan(file: Path | None) -> None:
    """Print what `apply` would change."""
    from vertexrig.trigger import schedules

    loaded = config.load(file)
    _, steps = _plan(loaded)
    click.echo(schedules.diff(steps) or "no schedules, here or there")
    options.note(_summary(steps))


@command.command("apply")
@options.file_option
def apply(file: Path | None) -> None:
    """Make the schedules match; a second call changes nothing."""
    from vertexrig.trigger import schedules

    client, steps = _plan(config.load(file))
    for step in steps:
        if step.action in ("create", "update"):
            {"create": client.create, "update": client.update}[step.action](step.job)
        elif step.action != "keep":
            {"delete": client.delete, "pause": client.pause, "resume": client.resume}[step.action](step.name)
    click.echo(schedules.diff(steps) or "no schedules, here or there")
    options.note(_summary(steps))


@command.command("list")
@options.file_option
@click.option(
    "--next",
    "count",
    type=click.IntRange(0, 1000),
    default=5,
    show_default=True,
    help="How many of the next runs to show.",
)
@options.format_option("text", "json")
def list_(file: Path | None, count: int, format_: str) -> None:
    """Show the project file's schedules in words, with their next runs in their own time zone."""
    from vertexrig.trigger import cron

    loaded = config.load(file)
    rows = []
    for name, one in loaded.project.schedules.items():
        try:
            runs = cron.next_runs(one.cron, one.time_zone, count)
            words = cron.explain(one.cron)
        except UsageError as error:
            raise loaded.error(str(error), "schedules", name, "cron") from None
        rows.append({"name": name, "run": one.run, "cron": one.cron, "time_zone": one.time_zone, "words": words,
                     "paused": one.paused, "next": [run.isoformat() for run in runs]})  # fmt: skip
    if format_ == "json":
        click.echo(json.dumps({"schedules": rows}, indent=2))
        return
    for row in rows:
        click.echo(
            f"{row['name']}: {row['run']} {row['words']} ({row['time_zone']}){', paused' if row['paused'] else ''}"
        )
        for run in row["next"] if isinstance(row["next"], list) else []:
            click.echo(f"  {run}")


def _verb(name: str, doc: str) -> None:
    @command.command(name, help=doc)
    @click.argument("schedule")
    @options.file_option
    def verb(schedule: str, file: Path | None) -> None:
        from vertexrig.trigger import schedules

        loaded = config.load(file)
        known = loaded.project.schedules
        if schedule not in known:
            raise UsageError(f"there is no schedule {schedule!r}. {did_you_mean(schedule, known)}")
        id = schedules.job_id(loaded, schedule)
        getattr(_client(loaded), name)(id)
        options.note(f"{id}: {name}")


_verb("run", "Fire a schedule now.")
_verb("pause", "Pause a schedule, until `resume` or `apply`.")
_verb("resume", "Let a paused schedule fire again.")


def _summary(steps: list[Step]) -> str:
    counts = {action: sum(step.action == action for step in steps) for action in ("create", "update", "delete", "pause", "resume", "keep")}  # fmt: skip
    return ", ".join(f"{count} to {action}" for action, count in counts.items() if count) or "nothing to do"
