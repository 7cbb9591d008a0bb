"""Jobs, and when each was last fired and with what outcome, in SQLite."""

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
"""


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
        # All of them, and then the page: schedules are few.
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

    def delete(self, name: str) -> None:
        """Remove a job."""
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM jobs WHERE name = ?", (name,))
