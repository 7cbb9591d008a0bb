"""`vertexrig schedule`: make Cloud Scheduler match the project file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig import times
from vertexrig.cli import extras, options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.groups import Group
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.cloud import cron
from vertexrig.errors import FindingsError, ServiceError, UsageError, did_you_mean
from vertexrig.project import config
from vertexrig.project.triggered import name_of
from vertexrig.workspace import Workspace

if TYPE_CHECKING:
    from vertexrig.cloud.scheduler import Scheduler  # 220 ms, and an extra
    from vertexrig.project.config import Loaded
    from vertexrig.trigger.policy import Hold
    from vertexrig.trigger.schedule_status import ScheduleStatus
    from vertexrig.trigger.schedules import Step


@click.group("schedule", cls=Group)
def command() -> None:
    """Make Cloud Scheduler match the `schedules:` of the project file; jobs of others are left alone."""


def _client(loaded: Loaded) -> Scheduler:
    from vertexrig.cloud.scheduler import Scheduler

    return Scheduler(loaded.project.project, loaded.project.region)


def _plan(loaded: Loaded) -> tuple[Scheduler, list[Step]]:
    from vertexrig.trigger import deploy, schedule_status, schedules  # 150 ms

    extras.need("croniter", "cron_descriptor", "requests", "google.cloud.scheduler_v1")
    schedules.wanted(loaded)  # a wrong file is refused before the service is asked
    schedules.check(loaded)
    for line in schedules.left_out(loaded):
        streams.note(line)
    digest = schedule_status.deployed(loaded, deploy.gcloud)
    if digest and digest != loaded.digest:
        streams.note(
            "the deployed function has another project file, templates or catalog: `vertexrig function deploy --run`"
        )
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
    from vertexrig.trigger import schedules

    loaded = config.load(file)
    rows = []
    for name, one in loaded.project.schedules.items():
        try:
            runs = cron.next_runs(one.cron, one.time_zone, count)
            words = cron.words(one.cron)
        except cron.ScheduleError as error:
            raise loaded.error(str(error), "schedules", name, error.key) from None
        rows.append(
            {
                "name": name,
                "run": one.run,
                "cron": one.cron,
                "time_zone": one.time_zone,
                "words": words,
                "then": [name_of(step) for step in one.steps],
                "paused": one.paused,
                "next": [run.isoformat() for run in runs],
            }
        )
    states = _states(loaded) if rows else {}
    for row in rows:
        row["state"] = states.get(str(row["name"]))
    tick = loaded.project.trigger.tick if schedules.ticks(loaded) else None
    data = {"schedules": rows, "tick": tick}
    if not rows:
        streams.note(f"{loaded.file} has no schedules")
    result(format_, data, lambda: "\n".join([*map(_listed, rows), *([_ticking(loaded)] if tick else [])]))


def _states(loaded: Loaded) -> dict[str, str]:
    """Return the states of the schedules in Cloud Scheduler; stderr says if they are not known."""
    if not loaded.project.trigger.uri:
        return {}
    from vertexrig.trigger import schedules

    try:
        jobs = {str(job["name"]).rsplit("/", 1)[-1]: str(job.get("state", "")) for job in _client(loaded).list()}
    except (ServiceError, ImportError) as error:
        streams.note(f"as the file says; Cloud Scheduler was not asked: {error}")
        return {}
    return {name: jobs.get(schedules.job_id(loaded, name), "missing") for name in loaded.project.schedules}


def _listed(row: Mapping[str, Any]) -> str:
    then = f", then {', '.join(row['then'])}" if row["then"] else ""
    differs = {None: "", "missing": ", not in Cloud Scheduler", "PAUSED": ", paused"}.get(row["state"], "")
    paused = ", paused" if row["paused"] and not differs else ""
    head = f"{row['name']}: {row['run']}{then} {row['words']} ({row['time_zone']}){paused}{differs}"
    return "\n".join([head, *(f"  {run}" for run in row["next"])])


def _ticking(loaded: Loaded) -> str:
    line = loaded.project.trigger.tick
    try:
        return f"{config.TICK}: takes the next steps, {cron.words(line)}"
    except UsageError as error:
        raise loaded.error(str(error), "trigger", "tick") from None


@command.command("status", short_help="Hold file, function, Cloud Scheduler and the last run against each other.")
@click.argument("schedule", required=False, cls=NameArgument, among=("schedules",))
@options.file_option
@options.format_option("text", "json")
def status(schedule: str | None, file: Path | None, format_: str) -> None:
    """Show how each SCHEDULE stands in the project file, the deployed function, Cloud Scheduler and the history; every difference
    comes with the line that ends it, and is an error for the exit code.
    """
    from vertexrig.trigger import deploy, schedule_status  # 150 ms

    extras.need("croniter", "cron_descriptor", "requests", "google.cloud.scheduler_v1")
    loaded = config.load(file)
    remote.bucket(loaded, "deliveries")
    found = [
        one for one in schedule_status.of_project(Workspace(loaded), deploy.gcloud) if schedule in (None, one.name)
    ]
    if schedule is not None and not found:
        raise UsageError(f"there is no schedule {schedule!r}. {did_you_mean(schedule, loaded.project.schedules)}")
    result(format_, {"schedules": [one.data for one in found]}, lambda: "\n\n".join(map(_stands, found)))
    wrong = [one.name for one in found if one.differences]
    if wrong:
        raise FindingsError(f"not as the file says: {', '.join(wrong)}")


def _stands(one: ScheduleStatus) -> str:
    row = one.delivery
    end = (row.get("end") or {}).get("outcome") or row.get("state", "")
    lines = [
        f"{one.name}: {one.run or 'takes the next steps'}",
        f"  Cloud Scheduler  {one.state.lower() or 'missing'}, next {one.next[:19] or 'never'}, "
        + (f"last {one.attempted[:19]} {one.attempt}" if one.attempted else "not fired yet"),
    ]
    if one.run:
        told = " ".join(filter(None, (str(row.get("time", ""))[:19], str(row.get("decision", "")), str(end))))
        lines.append(f"  last delivery    {told or 'none'}")
    for wrong in one.differences:
        lines += [f"  wrong: {wrong.message}", f"    {wrong.fix}"]
    return "\n".join([*lines, f"  log: {one.log}"] if one.run else lines)


@command.command("history", short_help="Show what became of each delivery: started, refused and why, how it ended.")
@click.argument("schedule", required=False, cls=NameArgument, among=("schedules",))
@options.file_option
@click.option("--since", default="30d", show_default=True, help="How far back: a length such as 12h or 30d, or a date.")
@click.option("--last", type=options.Integer(1, 1_000_000), default=50, show_default=True, help="How many to show.")
@click.option("--fold", is_flag=True, help="Put each month that is over into one object, which keeps listings short.")
@options.format_option("text", "json")
def history(schedule: str | None, file: Path | None, since: str, last: int, fold: bool, format_: str) -> None:
    """Show the deliveries of the trigger, or of one SCHEDULE, the newest first: when each fired, whether it started a job or why it
    did not, and the outcome, metric, cost and length of what it started.
    """
    from vertexrig.trigger.history import RECENT, Deliveries  # 110 ms

    loaded = config.load(file)
    kept = Deliveries(remote.bucket(loaded, "deliveries"))
    if fold:
        counts = kept.fold()
        streams.note(", ".join(f"{month}: {count} folded" for month, count in counts.items()) or "nothing to fold")
    first = _since(since)
    # the end of a job belongs to the row that made it, which may be one that is not shown
    found = kept.rows(min(first, times.now() - RECENT), schedule or "")
    kept.settle(found, loaded, remote.service(loaded), Workspace(loaded).catalog)
    rows = [row for row in found if str(row["time"]) >= times.rfc3339(first, 3)][:last]
    headings = ("time", "schedule", "run", "decision", "outcome", "metric", "cost", "length", "why")
    result(format_, {"deliveries": rows}, lambda: table(headings, [line for row in rows for line in _delivered(row)]))
    if not rows:
        streams.note(f"no delivery since {since}")


def _since(text: str) -> datetime:
    seconds = times.meant_seconds(text)
    if seconds is not None:
        return times.now() - timedelta(seconds=seconds)
    try:
        return times.parse(text)
    except ValueError:
        raise UsageError(
            f"--since={text} is neither a length such as 12h or 30d nor a date such as 2026-11-01"
        ) from None


def _delivered(row: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the line of a delivery, and one for each try of its candidates."""
    end = row.get("end") or {}
    usd, seconds = end.get("usd"), end.get("seconds")
    why = end.get("reason") or " ".join(filter(None, (row.get("reason"), row.get("text"))))
    yield (
        str(row["time"])[:19], row.get("schedule", ""), row.get("run", ""), row["decision"], end.get("outcome") or row.get("state", ""),
        f"{end['metric']} {end['value']:.4g}" if end.get("metric") else "",
        "" if usd is None else f"${usd:.2f}", "" if seconds is None else str(timedelta(seconds=round(seconds))), why,
    )  # fmt: skip
    for one in end.get("attempts", ()):
        usd, waited = one.get("usd"), one.get("waited_s")
        told = [one.get("changes") or "unchanged", one.get("text")]
        told += [f"waited {timedelta(seconds=round(waited))}"] if waited is not None else []
        yield (
            "", "", "", f"candidate {one.get('candidate')}", one.get("reason", ""), "", "" if usd is None else f"${usd:.2f}", "",
            "; ".join(filter(None, told)),
        )  # fmt: skip


@command.command("chains", short_help="Show the steps that follow runs, and how they ended.")
@options.file_option
@click.option(
    "--last", type=options.Integer(0, 1000), default=10, show_default=True, help="How many of those that ended to show."
)
@options.format_option("text", "json")
def chains(file: Path | None, last: int, format_: str) -> None:
    """Show which runs have steps that follow (`then` of a schedule), and how the last ones ended.

    The next tick writes to the function's log how far an open one is; `schedule run tick` fires one now.
    """
    from vertexrig.submit.chains import Chains  # 23 ms

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


@command.command("hold", short_help="Keep schedules from starting their runs for a time.")
@click.argument("schedule", cls=NameArgument, among=("schedules",), required=False)
@click.option("--until", required=True, metavar="TIME", help="Its end: a time, or a duration such as 2d.")
@click.option("--reason", required=True, help="Why; deliveries that are left out say so.")
@options.file_option
@options.format_option("text", "json")
def hold(schedule: str | None, until: str, reason: str, file: Path | None, format_: str) -> None:
    """Keep a schedule, or without a name all of them, from starting their runs.

    The hold is kept in the bucket: `apply` and a new deployment of the function leave it there. Steps that follow earlier runs wait.
    """
    from vertexrig.trigger import policy  # 30 ms

    now = times.now()
    made = policy.Hold(policy.until(until, now), reason, times.rfc3339(now, 0))
    _holds(schedule, file, format_, made)


@command.command("release", short_help="End a hold.")
@click.argument("schedule", cls=NameArgument, among=("schedules",), required=False)
@options.file_option
@options.format_option("text", "json")
def release(schedule: str | None, file: Path | None, format_: str) -> None:
    """End the hold of a schedule, or without a name the one of all."""
    _holds(schedule, file, format_, None)


def _holds(schedule: str | None, file: Path | None, format_: str, hold: Hold | None) -> None:
    """Make a hold, or end one; and print those that are left."""
    from vertexrig.trigger import policy

    loaded = config.load(file)
    known, name = loaded.project.schedules, schedule or policy.EVERY
    if schedule is not None and schedule not in known:
        raise UsageError(f"there is no schedule {schedule!r}. {did_you_mean(schedule, known)}")
    kept = policy.Holds(remote.bucket(loaded, "hold"))
    there = kept.put(name, hold)
    if hold is None and not there:
        streams.note(f"{'no hold of all schedules' if schedule is None else f'no hold of {schedule}'} was there")
    rows = {one: asdict(found) for one, found in sorted(kept.current().items())}
    lines = [
        f"{'all schedules' if one == policy.EVERY else one}: until {row['until']}: {row['reason']}"
        for one, row in rows.items()
    ]
    result(format_, {"holds": rows}, "\n".join(lines) or "nothing is held")


def _summary(steps: list[Step]) -> str:
    counts = {
        action: sum(step.action == action for step in steps)
        for action in ("create", "update", "delete", "pause", "resume", "keep")
    }
    return ", ".join(f"{count} to {action}" for action, count in counts.items() if count) or "nothing to do"
