"""Chains: what follows a run when it has succeeded, kept as one small object each beside the claims.

An open chain is `vertexrig/chains/open/ID.json`, where ID is the claim of the run that it follows; it is written before the
run's job is made, so that no job with steps is without one. It holds what was asked for and nothing of how far it is: that is in
the claims of its steps. Its end is `vertexrig/chains/ended/ID.json`, created once (`ifGenerationMatch=0`); a chain with an
end is over, whoever writes the open one again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from vertexrig import times
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.submit.claims import Key

OPEN, ENDED = "vertexrig/chains/open/", "vertexrig/chains/ended/"
Outcome = Literal[
    "done",
    "registered",
    "not-better",
    "skipped",
    "failed",
    "impossible",
    "refused",
    "over-budget",
    "changed",
    "given-up",
]
GOOD: tuple[Outcome, ...] = ("done", "registered", "not-better", "skipped")
"""Ends that nobody has to look at."""
_ID = re.compile(r"[0-9a-f]{32}-[0-9a-f]{12}")
_SCALARS = (str, int, float, bool)


@dataclass(frozen=True)
class Chain:
    """A run and the steps that follow it.

    Args:
        id: The claim of the run.
        schedule: The schedule of the project file that has the steps.
        run: The job or sweep that ran.
        steps: Names of the steps.
        begun: When the run was started, RFC 3339.
        set: Overrides that the run was asked for with.
        args: Arguments of the trainer that it was asked for with.
        caller: Who asked for it, "" if that is not known: the jobs of its steps count for them, too.
    """

    id: str
    schedule: str
    run: str
    steps: tuple[str, ...]
    begun: str
    set: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    caller: str = ""

    def key(self, index: int, round: int = 0) -> Key:
        """Return what makes two tries of a step the same; of one that may have to be taken again, by its round."""
        return Key("step", f"{self.id} {index} {self.steps[index]}{f' {round}' if round else ''}")


@dataclass(frozen=True)
class ChainEnd:
    """How a chain ended.

    Args:
        id: The chain's id.
        schedule: Its schedule.
        run: The job or sweep that ran.
        outcome: `registered`, `not-better` or `done` if all went well.
        step: The step it ended at; the run itself before the first one.
        reason: Why, in one line.
        jobs: Resource names of the run's job and of those that steps made, by what ran.
        model: The version that was registered, `projects/P/locations/R/models/M@V`.
        begun: When the run was started.
        ended: When the chain ended.
    """

    id: str
    schedule: str
    run: str
    outcome: Outcome
    step: str
    reason: str
    jobs: Mapping[str, str]
    model: str
    begun: str
    ended: str


class Chains:
    """The chains of one bucket.

    Args:
        storage: The bucket.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def begin(self, chain: Chain) -> None:
        """Keep an open chain. One that is there is written again: the request may be another by now, and nobody deletes it as it was
        (`drop`).

        Raises:
            RestError: Cloud Storage failed.
        """
        self.storage.write(f"{OPEN}{chain.id}.json", json.dumps(asdict(chain)).encode())

    def drop(self, id: str, unmade: Callable[[], bool]) -> bool:
        """Delete an open chain if its run has no job, unless it is kept again in between; whether it did. It has no end then: the same
        request may begin it again.

        Raises:
            RestError: A service failed.
        """
        generation = self.storage.generation(f"{OPEN}{id}.json")
        return generation is not None and unmade() and self.storage.delete(f"{OPEN}{id}.json", generation)

    def open(self) -> Iterator[Chain | str]:
        """Yield the open chains; for an object that is not a chain, its URI."""
        # listed to the end first: the caller deletes chains while it goes through them
        for item in list(self.storage.list(OPEN)):
            stored = self.storage.read(item.name)
            if stored is not None:
                yield _chain(item.name, stored.data) or self.storage.uri(item.name)

    def end(self, id: str) -> ChainEnd | None:
        """Tell how a chain ended; None if it has not, or if there is no such chain."""
        data = self.storage.read_json(f"{ENDED}{id}.json")
        return None if data is None else _end(data)

    def ends(self, limit: int = 50) -> list[ChainEnd]:
        """Return the chains that ended last, the newest first."""
        newest = sorted(self.storage.list(ENDED), key=lambda item: item.created, reverse=True)[:limit]
        found = [_end(self.storage.read_json(item.name) or {}) for item in newest]
        return [one for one in found if one is not None]

    def close(self, end: ChainEnd) -> ChainEnd:
        """Keep an end, unless the chain has one: the end that counts.

        Raises:
            RestError: Cloud Storage failed.
        """
        written = self.storage.write(f"{ENDED}{end.id}.json", json.dumps(asdict(end)).encode(), generation=0)
        # another tick was faster: what it wrote counts
        kept = end if written is not None else self.end(end.id) or end
        # after the end is kept: a crash in between leaves both, and the next tick deletes the open one
        self.forget(end.id)
        return kept

    def forget(self, id: str) -> None:
        """Delete the open chain of an end."""
        self.storage.delete(f"{OPEN}{id}.json")


def ended(chain: Chain, outcome: Outcome, step: str, reason: str, jobs: Mapping[str, str], model: str = "") -> ChainEnd:
    """Return the end of a chain, now."""
    at = times.rfc3339(times.now(), 0)
    line = " ".join(reason.split())[:1000]
    return ChainEnd(chain.id, chain.schedule, chain.run, outcome, step, line, dict(jobs), model, chain.begun, at)


def _chain(name: str, content: bytes) -> Chain | None:
    """Return a chain of these bytes; None unless every part has its form, since whoever may write the bucket may have made it."""
    data = as_json(content) or {}
    texts = {key: data.get(key) for key in ("id", "schedule", "run", "begun")}
    steps, given, caller = data.get("steps"), [data.get("set"), data.get("args")], data.get("caller", "")
    if (
        not isinstance(caller, str)
        or not all(isinstance(value, str) for value in texts.values())
        or not isinstance(steps, list)
    ):
        return None
    if not _ID.fullmatch(str(texts["id"])) or name != f"{OPEN}{texts['id']}.json":
        return None
    if not all(isinstance(one, dict) and all(isinstance(v, _SCALARS) for v in one.values()) for one in given):
        return None
    id, schedule, run, begun = map(str, texts.values())
    return Chain(id, schedule, run, tuple(map(str, steps)), begun, data["set"], data["args"], caller)


def _end(data: Mapping[str, Any]) -> ChainEnd | None:
    try:
        return ChainEnd(**data)
    except TypeError:
        return None
