"""One SQLite file per store, opened so that what was committed survives the process being killed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vertexrig.errors import UsageError


class Database:
    """A SQLite file in WAL mode behind one lock, for use from many threads.

    WAL with `synchronous=NORMAL` keeps every committed transaction when the process dies; only a power cut can lose the
    last ones.

    Args:
        path: The file; its folder is made when missing.
        schema: `CREATE ... IF NOT EXISTS` statements.
        version: Version of the schema, which the file keeps as `user_version`; a file without one has version 1.
        upgrades: By version, the statements that make a file of that version one of the next.

    Raises:
        UsageError: The file is not a database, cannot be opened, or a newer vertexrig wrote it.
    """

    def __init__(self, path: Path, schema: str, version: int = 1, upgrades: Mapping[int, str] | None = None) -> None:
        self.lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
            self.connection.row_factory = sqlite3.Row
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=NORMAL")
            self._prepare(path, schema, version, upgrades or {})
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"{path} is not a database of the local Vertex, or is damaged ({error}); to go on without what it held, "
                f"move it away: mv {path} {path}.damaged"
            ) from None

    def _prepare(self, path: Path, schema: str, version: int, upgrades: Mapping[int, str]) -> None:
        """Bring the file to this version of the schema, in one transaction."""
        with self.transaction() as connection:
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found > version:
                raise UsageError(
                    f"{path} was written by a newer vertexrig (version {found} of its schema; this one knows {version}); "
                    f"upgrade vertexrig, or choose another state folder with --root"
                )
            is_new = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
            for step in () if is_new else range(found or 1, version):
                _run(connection, upgrades[step])
            _run(connection, schema)
            connection.execute(f"PRAGMA user_version = {version:d}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: committed at the end, rolled back on an exception. Nested use joins the outer one."""
        with self.lock:
            if self.connection.in_transaction:
                yield self.connection
                return
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self.lock:
            return self.connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> sqlite3.Row | None:
        """The first row of a query, or None."""
        with self.lock:
            found: sqlite3.Row | None = self.connection.execute(sql, values).fetchone()
            return found

    def close(self) -> None:
        """Close the file."""
        with self.lock:
            self.connection.close()


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Each statement of a script, within the open transaction, which `executescript` would commit."""
    statement = ""
    for part in script.split(";")[:-1]:
        statement += f"{part};"
        if sqlite3.complete_statement(statement):  # a semicolon within a string ends none
            connection.execute(statement)
            statement = ""
