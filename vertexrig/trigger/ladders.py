"""Runs with candidates: those that have not ended are one small object each beside the claims, and each tick goes on with them.

An open one is `vertexrig/ladders/open/ID.json`, where ID is the claim of its first try; it is written before the first job is made, holds
what was asked for, and nothing of how far it is: that is in the claims (`vertexrig.submit.ladder`). Its end is
`vertexrig/ladders/ended/ID.json`, created once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.errors import VertexrigError
from vertexrig.submit.budget import OverBudgetError, Terms
from vertexrig.submit.claims import Claim, EndedError, InProgressError, Key
from vertexrig.submit.ladder import Ladder, LadderState
from vertexrig.submit.rungs import ways
from vertexrig.submit.submission import Request, Submitted, Submitter
from vertexrig.submit.uploaded import NoPackageError
from vertexrig.trigger.deliveries import Delivery, NotStartedError
from vertexrig.trigger.request import RequestProblem
from vertexrig.workspace import Prepared

OPEN, ENDED = "vertexrig/ladders/open/", "vertexrig/ladders/ended/"
NO_MACHINES = "no-machines"
"""Type of the problem that no candidate got machines."""


@dataclass(frozen=True)
class OpenLadder:
    """A run with candidates that has not ended.

    Args:
        id: The claim of its first try.
        key: Kind, text and window of the request's key.
        body: The request: `run`, `set`, `args`, `then`.
        schedule: The schedule that it is of, "" for none.
        time: What it was due for, RFC 3339.
        caller: Who asked for it.
    """

    id: str
    key: Mapping[str, Any]
    body: Mapping[str, Any]
    schedule: str = ""
    time: str = ""
    caller: str = ""

    @property
    def claim_key(self) -> Key:
        return Key(**self.key)


@dataclass(frozen=True)
class LadderEnd:
    """How a run with candidates has ended.

    Args:
        id: The claim of its first try.
        run: The job or sweep.
        state: `succeeded`, `failed`, `cancelled`, `exhausted`, or `changed`: the project file does not allow it any more.
        text: Why, in one line.
        candidate: `candidate 2 of 4`: the last one that was tried.
        job: Resource name of its job, "" if it has none.
        tries: What became of each try (`vertexrig.submit.ladder.Try`).
    """

    id: str
    run: str
    state: str
    text: str = ""
    candidate: str = ""
    job: str = ""
    tries: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


@dataclass(frozen=True)
class Climbed:
    """What a tick found of one run with candidates.

    Args:
        one: The run.
        state: Of `vertexrig.submit.ladder.LadderState`, or `changed`.
        text: Why, in one line.
        candidate: Which candidate it is at: `candidate 2 of 4`.
        job: Resource name of its job.
        moved: A job was made, or it has ended.
        delivery: For the history, where the run got its first job now.
    """

    one: OpenLadder
    state: str
    text: str = ""
    candidate: str = ""
    job: str = ""
    moved: bool = False
    delivery: Delivery | None = None

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
        return "INFO" if self.state in ("waiting", "training", "succeeded") else "ERROR"


class Ladders:
    """The runs with candidates of one bucket.

    Args:
        storage: The bucket.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def keep(self, one: OpenLadder) -> None:
        """Keep an open one, unless it is there.

        Raises:
            RestError: Cloud Storage failed.
        """
        self.storage.write(f"{OPEN}{one.id}.json", json.dumps(asdict(one)).encode(), generation=0)

    def open(self) -> Iterator[OpenLadder | str]:
        """Yield the open ones; for an object that is none, its URI."""
        for item in list(self.storage.list(OPEN)):
            stored = self.storage.read(item.name)
            if stored is not None:
                yield _open(item.name, stored.data) or self.storage.uri(item.name)

    def is_open(self, id: str) -> bool:
        return self.storage.exists(f"{OPEN}{id}.json")

    def end(self, id: str) -> LadderEnd | None:
        """Tell how one has ended; None if it has not, or if there is none."""
        data = self.storage.read_json(f"{ENDED}{id}.json")
        try:
            return None if data is None else LadderEnd(**data)
        except TypeError:
            return None

    def close(self, end: LadderEnd) -> None:
        """Keep an end, unless there is one.

        Raises:
            RestError: Cloud Storage failed.
        """
        self.storage.write(f"{ENDED}{end.id}.json", json.dumps(asdict(end)).encode(), generation=0)
        # after the end is kept: a crash in between leaves both, and the next tick deletes the open one
        self.storage.delete(f"{OPEN}{end.id}.json")


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
        key: What makes two deliveries the same request.
        request: What is asked for.
        terms: On what terms it is started.
        about: What is kept for ticks; its `id` is filled in.

    Returns:
        The job, and which candidate it is: `candidate 2 of 4`.

    Raises:
        RequestProblem: No candidate got machines.
        NotStartedError: None did yet; ticks try again.
        VertexrigError: As of `Submitter.submit`.
    """
    ladders = Ladders(submitter.storage)

    def before(claim: Claim) -> None:
        if claim.kind != "step":
            ladders.keep(replace(about, id=claim.id))
        terms.before_create(claim)

    ladder = Ladder(ways(prepared, submitter), request.digest, key, terms=replace(terms, before_create=before))
    at = ladder.advance()
    if at.ended:
        ladders.close(_end_of(ladder, at))
    if at.made is None:
        if at.ended:
            rows = tuple(
                {"id": one.reason, "path": f"candidate {one.candidate}", "message": one.text} for one in ladder.tries()
            )
            raise RequestProblem(409, NO_MACHINES, at.text, rows)
        raise NotStartedError("deferred", NO_MACHINES, at.text, {"candidate": at.said})
    return at.made, at.said


class Climber:
    """Goes on with the runs with candidates that have not ended.

    Args:
        submitter: Makes jobs; it should not wait, for the next tick comes anyway.
        ladder: Gives the ladder of an open one, rendered and allowed as the project file is now.
    """

    def __init__(self, submitter: Submitter, ladder: Callable[[OpenLadder], Ladder]) -> None:
        self.ladders, self.ladder = Ladders(submitter.storage), ladder

    def tick(self, unexpected: Callable[[Exception], None]) -> list[Climbed]:
        """Look at every open one.

        Args:
            unexpected: Is called with an error that ends the look at one; the others are looked at all the same.

        Raises:
            RestError: They cannot be listed.
        """
        rows = []
        for one in self.ladders.open():
            if isinstance(one, str):
                unexpected(VertexrigError(f"{one} is no run with candidates; delete it"))
                continue
            try:
                rows.append(self._look(one))
            except (RestError, InProgressError, OverBudgetError, NoPackageError) as error:
                rows.append(Climbed(one, "waiting", type(error).__name__))  # the next tick tries again
            except Exception as error:
                unexpected(error)
        return rows

    def _look(self, one: OpenLadder) -> Climbed:
        known = self.ladders.end(one.id)
        if known is not None:  # a tick died just before it deleted the open one
            self.ladders.close(known)
            return Climbed(one, known.state, known.text, known.candidate, known.job)
        try:
            ladder = self.ladder(one)
            at = ladder.advance()
        except (RestError, InProgressError, OverBudgetError, NoPackageError):
            raise
        except (EndedError, RequestProblem, NotStartedError, VertexrigError) as error:
            text = f"the project file does not allow it any more: {error}"[:500]
            self.ladders.close(LadderEnd(one.id, str(one.body["run"]), "changed", text))
            return Climbed(one, "changed", text, moved=True)
        if at.ended:
            self.ladders.close(_end_of(ladder, at))
        new = at.made is not None and not at.made.duplicate
        first = new and not any(each.job for each in ladder.tries()[:-1])
        delivery = _delivery(one, at) if first else None
        name = at.made.name if at.made is not None else ""
        return Climbed(one, at.state, at.text, at.said, name, at.ended or new, delivery)


def _end_of(ladder: Ladder, at: LadderState) -> LadderEnd:
    name = at.made.name if at.made is not None else ""
    run = ladder.ways[0].prepared.view.name
    return LadderEnd(ladder.first, run, at.state, at.text, at.said, name, [asdict(one) for one in ladder.tries()])


def _delivery(one: OpenLadder, at: LadderState) -> Delivery:
    """Return the row of the history of a run that has got its first job."""
    key, made = one.claim_key, at.made
    row = Delivery(decision="created", reason=NO_MACHINES, run=str(one.body["run"]), key=key.kind, request=key.digest)
    row.schedule, row.schedule_time, row.caller, row.detail = one.schedule, one.time, one.caller, {"candidate": at.said}
    if made is not None:
        row.job, row.claim, row.estimate = made.name, made.claim, made.estimate
    return row


def _open(name: str, content: bytes) -> OpenLadder | None:
    """Return a run of these bytes; None unless every part has its form, since whoever may write the bucket may have made it."""
    data = as_json(content) or {}
    texts = [data.get(key, "") for key in ("id", "schedule", "time", "caller")]
    key, body = data.get("key"), data.get("body")
    if not all(isinstance(text, str) for text in texts) or not isinstance(key, dict) or not isinstance(body, dict):
        return None
    kinds = {"run": str, "set": dict, "args": dict, "then": str}
    if body.keys() != kinds.keys() or not all(isinstance(body[part], kind) for part, kind in kinds.items()):
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
    return OpenLadder(texts[0], key, body, *texts[1:])


def about(key: Key, request: Request, delivery: Delivery) -> OpenLadder:
    """Return what is kept of a run for ticks, but for its claim."""
    body = {"run": request.run, "set": dict(request.set), "args": dict(request.args), "then": request.then}
    return OpenLadder(
        "",
        {"kind": key.kind, "text": key.text, "window_s": key.window_s},
        body,
        delivery.schedule,
        delivery.schedule_time,
        delivery.caller,
    )
