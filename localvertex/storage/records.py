"""The records of buckets, objects and uploads in SQLite, without their bytes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localvertex.http import Json
from localvertex.sqlite import Database
from localvertex.storage.stored import Bucket, Object, Stamp, Upload

SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (
  name TEXT PRIMARY KEY, metageneration INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
  meta TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
  bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
  size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, odd INTEGER NOT NULL,
  md5 TEXT, crc32c TEXT, components INTEGER, created INTEGER NOT NULL, updated INTEGER NOT NULL, meta TEXT NOT NULL,
  PRIMARY KEY (bucket, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS noncurrent (
  bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
  size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, odd INTEGER NOT NULL,
  md5 TEXT, crc32c TEXT, components INTEGER, created INTEGER NOT NULL, updated INTEGER NOT NULL, meta TEXT NOT NULL,
  deleted INTEGER NOT NULL, PRIMARY KEY (bucket, name, generation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
  id TEXT PRIMARY KEY, bucket TEXT NOT NULL, name TEXT NOT NULL, meta TEXT NOT NULL, conditions TEXT NOT NULL,
  received INTEGER NOT NULL, generation INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS policies (
  bucket TEXT PRIMARY KEY, number INTEGER NOT NULL, policy TEXT NOT NULL
) WITHOUT ROWID;
"""


class Records:
    """The SQLite tables. Reads and writes only; the rules live in `store`."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, SCHEMA)
        # A clock that was set back must not give a generation a second time.
        both = "SELECT max(generation) AS last FROM objects UNION SELECT max(deleted) FROM noncurrent"
        last = self.database.row(f"SELECT max(last) FROM ({both})")
        self._last = int(last[0] or 0) if last else 0

    def tick(self) -> int:
        """Return a new generation: the time in microseconds, larger than every one before."""
        with self.database.lock:
            self._last = max(time.time_ns() // 1000, self._last + 1)
            return self._last

    def bucket(self, name: str) -> Bucket | None:
        row = self.database.row("SELECT * FROM buckets WHERE name = ?", name)
        if row is None:
            return None
        return Bucket(row["name"], row["metageneration"], row["created"], row["updated"], json.loads(row["meta"]))

    def save_bucket(self, bucket: Bucket) -> None:
        """Insert or replace a bucket's record."""
        values = (bucket.name, bucket.metageneration, bucket.created, bucket.updated, json.dumps(bucket.meta))
        with self.database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?)", values)

    def policy(self, bucket: str) -> tuple[int, Json]:
        """Return how often a bucket's IAM policy was set, and the policy."""
        row = self.database.row("SELECT number, policy FROM policies WHERE bucket = ?", bucket)
        return (int(row[0]), json.loads(row[1])) if row else (0, {})

    def save_policy(self, bucket: str, policy: Json) -> None:
        """Keep a bucket's IAM policy."""
        with self.database.transaction() as connection:
            number = self.policy(bucket)[0] + 1
            connection.execute("INSERT OR REPLACE INTO policies VALUES (?, ?, ?)", (bucket, number, json.dumps(policy)))

    def drop_bucket(self, name: str) -> None:
        """Forget a bucket, its objects and uploads, and its policy."""
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM buckets WHERE name = ?", (name,))
            # Uploads, too: one must not end in another bucket that later gets this name.
            for table in ("objects", "noncurrent", "uploads", "policies"):
                connection.execute(f"DELETE FROM {table} WHERE bucket = ?", (name,))

    def object(self, bucket: str, name: str) -> Object | None:
        row = self.database.row("SELECT * FROM objects WHERE bucket = ? AND name = ?", bucket, name)
        return None if row is None else _object(row)

    def names(self, bucket: str, prefix: str, after: str) -> dict[str, bool]:
        """Return whether each of a bucket's objects is odd, by its name, of those that start with `prefix` and come after `after`."""
        # SQLite compares UTF-8 bytes, so the bound only narrows the scan; the test below decides.
        sql = "SELECT name, odd FROM objects WHERE bucket = ? AND name >= ? AND name <= ?"
        rows = self.database.rows(sql, bucket, max(prefix, after), prefix + "\U0010ffff" * 4)
        return {name: bool(odd) for name, odd in rows if name.startswith(prefix) and name > after}

    def objects(self, bucket: str, names: Sequence[str]) -> dict[str, Object]:
        """Return the records of the named objects of a bucket."""
        found: dict[str, Object] = {}
        for first in range(0, len(names), 500):  # SQLite takes 999 values in a statement
            some = names[first : first + 500]
            sql = f"SELECT * FROM objects WHERE bucket = ? AND name IN ({', '.join('?' * len(some))})"
            found |= {row["name"]: _object(row) for row in self.database.rows(sql, bucket, *some)}
        return found

    def generation(self, bucket: str, name: str, generation: int) -> Object | None:
        """Return the record of a noncurrent generation."""
        sql = "SELECT * FROM noncurrent WHERE bucket = ? AND name = ? AND generation = ?"
        row = self.database.row(sql, bucket, name, generation)
        return None if row is None else _object(row)

    def noncurrent(self, bucket: str, prefix: str = "", after: str = "") -> list[Object]:
        """Return the noncurrent generations of a bucket's objects, the oldest of each first; see `names` for the others."""
        sql = "SELECT * FROM noncurrent WHERE bucket = ? AND name >= ? AND name <= ? ORDER BY name, generation"
        rows = self.database.rows(sql, bucket, max(prefix, after), prefix + "\U0010ffff" * 4)
        return [_object(row) for row in rows if row["name"].startswith(prefix) and row["name"] > after]

    def save_object(self, o: Object) -> Object:
        """Insert or replace the record of an object, or of a noncurrent generation."""
        values: list[object] = [o.bucket, o.name, o.generation, o.metageneration, *o.stamp, o.odd, o.md5, o.crc32c]
        values += [o.components, o.created, o.updated, json.dumps(o.meta)]
        table = "objects" if o.deleted is None else "noncurrent"
        values += [] if o.deleted is None else [o.deleted]
        with self.database.transaction() as connection:
            connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        return o

    def save_digests(self, o: Object, md5: str | None, crc32c: str) -> Object:
        """Record digests computed after the fact, if the record is still of the same generation."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE objects SET md5 = ?, crc32c = ? WHERE bucket = ? AND name = ? AND generation = ?",
                (md5, crc32c, o.bucket, o.name, o.generation),
            )
        return replace(o, md5=md5, crc32c=crc32c)

    def drop_object(self, bucket: str, name: str) -> None:
        """Forget an object; its noncurrent generations stay."""
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM objects WHERE bucket = ? AND name = ?", (bucket, name))

    def drop_generation(self, o: Object) -> None:
        with self.database.transaction() as connection:
            sql = "DELETE FROM noncurrent WHERE bucket = ? AND name = ? AND generation = ?"
            connection.execute(sql, (o.bucket, o.name, o.generation))

    def upload(self, upload_id: str) -> Upload | None:
        row = self.database.row("SELECT * FROM uploads WHERE id = ?", upload_id)
        if row is None:
            return None
        meta, conditions = json.loads(row["meta"]), json.loads(row["conditions"])
        return Upload(row["id"], row["bucket"], row["name"], meta, conditions, row["received"], row["generation"])

    def save_upload(self, u: Upload) -> None:
        """Insert or replace a resumable upload's record."""
        values = (u.id, u.bucket, u.name, json.dumps(u.meta), json.dumps(u.conditions), u.received, u.generation)
        with self.database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def expire_uploads(self, before: int) -> None:
        """Forget uploads that were done before a time, in microseconds since the epoch."""
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM uploads WHERE generation < ?", (before,))

    def drop_upload(self, upload_id: str) -> None:
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM uploads WHERE id = ?", (upload_id,))


def _object(row: sqlite3.Row) -> Object:
    own = dict(row)
    stamp = Stamp(own.pop("size"), own.pop("mtime_ns"), own.pop("inode"))
    return Object(**{**own, "stamp": stamp, "odd": bool(own["odd"]), "meta": json.loads(own["meta"])})
