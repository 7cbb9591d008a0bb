"""Deferred runs: what a schedule could not start when it was due, kept as one small object each and tried again by ticks.

A deferred run is `vertexrig/deferred/KEY.json`, where KEY is the digest of its request's key; it is written before the delivery is
answered, so that none is lost. Whether there is a job, or none is made any more, is in the claim alone: ticks that die, are frozen
or come twice are deliveries of the same request.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.errors import VertexrigError
from vertexrig.spec.labels import first_of
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import EndedError, InProgressError, Key
from vertexrig.submit.submission import Request, Submitted, Submitter, is_body
from vertexrig.trigger.answers import explained
from vertexrig.trigger.deliveries import NO_MACHINES, Decision, Delivery, NotStartedError
from vertexrig.trigger.policy import EVERY, PATIENCE_S, Due, Holds
from vertexrig.trigger.request import RequestProblem, steps

FOLDER = "vertexrig/deferred/"
WAITS = ("hold", "overlap")
"""Reasons that end by themselves."""


@dataclass(frozen=True)
class DeferredRun:
    """A run that is tried again.

    Args:
        time: What it was due for, RFC 3339.
        key: The text of its request's key.
        body: The request, as Cloud Scheduler sent it.
        reason: Why it was deferred, as a word for programs.
        text: Why, for people.
        age_s: Seconds since it was written, by the service's clock.
    """

    schedule: str
    time: str
    key: str
    body: Mapping[str, Any]
    reason: str
    text: str = ""
    generation: int = field(default=0, compare=False)
    age_s: float = field(default=0.0, compare=False)

    @property
    def claim_key(self) -> Key:
        """The key of its request."""
        return Key("schedule", self.key)

    @property
    def path(self) -> str:
        """Its object."""
        return f"{FOLDER}{self.claim_key.digest}.json"


def start(make: Callable[[Terms], Submitted], key: Key, request: Request, terms: Terms, due: Due) -> Submitted:
    """Make the job of a run that is due; NotStartedError if its policy leaves it out or keeps it for ticks."""
    try:
        return make(due.terms(terms))
    except Exception as error:
        why = due.not_started(error)
        if why is None:
            raise
        # what waits for machines is kept already (`vertexrig.trigger.ladders`)
        if why.decision == "deferred" and why.reason != NO_MACHINES:
            one = DeferredRun(due.name, due.time, key.text, request.body, why.reason, why.text)
            Deferrals(due.submitter.storage).keep(one)
        raise why from None


class Deferrals:
    """The deferred runs of one bucket."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def keep(self, one: DeferredRun) -> None:
        """Keep a run, over the generation that it was read with; one that is there already stays."""
        row = {name: value for name, value in asdict(one).items() if name not in ("generation", "age_s")}
        self.storage.write(one.path, json.dumps(row).encode(), generation=one.generation)

    def all(self) -> Iterator[DeferredRun | str]:
        """Yield the deferred runs; for an object that is none, its URI."""
        for item in list(self.storage.list(FOLDER)):
            stored = self.storage.read_aged(item.name)
            if stored is not None:
                found = _read(item.name, stored.data)
                if found is not None:
                    yield replace(found, generation=stored.generation, age_s=stored.age_s)
                else:
                    yield self.storage.uri(item.name)

    def forget(self, one: DeferredRun) -> None:
        """Delete a run that was decided."""
        self.storage.delete(one.path)


def _read(name: str, content: bytes) -> DeferredRun | None:
    """Return a run of these bytes; None unless every part has its form, since whoever may write the bucket may have made it."""
    data = as_json(content) or {}
    body, texts = data.get("body"), [data.get(key) for key in ("schedule", "time", "key", "reason", "text")]
    if not is_body(body) or not all(isinstance(value, str) for value in texts):
        return None
    schedule, time, key, reason, text = map(str, texts)
    found = DeferredRun(schedule, time, key, body, reason, text)
    return found if found.path == name and times.nanoseconds(time) is not None else None


class Retrier:
    """Tries deferred runs again, and ends those that are not to start any more.

    Args:
        submitter: Ends claims; it should not wait, for the next tick comes anyway.
        start: Starts a run: of `submit` what it returns and raises.
        keep: Takes the row of the history of a run that was decided, before its object is deleted.
    """

    def __init__(
        self,
        submitter: Submitter,
        start: Callable[[DeferredRun, Due], Submitted],
        keep: Callable[[Delivery], None],
    ) -> None:
        self.loaded, self.submitter, self.start, self.keep = submitter.workspace.loaded, submitter, start, keep
        self.deferrals = Deferrals(submitter.storage)

    def tick(self, unexpected: Callable[[Exception], None], late: Callable[[], bool] = lambda: False) -> list[Delivery]:
        """Look at every deferred run (`vertexrig.trigger.ticking.Tick`); return those that were decided now."""
        rows: list[DeferredRun] = []
        for one in self.deferrals.all():
            if isinstance(one, str):
                unexpected(VertexrigError(f"{one} is not a deferred run; delete it"))
            else:
                rows.append(one)
        if not rows:
            return []
        held = Holds(self.submitter.storage).current()
        newest = {one.schedule: one.time for one in sorted(rows, key=lambda one: times.nanoseconds(one.time) or 0)}
        random.shuffle(rows)  # so that none is always the last when a tick is cut off
        found: list[Delivery] = []
        for one in rows:
            if late():
                break
            try:
                decided = self._look(one, newest[one.schedule], not held.keys().isdisjoint((one.schedule, EVERY)))
            except RestError:
                pass  # the next tick tries again
            except Exception as error:
                unexpected(error)
            else:
                found += [decided] if decided is not None else []
        return found

    def _look(self, one: DeferredRun, newest: str, held: bool) -> Delivery | None:
        """Take a run as far as it goes now; None if it stays."""
        schedule = self.loaded.project.schedules.get(one.schedule)
        if schedule is None:
            return self._end(one, "skipped", "changed", f"the project file has no schedule {one.schedule} any more")
        if one.time != newest:
            return self._end(one, "skipped", "superseded", f"the run due at {newest} waits in its place")
        if held:
            return None
        due = Due(one.schedule, schedule, one.time, self.submitter)
        try:
            made = self.start(one, due)
        except EndedError:  # by another tick, which says so
            self.deferrals.forget(one)
            return None
        except InProgressError:
            return None
        except (VertexrigError, RequestProblem, NotStartedError) as error:
            return self._not_started(one, due, error)
        delivery = self._delivery(one, "joined" if made.duplicate else "created", one.reason, "")
        claim = first_of(made.labels) or made.claim  # of a run with candidates that of the first try
        delivery.job, delivery.claim, delivery.estimate = made.name, claim, made.estimate
        return self._decided(one, delivery)

    def _not_started(self, one: DeferredRun, due: Due, error: Exception) -> Delivery | None:
        """Tell what becomes of a run that could not start this time either."""
        why = due.not_started(error)
        if why is not None and why.reason == NO_MACHINES:  # it is kept as a run with candidates from now on
            self.deferrals.forget(one)
            return None
        if why is not None and why.decision == "skipped":  # its claim has ended
            return self._end(one, "skipped", why.reason, why.text)
        passes = why is not None or (isinstance(error, RestError) and (error.status == 429 or error.retryable))
        if not passes:
            problem = explained(error)
            return self._end(one, "refused", problem.type, problem.detail)
        reason, text = (why.reason, why.text) if why is not None else (one.reason, str(error))
        if one.reason in WAITS and reason not in WAITS:
            # what it waited for is over: from now on it is tried for `retry_for`
            self.deferrals.keep(replace(one, reason=reason, text=text))
            return None
        limit = PATIENCE_S if reason in WAITS else times.meant_seconds(due.schedule.retry_for or "0s") or 0.0
        if one.age_s <= limit:
            return None
        return self._end(one, "refused", reason, f"given up after {one.age_s / 3600:.1f} h: {text}")

    def _end(self, one: DeferredRun, decision: Decision, reason: str, text: str) -> Delivery | None:
        """Decide that a run is not started, unless its job is there by now; None if a delivery is at work."""
        body = Request(**one.body)
        try:
            claim = self.submitter.end(one.claim_key, body.digest, body.run, {"reason": reason, "text": text})
        except InProgressError:
            return None
        if claim.job.name:
            delivery = self._delivery(one, "joined", one.reason, "")
            delivery.job, delivery.claim = claim.job.name, claim.id
        else:
            delivery = self._delivery(one, decision, claim.ended.get("reason", reason), claim.ended.get("text", text))
        return self._decided(one, delivery)

    def _decided(self, one: DeferredRun, delivery: Delivery) -> Delivery:
        # in this order: a tick that dies in between says it once more, and does not lose it
        self.keep(delivery)
        self.deferrals.forget(one)
        return delivery

    def _delivery(self, one: DeferredRun, decision: Decision, reason: str, text: str) -> Delivery:
        key, detail = one.claim_key, dict[str, Any](deferred_s=round(one.age_s))
        if following := steps(self.loaded, str(one.body.get("then", ""))):
            detail["then"] = following
        return Delivery(
            decision=decision,
            reason=reason,
            text=text,
            run=str(one.body.get("run", "")),
            key=key.kind,
            request=key.digest,
            schedule=one.schedule,
            schedule_time=one.time,
            detail=detail,
            digest=self.loaded.digest,
        )
