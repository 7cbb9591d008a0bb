"""Log entries of jobs in SQLite: appended by the runner, read in order, queried by the Logging API."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote

from localvertex.filters import Node
from localvertex.http import ApiError, Json
from localvertex.jobs import resources
from localvertex.jobs.validation import canonical
from localvertex.runner import servicelog
from localvertex.runner.lines import SERVICE, Line, named_severity
from localvertex.services.logging_query import bounds, matching
from localvertex.sqlite import Database
from vertexrig import times
from vertexrig.spec import messages

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL, insert_id TEXT NOT NULL, job_id TEXT NOT NULL,
  entry TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_by_job ON entries (job_id COLLATE NOCASE, time, insert_id);
CREATE INDEX IF NOT EXISTS entries_by_time ON entries (time, insert_id);
CREATE TABLE IF NOT EXISTS of_studies (
  study_id TEXT NOT NULL, time INTEGER NOT NULL, insert_id TEXT NOT NULL, id INTEGER NOT NULL,
  PRIMARY KEY (study_id, time, insert_id, id)
) WITHOUT ROWID;
"""

Position = tuple[int, str, int]
"""Position of an entry in a listing: its time in ns, insertId and number."""
_PREFIX = "logging.googleapis.com/"
_SPECIAL = {
    "httpRequest": "httpRequest",
    f"{_PREFIX}trace_sampled": "traceSampled",
    **{f"{_PREFIX}{name}": name for name in ("insertId", "labels", "operation", "sourceLocation", "spanId", "trace")},
}
"""Keys of a line of JSON that are fields of its entry."""
_KEPT_NS = 30 * 24 * 3600 * 10**9
_BATCH = 500
"""Rows read at a time, so that the lock is never held for long."""


def _payload(line: Line, text: str) -> Json:
    """Return a line as a payload: of the service and of a container as text, of a package's executor as data.

    Sources: a whole log of a container's job, 2026-02-19 (index id 52609974428); a public incident's entries, 2026-08
    """
    if line.task == SERVICE:
        return {"textPayload": text}
    if line.payload is not None:
        return _structured(line.payload)
    if not line.container:
        return {"jsonPayload": {"attrs": {"tag": line.task}, "levelname": line.severity, "message": text}}
    if not text:  # as its runtime writes it (MiningMassiveData's training_log.txt, 2026-05-25)
        text = f"{times.rfc3339_ns(_ns(line.time))} {'stderr' if line.stderr else 'stdout'} F"
    return {"textPayload": text.strip()}


def _ns(seconds: float) -> int:
    return int(seconds) * 10**9 + round(seconds % 1 * 1e9)


@lru_cache(1000)
def _machine_labels(job: str, task: str, *, trial: bool, container: bool) -> Json:
    """Return the labels of a replica's entries; a trial's own are not known.

    Sources: of a container's, a whole log of 2026-02-19 (index id 52609974428); of a package's, cortex-data-foundation issue
    42, 2023-11.
    """
    token = hashlib.sha256(f"{job}/{task}".encode()).hexdigest()
    if container:
        return {
            "compute.googleapis.com/resource_id": str(10**18 + int(token[:14], 16)),
            "compute.googleapis.com/resource_name": f"gk3-cml-{token[:4]}-{token[4:10]}-{token[10:14]}-nap-{token[14:22]}-{token[22:30]}-{token[30:34]}",
            "log.file.name": "0.log",
            "ml.googleapis.com/job_id": job.rpartition("/")[2],
            "ml.googleapis.com/task_name": task,
        }
    labels = {
        "compute.googleapis.com/resource_id": str(10**18 + int(token[:14], 16)),
        "compute.googleapis.com/resource_name": f"gke-cml-{token[:6]}-{token[6:14]}-{token[14:18]}",
        "compute.googleapis.com/zone": f"{resources.location_of(job)}-a",
        "ml.googleapis.com/job_id/log_area": "root",
        "ml.googleapis.com/tpu_worker_id": "",
    }
    return labels if trial else {**labels, "ml.googleapis.com/trial_id": "", "ml.googleapis.com/trial_type": ""}


def _structured(payload: Json) -> Json:
    """Return a line of JSON as fields of its entry: some keys are the entry's own fields, and leave jsonPayload.

    Sources: the page on training code for Vertex AI; https://cloud.google.com/logging/docs/structured-logging
    """
    rest = dict(payload)
    fields: Json = {}
    if named_severity(payload):
        del rest["severity"]
    for key in _SPECIAL.keys() & rest.keys():
        try:
            fields |= canonical("google.logging.v2.LogEntry", {_SPECIAL[key]: rest[key]})
        except ApiError:  # not of the field's form: it stays where it is
            continue
        del rest[key]
    return {**fields, **_timed(rest), "jsonPayload": rest}


def _timed(payload: Json) -> Json:
    """Take the time that a program gave its line out of the payload, in one of the agent's three forms; the entry's timestamp."""
    keys, stamp = ["timestampSeconds", "timestampNanos"], payload.get("timestamp")
    parts = [payload.get(key) for key in keys]
    if isinstance(stamp, dict):
        keys, parts = ["timestamp"], [stamp.get("seconds"), stamp.get("nanos")]
    if all(type(part) is int for part in parts):
        when: int | None = int(parts[0] or 0) * 10**9 + int(parts[1] or 0)
    else:
        keys, when = ["time"], times.nanoseconds(str(payload.get("time", "")))
    # Cloud Logging takes no entries older than what it keeps, nor later than tomorrow.
    if when is None or not -_KEPT_NS < when - time.time_ns() < _KEPT_NS // 30:
        return {}
    for key in keys:
        del payload[key]
    return {"timestamp": when}


@lru_cache(1)
def _names() -> list[str]:
    """Return the names of an entry's fields in their order in answers, which is that of their numbers (index id 8233314902)."""
    fields = messages.message_class("google.logging.v2.LogEntry").DESCRIPTOR.fields
    return [field.json_name for field in sorted(fields, key=lambda field: field.number)]


def _new_id(now: int, number: int) -> str:
    """Return an insertId of 14 small letters and digits (answers of 2023), from a time in ns and the entry's number.

    Ids sort as text the way they were made: gcloud continues after the last one it has.
    """
    left, digits = now * 36**2 + number % 36**2, ""
    while left:
        left, last = divmod(left, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[last] + digits
    return digits


class LogStore:
    """Log entries of all jobs. Safe to use from many threads; what `write` returned from survives a kill.

    Args:
        root: The local Vertex's folder.
        project: Project id.
        study_of: Returns the resource name of the tuning job of a job or of a tuning job, "" for a job that is no trial.
    """

    def __init__(
        self, root: Path, project: str = "local-project", study_of: Callable[[str], str] = lambda name: ""
    ) -> None:
        self.project, self.study_of = project, study_of
        self.database = Database(root / "logs" / "logs.sqlite3", SCHEMA)

    def close(self) -> None:
        self.database.close()

    def write(self, job: str, lines: Iterable[Line]) -> None:
        """Store lines of the job of this resource name, in one transaction: much faster than one by one; none of our own."""
        study_id = self.study_of(job).rpartition("/")[2]
        with self.database.transaction():
            for line in lines:
                if line.ours:
                    continue
                body = self._body(job, line, trial=bool(study_id))
                # Not in whole microseconds: the times of the service's entries have nanoseconds (recordings of 2025).
                self._insert(body, body.pop("timestamp", _ns(line.time)), study_id)

    def _body(self, job: str, line: Line, *, trial: bool) -> Json:
        # Lone surrogates (from os.fsdecode) cannot be sent as UTF-8.
        text = line.text.encode("utf-8", errors="replace").decode()
        job_id, payload = job.rpartition("/")[2], _payload(line, text)
        # The job may be of another project than that of the project file, whose id a client has named.
        number = job.split("/")[1]
        known = resources.project_id(number)
        log, project = line.task, self.project if known == number else known
        if line.task == SERVICE:  # in a log of the job (cortex-data-foundation issue 42, 2023-11; index id 13085934863)
            log, labels = f"ml.googleapis.com/{job_id}", {"ml.googleapis.com/endpoint": ""}
            if state := servicelog.JOB_STATES.get(text):
                labels["ml.googleapis.com/job_state"] = state
        else:
            labels = _machine_labels(job, line.task, trial=trial, container=line.container)
        return {
            "logName": f"projects/{project}/logs/{quote(log, safe='')}",
            "resource": {
                "type": "ml_job",
                "labels": {
                    "job_id": job_id,
                    "project_id": number if line.container else project,
                    "task_name": line.task,
                },
            },
            **({"severity": line.severity} if line.severity != "DEFAULT" else {}),  # the 0 of the enum is not shown
            **payload,
            "labels": {**labels, **payload.get("labels", {})},
        }

    def _insert(self, body: Json, timestamp: int | None, study_id: str = "", *, shortest: bool = False) -> None:
        """Store an entry under a new insertId, or its own. Called in a transaction.

        Its timestamp has nine digits, or with `shortest` as few as it needs.
        An entry of the same project, time and insertId as another is the same entry, and is kept once.
        """
        now = time.time_ns()
        when = now if timestamp is None else timestamp
        if "insertId" in body and self._has(body, when):
            return
        labels = body["resource"].get("labels", {})
        connection = self.database.connection
        # First the row, whose number is in the insertId of an entry that brings none.
        values = (when, str(labels.get("job_id", "")))
        cursor = connection.execute("INSERT INTO entries VALUES (NULL, ?, '', ?, '')", values)
        insert_id = str(body.get("insertId") or _new_id(now, cursor.lastrowid or 0))
        full = {
            **body,
            "insertId": insert_id,
            "timestamp": times.rfc3339_ns(when, shortest=shortest),
            "receiveTimestamp": times.rfc3339_ns(now),
        }
        text = json.dumps({name: full[name] for name in _names() if name in full} | full)
        connection.execute(
            "UPDATE entries SET insert_id = ?, entry = ? WHERE id = ?", (insert_id, text, cursor.lastrowid)
        )
        if study_id:
            connection.execute(
                "INSERT INTO of_studies VALUES (?, ?, ?, ?)", (study_id, when, insert_id, cursor.lastrowid)
            )

    def _has(self, body: Json, when: int) -> bool:
        sql = "SELECT json_extract(entry, '$.logName') AS name FROM entries WHERE time = ? AND insert_id = ?"
        above = str(body["logName"]).partition("/logs/")[0]
        return any(
            row["name"].partition("/logs/")[0] == above for row in self.database.rows(sql, when, str(body["insertId"]))
        )

    def keep(self, bodies: Iterable[tuple[Json, int | None]]) -> None:
        """Store entries of clients: (body, timestamp in ns or None for now), all or none."""
        with self.database.transaction():
            for body, timestamp in bodies:
                self._insert(body, timestamp, shortest=True)

    def query(
        self, node: Node, *, descending: bool = False, after: Position | None = None, limit: int = 1000
    ) -> tuple[list[Json], Position | None]:
        """Entries that pass a filter, ordered by time, then insertId, and the position to continue `after` if there may be more."""
        found: list[Json] = []
        matches = matching(node)
        for position, body in self._rows(node, descending, after):
            if matches(body):
                found.append(body)
                if len(found) == limit:
                    return found, position
        return found, None

    def _rows(self, node: Node, descending: bool, after: Position | None) -> Iterator[tuple[Position, Json]]:
        """Entries within the filter's bounds."""
        demanded = bounds(node)
        order, compare = ("DESC", "<") if descending else ("ASC", ">")
        conditions: list[str] = []
        values: list[object] = []
        columns, table, study_id = "*", "entries", self._study(demanded.job_id)
        if study_id:
            # `gcloud ai hp-tuning-jobs stream-logs` asks for the entries of the tuning job's own id. CROSS: in this order.
            columns, table = "time, insert_id, id, entry", "of_studies CROSS JOIN entries USING (time, insert_id, id)"
            conditions, values = ["study_id = ?"], [study_id]
        elif demanded.job_id is not None:
            # The query language ignores case, and the index is made so.
            conditions, values = ["job_id = ? COLLATE NOCASE"], [demanded.job_id]
        for bound, operator in ((demanded.first, ">="), (demanded.last, "<=")):
            if bound is not None:
                conditions.append(f"time {operator} ?")
                # SQLite holds 64 bits: a bound beyond the year 2262 is as good as that year.
                values.append(max(-(2**63), min(bound, 2**63 - 1)))
        while True:
            # A row value, by which SQLite continues in the index.
            more = [f"(time, insert_id, id) {compare} (?, ?, ?)"] if after else []
            where = " AND ".join([*conditions, *more]) or "1"
            sorting = f"time {order}, insert_id {order}, id {order}"
            sql = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {sorting} LIMIT {_BATCH}"
            rows = self.database.rows(sql, *values, *(after or ()))
            for row in rows:
                after = (row["time"], row["insert_id"], row["id"])
                entry = json.loads(row["entry"])
                if study_id:
                    entry["resource"]["labels"]["job_id"] = study_id
                yield after, entry
            if len(rows) < _BATCH:
                return

    def _study(self, job_id: str | None) -> str:
        """Return the id of a tuning job, "" if it is none or has no entries."""
        row = self.database.row("SELECT study_id FROM of_studies WHERE study_id = ? LIMIT 1", job_id or "")
        return "" if row is None else str(row[0])

    def last(self) -> int:
        """Return the number of the latest entry, 0 if there is none."""
        return int(self.database.rows("SELECT COALESCE(MAX(id), 0) AS last FROM entries")[0]["last"])

    def arrived(self, node: Node, after: int) -> tuple[list[Json], int]:
        """Entries that came after that number and pass a filter, in order of arrival, and the number to continue from."""
        sql = f"SELECT id, entry FROM entries WHERE id > ? ORDER BY id LIMIT {_BATCH}"
        rows = self.database.rows(sql, after)
        bodies = [json.loads(row["entry"]) for row in rows]
        return list(filter(matching(node), bodies)), rows[-1]["id"] if rows else after

    def remove(self, log_name: str) -> bool:
        """Remove a log's entries; False if it has none."""
        names = [name for name in self.log_names() if unquote(name) == unquote(log_name)]
        with self.database.transaction() as connection:
            for name in names:
                connection.execute("DELETE FROM entries WHERE json_extract(entry, '$.logName') = ?", (name,))
            connection.execute("DELETE FROM of_studies WHERE id NOT IN (SELECT id FROM entries)")
        return bool(names)

    def log_names(self) -> list[str]:
        """Return every log's name."""
        rows = self.database.rows("SELECT DISTINCT json_extract(entry, '$.logName') AS name FROM entries ORDER BY name")
        return [row["name"] for row in rows]
