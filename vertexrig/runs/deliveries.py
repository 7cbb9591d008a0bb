"""Deliveries: what the trigger decided about each request to start something, and why, as one log entry and one small object.

The object is `history/YYYY-MM/TIME-ID.json`, written once. Its content is also in its metadata, which listings return:
a listing of a month is then one call for a thousand deliveries, and reads no object (`vertexrig.trigger.history`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from vertexrig import times
from vertexrig.cloud.storage import Storage

FOLDER = "history"
ROW = "row"
"""Key of an object's metadata: a delivery, or an end, as JSON."""
LONGEST_ROW = 6000
"""Bytes of a row at most: Cloud Storage takes 8 KiB of metadata an object."""
GOOD = ("done", "registered", "not-better", "rejected", "skipped", "SUCCEEDED", "superseded")
"""Outcomes of runs that need nobody's attention."""
NO_MACHINES = "no-machines"
"""Type of the problem that no candidate got machines."""
Decision = Literal["created", "joined", "refused", "deferred", "skipped"]


class NotStartedError(Exception):
    """A delivery ends without a job, and nothing is wrong with its request; what is wrong is a `RequestProblem`, and `refused`.

    The trigger answers 200 (skipped) or 202 (deferred), so that nobody delivers it again.

    Args:
        decision: Skipped for good, or kept and started by a tick.
        reason: A short word for programs, such as `overlap`.
        text: A sentence for people, with the remedy.
        detail: What else the log and the history should have.
    """

    def __init__(
        self,
        decision: Literal["skipped", "deferred"],
        reason: str,
        text: str,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        self.decision, self.reason, self.text, self.detail = decision, reason, text, detail or {}
        super().__init__(text)

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return 202 if self.decision == "deferred" else 200


@dataclass
class Delivery:
    """A request to start a run, filled in while it is handled.

    Args:
        time: When it came, RFC 3339.
        id: Unique.
        decision: `created` a job, `joined` one that an earlier delivery of the same request made, or ended without a job.
        reason: Why, as a short word for programs: the type of a problem, such as `over-budget`.
        text: Why, as a sentence for people.
        key: The kind of the key (`vertexrig.submit.claims.Key`).
        request: The digest of the key, the same for all deliveries of one request: its claim is the object of that name.
        request_id: The caller's own id.
        schedule: The schedule of the project file that fired.
        schedule_time: The time that it fired for, RFC 3339.
        caller: E-mail of the caller, "" unless its token was checked.
        estimate: What it may cost (`vertexrig.submit.budget.estimate_data`).
        detail: What else was found: `findings`, the `limit` of the budget and its `sum`.
        digest: Of the project file and what it names (`vertexrig.project.config.Loaded.digest`).
    """

    time: str = field(default_factory=lambda: times.rfc3339(times.now(), 3))
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    decision: Decision = "refused"
    reason: str = ""
    text: str = ""
    run: str = ""
    key: str = ""
    request: str = ""
    request_id: str = ""
    schedule: str = ""
    schedule_time: str = ""
    caller: str = ""
    job: str = ""
    claim: str = ""
    estimate: Mapping[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    trace: str = ""

    @property
    def path(self) -> str:
        """Its object; names sort as times do."""
        stamp = self.time.replace("-", "").replace(":", "").replace(".", "")
        return f"{FOLDER}/{self.time[:7]}/{stamp}-{self.id}.json"

    @property
    def data(self) -> dict[str, Any]:
        """As the history and the log have it: what is empty is left out."""
        return {name: value for name, value in asdict(self).items() if value}

    def refuse(self, type: str, text: str, detail: Mapping[str, Any]) -> None:
        """End it as refused; the `estimate` of the detail is its own."""
        self.decision, self.reason, self.text = "refused", type, text
        self.estimate = detail.get("estimate", self.estimate)
        self.detail |= {name: value for name, value in detail.items() if name != "estimate"}

    @property
    def severity(self) -> str:
        """Of its log entry: a schedule that got no job is an error, since nobody waits for the answer."""
        if self.decision == "refused":
            return "ERROR" if self.schedule else "WARNING"
        return "WARNING" if self.decision == "deferred" else "INFO"

    @property
    def message(self) -> str:
        """In one line."""
        what = " ".join(filter(None, (self.schedule, self.run, self.decision, self.reason)))
        return f"{what}: {self.text}" if self.text else what

    @property
    def entry(self) -> dict[str, Any]:
        """As its log entry has it, with the detail."""
        row = {name: value for name, value in self.data.items() if name not in ("detail", "trace")}
        return {"severity": self.severity, "message": self.message, **row, **self.detail}

    def write(self, storage: Storage, *, repeat: bool = True) -> None:
        """Write its object, once."""
        write_row(storage, self.path, self.data, repeat=repeat)


def write_row(storage: Storage, path: str, data: Mapping[str, Any], *, repeat: bool = True) -> None:
    """Write an object of the history, unless it is there: whole, and as the row that listings return."""
    row = whole = _text(data)
    # the longest parts are in the object alone
    for name in ("detail", "estimate", "text"):
        if len(row) <= LONGEST_ROW:
            break
        data = {key: value for key, value in data.items() if key != name}
        row = _text({**data, "cut": True})
    storage.write(path, whole, generation=0, metadata={ROW: row.decode()}, repeat=repeat)


def _text(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode()
