"""Jobs and what came of their executions, in SQLite."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from vertexrig.local.http import Json
from vertexrig.local.sqlite import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  name TEXT PRIMARY KEY, job TEXT NOT NULL, state TEXT NOT NULL, updated TEXT NOT NULL, runtime TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
  id INTEGER PRIMARY KEY, job TEXT NOT NULL, schedule_time TEXT NOT NULL, number INTEGER NOT NULL,
  duplicate INTEGER NOT NULL, started TEXT NOT NULL, ended TEXT NOT NULL, code INTEGER NOT NULL, message TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS attempts_by_job ON attempts (job, id);
"""

KEPT = 1000
"""Attempts kept per job."""


@dataclass(frozen=True)
class StoredSchedule:
    """A job with its state.

    Args:
        job: The job's own fields, complete.
        state: ENABLED or PAUSED.
        updated: When a user last changed it, RFC 3339.
        runtime: `status`, `lastAttemptTime` and `scheduleTime` as far as there are any.
    """

    job: Json
    state: str
    updated: str
    runtime: Json = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The full resource name."""
        return str(self.job["name"])

    def resource(self) -> Json:
        """The job as the API shows it."""
        return {**self.job, "state": self.state, "userUpdateTime": self.updated, **self.runtime}


@dataclass(frozen=True)
class Attempt:
    """One HTTP request of an execution.

    Args:
        job: The job's full name.
        schedule_time: The time of the schedule it is for, RFC 3339; the same for all attempts of an execution.
        number: 0 for the first, then counting retries.
        duplicate: Delivered on purpose although the one before succeeded.
        started: RFC 3339.
        ended: RFC 3339.
        code: google.rpc code, 0 for success.
        message: Why it failed; empty for success.
    """

    job: str
    schedule_time: str
    number: int
    duplicate: bool
    started: str
    ended: str
    code: int
    message: str


class JobStore:
    """Scheduler jobs in one SQLite file.

    Args:
        root: The local Vertex's folder.
    """

    def __init__(self, root: Path) -> None:
        self.database = Database(root / "scheduler" / "scheduler.sqlite3", SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def get(self, name: str) -> StoredSchedule | None:
        """A job, or None."""
        row = self.database.row("SELECT * FROM jobs WHERE name = ?", name)
        if row is None:
            return None
        return StoredSchedule(json.loads(row["job"]), row["state"], row["updated"], json.loads(row["runtime"]))

    def all(self) -> list[StoredSchedule]:
        """Every job, by name."""
        rows = self.database.rows("SELECT * FROM jobs ORDER BY name")
        return [StoredSchedule(json.loads(r["job"]), r["state"], r["updated"], json.loads(r["runtime"])) for r in rows]

    def page(self, parent: str, after: str, limit: int) -> tuple[list[StoredSchedule], str]:
        """One page of a location's jobs, and the name to go on after ("" at the end)."""
        start = f"{parent}/jobs/"
        found = [s for s in self.all() if s.name.startswith(start) and s.name > after]
        return found[:limit], found[limit - 1].name if len(found) > limit else ""

    def insert(self, stored: StoredSchedule) -> bool:
        """Add a job; False if its name is taken."""
        with self.database.transaction():
            if self.get(stored.name) is not None:
                return False
            self.save(stored)
            return True

    def save(self, stored: StoredSchedule) -> StoredSchedule:
        """Insert or replace a job."""
        values = (stored.name, json.dumps(stored.job), stored.state, stored.updated, json.dumps(stored.runtime))
        with self.database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?)", values)
        return stored

    def note(self, name: str, **runtime: object) -> None:
        """Merge facts into a job's runtime part; nothing happens if the job is gone. A value of None drops the fact."""
        with self.database.transaction():
            stored = self.get(name)
            if stored is not None:
                merged = {k: v for k, v in {**stored.runtime, **runtime}.items() if v is not None}
                self.save(replace(stored, runtime=merged))

    def delete(self, name: str) -> bool:
        """Remove a job and its attempts; False if there is none."""
        with self.database.transaction() as connection:
            gone = connection.execute("DELETE FROM jobs WHERE name = ?", (name,)).rowcount
            connection.execute("DELETE FROM attempts WHERE job = ?", (name,))
        return bool(gone)

    def record(self, a: Attempt) -> None:
        """Keep an attempt, and forget the oldest of a job beyond `KEPT`."""
        values = (a.job, a.schedule_time, a.number, a.duplicate, a.started, a.ended, a.code, a.message)
        with self.database.transaction() as connection:
            connection.execute("INSERT INTO attempts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute(
                "DELETE FROM attempts WHERE job = ?1 AND id <= "
                "(SELECT id FROM attempts WHERE job = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                (a.job, KEPT),
            )

    def attempts(self, name: str) -> list[Attempt]:
        """A job's attempts, oldest first."""
        rows = self.database.rows("SELECT * FROM attempts WHERE job = ? ORDER BY id", name)
        return [
            Attempt(
                job=row["job"],
                schedule_time=row["schedule_time"],
                number=row["number"],
                duplicate=bool(row["duplicate"]),
                started=row["started"],
                ended=row["ended"],
                code=row["code"],
                message=row["message"],
            )
            for row in rows
        ]
