"""Ladders: a request whose job may run on several candidates, which are tried in order, one job at a time.

Each try of a candidate is a rung, with a claim that says what has become of it; nothing else is kept, so that whoever looks, however
often, goes on from the same place. The first rung has the claim of the request. A rung is over for good when its claim has ended
without a job, or when its job was seen ended and its claim says so (`Claim.ended` with SEEN); only then is the next rung claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from typing import Literal

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.labels import CANDIDATE_LABEL, FIRST_LABEL
from vertexrig.spec.states import CANCELLING, short
from vertexrig.submit.budget import OverBudgetError, Share, Terms
from vertexrig.submit.claims import LABEL, Claim, EndedError, Key, Recorded, digest
from vertexrig.submit.reconcile import call_off
from vertexrig.submit.rungs import (
    GOES_ON,
    OVER_BUDGET,
    SEEN,
    CandidateRun,
    Move,
    Rung,
    Try,
    asked_at,
    begun,
    course,
    line,
    move,
    number,
)
from vertexrig.submit.scarcity import Scarcity, outcome
from vertexrig.submit.submission import Submitted, dearest, price_within

ROUND_S = 600.0
"""Seconds between the last candidate's end and the first one's next try."""
State = Literal["waiting", "training", "succeeded", "failed", "cancelled", "exhausted"]


class LostError(UsageError):
    """No job was made for the request, and its claim is gone, or another request's by now."""


@dataclass(frozen=True)
class LadderState:
    """Where a ladder is.

    Args:
        state: `waiting` for machines or for the next round, `training`, or how it ended.
        candidate: The number of the candidate that it is at.
        of: How many there are.
        made: The job that it is at, None if there is none.
        job: The same as the service describes it, where it was asked.
    """

    state: State
    candidate: int
    of: int
    text: str = ""
    made: Submitted | None = None
    job: RemoteJob | None = None

    @property
    def ended(self) -> bool:
        return self.state not in ("waiting", "training")

    @property
    def said(self) -> str:
        """As an answer has it: `candidate 2 of 4`."""
        return f"candidate {self.candidate} of {self.of}"


@dataclass
class Ladder:
    """The tries of one request.

    Args:
        ways: The candidates, the job as it stands first.
        body: Digest of the request's body.
        key: The request's key; None to go on with a request whose first rung has a claim.
        first: Id of the first rung's claim, to go on with that one request, whoever has the key by now.
        run_id: The run whose output folder the jobs get: an earlier one that is resumed, or that of a request that is gone on with.
        cannot: Says why a candidate cannot fit, with the sum; "" if it can or that is not known.
        publish: Uploads what a candidate's job runs, before that is made.
        round_s: See ROUND_S.
        retry_for_s: Seconds that its schedule tries it again for; `retry_for` counts where that is longer.
        speed: Divides every wait, for rehearsals.
        waits: Tells whether a job that has not begun waits for machines; on a local Vertex it may also be on its way to start.
    """

    ways: Sequence[CandidateRun]
    body: str
    key: Key | None = None
    first: str = ""
    run_id: str = ""
    terms: Terms = field(default_factory=Terms)
    cannot: Callable[[CandidateRun], str] = lambda _: ""
    publish: Callable[[CandidateRun], None] = lambda _: None
    round_s: float = ROUND_S
    retry_for_s: float = 0.0
    speed: float = 1.0
    waits: Callable[[RemoteJob], bool] = lambda _: True
    now: Callable[[], datetime] = times.now

    def __post_init__(self) -> None:
        own = self.ways[0].prepared
        self.settings = own.workspace.loaded.runnable(own.view.name)
        self._claims = self.ways[0].submitter.claims
        self._pinned = bool(self.first)
        if self.settings.prefer == "price":
            self.ways = sorted(self.ways, key=lambda way: way.price.rank)

    def advance(self) -> LadderState:
        """Take the ladder as far as it goes now.

        Raises:
            OtherBodyError: The request, or the project file's candidates, are others than when it began.
            EndedError: No job is made for the request, for a reason that is not one of machines.
            LostError: No job was made for the request, and its claim is not its own any more.
            InProgressError: Another delivery is at work.
            OverBudgetError: A limit that may leave room later.
        """
        while True:
            rung = self._top()
            job = self._job(rung)
            # a first rung whose claim another request has by now can say nothing of its job: that is let wait
            kept = rung.claim is not None and bool(rung.claim.path)
            what = move(rung.claim, job, self._wait(rung, job) if kept else None)
            if what.act in ("wait", "end"):
                self.cancel_strays(rung)
            if what.act == "leave" and not kept:
                what = replace(what, act="next")
            if what.act == "next":
                late = self._after(rung, what.why)
                if isinstance(late, LadderState):
                    return late
                rung, what = late, Move("start")
            if what.act == "start":
                made = self.start(rung)
                if made is not None:
                    return self._at(rung, "waiting", made=made)
            elif what.act == "leave":
                if not self.leave(rung, what.why, job):
                    return self._at(rung, "waiting", "a second job of this try is on its way out")
            elif what.act in ("give-up", "cancel"):
                self.cancel(rung, what)
                return self._at(rung, "waiting", "its job has waited for too long and is being cancelled", job)
            elif what.act == "end":
                if rung.claim is not None:  # nobody looks after this
                    rung.way.submitter.reconciler.look(rung.claim.id, rung.way.collection)
                return self._ended(rung, what.why, job)
            else:
                began = job is not None and begun(job)
                return self._at(rung, "training" if began else "waiting", job=job)

    def tries(self, job: RemoteJob | None = None) -> list[Try]:
        """Return what became of every try so far; `job`, that of the last one, tells how long that waited and what it cost."""
        found = []
        for rung in self._rungs():
            claim = rung.claim or Claim("", "", "", "", "")
            ended = claim.ended
            if job is not None and job.name == claim.job.name and SEEN not in ended:
                ended = {"text": short(job.state), **ended, **course(job, claim)}
            found.append(
                Try(
                    rung.way.number,
                    rung.way.changes,
                    claim.job.name,
                    ended.get("reason", ""),
                    ended.get("text", ""),
                    number(ended.get("waited_s")),
                    number(ended.get("usd")),
                )
            )
        return found

    def _rungs(self) -> Iterator[Rung]:
        rung = Rung(self.ways[0], 0, claim=self._held(0, 0))
        while rung.claim is not None:
            yield rung
            again = self._held(rung.place, rung.again + 1) if rung.claim.job.name else None
            rung = self._rung(rung.place, rung.again + 1, again) if again else self._rung(rung.place + 1, 0)

    def _rung(self, place: int, again: int, claim: Claim | None = None) -> Rung:
        return Rung(self.ways[place % len(self.ways)], place, again, claim or self._held(place, again))

    def _key(self, place: int, again: int) -> Key:
        return Key("step", f"{self.first or self.first_claim.id} candidate {place}.{again}")

    @property
    def first_claim(self) -> Claim:
        """The claim of the first rung, whose id is the ladder's."""
        found = self._held(0, 0)
        if found is None:
            raise UsageError("the request has no claim yet")
        return found

    @property
    def first_run_id(self) -> str:
        """The run whose output folder the job of the first rung has, "" if that is not known."""
        found = self._held(0, 0)
        return self.run_id if found is None else found.run_id

    @property
    def unmade(self) -> bool:
        """Whether there is surely no job, and nobody at work on one."""
        states = [rung.claim.state for rung in self._rungs() if rung.claim is not None]
        return bool(states) and all(state in ("released", "ended") for state in states)

    @property
    def idle_s(self) -> float | None:
        """Seconds since the last try was over, or since the request was made if none was; None while a try has a job."""
        idle = (self.now() - asked_at(self.first_run_id, self.now())).total_seconds()
        for claim in (rung.claim for rung in self._rungs() if rung.claim is not None):
            if claim.state == "created" and SEEN not in claim.ended:
                return None
            if claim.path and claim.state in ("created", "ended"):
                idle = claim.age_s
        return idle

    def stop(self, reason: str, text: str) -> bool:
        """Decide that no further job is made; False if a try has one. InProgressError if another delivery is at work."""
        rung = self._top()
        if rung.claim is not None and rung.claim.state in ("created", "ended"):
            why = rung.claim.ended.get("reason", "")
            if rung.claim.state == "created" and SEEN not in rung.claim.ended:
                return False
            if why not in GOES_ON:
                return True
            late = self._after(rung, why)
            if isinstance(late, LadderState) and late.ended:
                return True
            rung = self._rung(*self._next(rung, why))
        if rung.place == rung.again == 0 and self._lost(rung):
            return True
        key, body = self._named(rung)
        name = rung.way.prepared.view.name
        claim = rung.way.submitter.end(key, body, name, {"reason": reason, "text": line(text)})
        return not claim.job.name

    def _held(self, place: int, again: int) -> Claim | None:
        if (place, again) != (0, 0):
            return self._claims.by_key(self._key(place, again))
        if self.key is not None and not self._pinned:
            found = self._claims.by_key(self.key)
            if found is None or (self.key.window_s is not None and found.age_s > self.key.window_s):
                return None  # the same key is a new request now
            self.first = found.id
            return found
        found = self._claims.by_id(self.first) if self.first else None
        if found is not None and found.id == self.first:
            return found
        # its window is over, and another request has the claim: what is left of ours is its job
        name = found.before.get(self.first, "") if found is not None else ""
        if not name and self.first:
            seen = self.ways[0].submitter.reconciler.find(self.first, self.ways[0].collection)
            name = seen.name if seen is not None else ""
        if not name and found is None:
            return None
        state, run = "created" if name else "claimed", self.ways[0].prepared.view.name
        return Claim(self.first, "", self.body, run, "", state, Recorded(name), self.run_id)

    def _top(self) -> Rung:
        """Return the last rung that has a claim. A rung has one only after all below it are over, so the place is found by halving."""
        claim = self._held(0, 0)
        if claim is None and not self._pinned:
            return Rung(self.ways[0], 0)
        low, high = 0, 1
        while (found := self._held(high, 0)) is not None:
            low, claim, high = high, found, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            found = self._held(middle, 0)
            low, claim, high = (middle, found, high) if found is not None else (low, claim, middle)
        again = 0
        # not only as many as `preemptions` has now: that may have been lowered since
        while (found := self._held(low, again + 1)) is not None:
            again, claim = again + 1, found
        return self._rung(low, again, claim)

    def _wait(self, rung: Rung, job: RemoteJob | None) -> float | None:
        wait = rung.way.wait_s
        return None if wait is None or job is None or not self.waits(job) else wait / self.speed

    def _job(self, rung: Rung) -> RemoteJob | None:
        claim = rung.claim
        if claim is None or claim.state != "created" or SEEN in claim.ended:
            return None
        return rung.way.submitter.vertex.get(claim.job.name)

    def _after(self, rung: Rung, why: str) -> Rung | LadderState:
        """Return the rung after one that is over; a standing if it is not to be started now, or never."""
        place, again = self._next(rung, why)
        if not again and place % len(self.ways) == 0:
            limit = max(times.meant_seconds(self.settings.retry_for or "0s") or 0.0, self.retry_for_s) / self.speed
            if not limit or self._tried_s > limit:
                return self._ended(rung, "exhausted", None)
            pause = self.round_s / self.speed - (rung.claim.age_s if rung.claim else 0.0)
            if pause > 0:
                text = f"all {len(self.ways)} candidates were tried; the first is tried again in {pause:.0f} s"
                return self._at(rung, "waiting", text)
        return self._rung(place, again)

    @property
    def _tried_s(self) -> float:
        """Seconds since the first try was over; since the request was made, where the claim of that try is another request's by now."""
        first = self._held(0, 0)
        if first is not None and first.path:
            return first.age_s  # not by the run's name: one that is resumed is older than the request
        return (self.now() - asked_at(self.first_run_id, self.now())).total_seconds()

    def _next(self, rung: Rung, why: str) -> tuple[int, int]:
        """Return the place of the rung after one that is over, and how many jobs were preempted there before."""
        again = rung.again + 1
        if why == Scarcity.PREEMPTED.value and again < self.settings.preemptions:
            return rung.place, again
        return rung.place + 1, 0

    def start(self, rung: Rung) -> Submitted | None:
        """Make the job of a rung; None if that is over now, so that the next one comes."""
        way, of = rung.way, str(rung.way.number)
        name, first = way.prepared.view.name, rung.place == rung.again == 0
        if first and self.key is None:
            raise UsageError(f"the job of {name} was not made; submit it again with the same request id")
        if first and self._lost(rung):
            raise LostError(f"no job of {name} was made, and its claim is gone or a later request's; ask for it again")
        key, body = self._named(rung)

        def ends(error: Exception) -> Mapping[str, str] | None:
            why = outcome(error) if isinstance(error, RestError) else Scarcity.OTHER
            if why is not Scarcity.OTHER:
                return {"reason": why.value, "text": line(str(error)), "candidate": of}
            return self.terms.ends(error)

        labels = {**self.terms.labels, CANDIDATE_LABEL: of}
        if not first:
            labels[FIRST_LABEL] = self.first
        skip = self.cannot(way)
        why = Scarcity.QUOTA.value
        if not skip:
            try:
                price_within(way.prepared, way.submitter.limits, self.terms)
            except OverBudgetError as error:
                skip, why = str(error), OVER_BUDGET
        if skip:
            claim = way.submitter.end(key, body, name, {"reason": why, "text": line(skip), "candidate": of})
            if not claim.job.name:
                return None
        self.publish(way)
        # a sweep's trials have other values than those whose checkpoints are in the folder of the study before
        run_id = self.run_id if first else "" if way.prepared.view.sweep is not None else self.first_run_id
        shares = self.terms.shares if first else [self._besides(share) for share in self.terms.shares]
        terms = replace(self.terms, labels=labels, ends=ends, most=self._dearest, shares=shares)
        try:
            return way.submitter.submit(way.prepared, key, body, run_id, terms=terms)
        except EndedError as error:
            if error.claim.ended.get("reason") in GOES_ON:
                return None
            raise
        except RestError as error:
            if outcome(error) is Scarcity.OTHER:
                raise
            return None

    @cached_property
    def _dearest(self) -> Estimate | None:
        return dearest((way.prepared for way in self.ways), self.ways[0].submitter.limits, self.terms)

    def _besides(self, share: Share) -> Share:
        """Return a share in which the run does not count itself: its steps are kept under the claim of its first try."""
        return replace(share, begun=lambda: set(share.begun()) - {self.first})

    def _lost(self, rung: Rung) -> bool:
        """Whether the claim of the first rung, which is to be gone on with, is not the request's own any more."""
        return self._pinned and (rung.claim is None or not rung.claim.path)

    def _named(self, rung: Rung) -> tuple[Key, str]:
        """Return the key of a rung's claim, and the digest of what it asks for."""
        first = rung.place == rung.again == 0
        key = self.key if first and self.key else self._key(rung.place, rung.again)
        if first and rung.way.number == 1:
            return key, self.body
        # so that nobody looks for a rung's job where another project file puts it
        return key, digest({"body": self.body, "candidate": list(rung.way.prepared.workspace.loaded.overrides)})

    def cancel(self, rung: Rung, what: Move) -> None:
        """Decide that a job has waited for too long, and cancel it; it is looked at again until it has ended."""
        claim = rung.claim
        if claim is None:
            return
        if what.act == "give-up":
            text = f"its job waited more than {times.length(round(rung.way.wait_s or 0))} for machines"
            # the decision first: a job that is found cancelled without it was cancelled by a person
            if self._claims.give_up(claim, {"reason": what.why, "text": text}) is None:
                return
        call_off(rung.way.submitter.vertex, claim.job.name)  # it may have ended: the next look tells

    def leave(self, rung: Rung, why: str, job: RemoteJob | None) -> bool:
        """Say in its claim that a rung's job is over; False if a second job of it has yet to end."""
        claim, submitter = rung.claim, rung.way.submitter
        if claim is None or job is None:
            return False
        others = [one for one in submitter.reconciler.with_label(claim.id, rung.way.collection) if one.name != job.name]
        submitter.reconciler.keep_recorded(claim, others)
        if not all(one.ended for one in others):
            return False
        text = claim.ended.get("text") or line(job.error) or f"its job ended {short(job.state)}"
        made = {"reason": why, "text": text, SEEN: times.rfc3339(self.now(), 0), "candidate": str(rung.way.number)}
        # if another delivery was faster, the next look finds what that wrote
        kept = self._claims.give_up(claim, {**made, **course(job, claim)})
        if kept is not None and not begun(job):
            # nothing was paid for it: it gives its room in the day's budget back
            submitter.ledger.take_out(submitter.ledger.objects_of(claim.id, self.terms.shares))
        return True

    def cancel_strays(self, rung: Rung) -> None:
        """Cancel jobs of earlier tries that live: whoever made one died before it was recorded, and lists showed it late."""
        if (rung.place, rung.again) == (0, 0):
            return
        own = self._key(rung.place, rung.again).digest[:32]
        for vertex in {way.submitter.vertex.region: way.submitter.vertex for way in self.ways}.values():
            for label in (LABEL, FIRST_LABEL):
                for job in vertex.list(rung.way.collection, filter=f'labels.{label}="{self.first}"'):
                    tried = job.labels.get(LABEL, "")[:32]
                    if tried != own and not job.ended and job.state != CANCELLING and tried in self._before(rung):
                        call_off(rung.way.submitter.vertex, job.name)

    def _before(self, rung: Rung) -> set[str]:
        """Return how the ids of the claims of earlier rungs begin."""
        earlier = takewhile(lambda one: (one.place, one.again) < (rung.place, rung.again), self._rungs())
        return {self.first[:32], *(one.claim.id[:32] for one in earlier if one.claim is not None)}

    def _ended(self, rung: Rung, why: str, job: RemoteJob | None) -> LadderState:
        words: dict[str, tuple[State, str]] = {
            "succeeded": ("succeeded", "its job has succeeded"),
            "failed": ("failed", line(job.cause) if job is not None else ""),
            "cancelled": ("cancelled", "its job was cancelled"),
            "gone": ("failed", "its job is gone"),
            "exhausted": ("exhausted", f"none of the {len(self.ways)} candidates got machines"),
        }
        if why not in words and rung.claim is not None:
            raise EndedError(rung.claim)
        state, text = words[why]
        return self._at(rung, state, text, job)

    def _at(
        self, rung: Rung, state: State, text: str = "", job: RemoteJob | None = None, *, made: Submitted | None = None
    ) -> LadderState:
        claim = rung.claim
        if made is None and claim is not None and claim.state == "created":
            made = rung.way.submitter.answer_about(claim, rung.way.collection, job)
        return LadderState(state, rung.way.number, len(self.ways), text, made, job)
