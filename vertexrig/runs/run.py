"""A run as its object holds it: what was asked for, and how far it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from vertexrig import times
from vertexrig.cloud.storage import as_json
from vertexrig.project.run_ids import RUN_ID
from vertexrig.submit.claims import Key
from vertexrig.submit.submission import is_body

Phase = Literal["waiting", "attempt", "step", "ended"]
FAILING = "failing"
"""Reason of a run in a step: since `since` each attempt to take the step has failed."""
BACKFILL = "backfill"
"""Key of a delivery's detail, and reason of a run: it is for a due time that has passed, and who asked for it."""
_ID = re.compile(r"[0-9a-f]{32}-[0-9a-f]{12}")
_KINDS = ("request", "schedule", "event", "body")
_SCALARS = (str, int, float, bool)


@dataclass(frozen=True)
class Attempt:
    """One job made for a candidate, or the decision that none was made.

    Args:
        candidate: Its number; 1 is the job as the project file has it.
        changes: What the candidate changes, "" for the first one.
        job: Resource name, "" while none is known.
        reason: Why it is over, or is being given up while its job still ends; "" before that (`vertexrig.runs.advance.NEXT_MAY_FOLLOW`).
        text: The same as a sentence.
        waited_s: Seconds that its job waited for machines; None if not known.
        usd: What its job has cost, an estimate; None if not known.
    """

    candidate: int
    changes: str = ""
    job: str = ""
    reason: str = ""
    text: str = ""
    waited_s: float | None = None
    usd: float | None = None


@dataclass(frozen=True)
class Run:
    """A run.

    Args:
        id: The claim of its first attempt.
        key: The request's key.
        body: The request (`vertexrig.submit.submission.Request.body`).
        delivery: The delivery that opened it, for the history's row.
        caller: Who asked for it: every attempt and step has this caller's labels and budget.
        schedule: Its schedule, "" for none.
        time: When it was due, RFC 3339.
        run_id: The run whose output folder its first job gets.
        phase: `waiting`; `attempt`: the last one of `attempts` is at work; `step`; or `ended`, until its end is in the history.
        since: From when the time of its phase, and of the reason for which it waits, counts, RFC 3339 by the service's clock; "" if the
            object's own time counts.
        reason: Why it waits, or the outcome once it has ended.
        text: The same as a sentence.
        retry_since: From when `retry_for` counts, "" while nothing was refused for machines.
        steps: The names of its steps.
        step: Of its steps, the promoted job that is awaited, the one that measures, or the registration that is to be done; -1 before
            the first one.
        job: The job that it waits for in a step.
        jobs: Resource names of its jobs, by what ran, in the order in which they were made.
        round: How many measurements the step `evaluate` has made.
        measured: What the last one measured (`vertexrig.runs.registration.Evaluation`).
        model: The version that was registered.
        approval: Of a version that a person has to approve: `model`, `champion` (the version it was compared with), `display` and `alias`,
            `text`; once that was decided, `decision`, `by` and `time` (`vertexrig.runs.approval`).
        noticed: The step of which a notice says that it waits for a person.
        stopped: When a caller cancelled it, RFC 3339, "" if nobody has: no further job is made for it.
        generation: Of its object; 0 for one that was not written yet.
        written: When that was written, RFC 3339 by the service's clock.
    """

    id: str
    key: Key
    body: Mapping[str, Any]
    delivery: Mapping[str, Any] = field(default_factory=dict)
    caller: str = ""
    schedule: str = ""
    time: str = ""
    run_id: str = ""
    phase: Phase = "attempt"
    since: str = ""
    reason: str = ""
    text: str = ""
    retry_since: str = ""
    attempts: tuple[Attempt, ...] = ()
    steps: tuple[str, ...] = ()
    step: int = -1
    job: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)
    round: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    approval: Mapping[str, Any] = field(default_factory=dict)
    noticed: str = ""
    stopped: str = ""
    generation: int = field(default=0, compare=False)
    written: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The job or sweep."""
        return str(self.body["run"])

    @property
    def attempt(self) -> Attempt | None:
        """The last attempt, None before the first."""
        return self.attempts[-1] if self.attempts else None

    @property
    def had_job(self) -> bool:
        """Whether a job is known to have been made for it."""
        return any(one.job for one in self.attempts)

    @property
    def begun(self) -> bool:
        """Whether a job was made for it, or refused for lack of machines. Its schedule's policy does not leave it out any more; a hold
        makes it wait.
        """
        return self.had_job or bool(self.retry_since)

    @property
    def awaits_job(self) -> bool:
        """Whether a job may be made for it under the claim of attempt `next_index`."""
        return self.phase == "waiting" or (self.phase == "attempt" and not self.attempts[-1].job)

    @property
    def next_index(self) -> int:
        """Which attempt gets the next job: in phase `attempt` the last one, whose job is not known yet."""
        return len(self.attempts) - (self.phase == "attempt")

    @property
    def is_later_attempt(self) -> bool:
        """Whether its last attempt is not its first one: it has a claim of its own, and labels that name the run."""
        return len(self.attempts) > 1

    @property
    def backfill(self) -> bool:
        """Whether it is for a due time that has passed: it takes no other run's place, and none takes its place."""
        detail = self.delivery.get("detail")
        return isinstance(detail, dict) and BACKFILL in detail

    @property
    def order(self) -> str:
        """What ticks sort open runs by: their age, and of one second their due time."""
        return f"{self.run_id[:15]} {self.time} {self.id}"

    @property
    def of_schedule(self) -> str:
        """The schedule whose run it is, or whose steps follow it; "" for none."""
        return self.schedule or str(self.body["then"])

    @property
    def phase_since(self) -> str:
        """From when the time of its phase counts, RFC 3339 by the service's clock."""
        return self.since or self.written

    @property
    def at(self) -> str:
        """The step that it is at; `run` before the first."""
        return self.steps[self.step] if 0 <= self.step < len(self.steps) else "run"

    def attempt_key(self, index: int) -> Key:
        """Return the key of an attempt: the request's for the first one, without a window, so that it never begins another request."""
        return replace(self.key, window_s=None) if index == 0 else Key("step", f"{self.id} attempt {index}")

    def step_key(self, index: int, round: int = 0) -> Key:
        """Return the key of a step, or of a round of one that may have to be repeated."""
        return Key("step", f"{self.id} {index} {self.steps[index]}{f' {round}' if round else ''}")

    def with_attempt(self, **changes: Any) -> Run:
        """Return the run with changes of its last attempt."""
        return replace(self, attempts=(*self.attempts[:-1], replace(self.attempts[-1], **changes)))

    def to_bytes(self) -> bytes:
        row = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}
        row |= {"key": vars_of(self.key), "attempts": [asdict(one) for one in self.attempts]}
        return json.dumps(
            {name: value for name, value in row.items() if value not in ("", (), {}, 0, -1)} | {"step": self.step}
        ).encode()


def vars_of(key: Key) -> dict[str, Any]:
    """Return a key as plain data."""
    return {"kind": key.kind, "text": key.text, "window_s": key.window_s}


_STORED = {one.name: one for one in fields(Run) if one.compare}
_TEXTS = [name for name, one in _STORED.items() if one.type == "str" and name != "id"]
_TIMES = ("time", "since", "retry_since", "stopped")
_ATTEMPT = {"candidate": int, "changes": str, "job": str, "reason": str, "text": str}


def parse(id: str, content: bytes) -> Run | None:
    """Return the run of these bytes; None unless every part has its type and no part is unknown: other programs may write to the bucket,
    and a field of a newer version may say what must not be done.
    """
    data: Any = as_json(content) or {}
    key, body, attempts, steps = data.get("key"), data.get("body"), data.get("attempts", []), data.get("steps", [])
    tables = {name: data.get(name, {}) for name in ("delivery", "jobs", "measured", "approval")}
    numbers = {name: data.get(name, least) for name, least in (("step", -1), ("round", 0))}
    texts = {name: data.get(name, "") for name in _TEXTS}
    phase = data.get("phase", "attempt")
    fits = (
        data.keys() <= _STORED.keys()
        and data.get("id") == id
        and _ID.fullmatch(id)
        and phase in get_args(Phase)
        and is_body(body)
        and all(isinstance(value, _SCALARS) for part in ("set", "args") for value in body[part].values())
        and _is_key(key)
        and all(isinstance(one, str) for one in texts.values())
        and all(isinstance(one, dict) for one in tables.values())
        and all(type(one) is int for one in numbers.values())
        and all(isinstance(one, list) for one in (steps, attempts))
        and all(map(_is_attempt, attempts))
        and (not texts["run_id"] or RUN_ID.fullmatch(texts["run_id"]))
        and all(not texts[name] or times.nanoseconds(texts[name]) is not None for name in _TIMES)
    )
    if not fits:
        return None
    own = {**texts, **tables, **numbers, "phase": phase, "steps": tuple(map(str, steps))}
    return Run(id, Key(**key), body, attempts=attempts_of(attempts), **own)


def _is_key(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and data.keys() == {"kind", "text", "window_s"}
        and data["kind"] in _KINDS
        and isinstance(data["text"], str)
        and isinstance(data["window_s"], (int, float, type(None)))
    )


def attempts_of(data: Any) -> tuple[Attempt, ...]:
    """Return the attempts of plain data; none if a part has another type."""
    return tuple(Attempt(**one) for one in data) if isinstance(data, list) and all(map(_is_attempt, data)) else ()


def _is_attempt(data: Any) -> bool:
    known = {one.name for one in fields(Attempt)}
    return (
        isinstance(data, dict)
        and data.keys() <= known
        and "candidate" in data
        and all(isinstance(data.get(name, kind()), kind) for name, kind in _ATTEMPT.items())
        and all(isinstance(data.get(name), (int, float, type(None))) for name in ("waited_s", "usd"))
    )
