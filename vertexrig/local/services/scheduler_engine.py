"""The firing engine: one task that starts executions when they are due, never two of one job at a time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from vertexrig.cloud.cron import ScheduleError, backoff, parse
from vertexrig.local.clock import LONGEST, Clock
from vertexrig.local.http import Json
from vertexrig.local.services.scheduler_delivery import INTERNAL, DeliveryOutcome, deliver
from vertexrig.local.services.scheduler_jobs import seconds
from vertexrig.local.services.scheduler_store import JobStore, StoredSchedule
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
        store: The jobs.
        at_least_twice: Deliver every successful execution a second time, as the service may in rare cases.
        clock: Where the time comes from.
    """

    def __init__(self, store: JobStore, *, at_least_twice: bool = False, clock: Clock | None = None) -> None:
        self.store, self.at_least_twice, self.clock = store, at_least_twice, clock or Clock()
        self.due: dict[str, datetime] = {}
        self.executions: dict[str, RunningExecution] = {}
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fire jobs until the block ends; requests under way are then dropped."""
        # An event belongs to the first loop that waits for it, and an engine may run in several, one after the other.
        self.changed = asyncio.Event()
        for stored in self.store.all():
            self.plan(stored)
        task = asyncio.create_task(self._loop(), name="scheduler")
        try:
            yield
        finally:
            tasks = [task, *(running.task for running in self.executions.values())]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.executions.clear()

    def plan(self, stored: StoredSchedule) -> StoredSchedule:
        """Work out when a job fires next, from now on: times that passed meanwhile are not made up for."""
        if stored.state != "ENABLED":
            self.forget(stored.name)
            self.store.note(stored.name, scheduleTime=None)
        else:
            self._next(stored, self.clock.now())
        self.changed.set()
        return self.store.get(stored.name) or stored

    def _next(self, stored: StoredSchedule, after: datetime) -> None:
        try:
            due = parse(stored.job["schedule"], stored.job.get("timeZone", "")).after(after)
        except ScheduleError:
            # A time zone that this machine knew when the job was made, and no longer does.
            self.due.pop(stored.name, None)
            return
        # Stored first: if that fails, the old time stays due and is tried again.
        self.store.note(stored.name, scheduleTime=rfc3339(due, None))
        self.due[stored.name] = due

    def forget(self, name: str) -> None:
        """Stop firing a job: its next time, and the retries of an execution under way."""
        self.due.pop(name, None)
        self.changed.set()

    def run_now(self, stored: StoredSchedule) -> None:
        """Start an execution at once, or as soon as the one under way ends."""
        running = self.executions.get(stored.name)
        if running is not None:
            running.again = True
        else:
            self._start(stored.name, self.clock.now())

    async def _loop(self) -> None:
        while True:
            # Before looking: what changes while it looks then wakes the wait below.
            self.changed.clear()
            try:
                until = self._begin_due()
            except sqlite3.Error:  # such as a full disk, which must not end all schedules
                _LOG.exception("schedules cannot be fired; they are looked at again in %g seconds", LONGEST)
                until = None
            await self.clock.wait(self.changed, until)

    def _begin_due(self) -> datetime | None:
        """Start what is due; returns when the next job is."""
        now = self.clock.now()
        for name, due in list(self.due.items()):
            # A job whose execution is under way stays due, and starts when that ends.
            if due <= now and name not in self.executions:
                self._begin(name, due, now)
        waiting = [due for name, due in self.due.items() if name not in self.executions]
        return min(waiting, default=None)

    def _begin(self, name: str, due: datetime, now: datetime) -> None:
        stored = self.store.get(name)
        if stored is None or stored.state != "ENABLED":
            self.due.pop(name, None)
            return
        # Not before now: times missed while the machine slept fire once, not once each.
        self._next(stored, max(due, now))
        self._start(name, due)

    def _start(self, name: str, schedule_time: datetime) -> None:
        task = asyncio.create_task(self._execute(name, schedule_time), name=f"scheduler {name}")
        self.executions[name] = RunningExecution(task)

    async def _execute(self, name: str, schedule_time: datetime) -> None:
        """One execution: an attempt, its retries, and a duplicate if asked for."""
        try:
            await self._attempts(name, schedule_time)
        finally:
            running = self.executions.pop(name, None)
            self.changed.set()
        if running is not None and running.again and self.store.get(name) is not None:
            self._start(name, self.clock.now())

    async def _attempts(self, name: str, schedule_time: datetime) -> None:
        began, number, paused = self.clock.now(), 0, self._paused(name)
        while (stored := self.store.get(name)) is not None:
            outcome = await self._attempt(stored, schedule_time)
            if outcome.code == 0:
                # The first request may have deleted the job.
                if self.at_least_twice and self.store.get(name) is not None:
                    await self._attempt(stored, schedule_time)
                return
            retry, now = stored.job["retryConfig"], self.clock.now()
            at = now + timedelta(seconds=backoff(retry, number))
            following = self.due.get(name)
            if outcome.final or not may_retry(retry, number, (now - began).total_seconds()):
                return
            if following is not None and at >= following:
                return  # the next execution takes over
            await self._sleep(name, at, paused)
            # Paused or resumed meanwhile: a job that is run by hand while it is paused keeps its retries until that
            # changes.
            if self._paused(name) != paused:
                return
            number += 1

    def _paused(self, name: str) -> bool:
        stored = self.store.get(name)
        return stored is None or stored.state != "ENABLED"

    async def _sleep(self, name: str, until: datetime, paused: bool) -> None:
        """Wait for a retry's time, or for the job to be paused or deleted."""
        self.store.note(name, scheduleTime=rfc3339(until, None))
        while self.clock.now() < until and self._paused(name) == paused:
            # Its own event: the loop clears the shared one.
            await self.clock.wait(asyncio.Event(), min(until, self.clock.now() + timedelta(seconds=0.5)))
        following = self.due.get(name)
        self.store.note(name, scheduleTime=rfc3339(following, None) if following else None)

    async def _attempt(self, stored: StoredSchedule, schedule_time: datetime) -> DeliveryOutcome:
        """One request; its time and outcome are noted in the job."""
        self.store.note(stored.name, lastAttemptTime=rfc3339(self.clock.now(), None))
        try:
            outcome = await deliver(stored.job, rfc3339(schedule_time, None))
        except Exception as error:  # one job's trouble must not stop the others
            outcome = DeliveryOutcome(INTERNAL, f"{type(error).__name__}: {error}", final=True)
        self.store.note(stored.name, status={"code": outcome.code, "message": outcome.message} if outcome.code else {})
        return outcome
