"""Claims: which delivery of a request makes the job, so that exactly one is made however often it is delivered.

A claim is a Cloud Storage object created with `ifGenerationMatch=0`: of many deliveries one creates it and makes the job,
which carries the claim's id as a label. The others wait for the job that the first one writes into the claim. If the
first one dies, the next delivery looks for a job with the label; if there is none when the claim's lease has run out,
it takes the claim over, again by a write that only one can win. A holder starts no job when its lease is nearly out.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from vertexrig.cloud.rest import ANSWER_S, CONNECT_S, READ_S
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import VertexrigError
from vertexrig.project.runs import new_run

LABEL = "vertexrig_claim"
FOLDER = "vertexrig/claims"
LEASE_S = 120.0
"""Seconds a holder has before another delivery may take its claim over."""
CREATE_WITHIN_S = 40.0
"""Seconds after claiming in which the holder may still start to create the job. What is left of the lease is longer than
a create call may take (see `vertexrig.cloud.rest`), so when a claim is taken over, no create of the old holder is under way."""
WAIT_S = 15.0
"""Seconds a further delivery waits for the first one's job."""
LOOK_AFTER_S = 3.0
"""Age of an unfinished claim from which a waiting delivery asks Vertex AI for its job."""
WINDOW_S = 300.0
"""Requests with the same body and without an id are one request within so many seconds."""

assert CREATE_WITHIN_S + CONNECT_S + ANSWER_S + READ_S < LEASE_S


@dataclass(frozen=True)
class Key:
    """What makes two deliveries the same request.

    Args:
        kind: `request` (its id), `schedule` (Cloud Scheduler's job and time), `event`, or `body`.
        text: The id.
        window_s: Seconds after which the same key means a new request; None for never.
    """

    kind: Literal["request", "schedule", "event", "body"]
    text: str
    window_s: float | None = None

    @property
    def digest(self) -> str:
        return digest({"kind": self.kind, "text": self.text})[:40]

    @property
    def path(self) -> str:
        """The claim's object."""
        return f"{FOLDER}/{self.digest}.json"


@dataclass(frozen=True)
class Claim:
    """A claim as it stands in its object.

    Args:
        id: Value of the job's label.
        token: Who holds it.
        body: Digest of the request's body.
        run: The job or sweep asked for.
        kind: The key's kind.
        state: `claimed`, or `created` once the job is known.
        job: What is recorded about the job.
        output: The run whose output folder the job gets; it stays when another delivery takes the claim over.
        generation: The object's generation.
    """

    id: str
    token: str
    body: str
    run: str
    kind: str
    state: str = "claimed"
    job: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""
    generation: int = 0

    def to_bytes(self) -> bytes:
        data = {key: value for key, value in asdict(self).items() if key != "generation"}
        return json.dumps(data, indent=1).encode()


@dataclass(frozen=True)
class Taken:
    """The claim is ours: make the job.

    Args:
        claim: The claim.
        started: When it was taken, by `time.monotonic`.
    """

    claim: Claim
    started: float

    @property
    def late(self) -> bool:
        """Too late to start the job: another delivery may take the claim over before it is there."""
        return time.monotonic() - self.started > CREATE_WITHIN_S


@dataclass(frozen=True)
class Existing:
    """The job was made by another delivery, or by an earlier try that died.

    Args:
        claim: The claim, with the job.
        found: The job itself, where it had to be looked for.
    """

    claim: Claim
    found: RemoteJob | None = None


class OtherBodyError(VertexrigError):
    """The same request id came with another body."""

    code = "request-reused"


class InProgressError(VertexrigError):
    """Another delivery of the same request is at work, or died; try again in `retry_after` seconds."""

    exit_code = 3
    code = "in-progress"

    def __init__(self, retry_after: float) -> None:
        self.retry_after = max(1.0, retry_after)
        super().__init__(f"another delivery of the same request is at work; try again in {self.retry_after:.0f} s")


Find = Callable[[str], RemoteJob | None]


class Claims:
    """The claims of one bucket.

    Args:
        storage: The bucket.
        lease_s: See LEASE_S.
        wait_s: See WAIT_S.
    """

    def __init__(self, storage: Storage, *, lease_s: float | None = None, wait_s: float | None = None) -> None:
        self.storage = storage
        self.lease_s = LEASE_S if lease_s is None else lease_s
        self.wait_s = WAIT_S if wait_s is None else wait_s

    def take(
        self,
        key: Key,
        body: str,
        run: str,
        find: Find,
        record: Callable[[RemoteJob], Mapping[str, Any]],
        output: str = "",
    ) -> Taken | Existing:
        """Claim a request, or find out what became of it.

        Args:
            key: What the request is told by.
            body: Digest of its body.
            run: The job or sweep asked for.
            find: Looks for the job with a claim id.
            record: What to record about a job found so.
            output: The run whose output folder a new job gets; a new one by default.

        Raises:
            OtherBodyError: The key belongs to a request with another body.
            InProgressError: Another delivery holds the claim.
            RestError: Cloud Storage or Vertex AI failed.
        """
        until, pause = time.monotonic() + self.wait_s, 0.05
        mine = Claim(_new_id(key), uuid.uuid4().hex, body, run, key.kind, output=output or new_run())
        found: tuple[Claim, float] | None = None
        while True:
            if found is None:  # nobody's, or released in between
                started = time.monotonic()
                generation = self.storage.write(key.path, mine.to_bytes(), generation=0)
                if generation is not None:
                    return Taken(replace(mine, generation=generation), started)
            found = self._read(key)
            age = found[1] if found else 0.0
            outcome = self._other(key, *found, mine, find, record) if found else None
            if outcome is not None:
                return outcome
            if time.monotonic() + pause > until:
                raise InProgressError(self.lease_s - age)
            time.sleep(pause)
            pause = min(pause * 1.6, 1.0)

    def _other(
        self,
        key: Key,
        held: Claim,
        age: float,
        mine: Claim,
        find: Find,
        record: Callable[[RemoteJob], Mapping[str, Any]],
    ) -> Taken | Existing | None:
        """What a claim that another delivery made means for us; None: wait."""
        over = key.window_s is not None and age > key.window_s and held.state == "created"
        if held.body != mine.body and not over:
            raise OtherBodyError("the same request id came with another body")
        if held.state == "created":
            return self._take_over(key, replace(mine, generation=held.generation)) if over else Existing(held)
        started, own = time.monotonic() - age - 1.0, held.token == mine.token
        if not own and age < min(LOOK_AFTER_S, self.lease_s):
            return None
        job = find(held.id)
        if job is not None:
            return Existing(self.record(key, held, record(job)), job)
        if own:  # the answer to our own write was lost
            return Taken(held, started)
        if age <= self.lease_s:
            return None
        taken = self._take_over(key, replace(held, token=mine.token))
        # once more, for a create of the old holder that was on its way when we looked first
        job = None if taken is None else find(held.id)
        if taken is None or job is None:
            return taken
        return Existing(self.record(key, taken.claim, record(job)), job)

    def record(self, key: Key, claim: Claim, job: Mapping[str, Any]) -> Claim:
        """Write the job into the claim.

        Returns:
            The claim as it stands then. If its job is another one, a delivery that took us for dead was faster, and
            ours is one too many.
        """
        done, generation = replace(claim, state="created", job=dict(job)), claim.generation
        for _ in range(5):
            written = self.storage.write(key.path, done.to_bytes(), generation=generation)
            if written is not None:
                return replace(done, generation=written)
            found = self._read(key)
            held = found[0] if found else None
            if held is not None and held.id == claim.id and held.state == "created":
                return held
            if held is not None and held.id != claim.id:
                return done  # the window is over, and this is a new request
            generation = held.generation if held is not None else 0
        return done

    def release(self, key: Key, claim: Claim) -> None:
        """Give a claim up whose job was certainly not made."""
        self.storage.delete(key.path, claim.generation)

    def _take_over(self, key: Key, claim: Claim) -> Taken | None:
        """The claim, if no other delivery was faster."""
        started = time.monotonic()
        generation = self.storage.write(key.path, claim.to_bytes(), generation=claim.generation)
        return None if generation is None else Taken(replace(claim, generation=generation), started)

    def _read(self, key: Key) -> tuple[Claim, float] | None:
        stored = self.storage.read(key.path)
        if stored is None:
            return None
        data = as_json(stored.data) or {}
        known = {name: data.get(name) for name in ("id", "token", "body", "run", "kind", "state")}
        if not all(isinstance(value, str) for value in known.values()) or not isinstance(data.get("job"), dict):
            # not ours: leave it, a person has to look
            raise VertexrigError(f"{self.storage.uri(key.path)} is no claim; delete it if nothing else needs it")
        texts = {name: str(value) for name, value in known.items()}
        output = str(data.get("output") or "")  # claims of before 2026-11-21 have none
        return Claim(**texts, job=data["job"], output=output, generation=stored.generation), stored.age_s


def digest(value: Any) -> str:
    """SHA-256 of a plain value, the same for any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_id(key: Key) -> str:
    """A label value (at most 63 of a-z, 0-9 and -): the same key has another id once its window is over."""
    return f"{key.digest[:32]}-{uuid.uuid4().hex[:12]}"
