"""Claims: which delivery of a request makes the job, so that exactly one survives however often it is delivered.

A claim is a Cloud Storage object created with `ifGenerationMatch=0`: of many deliveries one creates it and makes the job,
which carries the claim's id as a label. The others wait for the job that the first one records in the claim. If the
first one dies, the next delivery looks for a job with the label; if there is none when the claim's lease has run out,
it takes the claim over, again by a write that only one can win. A recorded job is never replaced by another one, so
any process that finds a second job with the label may cancel it (`vertexrig.submit.reconcile`).

A claim begins as `claimed` and becomes `created` (its job is recorded), `released` (no job was made: the next delivery takes it over
under the same id, with another body too) or `ended` (none is made any more). Once a key's window is over, the
next delivery begins again, under a new id.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from vertexrig import __version__
from vertexrig.cloud.rest import CALL_S, RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.cloud.vertex import VERSION
from vertexrig.errors import VertexrigError
from vertexrig.project import run_ids
from vertexrig.project.run_ids import new_run_id
from vertexrig.spec.api_names import JOB

FOLDER = "claims"
CREATE_WITHIN_S = 20.0
"""Seconds after claiming in which the holder may still start to create the job."""
LEASE_S = CREATE_WITHIN_S + CALL_S + 1.0
"""Seconds a holder has before another delivery may take its claim over: the time in which it may start the create call,
the longest that this call takes, and the second by which an age in whole seconds may be off."""
FREE_AFTER_S = LEASE_S + 10.0
"""Seconds after a delivery that died, after which the next one surely takes its claim over; retries must outlast it."""
WAIT_S = 15.0
"""Seconds a further delivery waits for the first one's job."""
LOOK_AFTER_S = 3.0
"""Age of an unfinished claim from which a waiting delivery asks Vertex AI for its job."""
WINDOW_S = 300.0
"""Requests with the same body and without an id are one request within so many seconds."""
KEPT_BEFORE = 8
"""How many earlier ids of a key, with their jobs, a claim keeps. A holder that wakes after its window still finds its own id there."""

assert CREATE_WITHIN_S + CALL_S < LEASE_S < WINDOW_S

_ID = re.compile(r"[0-9a-f]{32}-[0-9a-f]{12}")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_MADE = re.compile(f"(?:{JOB.pattern})|(?:{VERSION.pattern})")
"""What a claim may record: a job, a version of a model, or the operation that makes one."""
_WRITTEN = ("id", "token", "asked", "run", "kind", "state", "run_id", "before", "winners")
_STATES = ("claimed", "created", "released", "ended")
_RECORDED = {
    "name": str,
    "token": str,
    "state": str,
    "output": str,
    "labels": dict,
    "estimate": dict,
    "packages": list,
}


@dataclass(frozen=True)
class Key:
    """What makes two deliveries the same request.

    Args:
        kind: `request` (its id), `schedule` (Cloud Scheduler's job and time), `event`, `body`, or `step` (a further attempt of a run, or a step).
        text: The id.
        window_s: Seconds after which the same key means a new request; None for never.
    """

    kind: Literal["request", "schedule", "event", "body", "step"]
    text: str
    window_s: float | None = None

    @cached_property
    def digest(self) -> str:
        return digest({"kind": self.kind, "text": self.text})[:40]

    @property
    def path(self) -> str:
        """The claim's object."""
        return f"{FOLDER}/{self.digest}.json"


@dataclass(frozen=True)
class Recorded:
    """What a claim stores about a job, or a version of a model, under its key `job`.

    Args:
        name: Resource name of a job, a version, or the operation that makes one; "" while nothing is recorded.
        token: The `Claim.token` of the delivery that made it, "" if the job does not name one.
        state: Its JobState by name at that time.
        output: gs:// URI of its output folder, "" without one.
        estimate: What it was estimated to cost.
        packages: URIs of the trainer's packages.
    """

    name: str = ""
    token: str = ""
    state: str = ""
    output: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    estimate: Mapping[str, Any] = field(default_factory=dict)
    packages: Sequence[str] = ()


@dataclass(frozen=True)
class Claim:
    """A claim as its object holds it.

    Args:
        id: Value of the job's label.
        token: Names the delivery that holds it; not the same as `vertexrig.runs.deliveries.Delivery.id`.
        asked: Digest of what is asked for (`Submitter.submit`), and after a point that of a candidate that is not the project file's first.
            Of a later attempt it is that of its candidate alone.
        run: The job or sweep asked for.
        kind: The key's kind.
        state: `claimed`; `created` once the job is recorded; `released` if certainly no job was made; `ended` if none may be made.
        job: What is recorded of its job.
        run_id: The run whose output folder the job gets, such as 20261121-171500-ab12. It stays when another delivery takes the claim over.
        before: Earlier ids of the key, whose windows are over -> the resource name of their job, "" if none is recorded.
        winners: Ids whose job is recorded -> its `Recorded.token`; for the fence in the job, which reads nothing else.
        ended: Why none may be made: `reason`, a word for programs, and `text`, for people.
        age_s: Seconds since it was written, by the service's clock.
    """

    id: str
    token: str
    asked: str
    run: str
    kind: str
    state: str = "claimed"
    job: Recorded = Recorded()
    run_id: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    winners: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    generation: int = 0
    age_s: float = 0.0

    def to_bytes(self) -> bytes:
        written = {name: getattr(self, name) for name in _WRITTEN}
        more = {"job": asdict(self.job) if self.job.name else {}, **({"ended": self.ended} if self.ended else {})}
        return json.dumps({**written, **more}).encode()


@dataclass(frozen=True)
class Taken:
    """The claim is ours: make the job.

    Args:
        started: When it was taken, by the clock of `Claims`.
        first: No other delivery has ever had this id.
    """

    claim: Claim
    started: float
    first: bool = False


T = TypeVar("T")


@dataclass(frozen=True)
class Existing(Generic[T]):
    """Another delivery made the job; `found` is the job if it had to be looked up by its label."""

    claim: Claim
    found: T | None = None


class OtherBodyError(VertexrigError):
    """The same request id came with another body."""

    code = "request-reused"


class EndedError(VertexrigError):
    """It was decided that no job is made for this request; the claim says why."""

    code = "request-ended"

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        super().__init__(claim.ended.get("text") or "no job is made for this request any more")


class InProgressError(VertexrigError):
    """Another delivery of the same request is at work, or died; try again in `retry_after` seconds."""

    exit_code = 3
    code = "in-progress"

    def __init__(self, retry_after: float) -> None:
        self.retry_after = max(1.0, retry_after)
        super().__init__(f"another delivery of the same request is at work; try again in {self.retry_after:.0f} s")


class OtherCandidateError(InProgressError):
    """The claim was held for a candidate that the project file has otherwise now, and its lease is over: its job may be there."""


class Claims:
    """The claims of one bucket; `clock` gives seconds, from any start."""

    def __init__(
        self,
        storage: Storage,
        *,
        lease_s: float | None = None,
        wait_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.storage, self.clock, self.sleep = storage, clock, sleep
        self.lease_s = LEASE_S if lease_s is None else lease_s
        self.wait_s = WAIT_S if wait_s is None else wait_s

    def late(self, taken: Taken) -> bool:
        """Whether it is too late to start the job: another delivery may take the claim over before the job exists."""
        return self.clock() - taken.started > CREATE_WITHIN_S

    def lease_over(self, taken: Taken) -> bool:
        """Whether another delivery may have taken the claim over."""
        return self.clock() - taken.started > self.lease_s

    def take(
        self,
        key: Key,
        asked_digest: str,
        run: str,
        find: Callable[[str], T | None],
        to_record: Callable[[T], Recorded],
        run_id: str = "",
        claim_id: str = "",
    ) -> Taken | Existing[T]:
        """Claim a request, or find out what became of it.

        Args:
            asked_digest: Of what is asked for (`Submitter.submit`).
            find: Looks for the job with a claim id.
            to_record: Makes what is recorded about a job found so.
            run_id: The run whose output folder a new job gets; a new one by default.
            claim_id: The id that a claim had which may have been deleted since, as a lifecycle rule does: a new one gets it again.

        Raises:
            OtherBodyError: The key belongs to a request with another body.
            EndedError: No job is made for it any more.
            InProgressError: Another delivery holds the claim.
        """
        until, pause = self.clock() + self.wait_s, 0.05
        id = claim_id or _new_id(key)
        mine = Claim(id, uuid.uuid4().hex, asked_digest, run, key.kind, run_id=run_id or new_run_id(), path=key.path)
        current: Claim | None = None
        while True:
            if current is None:  # there is no claim, or it was deleted in between
                # Before the write: the time that the write takes is part of what the holder has.
                started = self.clock()
                generation = self.storage.write(key.path, mine.to_bytes(), generation=0)
                if generation is not None:
                    taken = Taken(replace(mine, generation=generation), started, first=not claim_id)
                    job = find(claim_id) if claim_id else None
                    return taken if job is None else Existing(self.record(taken.claim, to_record(job)), job)
            current = self._read(key.path)
            if not claim_id and current is not None and mine.id in (current.id, *current.before):
                # our first write took effect, its answer was lost, and by now another delivery may have used our id
                mine = replace(mine, id=_new_id(key), run_id=run_id or new_run_id())
            outcome = self._outcome(key, current, mine, find, to_record) if current else None
            if outcome is not None:
                return outcome
            if self.clock() + pause > until:
                raise InProgressError(self.lease_s - (current.age_s if current else 0.0))
            self.sleep(pause)
            pause = min(pause * 1.6, 1.0)

    def _outcome(
        self,
        key: Key,
        current: Claim,
        mine: Claim,
        find: Callable[[str], T | None],
        to_record: Callable[[T], Recorded],
    ) -> Taken | Existing[T] | None:
        """Return what a claim that is there already means for us; None: wait."""
        # whatever its state and body: the same key is a new request now
        if key.window_s is not None and current.age_s > key.window_s:
            before = {**current.before, current.id: current.job.name}
            kept = dict(list(before.items())[-KEPT_BEFORE:])
            winners = {id: token for id, token in current.winners.items() if id in kept}
            return self._take_over(
                replace(mine, before=kept, winners=winners, generation=current.generation), first=True
            )
        if current.state == "released":
            # the delivery that released it made no job; an earlier holder that was frozen may have made one, even later
            job = find(current.id) if current.asked == mine.asked else None
            if job is not None:
                return Existing(self.record(current, to_record(job)), job)
            # under the same id, so that a search by label finds the jobs of both
            run_id = current.run_id if current.asked == mine.asked else mine.run_id
            again = replace(mine, id=current.id, run_id=run_id, before=current.before, winners=current.winners)
            return self._take_over(replace(again, generation=current.generation))
        if current.asked.partition(".")[0] != mine.asked.partition(".")[0]:
            raise OtherBodyError(
                "this request id was already used with another body: use a new request id, or send the first body again"
            )
        if current.state == "created":
            return Existing(current)
        if current.state == "ended":
            raise EndedError(current)
        if current.asked != mine.asked:  # a job of another candidate may be where this project file has none
            kind = InProgressError if current.age_s <= self.lease_s else OtherCandidateError
            raise kind(self.lease_s - current.age_s)
        own = current.token == mine.token
        # a young claim's holder is at work: asking Vertex AI each time would cost a list call per turn
        if not own and current.age_s < min(LOOK_AFTER_S, self.lease_s):
            return None
        job = find(current.id)
        if job is not None:
            return Existing(self.record(current, to_record(job)), job)
        if own:  # the answer to our own write was lost
            # the age is in whole seconds: the start is put a second earlier, never later than it was
            return Taken(current, self.clock() - current.age_s - 1.0)
        if current.age_s <= self.lease_s:
            return None
        taken = self._take_over(replace(current, token=mine.token))
        # search again: the old holder's create call may have been on its way during the first search
        job = None if taken is None else find(current.id)
        if taken is None or job is None:
            return taken
        return Existing(self.record(taken.claim, to_record(job)), job)

    def record(self, claim: Claim, job: Recorded, current: Claim | None = None) -> Claim:
        """Write a job into its claim, unless another one is recorded there.

        Args:
            current: The claim as it is in the bucket now, if that is not `claim`.

        Returns:
            The claim as it is then. If its job is another one, or none as it has ended, this job is one too many.
        """
        done, current = replace(claim, state="created", job=job), current or claim
        won = {claim.id: job.token} if _TOKEN.fullmatch(job.token) else {}
        for _ in range(8):  # each further turn lost to another delivery's write
            if current.id == claim.id:
                if current.state in ("created", "ended"):
                    return current
                new = replace(current, state="created", job=job, winners={**current.winners, **won})
            else:
                known = current.before.get(claim.id)
                if known is None:  # a person deleted our claim, or it is too long ago
                    return done
                # another job is recorded for this id, and a record is never replaced
                if known:
                    return replace(done, job=Recorded(known))
                before = {**current.before, claim.id: job.name}
                new = replace(current, before=before, winners={**current.winners, **won})
            written = self.storage.write(claim.path, new.to_bytes(), generation=current.generation)
            if written is not None:
                return replace(new, generation=written) if new.id == claim.id else done
            current = self._read(claim.path) or replace(claim, state="claimed", job=Recorded(), generation=0)
        raise RestError("the claim changes too fast to record the job in it; try again", status=503)

    def release(self, claim: Claim, ended: Mapping[str, str] | None = None) -> bool:
        """Give the claim up; return whether it was still ours. The job was certainly not made.

        Args:
            ended: Why no job may be made for the request any more; None lets the next delivery make it at once.
        """
        released = replace(claim, state="released")
        if ended is not None:
            # the token of no delivery: a job that a frozen holder makes later ends at its fence
            winners = {**claim.winners, claim.id: uuid.uuid4().hex}
            released = replace(claim, state="ended", ended=ended, winners=winners)
        return self.storage.write(claim.path, released.to_bytes(), generation=claim.generation) is not None

    def by_key(self, key: Key) -> Claim | None:
        """Return the claim of a key, None if there is none."""
        return self._read(key.path)

    def by_id(self, id: str) -> Claim | None:
        """Return the claim that has an id, or had it before its window was over; None if there is none."""
        if not _ID.fullmatch(id):
            return None
        # an id begins as the claim's object is named, so the object is found without an index
        found = next(iter(self.storage.list(f"{FOLDER}/{id[:32]}")), None)
        claim = None if found is None else self._read(found.name)
        return claim if claim is not None and (claim.id == id or id in claim.before) else None

    def _take_over(self, claim: Claim, first: bool = False) -> Taken | None:
        """Write the claim as ours; None if another delivery was faster."""
        started = self.clock()
        generation = self.storage.write(claim.path, claim.to_bytes(), generation=claim.generation)
        return None if generation is None else Taken(replace(claim, generation=generation), started, first)

    def _read(self, path: str) -> Claim | None:
        stored = self.storage.read_aged(path)
        if stored is None:
            return None
        claim = _parsed(path, stored.data)
        if claim is None:  # of another program or a newer version: a person decides what to do with it
            raise VertexrigError(
                f"{self.storage.uri(path)} is not a claim that vertexrig {__version__} knows: deploy the version that wrote it, or "
                "delete it if nothing else needs it"
            )
        return replace(claim, path=path, generation=stored.generation, age_s=stored.age_s)


def _parsed(path: str, content: bytes) -> Claim | None:
    """Return a claim of these bytes; None unless every part is known and has its form: other programs may write to the bucket."""
    data = as_json(content) or {}
    if not data.keys() <= {*_WRITTEN, "job", "ended"}:
        return None
    texts = [data.get(name) for name in ("id", "token", "asked", "run", "kind", "state", "run_id")]
    tables = [data.get(name) or {} for name in ("before", "winners", "ended")]
    job = _parsed_job(data.get("job"))
    if job is None or not all(isinstance(table, dict) for table in tables):
        return None
    before, winners, ended = tables
    names = [*([job.name] if data.get("state") == "created" else []), *filter(None, before.values())]
    if not all(isinstance(value, str) for value in (*texts, *names, *winners.values(), *ended.values())):
        return None
    id, token, asked, run, kind, state, run_id = map(str, texts)
    stem = path.rpartition("/")[2][:32]  # every id of a key begins as its object is named (`_new_id`)
    fits = (
        state in _STATES
        and all(_ID.fullmatch(one) and one[:32] == stem for one in (id, *before, *winners))
        and all(map(_MADE.fullmatch, names))
        and all(map(_TOKEN.fullmatch, winners.values()))
        and run_ids.RUN_ID.fullmatch(run_id) is not None
    )
    return Claim(id, token, asked, run, kind, state, job, run_id, before, winners, ended) if fits else None


def _parsed_job(data: Any) -> Recorded | None:
    """Return what a claim stores about its job; None unless every part has its type."""
    if not isinstance(data, dict):
        return None
    fits = data.keys() <= _RECORDED.keys() and all(isinstance(part, _RECORDED[name]) for name, part in data.items())
    return Recorded(**data) if fits else None


def fresh_key() -> Key:
    """Return a key for a request that is meant to be new, such as one typed at a terminal."""
    return Key("request", f"cli-{uuid.uuid4().hex}")


def request_key(request_id: str) -> Key:
    """Return the key of a request with an id."""
    return Key("request", request_id)


def digest(value: Any) -> str:
    """SHA-256 of a plain value, the same for any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_id(key: Key) -> str:
    """Return a label value (at most 63 of a-z, 0-9 and -): the same key has another id once its window is over."""
    return f"{key.digest[:32]}-{uuid.uuid4().hex[:12]}"
