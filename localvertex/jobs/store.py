"""What the local Vertex must not forget: jobs, pipelines, models, operations and the trials of studies, in SQLite.

A call returns when its change is committed, so what a client was answered survives the server being killed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from localvertex.http import MAKER, Json
from localvertex.sqlite import Database

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, parent TEXT NOT NULL, number INTEGER NOT NULL,
    ended INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS resources_listed ON resources (kind, parent, number DESC);
CREATE INDEX IF NOT EXISTS resources_open ON resources (kind, ended);
CREATE TABLE IF NOT EXISTS trials (
    study TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (study, id)
);
CREATE INDEX IF NOT EXISTS trials_listed ON trials (study, number);
CREATE TABLE IF NOT EXISTS children (
    study TEXT NOT NULL, trial TEXT NOT NULL, job TEXT NOT NULL, PRIMARY KEY (study, trial)
);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS points (
    series TEXT NOT NULL, step INTEGER NOT NULL, point TEXT NOT NULL, PRIMARY KEY (series, step)
);
CREATE TABLE IF NOT EXISTS links (
    kind TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, source, target)
);
CREATE INDEX IF NOT EXISTS links_back ON links (kind, target);
"""

_OF_NO_TRIAL = "json_extract(hidden, '$.trial') IS NULL"
"""Where the jobs of trials are left out. The table `children` would not do: it has the last job of each trial, and a trial that was run
again has had another before."""
_RETIRED = 1000
_MAKER = "maker"
"""Key of a resource's hidden part: the command of `local run` that made it."""


class StoredResource(NamedTuple):
    """A resource as kept.

    Args:
        name: Resource name.
        number: Its place in the order of creation.
        body: What clients see.
        hidden: What they do not: how far its work is.
    """

    name: str
    number: int
    body: Json
    hidden: Json


def _stored(name: str, number: int, body: str, hidden: str = "{}") -> StoredResource:
    return StoredResource(name, number, json.loads(body), json.loads(hidden))


class ResourceStore:
    """Resources by name, for use from many threads.

    Args:
        folder: For the database: the state folder of a server, or a folder of its own for a rehearsal.
    """

    def __init__(self, folder: Path) -> None:
        self.database = Database(folder / "vertex.sqlite3", _SCHEMA)
        self._retired: deque[tuple[str, StoredResource]] = deque(maxlen=_RETIRED)

    def close(self) -> None:
        self.database.close()

    def clear(self) -> None:
        """Remove everything but the counters, so that no later resource gets the number of one that was here."""
        with self.database.transaction() as connection:
            for table in ("resources", "trials", "children", "points", "links"):
                connection.execute(f"DELETE FROM {table}")
        self._retired.clear()

    def add(
        self, kind: str, parent: str, name: str, body: Mapping[str, Any], hidden: Mapping[str, Any] | None = None
    ) -> None:
        """Keep a new resource."""
        maker = {_MAKER: MAKER.get()} if MAKER.get() else {}
        # its number comes from a counter, not from MAX(number): a number must not come again after a removal
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO counters VALUES ('resources', 1) ON CONFLICT DO UPDATE SET value = value + 1"
            )
            connection.execute(
                "INSERT INTO resources SELECT ?, ?, ?, value, 0, ?, ? FROM counters WHERE name = 'resources'",
                (name, kind, parent, json.dumps(body), json.dumps({**(hidden or {}), **maker})),
            )

    def add_ended(self, kind: str, parent: str, name: str, body: Json, trials: Iterable[Json]) -> None:
        """Keep a new resource whose work is over, with the trials of a study."""
        with self.database.transaction():
            self.add(kind, parent, name, body)
            self.change(name, lambda *_: True)  # sets `ended`, so that no server takes its work up
            for trial in trials:
                self.save_trial(name, trial)

    def get(self, name: str) -> StoredResource | None:
        """Return a resource, None if there is none of that name."""
        row = self.database.row("SELECT name, number, body, hidden FROM resources WHERE name = ?", name)
        return None if row is None else _stored(*row)

    def change(self, name: str, edit: Callable[[Json, Json], bool | None]) -> Json | None:
        """Edit a resource in one transaction.

        Args:
            name: Resource name.
            edit: Changes body and hidden in place; returns True once the resource has ended.

        Returns:
            The body after the change, None if there is no such resource.
        """
        with self.database.transaction() as connection:
            row = connection.execute("SELECT body, hidden, ended FROM resources WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            body, hidden = json.loads(row[0]), json.loads(row[1])
            # What has ended stays ended, whatever a later edit returns.
            ended = bool(edit(body, hidden)) or bool(row[2])
            connection.execute(
                "UPDATE resources SET body = ?, hidden = ?, ended = ? WHERE name = ?",
                (json.dumps(body), json.dumps(hidden), ended, name),
            )
        return body  # type: ignore[no-any-return]

    def remove(self, name: str) -> bool:
        """Forget a resource and its trials; False if there was none."""
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM trials WHERE study = ?", (name,))
            connection.execute("DELETE FROM children WHERE study = ?", (name,))
            return connection.execute("DELETE FROM resources WHERE name = ?", (name,)).rowcount > 0

    def retire(self, name: str) -> None:
        """Forget a resource, but for `since`: a program may delete what it made."""
        with self.database.transaction():
            kind = self.database.row(f"SELECT kind FROM resources WHERE name = ? AND {_OF_NO_TRIAL}", name)
            one = self.get(name)
            if self.remove(name) and kind and one:
                self._retired.append((kind[0], one._replace(hidden={**one.hidden, "deleted": True})))

    def listed(self, kind: str, parent: str, *, before: int | None = None, most: int = 200) -> Iterator[StoredResource]:
        """Resources of a kind under a parent, made before the one of a number, without what is hidden, the newest first; `most` are read at a time."""
        # Above every number, within SQLite's signed 64 bits.
        last = before if before is not None else 2**62
        # portion by portion, since a filter may take one of thousands, and a cursor would hold the database
        while True:
            rows = self.database.rows(
                "SELECT name, number, body FROM resources WHERE kind = ? AND parent = ? AND number < ? "
                "ORDER BY number DESC LIMIT ?",
                kind,
                parent,
                last,
                most,
            )
            for row in rows:
                yield _stored(*row)
            if len(rows) < most:
                return
            last = int(rows[-1][1])

    def newest(self, kind: str, most: int) -> tuple[int, list[StoredResource]]:
        """Return how many resources of a kind there are in all places, and the newest `most`; the jobs of trials are left out."""
        chosen = f"FROM resources WHERE kind = ? AND {_OF_NO_TRIAL}"
        rows = self.database.rows(f"SELECT name, number, body {chosen} ORDER BY number DESC LIMIT ?", kind, most)
        return self._number(f"SELECT COUNT(*) {chosen}", kind), [_stored(*row) for row in rows]

    def _number(self, sql: str, *values: object) -> int:
        row = self.database.row(sql, *values)
        return int(row[0]) if row else 0

    def last(self) -> int:
        """Return the number of the resource made last, 0 before the first."""
        return self._number("SELECT value FROM counters WHERE name = 'resources'")

    def since(self, number: int, kinds: Sequence[str], maker: str = "") -> list[tuple[str, bool, StoredResource]]:
        """Kind, whether it has ended, and resource, for those made after a number; the jobs of trials are left out.

        Of those that clients deleted since this was opened, the newest are there with what they were last, marked as such.

        Args:
            number: Of the last one that is not wanted.
            kinds: Such as `customJobs`.
            maker: The command of `local run` that made them, "" for all.
        """
        rows = self.database.rows(
            f"SELECT kind, ended, name, number, body, hidden FROM resources WHERE number > ? "
            f"AND kind IN ({', '.join('?' * len(kinds))}) AND {_OF_NO_TRIAL}",
            number,
            *kinds,
        )
        there = [(row[0], bool(row[1]), _stored(*row[2:])) for row in rows]
        gone = [(kind, True, one) for kind, one in list(self._retired) if one.number > number and kind in kinds]
        own = [row for row in there + gone if maker in ("", row[2].hidden.get(_MAKER))]
        return sorted(own, key=lambda one: one[2].number)

    def unfinished(self, kind: str) -> list[StoredResource]:
        """Resources whose work is not over, in the order of creation."""
        rows = self.database.rows(
            "SELECT name, number, body, hidden FROM resources WHERE kind = ? AND ended = 0 ORDER BY number", kind
        )
        return [_stored(*row) for row in rows]

    def count(self, kind: str) -> int:
        """Return how many resources of a kind there are."""
        return self._number("SELECT COUNT(*) FROM resources WHERE kind = ?", kind)

    def child(self, study: str, trial: str) -> str:
        """Resource name of a trial's job, "" if it has none yet."""
        row = self.database.row("SELECT job FROM children WHERE study = ? AND trial = ?", study, trial)
        return str(row[0]) if row else ""

    def adopt(self, study: str, trial: str, job: str) -> None:
        """Keep which job runs a trial. Call it in the transaction that adds the job."""
        with self.database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO children VALUES (?, ?, ?)", (study, trial, job))

    def study_of(self, name: str) -> str:
        """Return the tuning job of a trial's job, also of an earlier one, or of the tuning job itself; "" of any other resource."""
        row = self.database.row("SELECT kind, json_extract(hidden, '$.study') FROM resources WHERE name = ?", name)
        if row is None:
            return ""
        return name if row[0] == "hyperparameterTuningJobs" else str(row[1] or "")

    def trials(self, study: str) -> list[Json]:
        """Return every trial of a study, in the order of its first saving."""
        rows = self.database.rows("SELECT record FROM trials WHERE study = ? ORDER BY number", study)
        return [json.loads(row[0]) for row in rows]

    def ended_trials(self, study: str) -> int:
        """Return how many trials of a study have ended."""
        sql = "SELECT COUNT(*) FROM trials WHERE study = ? AND json_extract(record, '$.endTime') IS NOT NULL"
        return self._number(sql, study)

    def save_trial(self, study: str, record: Json) -> None:
        """Keep a trial's record, replacing the one of the same id."""
        with self.database.transaction() as connection:
            connection.execute(
                # The order of first saving, kept when a record is replaced; ids are text, and "10" sorts before "9".
                "INSERT INTO trials VALUES (?, ?, (SELECT COALESCE(MAX(number) + 1, 0) FROM trials WHERE study = ?), ?) "
                "ON CONFLICT DO UPDATE SET record = excluded.record",
                (study, str(record["id"]), study, json.dumps(record)),
            )

    def remove_trial(self, study: str, trial: str) -> None:
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM trials WHERE study = ? AND id = ?", (study, trial))
