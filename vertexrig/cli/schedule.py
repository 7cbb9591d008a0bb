"""`vertexrig schedule`: manage the schedules of the project file in Cloud Scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
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
    from vertexrig.runs.policy import Hold
    from vertexrig.trigger.schedule_status import ScheduleStatus
    from vertexrig.trigger.schedules import Step


@click.group("schedule", cls=Group)
def command() -> None:
    """Manage the `schedules:` of the project file in Cloud Scheduler. Other jobs there are not changed."""


def _unknown(schedule: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is no schedule."""
    return UsageError(f"there is no schedule {schedule!r}. {did_you_mean(schedule, known)}")


def _client(loaded: Loaded) -> Scheduler:
    from vertexrig.cloud.scheduler import Scheduler

    return Scheduler(loaded.project.project, loaded.project.region)


def _plan(loaded: Loaded, adopt: tuple[str, ...]) -> tuple[Scheduler, list[Step]]:
    from vertexrig.trigger import deploy, plans, schedule_status, schedules  # 150 ms

    extras.need("croniter", "cron_descriptor", "requests", "google.cloud.scheduler_v1")
    schedules.wanted(loaded)  # a mistake in the file is found before the service is asked
    schedules.check(loaded)
    for line in schedules.left_out(loaded):
        streams.note(line)
    for one in plans.clocks(loaded):
        streams.note(f"warning: {one.path}: {one.message}; {one.fix}")
    served = schedule_status.deployed(loaded, deploy.gcloud)
    if served.digest and served.digest != loaded.digest:
        streams.note(
            "the deployed function has another project file, templates or catalog: run `vertexrig function deploy --run`"
        )
    client = _client(loaded)
    there = client.list()
    steps = schedules.plan(loaded, there, client.normal, adopt)
    for name, uri in schedules.elsewhere(loaded, there).items():
        if name not in {step.name for step in steps}:
            streams.note(
                f"{name} calls {uri or 'no URL'}, not this file's trigger at {schedules.url(loaded)}: it is not changed"
            )
        else:
            streams.note(f"{name} calls {uri or 'no URL'}, and --adopt takes it over")
    return client, steps


_adopt_option = click.option(
    "--adopt",
    multiple=True,
    metavar="SCHEDULE",
    help="Take over a Cloud Scheduler job that calls another URL. SCHEDULE is the schedule's name or the job's id.",
)


@command.command("plan")
@options.file_option
@_adopt_option
@options.format_option("text", "json")
def plan(file: Path | None, adopt: tuple[str, ...], format_: str) -> None:
    """Print what `apply` would change in Cloud Scheduler."""
    _, steps = _plan(remote.load(file), adopt)
    _print(steps, format_)


def _print(steps: list[Step], format_: str, words: Mapping[str, str] | None = None) -> None:
    """Print the steps and how many there are of each action, in the words given; by default, as what is to be done."""
    from vertexrig.trigger import schedules

    rows = [
        {
            "action": step.action,
            "name": step.name,
            "changes": [{"field": field, "from": old, "to": new} for field, old, new in step.changes],
        }
        for step in steps
    ]
    text = schedules.diff(steps, words) or "no schedules in the project file or in Cloud Scheduler"
    result(format_, {"steps": rows}, text)
    named = words or {action: f"to {action}" for action in schedules.DONE}
    counts = {action: sum(step.action == action for step in steps) for action in named}
    summary = ", ".join(f"{count} {named[action]}" for action, count in counts.items() if count)
    streams.note(summary or "nothing to change")


@command.command("apply")
@options.file_option
@_adopt_option
@options.format_option("text", "json")
def apply(file: Path | None, adopt: tuple[str, ...], format_: str) -> None:
    """Make Cloud Scheduler match the project file. If it matches already, nothing is changed.

    Only jobs that call this file's function at this file's URL are changed or deleted.
    """
    from vertexrig.runs import store
    from vertexrig.trigger import schedules

    loaded = remote.load(file)
    client, steps = _plan(loaded, adopt)
    if adopt and loaded.project.trigger.uri:
        # a tick of the function at the other URL is refused from now on, and one of this file's no more
        store.adopt(remote.own(loaded, "runs"), schedules.base(loaded.project.trigger.uri))
    for step in steps:
        # An action has the name of the client's method; `create` and `update` take the whole job, the others its name.
        if step.action != "keep":
            getattr(client, step.action)(step.job if step.action in ("create", "update") else step.name)
    _print(steps, format_, schedules.DONE)


@command.command("list", short_help="Show the schedules in words, with their next times.")
@options.file_option
@click.option(
    "--next",
    "count",
    type=options.Integer(0, 1000),
    default=5,
    show_default=True,
    help="Number of next times to show.",
)
@options.format_option("text", "json")
def list_(file: Path | None, count: int, format_: str) -> None:
    """Show the schedules of the project file in words, with their next times in their own time zone."""
    from vertexrig.trigger import schedules

    loaded = remote.load(file)
    rows = []
    for name, one in loaded.project.schedules.items():
        try:
            runs = cron.next_runs(one.cron, one.time_zone, count)
            words = cron.words(one.cron)
        except cron.ScheduleError as error:
            raise loaded.error_at(str(error), "schedules", name, error.key) from None
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
    """Return the states of the schedules in Cloud Scheduler; if they cannot be read, note it on stderr and return none."""
    from vertexrig.trigger import schedules

    if not schedules.url(loaded):
        return {}

    try:
        own = [job for job in _client(loaded).list() if schedules.is_own(loaded, job)]
        jobs = {str(job["name"]).rsplit("/", 1)[-1]: str(job.get("state", "")) for job in own}
    except (ServiceError, ImportError) as error:
        streams.note(f"shown from the project file; Cloud Scheduler could not be asked: {error}")
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
        return f"{config.TICK}: carries out the next steps, {cron.words(line)}"
    except UsageError as error:
        raise loaded.error_at(str(error), "trigger", "tick") from None


@command.command("status", short_help="Compare project file, function, Cloud Scheduler and the last run.")
@click.argument("schedule", required=False, cls=NameArgument, among=("schedules",))
@options.file_option
@options.format_option("text", "json")
def status(schedule: str | None, file: Path | None, format_: str) -> None:
    """Compare each schedule, or one SCHEDULE, in the project file with the deployed function, Cloud Scheduler and the last run.

    Each difference is shown with the command that solves it. The exit code is 1 if there is a difference other than a warning.
    """
    from vertexrig.trigger import deploy, schedule_status  # 150 ms

    extras.need("croniter", "cron_descriptor", "requests", "google.cloud.scheduler_v1")
    loaded = remote.load(file)
    remote.bucket(loaded, "deliveries")
    found = [
        one for one in schedule_status.of_project(Workspace(loaded), deploy.gcloud) if schedule in (None, one.name)
    ]
    if schedule is not None and not found:
        raise _unknown(schedule, loaded.project.schedules)
    result(format_, {"schedules": [one.data for one in found]}, lambda: "\n\n".join(map(_status_text, found)))
    wrong = [one.name for one in found if any(wrong.severity == "error" for wrong in one.differences)]
    if wrong:
        raise FindingsError(f"not as the file says: {', '.join(wrong)}")


def _status_text(one: ScheduleStatus) -> str:
    row = one.delivery
    end = (row.get("end") or {}).get("outcome") or row.get("state", "")
    lines = [
        f"{one.name}: {one.run or 'carries out the next steps'}",
        f"  Cloud Scheduler  {one.state.lower() or 'missing'}, next {cron.local(one.next, one.zone) or 'never'}, "
        + (
            f"last {cron.local(one.attempted, one.zone)} {one.attempt or 'not ended yet'}"
            if one.attempted
            else "not fired yet"
        ),
    ]
    if one.run:
        when = cron.local(str(row.get("time", "")), one.zone)
        parts = " ".join(filter(None, (when, str(row.get("decision", "")), str(end))))
        lines.append(f"  last delivery    {parts or 'none'}")
    for wrong in one.differences:
        lines += [f"  {'wrong' if wrong.severity == 'error' else 'warning'}: {wrong.message}", f"    {wrong.fix}"]
    return "\n".join([*lines, f"  log: {one.log}"] if one.run else lines)


@command.command("history", short_help="Show each delivery: whether it started a job, and how that ended.")
@click.argument("schedule", required=False, cls=NameArgument, among=("schedules",))
@options.file_option
@click.option(
    "--since",
    default="30d",
    show_default=True,
    help="Show deliveries since then: a length of time such as 12h or 30d, or a date.",
)
@click.option(
    "--last",
    type=options.Integer(1, 1_000_000),
    default=50,
    show_default=True,
    help="Show at most this many deliveries.",
)
@options.format_option("text", "json")
def history(schedule: str | None, file: Path | None, since: str, last: int, format_: str) -> None:
    """Show the deliveries of the trigger, or of one SCHEDULE, the newest first.

    Each row has the time, whether the delivery started a job or why it did not, and the job's outcome, metric, cost and duration.
    """
    from vertexrig.trigger.history import Deliveries  # 110 ms

    loaded = remote.load(file)
    kept = Deliveries(remote.own(loaded, "deliveries"))
    first = _since(since)
    # the end of a job is in the row of the delivery that made it, which may not be shown
    found = kept.rows(first, schedule or "")
    kept.settle(found, loaded, remote.service(loaded), Workspace(loaded).catalog)
    rows = [row for row in found if str(row["time"]) >= times.rfc3339(first, 3)][:last]
    if not rows and schedule and schedule not in loaded.project.schedules:
        raise _unknown(schedule, loaded.project.schedules)
    headings = ("time", "schedule", "run", "decision", "outcome", "metric", "cost", "length", "why")
    result(format_, {"deliveries": rows}, lambda: table(headings, [line for row in rows for line in _delivered(row)]))
    if not rows:
        streams.note(f"no delivery since {times.rfc3339(first, 0)}")


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
    """Yield the line of a delivery, and one for each attempt at its candidates."""
    end = row.get("end") or {}
    usd, seconds = end.get("usd"), end.get("seconds")
    why = end.get("reason") or ": ".join(filter(None, (row.get("reason"), row.get("text"))))
    yield (
        f"{str(row['time'])[:19]}Z", row.get("schedule", ""), row.get("run", ""), row["decision"], end.get("outcome") or row.get("state", ""),
        f"{end['metric']} {end['value']:.4g}" if end.get("metric") else "",
        "" if usd is None else f"${usd:.2f}", "" if seconds is None else str(timedelta(seconds=round(seconds))), why,
    )  # fmt: skip
    for one in end.get("attempts", ()):
        usd, waited = one.get("usd"), one.get("waited_s")
        parts = [one.get("changes") or "unchanged", one.get("text")]
        parts += [f"waited {timedelta(seconds=round(waited))}"] if waited is not None else []
        yield (
            "", "", "", f"candidate {one.get('candidate')}", one.get("reason", ""), "", "" if usd is None else f"${usd:.2f}", "",
            "; ".join(filter(None, parts)),
        )  # fmt: skip


@command.command("steps", short_help="Show the steps of unfinished runs, and how the last runs ended.")
@options.file_option
@click.option(
    "--last", type=options.Integer(0, 1000), default=10, show_default=True, help="Show at most this many ended runs."
)
@options.format_option("text", "json")
def steps(file: Path | None, last: int, format_: str) -> None:
    """Show the unfinished runs that have steps (`then` of a schedule) with their next step, and how the last such runs ended.

    Each tick carries out the next steps, and writes them to the function's log. `vertexrig schedule run tick` starts a tick now.
    """
    from vertexrig.trigger.history import Deliveries  # 110 ms

    found = Deliveries(remote.own(remote.load(file), "runs")).rows(times.now() - timedelta(days=60))
    rows = [row for row in found if "then" in row.get("detail", {}) and ("phase" in row or "end" in row)]
    open_ = [row for row in rows if "end" not in row]
    ends = [row for row in rows if "end" in row][:last]
    shown = [
        *(f"{_begun(row)}: {row['run']}, then {', '.join(row['detail']['then'])}: at {row['step']}" for row in open_),
        *(f"{_begun(row)}: {_ended(row['end'])}" for row in ends),
    ]
    result(format_, {"open": open_, "ended": ends}, "\n".join(shown) or "no run has had steps")


def _begun(row: Mapping[str, Any]) -> str:
    return f"{str(row['time'])[:19]}Z  {row.get('schedule') or row['run']}"


def _ended(end: Mapping[str, Any]) -> str:
    model = f" {end['model'].rpartition('/')[2]}" if end.get("model") else ""
    return f"{end['outcome']}{model} at {end.get('step', 'run')}: {end.get('reason', '')}"


def _verb(name: str, short: str, doc: str) -> None:
    @command.command(name, short_help=short, help=doc)
    @click.argument("schedule", cls=NameArgument, among=("schedules",))
    @options.file_option
    @options.format_option("text", "json")
    def verb(schedule: str, file: Path | None, format_: str) -> None:
        _act(name, schedule, file, format_)


def _act(name: str, schedule: str, file: Path | None, format_: str) -> None:
    """Run, pause or resume a schedule's job in Cloud Scheduler."""
    from vertexrig.trigger import schedules

    loaded = remote.load(file)
    # the tick is a job in Cloud Scheduler that is not listed under schedules
    known = [*loaded.project.schedules, *([config.TICK] if schedules.ticks(loaded) else [])]
    if schedule not in known:
        raise _unknown(schedule, known)
    id = schedules.job_id(loaded, schedule)
    client = _client(loaded)
    other = schedules.elsewhere(loaded, client.list())
    if id in other:
        raise UsageError(
            f"{id} calls {other[id]}, and this file's trigger is at {schedules.url(loaded)}: it belongs to another "
            f"trigger. To take it over: vertexrig schedule apply --adopt {schedule}"
        )
    getattr(client, name)(id)
    result(format_, {"name": schedule, "job": id, "action": name}, "")
    streams.note(f"{id}: {name}")


@command.command("run", short_help="Start the run of a schedule now, or runs for due times that have passed.")
@click.argument("schedule", cls=NameArgument, among=("schedules",))
@click.option("--at", metavar="TIME", help="Start the run that was due then, or the first one after it.")
@click.option("--to", metavar="TIME", help="With --at: start each run that was due until then.")
@click.option("--dry-run", is_flag=True, help="With --at: list the due times, and start nothing.")
@options.file_option
@options.format_option("text", "json")
def run(schedule: str, at: str | None, to: str | None, dry_run: bool, file: Path | None, format_: str) -> None:
    """Start the run of SCHEDULE now. `tick` as SCHEDULE starts a tick: the regular call in which the function continues
    unfinished runs.

    With --at and --to, one run is started for each due time in between, the oldest first (a backfill). Ticks start them, within the
    budget; with `overlap: skip` or `wait` one after the other. A due time that had its run gets no second one.
    """
    if at is None:
        if to is not None or dry_run:
            raise UsageError("--to and --dry-run need --at")
        _act("run", schedule, file, format_)
        return
    _backfill(schedule, at, to, dry_run, file, format_)


def _backfill(schedule: str, at: str, to: str | None, dry_run: bool, file: Path | None, format_: str) -> None:
    from vertexrig.runs import backfill
    from vertexrig.runs.store import RunStore
    from vertexrig.submit.claims import Claims
    from vertexrig.trigger import callers, deploy, request, schedules

    loaded = remote.load(file)
    own = loaded.project.schedules.get(schedule)
    if own is None:
        raise _unknown(schedule, loaded.project.schedules)
    if not schedules.ticks(loaded):
        raise UsageError(
            f"ticks start what is backfilled, and nothing in {loaded.file} needs ticks: give schedules.{schedule} `retry_for: 6h`, then "
            "vertexrig function deploy --run and vertexrig schedule apply"
        )
    now = times.now()
    first = _moment(at, own.time_zone)
    last = _moment(to, own.time_zone) if to is not None else None
    if last is None:
        (last,) = cron.next_runs(own.cron, own.time_zone, 1, after=first - timedelta(seconds=1))
    due = backfill.due_times(own, first, last, now)
    rows = [{"time": one, "decision": "", "claim": ""} for one in due]
    if not dry_run:
        storage = remote.own(loaded, "runs")
        asked = callers.of_schedule(schedule, own)
        shared = backfill.shared(
            asked,
            schedule,
            request.steps(loaded, asked.then),
            loaded.project.invoker or "",
            deploy.account(),
            loaded.digest,
            now,
        )
        kept = backfill.keep(
            Claims(storage, wait_s=0), RunStore(storage), asked, schedules.job_id(loaded, schedule), due, shared
        )  # fmt: skip
        rows = [{"time": time, "decision": decision, "claim": claim} for time, decision, claim in kept]
    data = {"schedule": schedule, "runs": rows, "dry_run": dry_run}
    lines = (f"{cron.local(row['time'], own.time_zone)}  {row['decision']}".rstrip() for row in rows)
    result(format_, data, "\n".join(lines))
    if not dry_run:
        streams.note("ticks start them; to start a tick now: vertexrig schedule run tick")


def _moment(text: str, zone: str) -> datetime:
    """Return a time; one without an offset is in the schedule's time zone."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(
            f"{text[:60]!r} is not a time such as 2026-11-20, 2026-11-20T03:00 or 2026-11-20T03:00:00Z"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=cron.zone_of(zone))


_verb(
    "pause",
    "Pause a schedule in Cloud Scheduler.",
    "Pause SCHEDULE in Cloud Scheduler until `resume` or the next `apply`. To stop it until a given time, use `hold`. To pause it for "
    "longer, set `paused: true` in the project file.",
)
_verb("resume", "Resume a paused schedule.", "Resume a SCHEDULE that `pause` stopped.")


def _decision(verb: str, short: str, doc: str) -> None:
    @command.command(verb, short_help=short, help=doc)
    @click.argument("run")
    @options.file_option
    @options.format_option("text", "json")
    def decide(run: str, file: Path | None, format_: str) -> None:
        from vertexrig.cloud.models import ModelsClient
        from vertexrig.runs import approval
        from vertexrig.runs.store import RunStore
        from vertexrig.trigger import deploy

        loaded = remote.load(file)
        runs = RunStore(remote.own(loaded, "runs"))
        found, models = approval.find(runs, run), ModelsClient(remote.service(loaded))
        kept = approval.decide(runs, models, found, approval.VERBS[verb], deploy.account(), times.now())
        row = {
            "id": kept.id,
            "run": kept.name,
            **{key: kept.approval[key] for key in ("decision", "by", "time", "model")},
        }
        result(format_, row, f"{row['model']}: {row['decision']}")
        streams.note("the next tick ends the run; to do it now: vertexrig schedule run tick")


_decision(
    "approve",
    "Approve a model version that waits for approval.",
    "Approve the model version of RUN: a run id, or a schedule with one run that waits for approval. The next tick gives it the aliases, "
    "unless another version got them since the comparison.",
)
_decision(
    "reject",
    "Reject a model version that waits for approval.",
    "Reject the model version of RUN, which keeps its number and gets no alias.",
)


@command.command("hold", short_help="Put schedules on hold until a time; `apply` does not end the hold.")
@click.argument("schedule", cls=NameArgument, among=("schedules",), required=False)
@click.option("--until", required=True, metavar="TIME", help="End of the hold: a time, or a length of time such as 2d.")
@click.option("--reason", required=True, help="Reason, which the history shows for each skipped delivery.")
@options.file_option
@options.format_option("text", "json")
def hold(schedule: str | None, until: str, reason: str, file: Path | None, format_: str) -> None:
    """Put a SCHEDULE, or without a name all schedules, on hold: they start no runs and no steps.

    The hold ends at the time of --until, or with `release`. It is stored in the bucket, so `apply` and a new deployment of the function
    do not end it. (`pause` stops only the job in Cloud Scheduler, and the next `apply` ends the pause.)
    """
    from vertexrig.runs import policy  # 30 ms

    now = times.now()
    made = policy.Hold(policy.until(until, now), reason, times.rfc3339(now, 0))
    _holds(schedule, file, format_, made)


@command.command("release", short_help="End the hold of schedules.")
@click.argument("schedule", cls=NameArgument, among=("schedules",), required=False)
@options.file_option
@options.format_option("text", "json")
def release(schedule: str | None, file: Path | None, format_: str) -> None:
    """End the hold of SCHEDULE, or without a name the hold of all schedules."""
    _holds(schedule, file, format_, None)


def _holds(schedule: str | None, file: Path | None, format_: str, hold: Hold | None) -> None:
    """Create or end a hold, and print the current holds."""
    from vertexrig.runs import policy

    loaded = remote.load(file)
    known, name = loaded.project.schedules, schedule or policy.EVERY
    if schedule is not None and schedule not in known:
        raise _unknown(schedule, known)
    kept = policy.Holds(remote.own(loaded, "hold"))
    if hold is not None:
        from vertexrig.trigger import deploy

        hold = replace(hold, by=deploy.account())
    there = kept.put(name, hold)
    if hold is None and not there:
        streams.note("there was no hold of all schedules" if schedule is None else f"{schedule} was not on hold")
    held = dict(sorted(kept.current().items()))
    lines = [f"{'all schedules' if one == policy.EVERY else one}: {found.text}" for one, found in held.items()]
    rows = {one: asdict(found) for one, found in held.items()}
    result(format_, {"holds": rows}, "\n".join(lines) or "no schedule is on hold")
