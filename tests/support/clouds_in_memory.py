"""Cloud Storage and Vertex AI in memory, on a clock that tests turn, and deliveries that can be frozen and killed.

Storage is strongly consistent; a list of jobs may lag behind creates, a get never does. `tests/vertexrig/submit/test_protocol.py` holds
both against the local Vertex.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Item, Storage, StoredObject
from vertexrig.cloud.vertex import RemoteJob, Vertex
from vertexrig.spec.states import CANCELLED, FAILED, QUEUED

START = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
Gate = Callable[[str, Callable[[], Any]], Any]
"""Makes a call that is named so; tests put cuts before and after its effect."""


def straight(name: str, effect: Callable[[], Any]) -> Any:
    """The gate without cuts."""
    return effect()


@dataclass
class Clock:
    """A clock that only tests turn.

    Args:
        at: Seconds since its start.
    """

    at: float = 0.0

    def __call__(self) -> float:
        return self.at

    def now(self) -> datetime:
        return START + timedelta(seconds=self())


class WallClock(Clock):
    """This machine's time, and `at` seconds later: for tests whose waits are threads that wait for each other."""

    def __call__(self) -> float:
        return (times.now() - START).total_seconds() + self.at


class MemoryStorage(Storage):
    """A bucket: each call takes effect at once and is seen by every later one.

    Args:
        clock: The service's clock.
        gate: Every call goes through it.
    """

    def __init__(self, clock: Clock, gate: Gate = straight) -> None:
        super().__init__("gs://my-bucket", url="http://127.0.0.1:9")
        self.clock, self.gate = clock, gate
        self.objects: dict[str, tuple[bytes, int, float]] = {}
        self.own: dict[str, Mapping[str, str]] = {}
        self.generations = itertools.count(1)
        self._lock = threading.Lock()

    def _do(self, name: str, effect: Callable[[], Any]) -> Any:
        def locked() -> Any:
            with self._lock:
                return effect()

        return self.gate(name, locked)

    def write(
        self,
        name: str,
        data: bytes,
        *,
        generation: int | None = None,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
        repeat: bool = True,
    ) -> int | None:
        def effect() -> int | None:
            there = self.objects.get(self.prefix + name)
            if generation is not None and generation != (there[1] if there else 0):
                return None
            self.objects[self.prefix + name] = (data, next(self.generations), self.clock())
            self.own[self.prefix + name] = metadata or {}
            return self.objects[self.prefix + name][1]

        made: int | None = self._do("write", effect)
        return made

    def read(self, name: str, *, generation: int | None = None) -> StoredObject | None:
        def effect() -> StoredObject | None:
            there = self.objects.get(self.prefix + name)
            if there is None or generation not in (None, there[1]):
                return None
            return StoredObject(there[0], there[1], read_at=START + timedelta(seconds=self.clock()))

        found: StoredObject | None = self._do("read", effect)
        return found

    def generation(self, name: str) -> int | None:
        found: int | None = self._do("read", lambda: self.objects.get(self.prefix + name, (b"", None))[1])
        return found

    def read_aged(self, name: str) -> StoredObject | None:
        def effect() -> StoredObject | None:
            there = self.objects.get(self.prefix + name)
            # the date of an answer has whole seconds
            return StoredObject(there[0], there[1], max(0.0, self.clock() // 1 - there[2])) if there else None

        found: StoredObject | None = self._do("read", effect)
        return found

    def exists(self, name: str) -> bool:
        return self.generation(name) is not None

    def delete(self, name: str, generation: int | None = None) -> bool:
        def effect() -> bool:
            there = self.objects.get(self.prefix + name)
            if there is None or generation not in (None, there[1]):
                return False
            del self.objects[self.prefix + name]
            return True

        return bool(self._do("delete", effect))

    def list(self, prefix: str, *, metadata: bool = False) -> Iterator[Item]:
        def effect() -> list[Item]:
            return [
                Item(
                    name.removeprefix(self.prefix),
                    there[1],
                    times.rfc3339(START + timedelta(seconds=there[2])),
                    len(there[0]),
                    self.own.get(name, {}) if metadata else {},
                )
                for name, there in sorted(self.objects.items())
                if name.startswith(self.prefix + prefix)
            ]

        yield from self._do("list", effect)

    def metadata(self) -> dict[str, Any] | None:
        return {"name": self.bucket, "location": "US"}


@dataclass
class MemoryJob:
    """A job, and from when lists show it."""

    data: dict[str, Any]
    visible: float


_LABEL = re.compile(r'labels\.(\w+)(?:="([^"]*)"|(:\*))')
_SINCE = re.compile(r'create_time>"([^"]+)"')
_STATE = re.compile(r'state="(\w+)"')


class MemoryVertex(Vertex):
    """Jobs that wait for machines until they are cancelled.

    Args:
        clock: The service's clock.
        gate: Every call goes through it.
    """

    def __init__(self, clock: Clock, gate: Gate = straight) -> None:
        super().__init__("my-project", "us-central1", url="http://127.0.0.1:9")
        self.clock, self.gate, self.lag = clock, gate, 0.0
        self.jobs: dict[str, MemoryJob] = {}
        self._numbers = itertools.count(10**18)
        self._lock = threading.Lock()

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        def effect() -> RemoteJob:
            with self._lock:
                name = f"{self.parent}/{collection}/{next(self._numbers)}"
                created = times.rfc3339(self.clock.now())
                data = {**body, "name": name, "state": QUEUED, "createTime": created}
                self.jobs[name] = MemoryJob(data, self.clock() + self.lag)
                return RemoteJob(dict(data))

        made: RemoteJob = self.gate("create", effect)
        return made

    def get(self, name: str) -> RemoteJob | None:
        def effect() -> RemoteJob | None:
            found = self.jobs.get(name)
            return RemoteJob(dict(found.data)) if found else None

        job: RemoteJob | None = self.gate("get", effect)
        return job

    def list(self, collection: str, *, filter: str = "", limit: int | None = None) -> Iterator[RemoteJob]:
        labels, since, states = _LABEL.findall(filter), _SINCE.search(filter), _STATE.findall(filter)

        def shown(job: MemoryJob) -> bool:
            data = job.data
            own = data.get("labels", {})
            return (
                f"/{collection}/" in data["name"]
                and job.visible <= self.clock()
                and all(own.get(key) is not None and (anything or own[key] == value) for key, value, anything in labels)
                and (not states or data["state"] in states)
                and (since is None or times.parse(data["createTime"]) > times.parse(since[1]))
            )

        def effect() -> list[RemoteJob]:
            with self._lock:
                newest = [job.data for job in self.jobs.values() if shown(job)][::-1][:limit]
                return [RemoteJob(data) for data in newest]

        yield from self.gate("jobs", effect)

    def cancel(self, name: str) -> None:
        def effect() -> None:
            if name not in self.jobs:
                raise RestError("no such job", status=404)
            self.jobs[name].data["state"] = CANCELLED

        self.gate("cancel", effect)

    def surviving(self) -> Sequence[RemoteJob]:
        """Jobs that were not cancelled and did not end at their fence."""
        return [RemoteJob(job.data) for job in self.jobs.values() if job.data["state"] not in (CANCELLED, FAILED)]


class KilledError(BaseException):
    """Ends a delivery where it is; nothing of ours catches it."""


class Delivery:
    """Work that stops before and after the effect of each call until it is let go on.

    Args:
        work: What it does; it reaches services through `gate`.
    """

    def __init__(self, work: Callable[[Delivery], Any]) -> None:
        self.name = ""
        self.answer: Any = None
        self.error: Exception | None = None
        self.done = self.killed = False
        self._verdicts: list[str] = []
        self._until = self._then = ""
        # a stack of its own in this thread: one of them runs at a time, and a switch takes no lock
        self._flow = greenlet(self._run)
        self._flow.delivery = self
        self._flow.switch(work)

    def _run(self, work: Callable[[Delivery], Any]) -> None:
        try:
            self.answer = work(self)
        except KilledError:
            pass
        except Exception as error:
            self.error = error
        self.done = True

    def gate(self, name: str, effect: Callable[[], Any]) -> Any:
        verdict = self._stop(f"before {name}")
        if verdict == "refuse" and name in ("create", "cancel"):
            raise RestError("no quota", status=429)
        if verdict == "fail":
            raise RestError("cut before its effect", status=503, outcome_unknown=True)
        answer = effect()
        verdict = self._stop(f"after {name}")
        if verdict == "fail":
            raise RestError("cut after its effect", status=503, outcome_unknown=True)
        if verdict == "repeat" and name in ("write", "delete", "cancel"):
            return effect()  # the answer was lost, and the client tried again
        return answer

    def sleep(self) -> None:
        """Wait for the world to move on."""
        self._stop("asleep")

    def _stop(self, name: str) -> str:
        if self.killed:
            raise KilledError
        self.name = name
        if self._until and name != self._until and name != "asleep":
            return ""
        self._until = ""
        if not self._verdicts:
            self._flow.parent.switch()
            if self.killed:
                raise KilledError
        verdict = self._verdicts.pop(0)
        if not self._verdicts:
            self._until = self._then
        return verdict

    def step(self, *verdicts: str, until: str = "") -> None:
        """Let it go on to its next stops.

        Args:
            verdicts: What happens at each: "" goes well, `fail` cuts the call, `refuse` refuses a create or cancel,
                `repeat` makes a call again whose answer was lost.
            until: After them all goes well up to this stop, such as `before create`, or until it sleeps.
        """
        if not self.done:
            self._verdicts, self._until = list(verdicts or ("",)), ""
            self._then = until
            self._flow.switch()

    def kill(self) -> None:
        """End it where it is."""
        if not self.done:
            self.killed = True
            self._flow.switch()


def current() -> Delivery | None:
    """Return the delivery at work, None outside of one."""
    return getattr(getcurrent(), "delivery", None)
