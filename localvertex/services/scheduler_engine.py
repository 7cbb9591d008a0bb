"""The firing engine: one task that starts executions when they are due, never two of one job at a time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from localvertex.http import Json
from localvertex.jobs.resources import SCHEDULES
from localvertex.jobs.store import ResourceStore
from localvertex.services import scheduler_log
from localvertex.services.scheduler_delivery import INTERNAL, DeliveryOutcome, deliver
from localvertex.services.scheduler_jobs import DEFAULT_RETRY, seconds
from vertexrig.cloud.cron import ScheduleError, backoff, parse, zone_of
from vertexrig.times import rfc3339

_LOG = logging.getLogger(__name__)


def may_retry(retry: Json, number: int, elapsed: float) -> bool:
    """Whether retry `number` (0 is the first) is made, `elapsed` seconds after the execution began.

    With retryCount 0 there are none; with maxRetryDuration too, both limits must be reached.
    """
    count, limit = retry.get("retryCount", 0), seconds(retry["maxRetryDuration"])
    return bool(count) and (number < count or elapsed < limit)


@dataclass
class RunningExecution:
    """An execution under way: its task, and whether another was asked for meanwhile."""

    task: asyncio.Task[None]
    again: bool = False


class SchedulerEngine:
    """Fires jobs while `running()` is entered.

    Args:
        store: Where jobs are kept: as the API shows them, with when each was last fired and with what outcome.
        at_least_twice: Deliver every successful execution a second time, as the service may in rare cases.
        clock: Where the time comes from.
        log: Takes log entries.
    """

    def __init__(
        self,
        store: ResourceStore,
        *,
        at_least_twice: bool = False,
        clock: Clock | None = None,
        log: Callable[[Json], None] = lambda entry: None,
    ) -> None:
        self.store, self.at_least_twice, self.clock, self.log = store, at_least_twice, clock or Clock(), log
        self.due: dict[str, datetime] = {}
        self.executions: dict[str, RunningExecution] = {}
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fire jobs until the block ends; requests under way are then dropped."""
        # An event belongs to the first loop that waits for it, and an engine may run in several, one after the other.
        self.changed = asyncio.Event()
        for stored in self.store.unfinished(SCHEDULES):
            self.plan(stored.body)
        task = asyncio.create_task(self._loop(), name="scheduler")
        try:
            yield
        finally:
            tasks = [task, *(running.task for running in self.executions.values())]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.executions.clear()

    def get(self, name: str) -> Json | None:
        """Return a job, None if there is none."""
        found = self.store.get(name)
        return found.body if found else None

    def _note(self, name: str, **facts: object) -> None:
        """Set fields of a job, or remove those that are None; nothing happens if the job is gone."""

        def edit(body: Json, _: Json) -> None:
            body.update(facts)
            for key in [key for key, value in facts.items() if value is None]:
                del body[key]

        self.store.change(name, edit)

    def plan(self, job: Json) -> Json:
        """Store the time at which a job fires next, and return the job; missed times are not made up for."""
        if job["state"] != "ENABLED":
            self.forget(job["name"])
            self._note(job["name"], scheduleTime=None)
        else:
            self._next(job, self.clock.now())
        self.changed.set()
        return self.get(job["name"]) or job

    def _next(self, job: Json, after: datetime, *, fired: bool = False) -> None:
        try:
            due = parse(job["schedule"], job.get("timeZone", "")).after(after)
        except ScheduleError:
            # A time zone that this machine knew when the job was made, and no longer does.
            self.due.pop(job["name"], None)
            return
        # Stored first: if that fails, the old time stays due and is tried again.
        # It is in whole seconds until the first execution (answers of 2026-05 and 2026-10).
        self._note(job["name"], scheduleTime=rfc3339(self._late(due)) if fired else rfc3339(due, 0))
        self.due[job["name"]] = due

    def _late(self, due: datetime) -> datetime:
        """Return a due time as the service shows it: some milliseconds later (an answer of 2026-01-26)."""
        return due + timedelta(microseconds=1 + self.clock.now().microsecond % 50_000)

    def forget(self, name: str) -> None:
        """Stop firing a job: its next time, and the retries of an execution under way."""
        self.due.pop(name, None)
        self.changed.set()

    def run_now(self, name: str) -> None:
        """Start an execution at once, or as soon as the one under way ends."""
        running = self.executions.get(name)
        if running is not None:
            running.again = True
        else:
            self._start(name, now := self.clock.now(), now)

    async def _loop(self) -> None:
        while True:
            # Cleared first: a change during the check below then ends the wait.
            self.changed.clear()
            try:
                until = self._begin_due()
            except sqlite3.Error:  # such as a full disk, which must not end all schedules
                _LOG.exception("schedules cannot be fired; the next check is in %g seconds", LONGEST)
                until = None
            await self.clock.wait(self.changed, until)

    def _begin_due(self) -> datetime | None:
        """Start jobs that are due, and return when the next one is."""
        now = self.clock.now()
        for name, due in list(self.due.items()):
            # A job whose execution is under way stays due, and starts when that ends.
            if due <= now and name not in self.executions:
                self._begin(name, due, now)
        waiting = [due for name, due in self.due.items() if name not in self.executions]
        return min(waiting, default=None)

    def _begin(self, name: str, due: datetime, now: datetime) -> None:
        job = self.get(name)
        if job is None or job["state"] != "ENABLED":
            self.due.pop(name, None)
            return
        # Not before now: times missed while the machine slept fire once, not once each.
        self._next(job, max(due, now), fired=True)
        self._start(name, due, min(now, self._late(due)))

    def _start(self, name: str, due: datetime, scheduled: datetime) -> None:
        """Start an execution; `scheduled` is when it was due as the job and the log show it, with microseconds."""
        task = asyncio.create_task(self._execute(name, due, scheduled), name=f"scheduler {name}")
        self.executions[name] = RunningExecution(task)

    async def _execute(self, name: str, due: datetime, scheduled: datetime) -> None:
        """Run one execution: an attempt, its retries, and a duplicate if the settings ask for one."""
        try:
            await self._attempts(name, due, scheduled)
        finally:
            running = self.executions.pop(name, None)
            self.changed.set()
        if running is not None and running.again and not self._paused(name):
            self._start(name, now := self.clock.now(), now)

    async def _attempts(self, name: str, due: datetime, scheduled: datetime) -> None:
        began, number = self.clock.now(), 0
        while (job := self.get(name)) is not None:
            # The first attempt began when it was due, to the microsecond (a job and its log of 2026-08-17).
            outcome = await self._attempt(job, due, scheduled, self.clock.now() if number else scheduled)
            if outcome.code == 0:
                # The first request may have deleted the job.
                if self.at_least_twice and self.store.get(name) is not None:
                    await self._attempt(job, due, scheduled, self.clock.now())
                return
            retry, now = job.get("retryConfig", DEFAULT_RETRY), self.clock.now()
            if outcome.final or not may_retry(retry, number, (now - began).total_seconds()):
                return
            at = now + timedelta(seconds=backoff(retry, number))
            following = self.due.get(name)
            if following is not None and at >= following:
                return  # the next execution takes over
            await self._sleep(name, at)
            if self._paused(name):
                return
            number += 1

    def _paused(self, name: str) -> bool:
        """Whether a job is paused, or gone."""
        job = self.get(name)
        return job is None or job["state"] != "ENABLED"

    async def _sleep(self, name: str, until: datetime) -> None:
        """Wait for a retry's time, or for the job to be paused or deleted."""
        self._note(name, scheduleTime=rfc3339(until))
        while self.clock.now() < until and not self._paused(name):
            # Its own event: the loop clears the shared one.
            await self.clock.wait(asyncio.Event(), min(until, self.clock.now() + timedelta(seconds=0.5)))
        following = self.due.get(name)
        self._note(name, scheduleTime=rfc3339(self._late(following)) if following else None)

    async def _attempt(self, job: Json, due: datetime, scheduled: datetime, began: datetime) -> DeliveryOutcome:
        """Send one request, store its time and outcome in the job, and return the outcome."""
        self._note(job["name"], lastAttemptTime=rfc3339(began, None))
        self.log(scheduler_log.attempt_started(job, rfc3339(scheduled, None)))
        try:
            outcome = await deliver(job, _header_time(due))
        except Exception as error:  # an error of one job must not stop the others
            outcome = DeliveryOutcome(INTERNAL, f"{type(error).__name__}: {error}", final=True)
        self._note(job["name"], status=outcome.status())
        self.log(scheduler_log.attempt_finished(job, outcome))
        return outcome


def _header_time(due: datetime) -> str:
    """Return the schedule time as a target gets it: on the clock of Los Angeles, whatever the job's zone (2026-10-05; index id 71318933665)."""
    try:
        return due.astimezone(zone_of("America/Los_Angeles")).isoformat()
    except ScheduleError:  # a machine without the tz database
        return rfc3339(due, None)


LONGEST = 30.0
"""Most seconds slept at once: a laptop that was asleep, or whose clock was set, is noticed this soon."""


class Clock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""
        return datetime.now(timezone.utc)

    async def wait(self, event: asyncio.Event, until: datetime | None) -> None:
        """Wait until `event` is set, until `until`, or for `LONGEST` seconds, whichever comes first."""
        left = LONGEST if until is None else min(LONGEST, max(0.0, (until - self.now()).total_seconds()))
        try:
            await asyncio.wait_for(event.wait(), timeout=left)
        except asyncio.TimeoutError:
            return
