"""One SQLite file per store, opened so that committed changes survive a kill of the process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vertexrig.errors import UsageError

VERSION = 1
"""Version of all schemas, which each file keeps as `user_version`. A release that changes the meaning of a table increases it."""


class Database:
    """A SQLite file in WAL mode behind one lock, for use from many threads.

    WAL with `synchronous=NORMAL` keeps every committed transaction when the process dies; only a power cut can lose the
    last ones.

    Args:
        path: The file; its folder is made when missing.
        schema: `CREATE ... IF NOT EXISTS` statements.

    Raises:
        UsageError: The file is not a database, cannot be opened, or a newer vertexrig wrote it.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
            self.connection.row_factory = sqlite3.Row
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=NORMAL")
            found = int(self.connection.execute("PRAGMA user_version").fetchone()[0])
            if found > VERSION:
                raise UsageError(
                    f"{path} was written by a newer vertexrig (version {found} of its schema; this one knows {VERSION}); "
                    f"upgrade vertexrig, or choose another state folder with --root"
                )
            self.connection.executescript(f"{schema} PRAGMA user_version = {VERSION:d};")
        except (sqlite3.Error, OSError) as error:
            # wrong content (SQLITE_NOTADB, SQLITE_CORRUPT) is this very class; locks, a full disk and rights are of others
            if not path.is_dir() and type(error) is not sqlite3.DatabaseError:
                raise UsageError(f"{path} cannot be opened: {error}") from None
            raise UsageError(
                f"{path} is not a database of the local Vertex, or is damaged ({error}); to go on without what it held, "
                f"move it away: mv {path} {path}.damaged"
            ) from None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Provide one write transaction: committed at the end, rolled back on an exception. Nested use joins the outer one."""
        with self.lock:
            if self.connection.in_transaction:
                yield self.connection
                return
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                # On a full disk SQLite has rolled back by itself (lang_transaction.html), and a second ROLLBACK would
                # raise an error that hides the reason.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with self.lock:
            return self.connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        with self.lock:
            found: sqlite3.Row | None = self.connection.execute(sql, values).fetchone()
            return found

    def close(self) -> None:
        with self.lock:
            self.connection.close()
