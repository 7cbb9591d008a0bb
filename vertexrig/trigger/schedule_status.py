"""Compare each schedule in the project file with the deployed function, Cloud Scheduler and the last run.

Every difference comes with the command that ends it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from vertexrig import __version__, times
from vertexrig.cloud import vertex
from vertexrig.cloud.rest import RPC_CODES, Rest, RestError, is_loopback
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import Vertex
from vertexrig.project.config import TICK, Loaded
from vertexrig.runs.deliveries import GOOD
from vertexrig.runs.policy import EVERY, Hold, Holds
from vertexrig.spec.labels import label_value
from vertexrig.trigger import schedules
from vertexrig.trigger.changes import as_function
from vertexrig.trigger.deploy import DIGEST_LABEL, SERVICE, VERSION_LABEL, printed
from vertexrig.trigger.history import Deliveries
from vertexrig.workspace import Workspace

PERIOD = timedelta(days=35)
"""How far back the last delivery is searched: the rarest common schedule is monthly."""
PENDING_S = 3600.0
"""Seconds after which a job that has no machines yet is a difference: a job on demand begins, or fails, within minutes."""
SKEW = timedelta(minutes=2)
"""What the clocks of Cloud Scheduler and of the function may differ by."""
NO_ATTEMPT = -1
"""Code of a Cloud Scheduler job's status until its first attempt has ended (answers of 2026-05 and 2026-10)."""
_DEPLOY, _AGAIN = "vertexrig function deploy --run", "vertexrig schedule run {schedule}"
_CANDIDATES = (
    "ticks try the remaining candidates. When none is left: change candidates or retry_for of {run} in {file}, then "
    f"`{_DEPLOY}` and `{_AGAIN}`"
)
_REMEDIES = {
    "over-budget": f"raise trigger.budget.{{limit}} in {{file}} or make the run smaller, then `{_DEPLOY}`",
    "findings": f"`vertexrig check {{run}}`, correct {{file}}, then `{_DEPLOY}`",
    "refused": f"`vertexrig check {{run}}`, correct {{file}}, then `{_DEPLOY}`",
    "value": "vertexrig schedule apply",
    "not-allowed": f"allow the key under trigger: in {{file}}, then `{_DEPLOY}`",
    "no-such-run": _DEPLOY,
    "no-package": f"`vertexrig function package`, then `{_AGAIN}`",
    "no-machines": _CANDIDATES,
    "exhausted": _CANDIDATES,
    "given-up": f"`vertexrig doctor`, fix what the message names, then `{_AGAIN}`",
    "unknown-caller": f"`vertexrig doctor` shows who may call; then `{_DEPLOY}` and `vertexrig schedule apply`",
    "hold": "vertexrig schedule release {schedule}",
    "overlap": (
        "the tick starts it when the previous run has ended; to start runs without waiting, write overlap: allow under "
        f"schedules.{{schedule}} in {{file}}, then `{_DEPLOY}`"
    ),
    "quota": f"ask for more of the quota that is named, or name other machines as candidates; then `{_AGAIN}`",
    "unavailable": _AGAIN,
    "in-progress": _AGAIN,
    "misconfigured": "vertexrig doctor",
}
"""Type of a problem -> what ends it."""


@dataclass(frozen=True)
class Difference:
    """Something about a schedule that keeps it from doing what the file says.

    Args:
        severity: `warning` if it may end by itself.
    """

    message: str
    fix: str
    severity: Literal["error", "warning"] = "error"


class Served(NamedTuple):
    """What the deployed function has; "" for what cannot be found out.

    Args:
        digest: Of its project file.
        version: Of vertexrig.
    """

    digest: str = ""
    version: str = ""


@dataclass(frozen=True)
class ScheduleStatus:
    """A schedule.

    Args:
        run: The job or sweep; "" for the tick.
        state: In Cloud Scheduler: ENABLED, PAUSED, ...; "" if it is not there.
        next: When it fires next, as Cloud Scheduler says.
        attempted: When it was delivered last.
        attempt: How that ended: `OK`, or a code and a message; "" if none has ended.
        delivery: The last delivery in the history.
        log_filter: Finds what Cloud Logging has of it.
        log: The command that prints that.
        zone: The schedule's time zone.
    """

    name: str
    run: str
    state: str
    next: str
    attempted: str
    attempt: str
    delivery: Mapping[str, Any]
    differences: tuple[Difference, ...]
    log_filter: str
    log: str
    zone: str = schedules.TICK_ZONE

    @property
    def data(self) -> dict[str, Any]:
        return asdict(self)


def of_project(workspace: Workspace, gcloud: Callable[[list[str]], str | None]) -> list[ScheduleStatus]:
    """Return the status of each schedule of a project.

    Raises:
        ServiceError: Cloud Scheduler cannot be asked.
        ImportError: Its client is not installed.
    """
    from vertexrig.cloud.scheduler import Scheduler  # 220 ms, and an extra

    loaded, project = workspace.loaded, workspace.loaded.project
    client = Scheduler(project.project, project.region)
    storage = Storage(project.bucket, location=project.region).below(project.trigger.prefix)
    # before the history: a request makes an instance write the rows that it could not write before
    served = deployed(loaded, gcloud)
    rows: list[dict[str, Any]] | RestError
    holds: dict[str, Hold] = {}
    try:
        holds = Holds(storage).current()
        kept = Deliveries(storage)
        found = kept.rows(times.now() - PERIOD)
        # all of them: the end of a job belongs to the row that made it
        kept.settle(found, loaded, Vertex(project.project, project.region), workspace.catalog)
        makers = {row.get("job"): row for row in found if "end" in row or "state" in row}
        newest: dict[str, dict[str, Any]] = {}
        for row in found:
            ended = makers.get(row.get("job"), {})
            newest.setdefault(
                str(row.get("schedule", "")), row | {key: ended[key] for key in ("end", "state") if key in ended}
            )
        rows = [with_canceller(row, loaded, gcloud) for row in newest.values()]
    except RestError as error:
        rows = error
    return statuses(loaded, client.list(), rows, served, client.normal, holds, not_serving(loaded, gcloud))


def not_serving(loaded: Loaded, gcloud: Callable[[list[str]], str | None]) -> str:
    """Return why the function does not serve this file's URL, "" if it does or it cannot be found out (as of `deployed`)."""
    uri = schedules.url(loaded)
    if is_loopback(uri):
        try:
            Rest(uri, "the function", attempts=1).call("GET", "/")
        except RestError as error:
            return "" if error.status else f"the function cannot be reached at {uri}"
        return ""
    found = _described(loaded, gcloud)
    state, served = str(found.get("state", "ACTIVE")), str((found.get("serviceConfig") or {}).get("uri", ""))
    if state != "ACTIVE":
        return f"the function {loaded.project.trigger.function} is {state}, not ACTIVE"
    others = {served, str(found.get("url", ""))} - {""}
    if served and uri and uri.split("?")[0].rstrip("/") not in {one.rstrip("/") for one in others}:
        return f"the function is served at {served}, and trigger.uri is {uri}"
    return ""


def _described(loaded: Loaded, gcloud: Callable[[list[str]], str | None]) -> dict[str, Any]:
    """Return the deployed function as gcloud describes it; nothing if that cannot be read, or the target is a local Vertex."""
    if vertex.is_local():
        return {}  # what is deployed in the cloud is not what is asked about
    project = loaded.project
    place = (f"--region={project.region}", f"--project={project.project}", "--format=json")
    kind = ("functions", "describe", "--gen2") if project.trigger.command == "functions" else (*SERVICE, "describe")
    data = printed(gcloud([*kind, project.trigger.function, *place]))
    try:
        return {} if not isinstance(data, dict) else as_function(data) if "metadata" in data else data
    except (ValueError, LookupError, TypeError):
        return {}


def deployed(loaded: Loaded, gcloud: Callable[[list[str]], str | None]) -> Served:
    """Return which project file and which vertexrig the deployed function has.

    Only a function on this machine is asked itself: a token for another address would be good for every service of its bearer.
    """
    uri = schedules.url(loaded)
    if is_loopback(uri):
        try:
            data = Rest(uri, "the function", attempts=1).call("GET", "/").data
        except RestError:
            return Served()
        return Served(str(data.get("digest", "")), str(data.get("version", "")))
    labels = _described(loaded, gcloud).get("labels") or {}
    return Served(str(labels.get(DIGEST_LABEL, "")), str(labels.get(VERSION_LABEL, "")))


def with_canceller(row: dict[str, Any], loaded: Loaded, gcloud: Callable[[list[str]], str | None]) -> dict[str, Any]:
    """Return a row of the history, with the account that cancelled its job where Cloud Audit Logs name it.

    `customJobs.cancel` and its like are in the admin activity log, which cannot be turned off (audit logging page of Vertex AI, read
    2026-11-26).
    """
    end, job = row.get("end") or {}, str(row.get("job", ""))
    if "CANCELLED" not in (end.get("outcome"), end.get("reason")) or not job or vertex.is_local():
        return row
    wanted = f'protoPayload.methodName:"Cancel" AND protoPayload.resourceName:"{"/".join(job.split("/")[-2:])}"'
    place = (f"--project={loaded.project.project}", f"--freshness={PERIOD.days}d", "--limit=1")
    shown = "--format=value(protoPayload.authenticationInfo.principalEmail)"
    account = (gcloud(["logging", "read", wanted, *place, shown]) or "").strip()
    return {**row, "end": {**end, "cancelled_by": account}} if account else row


def log_filter(loaded: Loaded, name: str) -> str:
    """Return the filter of what the function and Cloud Scheduler logged about a schedule: its attempts, and who paused it."""
    function, job = loaded.project.trigger.function, schedules.job_id(loaded, name)
    own = f'resource.type="cloud_run_revision" resource.labels.service_name="{function}" jsonPayload.schedule="{name}"'
    return f'({own}) OR (resource.type="cloud_scheduler_job" resource.labels.job_id="{job}")'


def log_command(loaded: Loaded, name: str) -> str:
    """Return the gcloud command that prints it."""
    words = "gcloud", "logging", "read", log_filter(loaded, name), f"--project={loaded.project.project}", "--limit=20"
    return shlex.join(words)


def statuses(
    loaded: Loaded,
    jobs: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]] | RestError,
    served: Served,
    normal: Any = dict,
    holds: Mapping[str, Hold] | None = None,
    away: str = "",
) -> list[ScheduleStatus]:
    """Return the status of each schedule of the file, and of the tick.

    Args:
        jobs: What Cloud Scheduler has.
        rows: The history, settled, the newest first; the error if it cannot be read.
        served: What the deployed function has.
        normal: See `schedules.plan`.
        away: Why the function does not serve, "" if it does (`not_serving`).
    """
    own = [job for job in jobs if schedules.is_own(loaded, job)]
    others = schedules.elsewhere(loaded, jobs)
    changes = {step.name: step for step in schedules.plan(loaded, own, normal) if step.action in ("create", "update")}
    there = {str(job.get("name", "")).rsplit("/", 1)[-1]: job for job in own}
    refused = schedules.refusals(loaded)
    names = [*loaded.project.schedules, *([TICK] if schedules.ticks(loaded) else [])]
    found = []
    for name in names:
        job = there.get(schedules.job_id(loaded, name), {})
        schedule = loaded.project.schedules.get(name)
        row: Mapping[str, Any] = {}
        wrong = [Difference(str(refused[name]), f"correct {loaded.file}, then `{_DEPLOY}`")] if name in refused else []
        if other := others.get(schedules.job_id(loaded, name)):
            what = f"the job of this name calls {other}, and this file's trigger is at {schedules.url(loaded)}: it belongs to another trigger"
            wrong.append(
                Difference(what, f"choose another trigger.function, or `vertexrig schedule apply --adopt {name}`")
            )
        else:
            wrong += _of_scheduler(name, schedule is not None and schedule.paused, job, changes.get(schedules.job_id(loaded, name)))  # fmt: skip
        for key in (one for one in (name, EVERY) if schedule is not None and one in (holds or {})):
            named = "" if key == EVERY else f" {key}"
            wrong.append(Difference((holds or {})[key].text, f"vertexrig schedule release{named}"))
        if away:
            serve = "vertexrig function serve" if is_loopback(schedules.url(loaded)) else _DEPLOY
            wrong.append(Difference(away, f"`{serve}`, then `vertexrig schedule apply`"))
        if served.digest and served.digest != loaded.digest:
            what = f"the deployed function has another project file, templates or catalog ({served.digest}, here {loaded.digest})"
            wrong.append(Difference(what, _DEPLOY))
        if label_value(served.version) not in ("", label_value(__version__)):
            what = f"the deployed function has vertexrig {served.version.replace('_', '.')}, and this is {__version__}"
            wrong.append(Difference(what, _DEPLOY, "warning"))
        if schedule is not None and isinstance(rows, RestError):
            wrong.append(Difference(f"the history cannot be read: {rows}", "vertexrig doctor"))
        elif schedule is not None and not isinstance(rows, RestError):
            row = next((one for one in rows if one.get("schedule") == name), {})
            wrong += _of_delivery(loaded, name, row)
        wrong += _of_attempt(loaded, name, job, row)
        found.append(
            ScheduleStatus(
                name,
                "" if schedule is None else schedule.run,
                str(job.get("state", "")),
                str(job.get("scheduleTime", "")),
                str(job.get("lastAttemptTime", "")),
                _attempt(job),
                row,
                tuple(wrong),
                log_filter(loaded, name),
                log_command(loaded, name),
                schedules.TICK_ZONE if schedule is None else schedule.time_zone,
            )
        )
    return found


def _of_scheduler(name: str, paused: bool, job: Mapping[str, Any], change: schedules.Step | None) -> list[Difference]:
    if not job:
        return [Difference("it is not in Cloud Scheduler, so that it never fires", "vertexrig schedule apply")]
    wrong = []
    if change is not None:
        fields = ", ".join(field for field, _, _ in change.changes)
        wrong.append(Difference(f"these fields differ in Cloud Scheduler: {fields}", "vertexrig schedule apply"))
    state = job.get("state")
    if state == "PAUSED" and not paused:
        wrong.append(Difference("it is paused in Cloud Scheduler: it does not fire", f"vertexrig schedule resume {name}"))  # fmt: skip
    elif state == "PAUSED":
        wrong.append(Difference("the file pauses it: it does not fire", f"remove paused of schedules.{name}, then `vertexrig schedule apply`"))  # fmt: skip
    elif paused:
        wrong.append(Difference("the file pauses it, and it fires all the same", "vertexrig schedule apply"))
    return wrong


def _attempt(job: Mapping[str, Any]) -> str:
    """Return how the last attempt of Cloud Scheduler ended, "" if none has."""
    status = job.get("status") or {}
    code = int(status.get("code") or 0)
    if not job.get("lastAttemptTime") or code == NO_ATTEMPT:
        return ""
    return " ".join(filter(None, (RPC_CODES.get(code, str(code)), str(status.get("message", ""))))) if code else "OK"


def _of_attempt(loaded: Loaded, name: str, job: Mapping[str, Any], row: Mapping[str, Any]) -> list[Difference]:
    """Return what is wrong if an attempt failed and no delivery explains it."""
    result, attempted = _attempt(job), str(job.get("lastAttemptTime", ""))
    if result in ("", "OK"):
        return []
    explains = bool(row) and (row.get("decision") != "created" or bool(row.get("job")))
    if explains and times.parse(str(row["time"])) > times.parse(attempted) - SKEW:
        return []
    return [
        Difference(
            f"the delivery of {attempted[:19]}Z ended {result.rstrip('.')}, and the history has no job of it: the function was killed, or "
            "was not reached. The next delivery continues what it had begun",
            f"`{log_command(loaded, name)}`, then `vertexrig schedule run {name}`",
        )
    ]


def _of_delivery(loaded: Loaded, name: str, row: Mapping[str, Any]) -> list[Difference]:
    if row.get("decision") in ("refused", "deferred"):
        reason, text = str(row.get("reason", "")), str(row.get("text", ""))
        detail = row.get("detail") or {}
        found = (str(one.get("message", "")) for one in detail.get("findings", ()))
        why = "; ".join(filter(None, (text, str(detail.get("service", "")), *found)))
        remedy = _REMEDIES.get(reason, log_command(loaded, name))
        fix = remedy.format(schedule=name, run=row.get("run", ""), limit=detail.get("limit", ""), file=loaded.file)
        return [Difference(f"the delivery of {str(row['time'])[:19]}Z was {row['decision']}, {reason}: {why}", fix)]
    end = row.get("end") or {}
    if end and end.get("outcome") not in GOOD:
        number = str(row.get("job", "")).rsplit("/", 1)[-1]
        verb = "trials" if "/hyperparameterTuningJobs/" in str(row.get("job")) else "logs"
        reason = f": {end['reason']}" if end.get("reason") else ""
        reason += f", cancelled by {end['cancelled_by']}" if end.get("cancelled_by") else ""
        fix = (
            f"`vertexrig {verb} {number}`, correct {loaded.file} or the trainer, then `{_AGAIN.format(schedule=name)}`"
        )
        if known := _REMEDIES.get(str(end["outcome"])):
            fix = known.format(schedule=name, run=row.get("run", ""), limit="usd_per_run", file=loaded.file)
        return [Difference(f"the run of {str(row['time'])[:19]}Z ended {end['outcome']}{reason}", fix)]
    if row.get("approval"):
        fix = f"`vertexrig schedule approve {name}`, or `vertexrig schedule reject {name}`"
        return [Difference(f"since {str(row.get('since'))[:19]}Z: {row['approval']}", fix, "warning")]
    if row.get("state") in ("PENDING", "QUEUED"):
        waited = (times.now() - times.parse(str(row.get("since") or row["time"]))).total_seconds()
        run = loaded.project.entries.get(str(row.get("run", "")))
        job = loaded.project.jobs.get(getattr(run, "job", "")) or run  # the job of a sweep has the rest
        texts = (getattr(run, "wait", None), getattr(job, "wait", None), getattr(job, "max_wait_duration", None))
        allowed = (times.meant_seconds(str(text)) or 0.0 for text in texts)
        if waited > max(PENDING_S, *allowed):
            fix = f"name other machines as candidates of {row.get('run')}, or `vertexrig cancel {str(row['job']).rpartition('/')[2]}`"
            if run is not None and run.candidates:
                fix = f"`vertexrig schedule run {TICK}`: each tick compares how long the job has waited with the candidate's `wait`"
            hours = f"{waited / 3600:.0f} h"
            return [
                Difference(
                    f"the job of {str(row['time'])[:19]}Z has been {row['state']} for {hours}: it has no machines yet",
                    fix,
                    "warning",
                )
            ]
    if row.get("state") == "gone":
        return [Difference(f"the job {row['job']} is gone", _AGAIN.format(schedule=name))]
    return []
