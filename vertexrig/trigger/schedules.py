"""The project file's schedules as Cloud Scheduler jobs, and what has to change to make the two match.

Cloud Scheduler has no labels. A job belongs to the function that a header of its request names, at the URL that it calls: two project
files may share a Google project, and neither changes a job that calls the other's URL.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

from vertexrig.cloud import cron, vertex
from vertexrig.errors import ConfigError, Errors, UsageError, VertexrigError
from vertexrig.finding import Severity
from vertexrig.package.image import patterns
from vertexrig.project import caller_overrides
from vertexrig.project.config import TICK, TICK_PATH, Loaded
from vertexrig.project.triggered import Schedule, name_of
from vertexrig.runs import promotion
from vertexrig.submit import submission
from vertexrig.submit.budget import OverBudgetError, Terms, arithmetic, trials_of
from vertexrig.submit.claims import FREE_AFTER_S, LEASE_S
from vertexrig.submit.submission import Request, dearest, price_within
from vertexrig.submit.uploaded import PACKAGES
from vertexrig.times import duration_seconds
from vertexrig.trigger import callers, deploy, plans
from vertexrig.trigger.stage import PORT, SERVED
from vertexrig.workspace import Prepared, Workspace

OWNER = "X-Vertexrig-Function"
TICK_ZONE = "Etc/UTC"
Action = Literal["create", "update", "delete", "pause", "resume", "keep"]


DONE: Mapping[str, str] = MappingProxyType(
    {"create": "created", "update": "updated", "delete": "deleted", "pause": "paused", "resume": "resumed", "keep": "unchanged"}
)  # fmt: skip
"""What an action has done."""


@dataclass(frozen=True)
class Step:
    """What has to be done about one job.

    Args:
        job: As it should be; empty for delete.
        changes: Field by field, what is there and what should be.
    """

    action: Action
    name: str
    job: Mapping[str, Any]
    changes: tuple[tuple[str, Any, Any], ...] = ()


def url(loaded: Loaded) -> str:
    """Return the URL of the trigger, "" if it is not known: `trigger.uri`, or in the local Vertex where `function serve` serves it."""
    given = str(loaded.project.trigger.uri or "")
    if given or not vertex.is_local():
        return given
    served = loaded.output(SERVED)
    return served.read_text("utf-8").strip() if served.is_file() else f"http://127.0.0.1:{PORT}"


def job_id(loaded: Loaded, name: str) -> str:
    """Return the Cloud Scheduler id of a schedule."""
    return f"{loaded.project.trigger.function}-{name}"


def wanted(loaded: Loaded) -> dict[str, dict[str, Any]]:
    """Return the Cloud Scheduler job of each schedule, by id, as REST writes it.

    Raises:
        ConfigError: A schedule asks for what the trigger does not allow, or its cron line or time zone is wrong.
    """
    caller_overrides.check_rules(loaded)
    project = loaded.project
    if project.schedules and not url(loaded):
        raise loaded.error_at(
            "the trigger's URL is needed: `vertexrig function deploy --run` writes it", "trigger", "uri"
        )
    found = {job_id(loaded, name): _job(loaded, name, schedule) for name, schedule in project.schedules.items()}
    if ticks(loaded):
        found[job_id(loaded, TICK)] = _tick(loaded)
    return found


def ticks(loaded: Loaded) -> bool:
    """Whether a schedule has steps, runs that wait or alarms, a run that the trigger may start has candidates, a wait or `retry_for`, or notices
    are sent, so that a tick is needed.
    """
    project = loaded.project
    tried = any(
        (run.candidates or run.retry_for or run.wait) and project.trigger.may_start(name)
        for name, run in project.entries.items()
    )
    needed = project.trigger.notify or any(one.then or one.waits or one.watched for one in project.schedules.values())
    return bool(needed or (tried and url(loaded)))


class _AsUploaded:
    """The trainer's packages and images as the function will find them, so that no trainer is needed here."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def package(self, tf_version: str | None) -> str:
        return f"gs://{self.loaded.project.bucket_name}/{PACKAGES}trainer-{tf_version}.tar.gz"

    def image(self, kind: str) -> str:
        return patterns(self.loaded)[kind].replace("*", "latest")


def check(loaded: Loaded) -> None:
    """Refuse a project file with schedules that cannot run (`refusals`): ConfigError with the line of each."""
    errors = Errors()
    for error in refusals(loaded).values():
        errors.keep(error)
    errors.raise_all()


def refusals(loaded: Loaded) -> dict[str, ConfigError]:
    """Return, by schedule, why the trigger would refuse its request, or its job would fail: when it fires, no person is looking.

    Not checked: whether the packages were uploaded, and what else runs that day.
    """
    workspace, plain, found = (
        Workspace(loaded, uploaded=_AsUploaded(loaded)),
        Workspace(loaded),
        plans.impossible(loaded),
    )
    for name, schedule in loaded.project.schedules.items():
        if name in found:
            continue
        wrong = _refusal(workspace, schedule)
        if wrong:
            found[name] = loaded.error_at(f"{schedule.run} would be refused when it fires: {wrong}", "schedules", name)
            continue
        try:
            promotion.check(plain, name)
        except ConfigError as error:
            found[name] = error
    return found


def left_out(loaded: Loaded) -> list[str]:
    """Return which candidates of the schedules' runs the budget gives no job, and why, a line each."""
    workspace, lines = Workspace(loaded, uploaded=_AsUploaded(loaded)), []
    limits, terms = loaded.project.trigger.budget, _terms(loaded)
    for name, schedule in loaded.project.schedules.items():
        if loaded.runnable(schedule.run).candidates:
            without = submission.left_out(_candidates(workspace, schedule), limits, terms)
            lines += [f"{name}: candidate {n} of {schedule.run} gets no job: {why}" for n, why in without.items()]
    return lines


def _candidates(workspace: Workspace, schedule: Schedule) -> list[Prepared]:
    return workspace.prepare_candidates(schedule.run, changed=Request(schedule.run, schedule.set, schedule.args).apply)


def _terms(loaded: Loaded) -> Terms:
    """Return on what terms schedules start their runs: the account that Cloud Scheduler calls with may be one of trigger.callers."""
    return callers.terms(loaded, loaded.project.invoker)


def _refusal(workspace: Workspace, schedule: Schedule) -> str:
    limits, terms = workspace.loaded.project.trigger.budget, _terms(workspace.loaded)
    bounds = [("trigger.budget", limits), *((share.path, share.limits) for share in terms.shares)]
    try:
        candidates = _candidates(workspace, schedule)
        wrong = [one for candidate in candidates for one in candidate.findings if one.severity is Severity.ERROR]
        if wrong:
            return "; ".join(f"{f'line {one.line}: ' if one.line else ''}{one.path}: {one.message}" for one in wrong)
        price = dearest(candidates, limits, terms) or price_within(candidates[0], limits, terms)
        # a day that begins with it has no room for it either
        days = (("usd_per_day", price.usd_at_most), ("trials_per_day", trials_of(price)))
        for (path, own), (key, value) in product(bounds, days):
            most = getattr(own, key)
            if most is not None and value > most:
                limit = f"${most:.2f}" if key == "usd_per_day" else f"{most:g} trials"
                raise OverBudgetError(key, f"{arithmetic(price)}: more than {limit} per day", price, path)
    except ConfigError as error:
        return error.message
    except VertexrigError as error:
        return str(error)
    return ""


def _job(loaded: Loaded, name: str, schedule: Schedule) -> dict[str, Any]:
    retry = schedule.retry_config
    words = _words(loaded, schedule.cron, schedule.time_zone, "schedules", name)
    follows = f", then {', '.join(map(name_of, schedule.steps))}" if schedule.then else ""
    parts = {
        "run": schedule.run,
        "set": dict(schedule.set),
        "args": dict(schedule.args),
        "then": name if follows else "",
    }
    config = {
        "retryCount": retry.retry_count,
        "minBackoffDuration": retry.min_backoff_duration,
        "maxBackoffDuration": retry.max_backoff_duration,
        "maxDoublings": retry.max_doublings,
    }
    if retry.max_retry_duration is not None:
        config["maxRetryDuration"] = retry.max_retry_duration
    waits = _waits(config)
    if outlasted(waits) < 1:
        total = " + ".join(f"{wait:g}" for wait in waits) + f" = {sum(waits):g} s"
        ends = (
            f"the retries end {total} after the first delivery"
            if waits
            else "there is no retry after the first delivery"
        )
        raise loaded.error_at(
            f"{ends}. A delivery that crashed keeps its claim for {LEASE_S:g} s ({FREE_AFTER_S:g} s with a margin), so no retry "
            "could take over and the run would be lost. Raise retry_count or min_backoff_duration; the default (3 retries from "
            "30s on) survives two such crashes",
            *("schedules", name, "retry_config"),
        )
    return {
        "name": _resource(loaded, name),
        # 500: the most that Cloud Scheduler takes
        "description": (schedule.description or f"{schedule.run}{follows}: {words}")[:500],
        "schedule": schedule.cron,
        "timeZone": schedule.time_zone,
        "attemptDeadline": schedule.attempt_deadline,
        "retryConfig": config,
        "httpTarget": _target(loaded, {key: value for key, value in parts.items() if value}),
    }


def _tick(loaded: Loaded) -> dict[str, Any]:
    """Return the job that lets the function look for finished work. A tick that fails is not retried: the next one comes anyway."""
    line = loaded.project.trigger.tick
    words = _words(loaded, line, TICK_ZONE, "trigger", "tick")
    target = _target(loaded, {}, TICK_PATH)
    return {
        "name": _resource(loaded, TICK),
        "description": f"carries out the next steps of runs that have ended, and starts those that waited: {words}"[
            :500
        ],
        "schedule": line,
        "timeZone": TICK_ZONE,
        "attemptDeadline": "180s",
        "httpTarget": target,
        "retryConfig": {"retryCount": 0},
    }


def _words(loaded: Loaded, line: str, zone: str, *path: str) -> str:
    try:
        cron.next_runs(line, zone, 1)
        return cron.words(line)
    except cron.ScheduleError as error:
        raise loaded.error_at(str(error), *path, *((error.key,) if path[0] == "schedules" else ())) from None


def _resource(loaded: Loaded, name: str) -> str:
    return f"projects/{loaded.project.project}/locations/{loaded.project.region}/jobs/{job_id(loaded, name)}"


def _target(loaded: Loaded, body: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return a POST of a body to the function, as the account that may call it."""
    trigger, uri = loaded.project.trigger, url(loaded)
    # the audience Cloud Run checks is the service's URL, without a path or query
    audience = base(uri)
    # sorted, so that an unchanged schedule is not shown as a change
    text = json.dumps(body, sort_keys=True)
    return {
        "uri": f"{audience}{path}" if path else uri,
        "httpMethod": "POST",
        "headers": {"Content-Type": "application/json", OWNER: trigger.function},
        "body": base64.b64encode(text.encode()).decode(),
        "oidcToken": {"serviceAccountEmail": deploy.identities(loaded.project)[1], "audience": audience},
    }


def _waits(config: Mapping[str, Any]) -> list[float]:
    """Return seconds before each retry. With a count and a duration, Cloud Scheduler continues until both are reached."""
    count, limit = int(config["retryCount"]), duration_seconds(str(config.get("maxRetryDuration", "0s"))) or 0.0
    waits: list[float] = []
    # a long maxRetryDuration with short waits would give thousands; 100 are enough to compare with the lease
    while count and len(waits) < 100 and (len(waits) < count or sum(waits) < limit):
        waits.append(cron.backoff(config, len(waits)))
    return waits


def outlasted(waits: Sequence[float]) -> int:
    """Return how many deliveries in a row may die and still leave a retry that makes the job, with these seconds before the retries."""
    count, since = 0, 0.0
    for wait in waits:
        since += wait
        if since >= FREE_AFTER_S:  # this one takes the claim over, and may die in its turn
            count, since = count + 1, 0.0
    return count


def plan(
    loaded: Loaded, there: Iterable[Mapping[str, Any]], normal: Any = dict, adopt: Collection[str] = ()
) -> list[Step]:
    """Return what has to change. Jobs that call another URL, or another function, are not changed or deleted.

    Args:
        there: All jobs of the region.
        normal: Writes a job the way `there` is written, so that both compare.
        adopt: Schedules, or ids of jobs, to take over although they call another URL.

    Raises:
        UsageError: A job with the name of one of this file's schedules calls another URL.
    """
    by_name = {str(job.get("name", "")).rsplit("/", 1)[-1]: job for job in there}
    should = wanted(loaded)
    ids = {job_id(loaded, name): name for name in (*loaded.project.schedules, TICK)}
    adopted = {job_id(loaded, name) if job_id(loaded, name) in ids else name for name in adopt}
    for name in sorted(adopted - by_name.keys()):
        raise UsageError(f"--adopt: Cloud Scheduler has no job {name!r} in {loaded.project.region}")
    taken = [name for name in should if name in by_name and name not in adopted and not is_own(loaded, by_name[name])]
    if taken:
        calls = "; ".join(f"{name} calls {_called(by_name[name]) or 'no URL'}" for name in taken)
        words = " ".join(f"--adopt {ids[name]}" for name in taken)
        raise UsageError(
            f"jobs of these names belong to another trigger: {calls}. This file's trigger is at {url(loaded)}. "
            f"Choose another trigger.function, or take the jobs over: vertexrig schedule apply {words}"
        )
    paused = {job_id(loaded, name) for name, one in loaded.project.schedules.items() if one.paused}
    steps: list[Step] = []
    for name, job in should.items():
        found = by_name.get(name)
        if found is None:
            steps.append(Step("create", name, job))
            steps += [Step("pause", name, job)] if name in paused else []
            continue
        changes = tuple(_changes("", normal(job), found))
        turn: Action = "pause" if name in paused else "resume"
        if (name in paused) == (found.get("state") == "PAUSED"):
            turn = "keep"
        if changes:
            steps.append(Step("update", name, job, changes))
        if turn != "keep" or not changes:
            steps.append(Step(turn, name, job))
    gone = [name for name, job in by_name.items() if name not in should and (is_own(loaded, job) or name in adopted)]
    return [*steps, *(Step("delete", name, {}) for name in sorted(gone))]


def is_own(loaded: Loaded, job: Mapping[str, Any]) -> bool:
    """Whether a job of Cloud Scheduler calls this file's function at this file's URL."""
    return _function(job) == loaded.project.trigger.function and _called(job) == base(url(loaded))


def elsewhere(loaded: Loaded, there: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the jobs that name this file's function and call it at another URL: the URL by the job's id."""
    jobs = (job for job in there if _function(job) == loaded.project.trigger.function and not is_own(loaded, job))
    return {str(job.get("name", "")).rsplit("/", 1)[-1]: _called(job) for job in jobs}


def _function(job: Mapping[str, Any]) -> str:
    """Return the function that a job's header names, "" if it has none."""
    headers = (job.get("httpTarget") or {}).get("headers") or {}
    # names of headers come back in whatever case
    return str({key.lower(): value for key, value in headers.items()}.get(OWNER.lower(), ""))


def _called(job: Mapping[str, Any]) -> str:
    """Return the URL of the function that a job calls, without the path of the tick."""
    return base(str((job.get("httpTarget") or {}).get("uri", ""))).removesuffix(TICK_PATH)


def base(uri: str) -> str:
    """Return a function's URL as it is compared: without a query and a closing slash."""
    return uri.split("?")[0].rstrip("/")


def _changes(path: str, should: Mapping[str, Any], found: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """Fields of `should` that are otherwise in `found`; what the service adds is not compared."""
    for key, value in should.items():
        other, where = found.get(key), f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _changes(f"{where}.", value, other if isinstance(other, Mapping) else {})
        elif value != other and key != "name":
            yield where, _shown(key, other), _shown(key, value)


def _shown(key: str, value: Any) -> Any:
    if key == "body" and isinstance(value, str):
        return base64.b64decode(value).decode(errors="replace")
    return value


def diff(steps: list[Step], words: Mapping[str, str] | None = None) -> str:
    """Return a plan as text: + what is made, ~ what changes, - what goes; `words` are those for the actions."""
    signs = {"create": "+", "update": "~", "delete": "-", "pause": "~", "resume": "~", "keep": " "}
    lines = []
    for step in steps:
        lines.append(f"{signs[step.action]} {step.name}: {(words or {}).get(step.action, step.action)}")
        if step.action == "create":
            lines += [f"    {key}: {step.job[key]}" for key in ("schedule", "timeZone", "description")]
            lines.append(f"    body: {_shown('body', step.job['httpTarget']['body'])}")
        lines += [f"    {path}: {before} -> {after}" for path, before, after in step.changes]
    return "\n".join(lines)
