"""Where runs are kept, below the prefix of one trigger: open runs, ends, notices, and which URL serves the prefix.

An open run is `runs/ID.json`. Its content is also in the object's metadata if it fits, so that one listing returns a thousand runs. Every
change is written over the generation that was read, so that of two ticks one moves a run. A run that ended is in the history, and no
tick reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from vertexrig import __version__, times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.runs.deliveries import FOLDER, LONGEST_ROW, ROW
from vertexrig.runs.run import Run, parse

OPEN, SUBMITTED, ENDS, OWNER = "runs/", "submitted/", "ends/", "trigger.json"


class RunStore:
    """The open runs of one trigger, or of the command line (`folder` is SUBMITTED)."""

    def __init__(self, storage: Storage, folder: str = OPEN) -> None:
        self.storage, self.folder = storage, folder

    def path(self, id: str) -> str:
        """Return the object of an open run."""
        return f"{self.folder}{id}.json"

    def save(self, run: Run) -> Run | None:
        """Write a run over the generation that was read; None if another process has changed it since."""
        data = run.to_bytes()
        row = data.decode() if len(data) <= LONGEST_ROW else '{"cut": true}'
        written = self.storage.write(self.path(run.id), data, generation=run.generation, metadata={ROW: row})
        return None if written is None else replace(run, generation=written)

    def add(self, run: Run, check_claim: Callable[[], None]) -> tuple[Run, bool]:
        """Store an open run; return it as it is stored, and whether it is new.

        One of the same request is written again with the longer list of attempts, so that the delivery that opened it does not delete it: that
        deletes only the generation that it wrote. One that a refused delivery left, of another body, caller or steps, is replaced.

        Args:
            check_claim: Raises unless the claim under which the run is stored is held; called after a run to be replaced was read.
        """
        for _ in range(8):
            saved = self.save(replace(run, generation=0))
            if saved is not None:
                return saved, True
            found = self.read(run.id)
            if found is None:
                if self.storage.read(self.path(run.id)) is not None:
                    raise RestError(left_alone(self.storage.uri(self.path(run.id))), status=503)
                continue
            other = (found.body, found.caller, found.steps) != (run.body, run.caller, run.steps)
            if other and found.phase == "attempt" and not found.had_job:
                check_claim()
                kept = self.save(replace(run, generation=found.generation))
            else:
                attempts = max(
                    found.attempts, run.attempts, key=len
                )  # the one before may have died among its candidates
                kept, other = self.save(replace(found, phase="attempt", attempts=attempts)), False
            if kept is not None:
                return kept, other
        raise RestError("the run changes too fast to be written", status=503)

    def read(self, id: str) -> Run | None:
        """Return an open run, None if there is none."""
        stored = self.storage.read(self.path(id))
        found = None if stored is None else parse(id, stored.data)
        return None if found is None or stored is None else replace(found, generation=stored.generation)

    def open(self) -> Iterator[Run | str]:
        """Yield the open runs; for an object that is not a run, its URI."""
        for item in list(self.storage.list(self.folder, metadata=True)):
            id = item.name.removeprefix(self.folder).removesuffix(".json")
            found = parse(id, item.metadata.get(ROW, "").encode())
            if found is None:
                stored = self.storage.read(item.name)  # too long for metadata, or copied without it
                found = None if stored is None else parse(id, stored.data)
                if stored is None:
                    continue
                item = replace(item, generation=stored.generation)
            yield (
                self.storage.uri(item.name)
                if found is None
                else replace(found, generation=item.generation, written=item.created)
            )

    def forget(self, run: Run) -> None:
        """Delete a run whose end is in the history. The outcome of one with steps stays, by its id."""
        if self.folder == SUBMITTED:
            return  # it shows the attempts of its jobs, and no tick reads it
        if run.steps:
            row = {"outcome": run.reason, "model": run.model}
            self.storage.write(f"{ENDS}{run.id}.json", json.dumps(row).encode(), generation=0)
        self.storage.delete(self.path(run.id))

    def history_row(self, run: Run) -> Mapping[str, Any] | None:
        """Return the row of the history of a run that has ended; None if there is none."""
        return self.storage.read_json(path_of(run))

    def outcome(self, id: str) -> Mapping[str, Any] | None:
        """Return `outcome` and `model` of a run with steps that has ended; None if it has not."""
        return self.storage.read_json(f"{ENDS}{id}.json")


def left_alone(uri: str) -> str:
    """Return what is said of an object that is not a run of this version."""
    return (
        f"{uri} is not a run that vertexrig {__version__} knows, and is left as it is: deploy the version that wrote it, or delete it if "
        "no version did"
    )


def path_of(run: Run) -> str:
    """Return the object of a run's end: the same for every process that ends it."""
    day = run.run_id if run.run_id[:8].isdigit() else str(run.delivery.get("time", "")).replace("-", "")
    return f"{FOLDER}/{day[:4]}-{day[4:6]}/{day.partition('.')[0]}-{run.id}.json"


@dataclass(frozen=True)
class Lease:
    """The tick that is allowed to work now.

    Args:
        now: The time, by the service's clock.
        after: It begins with the run after this `Run.order`, "" for the oldest.
        settled: What needs no alarm any more (`vertexrig.trigger.alarms`): by kind, the last due time of each schedule.
        row: What is stored; fields of newer versions stay in it.
    """

    generation: int
    now: datetime
    after: str
    row: Mapping[str, Any]
    settled: dict[str, dict[str, str]] = field(default_factory=dict)


class OtherTriggerError(RestError):
    """The prefix belongs to a function at another URL."""


def owner(storage: Storage) -> str:
    """Return the URL of the function that serves a prefix, "" if none is recorded."""
    return str((storage.read_json(OWNER) or {}).get("uri", ""))


def adopt(storage: Storage, uri: str) -> None:
    """Record the URL of the function that serves a prefix, in place of another one."""
    storage.write(OWNER, json.dumps({**(storage.read_json(OWNER) or {}), "uri": uri}).encode())


def begin_tick(storage: Storage, uri: str, seconds: float, now: Callable[[], datetime] = times.now) -> Lease | None:
    """Take the lease of the tick for some seconds; None if another tick has it.

    Raises:
        OtherTriggerError: A function at another URL serves this prefix; nothing was written.
    """
    stored = storage.read(OWNER)
    data = (as_json(stored.data) or {}) if stored is not None else {}
    at = (stored.read_at if stored is not None else None) or now()
    known = str(data.get("uri") or "")
    if known and uri and known != uri:
        raise OtherTriggerError(
            f"{storage.uri('')} belongs to the function at {known}, and this one is {uri}: give one of them another name "
            "(trigger.function), or type `vertexrig schedule apply --adopt` where this one replaces it",
            status=409,
        )
    until = times.nanoseconds(str(data.get("until") or "")) or 0
    # a lease of hours would be of a clock that was wrong
    if times.nanoseconds_of(at) < until < times.nanoseconds_of(at + timedelta(seconds=2 * seconds + 60)):
        return None
    after = str(data.get("after") or "")
    row = {**data, "uri": uri or known, "until": times.rfc3339(at + timedelta(seconds=seconds), 3), "after": after}
    settled = {
        str(kind): {name: time for name, time in rows.items() if isinstance(time, str)}
        for kind, rows in (data["settled"] if isinstance(data.get("settled"), dict) else {}).items()
        if isinstance(rows, dict)
    }
    written = storage.write(OWNER, json.dumps(row).encode(), generation=stored.generation if stored is not None else 0)
    return None if written is None else Lease(written, at, after, row, settled)


def end_tick(storage: Storage, lease: Lease, after: str) -> None:
    """Give the lease back; the next tick begins after this run."""
    row = {**lease.row, "until": "", "after": after, "settled": lease.settled}
    storage.write(OWNER, json.dumps(row).encode(), generation=lease.generation)
