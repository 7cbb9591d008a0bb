"""The rehearsals of a project: each leaves a record that outlives it, read without a server and without credentials.

A record is one JSON file in `.vertexrig/history/`. While its rehearsal runs, a lock file next to it is held, so that a
rehearsal whose process was killed is distinguished from one that still runs.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.files import is_held, write_text
from vertexrig.spec.states import FAILED

FOLDER = "history"
_BROKEN = {"code": 13, "message": "the rehearsal's process ended before the job did"}


@dataclass(frozen=True)
class Record:
    """A rehearsal.

    Args:
        name: The job or sweep of the project file.
        resource: The job as the API would show it, with a sweep's trials, and the jobs and measurements of all of them, ended or not.
        run: The run whose output folder it had, "" without one.
        output: Its output folder on this machine, "" without one.
        metrics: What a job's trainer reported last, by tag.
        differences: A sentence for each thing that is not as on Vertex AI.
        attempts: What became of each attempt, if it was rehearsed with faults (`vertexrig.results.attempts`).
    """

    name: str
    resource: Mapping[str, Any]
    run: str = ""
    output: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    attempts: tuple[Mapping[str, Any], ...] = ()

    @property
    def job(self) -> RemoteJob:
        return RemoteJob(self.resource)

    @property
    def created(self) -> str:
        """RFC 3339 in UTC."""
        return str(self.resource.get("createTime", ""))


class History:
    """The rehearsals kept below a folder.

    Args:
        root: The project's `.vertexrig`.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root / FOLDER

    def save(self, record: Record) -> None:
        """Keep a record in place of an earlier one of the same rehearsal."""
        write_text(self._path(record), json.dumps(asdict(record), indent=1))

    @contextmanager
    def running(self, record: Record) -> Iterator[None]:
        """Keep a record of a rehearsal, and hold its lock while the block lasts."""
        path = self._path(record).with_suffix(".lock")
        self.folder.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the system gives it up when this process dies, however it does
            try:
                self.save(record)
                yield
            finally:
                path.unlink(missing_ok=True)

    def all(self) -> list[Record]:
        """Return every rehearsal, the newest first."""
        found = [self._read(path) for path in self.folder.glob("*.json")]
        return sorted((one for one in found if one), key=lambda one: (one.created, one.job.id), reverse=True)

    def find(self, text: str) -> Record | None:
        """Return the rehearsal that a person means: a resource name, a number, a run, or a job's name (its newest)."""
        return next((one for one in self.all() if text in _names(one)), None)

    def _path(self, record: Record) -> Path:
        return self.folder / f"{record.job.id}.json"

    def _read(self, path: Path) -> Record | None:
        # a record that is damaged, or of another version of this program, is left out of the list
        with suppress(OSError, ValueError, TypeError, KeyError):
            record = _parsed(path)
            if not record.job.ended and not is_held(path.with_suffix(".lock")):
                # The rehearsal may have saved its end, and released its lock, since the record was read.
                record = _parsed(path)
                if not record.job.ended:
                    return replace(record, resource={**record.resource, "state": FAILED, "error": _BROKEN})
            return record
        return None


def _parsed(path: Path) -> Record:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Record(**{**data, "differences": tuple(data["differences"]), "attempts": tuple(data.get("attempts", ()))})


def _names(record: Record) -> tuple[str, ...]:
    job = record.job
    return tuple(name for name in (job.name, job.id, record.run, record.name, job.display_name) if name)
