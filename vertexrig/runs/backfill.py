"""Backfill: runs of a schedule for due times that have passed, kept as runs that wait, so that ticks start them, the oldest first.

Each has the key that Cloud Scheduler's delivery of that time has or would have had, so a time that had its run gets no second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from vertexrig import times
from vertexrig.cloud import cron
from vertexrig.errors import UsageError
from vertexrig.project.triggered import Schedule
from vertexrig.runs.run import BACKFILL, Run
from vertexrig.runs.store import RunStore
from vertexrig.submit.claims import Claims, EndedError, Existing, InProgressError, Key, OtherBodyError, Recorded, Taken
from vertexrig.submit.submission import Request

MOST = 366
"""Due times of one backfill."""


def due_times(schedule: Schedule, first: datetime, last: datetime, now: datetime) -> list[str]:
    """Return the due times of a schedule within two times, RFC 3339, the oldest first.

    Raises:
        UsageError: There is none, there are more than MOST, the last one is to come, or `last` is before `first`.
    """
    if last < first:
        raise UsageError(f"--to {times.rfc3339(last, 0)} is before --at {times.rfc3339(first, 0)}: exchange the two")
    if last > now:
        raise UsageError(f"{times.rfc3339(last, 0)} is to come: the schedule itself starts what is due then")
    found: list[str] = []
    begin = max(first, times.parse(schedule.start)) if schedule.start is not None else first
    end = times.parse(schedule.end) if schedule.end is not None else None
    moment = begin - timedelta(seconds=1)
    while True:
        (moment,) = cron.next_runs(schedule.cron, schedule.time_zone, 1, after=moment)
        if moment > last or (end is not None and moment >= end):
            break
        if len(found) == MOST:
            raise UsageError(f"more than {MOST} runs are due until then; give a shorter time")
        found.append(times.rfc3339(moment, 0))
    if not found:
        between = f"{times.rfc3339(first, 0)} and {times.rfc3339(last, 0)}"
        near = ", ".join(one.isoformat() for one in cron.next_runs(schedule.cron, schedule.time_zone, 2, after=first))
        raise UsageError(f"nothing is due between {between}; the next times are {near}")
    return found


def keep(
    claims: Claims, runs: RunStore, request: Request, job: str, due: Sequence[str], run: Run
) -> Iterator[tuple[str, str, str]]:
    """Keep a run for each due time.

    Args:
        job: The id of the schedule's job in Cloud Scheduler.
        run: What the runs share.

    Yields:
        The due time; `deferred`, `joined` (it has or had its run) or `in-progress` (a delivery is at work); and the id of the run.
    """
    for time in due:
        key = Key("schedule", f"{job} {time} {request.digest}")
        known = claims.by_key(key)
        if known is not None and (known.state in ("created", "ended") or runs.read(known.id) is not None):
            yield time, "joined", known.id
            continue
        try:
            taken: Taken | Existing[Any] = claims.take(
                key, request.digest, request.run, lambda _: None, lambda _: Recorded()
            )
        except EndedError as error:
            yield time, "joined", error.claim.id
            continue
        except (InProgressError, OtherBodyError):
            yield time, "in-progress", ""
            continue
        if isinstance(taken, Existing):
            yield time, "joined", taken.claim.id
            continue
        # the run first: a claim that is released without one would be lost
        own = replace(run, id=taken.claim.id, key=key, time=time, run_id=taken.claim.run_id)
        runs.save(replace(own, delivery={**run.delivery, "id": taken.claim.id[-12:]}))
        claims.release(taken.claim)
        yield time, "deferred", taken.claim.id


def shared(
    request: Request, schedule: str, steps: Sequence[str], caller: str, by: str, digest: str, now: datetime
) -> Run:
    """Return what the runs of one backfill share; `by` is who asked for it."""
    delivery = {"time": times.rfc3339(now, 3), "digest": digest, "detail": {BACKFILL: by}}
    key = Key("schedule", "")
    text = f"a backfill by {by}" if by else "a backfill"
    return Run(
        "",
        key,
        request.body,
        delivery,
        caller,
        schedule,
        phase="waiting",
        reason=BACKFILL,
        text=text,
        steps=tuple(steps),
    )
