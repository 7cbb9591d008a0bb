"""Policy: whether a run of a schedule that is due may start: its times, holds, and earlier runs that have not ended.

A schedule's policy is applied to each delivery, and by ticks to each run that waits. A run that is left out ends its claim, so that a
repeat gets the same answer; one that waits is kept, and ticks start it (`vertexrig.runs.engine`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from vertexrig import __version__, times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.cloud.vertex import RemoteJob, in_filter
from vertexrig.errors import UsageError, VertexrigError
from vertexrig.project.triggered import RunLimits, Schedule
from vertexrig.runs.advance import over_for
from vertexrig.runs.deliveries import GOOD, NotStartedError
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.spec.labels import CLAIM_LABEL, DATA_LABEL, first_of
from vertexrig.spec.states import SUCCEEDED
from vertexrig.submit.budget import OverBudgetError, Share, Terms
from vertexrig.submit.claims import Claim, Claims
from vertexrig.submit.submission import Submitter

HOLDS = "holds.json"
WAITS = ("hold", "overlap")
"""Reasons for waiting that end by themselves."""
PATIENCE_S = 3 * 86_400.0
"""Seconds that a run, an attempt or a step may wait for what others have to free: budget, quota of calls, a role, a package."""
EVERY = "*"
"""In place of a schedule: a hold of all."""


@dataclass(frozen=True)
class Hold:
    """Until when a schedule does not start its run.

    Args:
        until: RFC 3339.
        reason: Why, for people.
        since: When it was placed, RFC 3339.
        by: The account that placed it, "" if that is not known.
    """

    until: str
    reason: str
    since: str = ""
    by: str = ""

    @property
    def text(self) -> str:
        """In one line."""
        placed = f" (placed by {self.by})" if self.by else ""
        return f"on hold until {self.until}: {self.reason}{placed}"


class Holds:
    """The holds of one bucket: one object, read with each run of a schedule that is due."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def current(self) -> dict[str, Hold]:
        """Return the holds in effect by schedule, by the service's clock; VertexrigError if the object cannot be read as holds: nothing starts then."""
        return self._read()[0]

    def of(self, schedule: str) -> Hold | None:
        """Return the hold of a schedule, or of all; None if neither is in effect."""
        found = self.current()
        return found.get(schedule) or found.get(EVERY)

    def put(self, schedule: str, hold: Hold | None) -> bool:
        """Make a hold in place of the one that is there, or with None release it; whether there was one."""
        for _ in range(8):
            found, generation = self._read()
            there = found.pop(schedule, None)
            rows = found if hold is None else {**found, schedule: hold}
            data = json.dumps({name: asdict(one) for name, one in rows.items()}).encode()
            if (hold is None and there is None) or self.storage.write(HOLDS, data, generation=generation) is not None:
                return there is not None
        raise RestError("the holds change too fast to be written", status=503)

    def _read(self) -> tuple[dict[str, Hold], int]:
        stored = self.storage.read(HOLDS)
        if stored is None:
            return {}, 0
        data: Any = as_json(stored.data)
        try:
            rows = {name: Hold(**row) for name, row in data.items()}
            now = stored.read_at or times.now()
            return {name: one for name, one in rows.items() if times.parse(one.until) > now}, stored.generation
        except (TypeError, ValueError, AttributeError):
            where = self.storage.uri(HOLDS)
            raise VertexrigError(
                f"{where} is not a list of holds that vertexrig {__version__} knows: deploy the version that wrote it, or delete it and "
                "place the holds again with `vertexrig schedule hold`"
            ) from None


def until(text: str, now: datetime) -> str:
    """Return the end of a hold, given as a time or as a duration such as 2d; UsageError if it is neither, or is over."""
    seconds = times.meant_seconds(text)
    try:
        end = times.parse(text) if seconds is None else now + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        message = f"{text[:60]!r} is neither a time such as 2026-12-24T18:00:00+01:00 nor a duration such as 2d"
        raise UsageError(message) from None
    if end <= now:
        raise UsageError(f"--until {text} is over: it is {times.rfc3339(now, 0)}")
    return times.rfc3339(end, 0)


@dataclass(frozen=True)
class Due:
    """A run of a schedule that is due; `time` is what it is due for, RFC 3339, as Cloud Scheduler says it."""

    name: str
    schedule: Schedule
    time: str
    submitter: Submitter

    def check_times(self) -> None:
        """Compare the time that it is due for with `start` and `end`; NotStartedError if it is outside. Our own clock does not matter."""
        due, one = times.parse(self.time), self.schedule
        if one.start is not None and due < times.parse(one.start):
            raise self._left_out("before-start", f"{self.name} starts at {one.start} (schedules.{self.name}.start)")
        if one.end is not None and due >= times.parse(one.end):
            raise self._left_out("after-end", f"{self.name} ended at {one.end} (schedules.{self.name}.end)")

    def check_hold(self) -> None:
        """Read the holds; NotStartedError if the schedule is on hold: deferred if it catches up, otherwise skipped."""
        hold = Holds(self.submitter.claims.storage).of(self.name)
        if hold is not None:
            text = f"{hold.text} (`vertexrig schedule release {self.name}`)"
            raise NotStartedError("deferred" if self.schedule.catch_up else "skipped", "hold", text)

    def data(self) -> str:
        """Return a digest of the names and generations of the data that the run depends on; "" if it depends on none."""
        if self.schedule.only_if_changed is None:
            return ""
        bucket, _, pattern = self.schedule.only_if_changed.removeprefix("gs://").partition("/")
        # **/ goes over folders, also over none; * stays in one
        means = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
        words = (means.get(one) or re.escape(one) for one in re.split(r"(\*\*/|\*\*|\*)", pattern))
        fits = re.compile("".join(words), re.DOTALL)
        found = self.folder(f"gs://{bucket}").list(pattern.partition("*")[0])
        rows = sorted(f"{item.name} {item.generation}" for item in found if fits.fullmatch(item.name))
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]

    def folder(self, uri: str) -> Storage:
        """Open a bucket."""
        return Storage(uri, url=self.submitter.storage.rest.url)

    def check_data(self, data: str) -> None:
        """Compare the data with that of the schedule's last job that succeeded; NotStartedError if it is the same."""
        if not data:
            return
        done = f"{CLAIM_LABEL}:* AND labels.vertexrig_schedule={in_filter(self.name)} AND state={in_filter(SUCCEEDED)}"
        newest = self._newest(f"labels.{done}")
        last = max(newest, key=lambda job: job.created, default=None)
        if last is not None and last.labels.get(DATA_LABEL) == data:
            end = RunStore(self.submitter.claims.storage).outcome(first_of(last.labels) or last.labels[CLAIM_LABEL])
            if end is not None and end.get("outcome") not in GOOD:
                return  # its job has succeeded, and its steps have not
            since = last.created[:19]
            text = f"unchanged since {since}Z, when job {last.id} was started: {self.schedule.only_if_changed}"
            raise self._left_out("unchanged", text)

    @property
    def share(self) -> Share:
        """What its runs have in common: the label, and with `overlap: skip` or `wait` that one lives at a time."""
        limits = RunLimits(live_jobs=None if self.schedule.overlap == "allow" else 1)
        return Share("schedule", self.name, limits, f"schedules.{self.name}.overlap", self._unfinished)

    def _unfinished(self) -> set[str]:
        """Return the ids of its runs that have had a job, and which a step or another attempt may follow."""
        every = RunStore(self.submitter.claims.storage).open()
        own = [one for one in every if not isinstance(one, str) and one.schedule == self.name]
        return {one.id for one in own if (self._has_steps_left(one) if one.steps else self._may_repeat(one))}

    def _has_steps_left(self, run: Run) -> bool:
        return run.had_job or (run.phase == "attempt" and bool(job_in_claim(self.submitter.claims, run)))

    def _may_repeat(self, run: Run) -> bool:
        """Whether the last attempt is at work, or another one may follow it."""
        own = self.submitter.workspace.loaded.project.entries.get(run.name)
        several = self.schedule.retry_for or (own is not None and (own.candidates or own.retry_for))
        if not several or run.stopped or run.phase == "ended":
            return False
        if run.phase == "waiting" or (run.had_job and not run.attempts[-1].job):
            return run.had_job
        collection = self.submitter.collection_of(run.name)
        name = run.attempts[-1].job or job_in_claim(self.submitter.claims, run)
        # a delivery may be about to record the job of a first attempt
        job = self.submitter.vertex.get(name) if name else self.submitter.reconciler.find(run.id, collection)
        # the list of live jobs does not have one that is being cancelled
        return job is not None and (not job.ended or bool(over_for(run.attempts[-1], job)))

    def _newest(self, filter: str) -> list[RemoteJob]:
        """Return the newest job of each region; a sweep's trials, which have the sweep's labels, are in another collection."""
        collection = self.submitter.collection_of(self.schedule.run)
        return [job for one in self.submitter.ledger.vertices for job in one.list(collection, filter=filter, limit=1)]

    def not_started(self, error: Exception) -> NotStartedError | None:
        """Return what an error means by the schedule's policy; None if the policy does not cover it."""
        if isinstance(error, NotStartedError):
            return error
        one, patient = self.schedule, self.schedule.retry_for is not None
        if isinstance(error, OverBudgetError) and error.path == self.share.path:
            text = f"an earlier run of {self.name}, or a step that follows it, has not ended"
            if one.overlap == "wait":
                return NotStartedError("deferred", "overlap", text)
            return self._left_out("overlap", f"{text} (schedules.{self.name}.overlap)")
        if isinstance(error, OverBudgetError) and error.limit == "live_jobs" and patient:
            return NotStartedError("deferred", "over-budget", str(error))
        if isinstance(error, RestError) and patient and (error.status == 429 or error.retryable):
            reason = "quota" if error.status == 429 else "unavailable"
            return NotStartedError("deferred", reason, f"{reason} refused it", {"service": str(error)[:500]})
        return None

    def final_reason(self, error: Exception) -> Mapping[str, str] | None:
        """Return what a claim keeps about an error that ends the request (`Terms.final_reason`)."""
        found = self.not_started(error)
        over = found is not None and found.decision == "skipped"
        return {"reason": found.reason, "text": found.text} if found is not None and over else None

    def terms(self, terms: Terms, *, begun: bool = False) -> Terms:
        """Return on what terms a run of the schedule is started, where it would be on others by itself.

        Args:
            begun: It has had a job, or was refused one for lack of machines: unchanged data do not end it any more.
        """
        data = self.data()  # before the claim is taken: a long list takes its time

        def before(claim: Claim) -> None:
            # while the claim is ours, so that what is read is no older than a create call may be
            self.check_hold()
            self.check_data("" if begun else data)
            terms.before_create(claim)

        labels = {**terms.labels, DATA_LABEL: data} if data else terms.labels
        return replace(
            terms,
            labels=labels,
            shares=(*terms.shares, self.share),
            before_create=before,
            final_reason=self.final_reason,
        )

    @staticmethod
    def _left_out(reason: str, text: str) -> NotStartedError:
        return NotStartedError("skipped", reason, text)


def job_in_claim(claims: Claims, run: Run) -> str:
    """Return the job of a run's last attempt as its claim records it, also one that no tick has seen yet; "" for none."""
    index = len(run.attempts) - 1
    claim = claims.by_key(run.attempt_key(index)) if index else claims.by_id(run.id)
    if claim is None:
        return ""
    return claim.job.name if index or claim.id == run.id else claim.before.get(run.id, "")
