"""Runs with candidates: those that have not ended are one small object each beside the claims, and each tick goes on with them.

An open one is `vertexrig/ladders/open/ID.json`, where ID is the claim of its first try; it is written before the first job is made, holds
what was asked for, and nothing of how far it is: that is in the claims (`vertexrig.submit.ladder`). Its end is
`vertexrig/ladders/ended/ID.json`, created once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.errors import VertexrigError
from vertexrig.project.runs import NAME
from vertexrig.submit.budget import OverBudgetError, Terms
from vertexrig.submit.chains import RunEnd, RunStore
from vertexrig.submit.claims import Claim, EndedError, InProgressError, Key
from vertexrig.submit.ladder import Ladder, LadderState, LostError
from vertexrig.submit.rungs import ways
from vertexrig.submit.submission import Request, Submitted, Submitter, is_body
from vertexrig.submit.uploaded import NoPackageError
from vertexrig.trigger.deliveries import NO_MACHINES, Decision, Delivery, NotStartedError
from vertexrig.trigger.policy import EVERY, PATIENCE_S, Hold, Holds
from vertexrig.trigger.request import RequestProblem, steps
from vertexrig.workspace import Prepared

OPEN, ENDED = "vertexrig/ladders/open/", "vertexrig/ladders/ended/"


@dataclass(frozen=True)
class OpenLadder:
    """A run with candidates that has not ended.

    Args:
        id: The claim of its first try.
        key: Kind, text and window of the request's key.
        body: The request: `run`, `set`, `args`, `then`.
        schedule: The schedule that it is of, "" for none.
        time: What it was due for, RFC 3339.
        run_id: The run whose output folder its first job gets.
    """

    id: str
    key: Mapping[str, Any]
    body: Mapping[str, Any]
    schedule: str = ""
    time: str = ""
    caller: str = ""
    run_id: str = ""

    @property
    def claim_key(self) -> Key:
        return Key(**self.key)


@dataclass(frozen=True)
class LadderEnd(RunEnd):
    """How a run with candidates has ended.

    Args:
        state: `succeeded`, `failed`, `cancelled`, `exhausted`, `given-up` after three days, `superseded` by a later run of its schedule,
            `skipped` by the schedule's policy, or `changed`: the project file does not allow it any more.
        candidate: `candidate 2 of 4`: the last one that was tried.
        job: Resource name of its job, "" if it has none.
        attempts: What became of each try (`vertexrig.submit.ladder.Try`).
    """

    run: str
    state: str
    text: str = ""
    candidate: str = ""
    job: str = ""
    attempts: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


@dataclass(frozen=True)
class Climbed:
    """What a tick found of one run with candidates.

    Args:
        state: Of `LadderEnd`, `waiting` or `training`.
        candidate: Which candidate it is at: `candidate 2 of 4`.
        moved: A job was made, or it has ended.
    """

    one: OpenLadder
    state: str
    text: str = ""
    candidate: str = ""
    job: str = ""
    moved: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """As the answer and the log have it."""
        named = {"claim": self.one.id, "schedule": self.one.schedule, "run": str(self.one.body["run"])}
        row = {**named, "state": self.state, "candidate": self.candidate, "text": self.text, "job": self.job}
        return {name: value for name, value in row.items() if value}

    @property
    def message(self) -> str:
        """In one line."""
        what = " ".join(filter(None, (self.one.schedule, str(self.one.body["run"]), self.candidate, self.state)))
        return f"{what}: {self.text}" if self.text else what

    @property
    def severity(self) -> str:
        """Of its log entry; "" for what need not be logged."""
        if not self.moved:
            return ""
        return "ERROR" if self.state in ("failed", "cancelled", "exhausted", "changed", "given-up") else "INFO"


class Ladders(RunStore[OpenLadder, LadderEnd]):
    """The runs with candidates of one bucket."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, OPEN, ENDED, _open, LadderEnd)

    def keep(self, one: OpenLadder) -> bool:
        """Keep an open one; whether it is new. One that is there is written again, so that nobody deletes it as it was (`drop`)."""
        name, data = self.path(one.id), json.dumps(asdict(one)).encode()
        new = self.storage.write(name, data, generation=0) is not None
        if not new:
            self.storage.write(name, data)
        return new

    def one(self, id: str) -> OpenLadder | None:
        """Return an open one, None if there is none."""
        stored = self.storage.read(self.path(id))
        return None if stored is None else _open(self.path(id), stored.data)

    def is_open(self, id: str) -> bool:
        return self.storage.exists(self.path(id))


def start(
    submitter: Submitter,
    prepared: Sequence[Prepared],
    key: Key,
    request: Request,
    terms: Terms,
    about: OpenLadder,
) -> tuple[Submitted, str]:
    """Make the job of the first candidate that is not refused, or find the one that an earlier delivery has made.

    Args:
        submitter: Of the job as it stands.
        prepared: The job as it stands, and its candidates.
        about: What is kept for ticks; its `id` is filled in.

    Returns:
        The job, and which candidate it is: `candidate 2 of 4`.

    Raises:
        RequestProblem: No candidate got machines.
        NotStartedError: None did yet; ticks try again.
        VertexrigError: As of `Submitter.submit`.
    """
    ladders, new = Ladders(submitter.storage), list[str]()

    def before(claim: Claim) -> None:
        # whichever try makes the first job: the run is known by the claim of its first one
        first = claim if claim.kind != "step" else replace(claim, id=ladder.first, kind=key.kind)
        # the terms first: a run that they leave out is not gone on with
        terms.before_create(first)
        run_id = claim.run_id if first is claim else ladder.first_run_id
        if ladders.keep(replace(about, id=first.id, run_id=run_id)):
            new.append(first.id)

    ladder = Ladder(ways(prepared, submitter), request.digest, key, terms=replace(terms, before_create=before))
    ladder.retry_for_s = _retry_for_s(ladder, about)
    try:
        at = ladder.advance()
    except Exception:
        # whoever asked is told that it is not started, so ticks do not start it
        with suppress(RestError):
            for id in new:
                ladders.drop(id, lambda: ladder.unmade)
        raise
    if at.ended:
        ladders.close(_end_of(ladder, at))
    if at.made is None:
        if at.ended:
            rows = tuple(
                {"id": one.reason, "path": f"candidate {one.candidate}", "message": one.text} for one in ladder.tries()
            )
            raise RequestProblem(409, NO_MACHINES, at.text, rows)
        if not ladders.is_open(ladder.first):  # no try came as far as its job
            before(ladder.first_claim)
        raise NotStartedError("deferred", NO_MACHINES, at.text, {"candidate": at.said})
    return at.made, at.said


class Climber:
    """Goes on with the runs with candidates that have not ended.

    Args:
        submitter: Makes jobs; it should not wait, for the next tick comes anyway.
        ladder: Gives the ladder of an open one, rendered and allowed as the project file is now.
        keep: Takes the row of the history of a run that got its first job or has ended without one, before its end is kept.
    """

    def __init__(
        self, submitter: Submitter, ladder: Callable[[OpenLadder], Ladder], keep: Callable[[Delivery], None]
    ) -> None:
        self.ladders, self.ladder, self.keep = Ladders(submitter.storage), ladder, keep

    def tick(self, unexpected: Callable[[Exception], None], late: Callable[[], bool] = lambda: False) -> list[Climbed]:
        """Look at every open one (`vertexrig.trigger.ticking.Tick`)."""
        found: list[OpenLadder] = []
        for one in self.ladders.open():
            if isinstance(one, str):
                unexpected(VertexrigError(f"{one} is no run with candidates; delete it"))
            else:
                found.append(one)
        held = Holds(self.ladders.storage).current() if any(one.schedule for one in found) else {}
        due = sorted((one for one in found if one.schedule), key=lambda one: times.nanoseconds(one.time) or 0)
        newest = {one.schedule: one.time for one in due}
        random.shuffle(found)  # so that none is always the last when there is not time for all
        rows = []
        for one in found:
            if late():
                break
            try:
                hold = (held.get(one.schedule) or held.get(EVERY)) if one.schedule else None
                rows.append(self._look(one, newest.get(one.schedule, ""), hold))
            except (RestError, InProgressError, NoPackageError) as error:
                rows.append(Climbed(one, "waiting", type(error).__name__))  # the next tick tries again
            except Exception as error:
                unexpected(error)
        return rows

    def _look(self, one: OpenLadder, newest: str, hold: Hold | None) -> Climbed:
        known = self.ladders.end(one.id)
        if known is not None:  # a tick died just before it deleted the open one
            self.ladders.forget(one.id)
            return Climbed(one, known.state, known.text, known.candidate, known.job)
        if hold is not None:
            return Climbed(one, "waiting", f"on hold until {hold.until}: {hold.reason}")
        ladder: Ladder | None = None
        try:
            ladder = self.ladder(one)
            ladder.terms = replace(ladder.terms, before_create=self._kept(one, ladder.terms))
            ladder.retry_for_s = _retry_for_s(ladder, one)
            if one.schedule and one.time != newest and not any(each.job for each in ladder.tries()):
                text = f"the run due at {newest} has taken its place"
                if ladder.stop("superseded", text):
                    return self._close(one, "superseded", text, ladder)
            at = ladder.advance()
        except LostError as error:
            return self._close(one, "failed", str(error), ladder)
        except (InProgressError, NoPackageError):
            raise
        except (RestError, OverBudgetError) as error:
            if ladder is None:
                raise
            return self._wait(one, ladder, error)
        except NotStartedError as error:
            if error.reason == "hold":  # since this tick began
                return Climbed(one, "waiting", error.text)
            return self._close(one, "skipped", error.text, ladder)
        except EndedError as error:
            return self._close(one, "skipped", str(error), ladder)
        except (RequestProblem, VertexrigError) as error:
            text = f"the project file does not allow it any more: {error}"
            return self._close(one, "changed", text, ladder)
        new = at.made is not None and not at.made.duplicate
        tries = ladder.tries()
        delivery = None
        if at.made is not None and new and not any(each.job for each in tries[:-1]):
            delivery = _row(one, "created", NO_MACHINES)
            delivery.detail = {"candidate": at.said}
            delivery.job, delivery.claim, delivery.estimate = at.made.name, one.id, at.made.estimate
            if following := steps(ladder.ways[0].prepared.workspace.loaded, str(one.body.get("then", ""))):
                delivery.detail["then"] = following
        elif at.ended and not any(each.job for each in tries):
            delivery = _row(one, "refused", NO_MACHINES, at.text)
        if delivery is not None:
            self.keep(delivery)
        if at.ended:
            self.ladders.close(_end_of(ladder, at))
        name = at.made.name if at.made is not None else ""
        return Climbed(one, at.state, at.text, at.said, name, at.ended or new)

    def _kept(self, one: OpenLadder, terms: Terms) -> Callable[[Claim], None]:
        def before(claim: Claim) -> None:
            terms.before_create(claim)
            self.ladders.keep(one)  # a delivery that is refused just now may be about to drop it

        return before

    def _wait(self, one: OpenLadder, ladder: Ladder, error: Exception) -> Climbed:
        """Leave a try to the next tick, unless it has waited for too long, or the service will say the same of its job tomorrow."""
        idle = ladder.idle_s
        final = isinstance(error, RestError) and error.status == 400
        if idle is None or not (final or idle > PATIENCE_S):
            return Climbed(one, "waiting", type(error).__name__)
        text = str(error) if final else f"given up after {idle / 86_400:.0f} days: {error}"
        if not ladder.stop("given-up", text):
            return Climbed(one, "waiting", type(error).__name__)
        return self._close(one, "failed" if final else "given-up", text, ladder)

    def _close(self, one: OpenLadder, state: str, text: str, ladder: Ladder | None) -> Climbed:
        """Keep an end of which the ladder knows nothing; `ladder` is None if there is none any more."""
        text, run = text[:500], str(one.body["run"])
        tries = ladder.tries() if ladder is not None else []
        decision: Decision = "skipped" if state in ("skipped", "superseded") else "refused"
        if ladder is not None and not any(each.job for each in tries):
            self.keep(_row(one, decision, state, text))
        self.ladders.close(LadderEnd(one.id, run, state, text, attempts=[asdict(each) for each in tries]))
        return Climbed(one, state, text, moved=True)


def _retry_for_s(ladder: Ladder, one: OpenLadder) -> float:
    """Return for how many seconds the schedule of a run tries again what was refused; 0 if it is of none."""
    schedule = ladder.ways[0].submitter.workspace.loaded.project.schedules.get(one.schedule)
    return times.meant_seconds(schedule.retry_for or "0s") or 0.0 if schedule is not None else 0.0


def _end_of(ladder: Ladder, at: LadderState) -> LadderEnd:
    name = at.made.name if at.made is not None else ""
    run = ladder.ways[0].prepared.view.name
    return LadderEnd(ladder.first, run, at.state, at.text, at.said, name, [asdict(one) for one in ladder.tries()])


def _row(one: OpenLadder, decision: Decision, reason: str, text: str = "") -> Delivery:
    """Return the row of the history of a run that has got its first job, or has ended without one."""
    key = one.claim_key
    return Delivery(
        decision=decision,
        reason=reason,
        text=text,
        run=str(one.body["run"]),
        key=key.kind,
        request=key.digest,
        schedule=one.schedule,
        schedule_time=one.time,
        caller=one.caller,
    )


def _open(name: str, content: bytes) -> OpenLadder | None:
    """Return a run of these bytes; None unless every part has its form, since whoever may write the bucket may have made it."""
    data = as_json(content) or {}
    texts = [data.get(key, "") for key in ("id", "schedule", "time", "caller", "run_id")]
    key, body = data.get("key"), data.get("body")
    if not all(isinstance(text, str) for text in texts) or not isinstance(key, dict) or not is_body(body):
        return None
    window = key.get("window_s")
    if (
        key.keys() != {"kind", "text", "window_s"}
        or not isinstance(key["text"], str)
        or not isinstance(window, (int, float, type(None)))
    ):
        return None
    if key["kind"] not in ("request", "schedule", "event", "body") or name != f"{OPEN}{data.get('id')}.json":
        return None
    if texts[-1] and not NAME.fullmatch(texts[-1]):
        return None
    return OpenLadder(texts[0], key, body, *texts[1:])


def about(key: Key, request: Request, delivery: Delivery) -> OpenLadder:
    """Return what is kept of a run for ticks, but for its claim."""
    named = {"kind": key.kind, "text": key.text, "window_s": key.window_s}
    return OpenLadder("", named, request.body, delivery.schedule, delivery.schedule_time, delivery.caller)
