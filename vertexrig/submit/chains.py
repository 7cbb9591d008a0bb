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
from typing import Any, Generic, Literal, TypeVar

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
class RunEnd:
    """How a run of several jobs ended; `id` is the claim of its first one."""

    id: str


@dataclass(frozen=True)
class ChainEnd(RunEnd):
    """How a chain ended.

    Args:
        outcome: `registered`, `not-better` or `done` if all went well.
        step: The step it ended at; the run itself before the first one.
        reason: Why, in one line.
        jobs: Resource names of the run's job and of those that steps made, by what ran.
        model: The version that was registered, `projects/P/locations/R/models/M@V`.
    """

    schedule: str
    run: str
    outcome: Outcome
    step: str
    reason: str
    jobs: Mapping[str, str]
    model: str
    begun: str
    ended: str


Open = TypeVar("Open")
End = TypeVar("End", bound=RunEnd)


class RunStore(Generic[Open, End]):
    """The runs of several jobs in one bucket: what is open, and how others have ended. Its methods raise RestError if Cloud Storage failed.

    Args:
        opened: Folder of the open ones.
        ended: Folder of the ends.
        parse: Makes an open one of its object's name and bytes; None if they are none.
        end_type: Makes an end of its data.
    """

    def __init__(
        self,
        storage: Storage,
        opened: str,
        ended: str,
        parse: Callable[[str, bytes], Open | None],
        end_type: Callable[..., End],
    ) -> None:
        self.storage, self._opened, self._ended = storage, opened, ended
        self._parse, self._end_type = parse, end_type

    def path(self, id: str) -> str:
        """Return the object of an open one."""
        return f"{self._opened}{id}.json"

    def drop(self, id: str, unmade: Callable[[], bool]) -> bool:
        """Delete an open one if its run has no job, unless it is kept again in between; whether it did. It has no end then: the same
        request may begin it again.
        """
        generation = self.storage.generation(self.path(id))
        return generation is not None and unmade() and self.storage.delete(self.path(id), generation)

    def open(self) -> Iterator[Open | str]:
        """Yield the open ones; for an object that is none, its URI."""
        # listed to the end first: the caller deletes some while it goes through them
        for item in list(self.storage.list(self._opened)):
            stored = self.storage.read(item.name)
            if stored is not None:
                yield self._parse(item.name, stored.data) or self.storage.uri(item.name)

    def end(self, id: str) -> End | None:
        """Tell how one ended; None if it has not, or if there is none."""
        return self._end_of(f"{self._ended}{id}.json")

    def _end_of(self, name: str) -> End | None:
        data = self.storage.read_json(name)
        try:
            return None if data is None else self._end_type(**data)
        except TypeError:
            return None

    def close(self, end: End) -> End:
        """Keep an end, unless there is one: the end that counts."""
        written = self.storage.write(f"{self._ended}{end.id}.json", json.dumps(asdict(end)).encode(), generation=0)
        # another tick was faster: what it wrote counts
        kept = end if written is not None else self.end(end.id) or end
        # after the end is kept: a crash in between leaves both, and the next tick deletes the open one
        self.forget(end.id)
        return kept

    def forget(self, id: str) -> None:
        """Delete the open one of an end."""
        self.storage.delete(self.path(id))


class Chains(RunStore[Chain, ChainEnd]):
    """The chains of one bucket."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, OPEN, ENDED, _chain, ChainEnd)

    def begin(self, chain: Chain) -> None:
        """Keep an open chain. One that is there is written again: the request may be another by now, and nobody deletes it as it was
        (`drop`).
        """
        self.storage.write(self.path(chain.id), json.dumps(asdict(chain)).encode())

    def ends(self, limit: int = 50) -> list[ChainEnd]:
        """Return the chains that ended last, the newest first."""
        newest = sorted(self.storage.list(ENDED), key=lambda item: item.created, reverse=True)[:limit]
        return [end for item in newest if (end := self._end_of(item.name)) is not None]


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
