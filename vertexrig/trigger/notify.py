"""Notices: a run has ended, was refused, or waits for a person. Each has an id and is sent at least once, to a Pub/Sub topic or a webhook.

A notice is one object below `notices/` for each receiver. It is written before its run is deleted, and deleted after the call. If a
tick dies between the call and the deletion, the next tick sends the notice again, with the same id.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import Rest, RestError
from vertexrig.cloud.storage import Storage, as_json
from vertexrig.errors import VertexrigError
from vertexrig.project.triggered import Notify
from vertexrig.runs.deliveries import GOOD, LONGEST_ROW, ROW

FOLDER = "notices/"
OLD = timedelta(days=3)
"""Age from which a notice that could not be sent is dropped."""
MOST = 200
"""Notices that a tick sends at most."""
CALL_S, LONGEST_ANSWER = 10.0, 64 * 1024
"""Longest delivery of a notice in seconds, with the secret that has the address, and the bytes that are read of a webhook's answer."""
PUBSUB_VARIABLE, SECRETS_VARIABLE = "PUBSUB_EMULATOR_HOST", "VERTEXRIG_SECRETMANAGER"
"""Environment variables with other servers: host and port of the one, base URL of the other."""
ID_HEADER = "X-Vertexrig-Id"
_MARKS = {"failed": ":red_circle:", "refused": ":red_circle:", "waiting": ":large_yellow_circle:"}
_MARKS |= dict.fromkeys(("overdue", "late"), ":red_circle:")


@dataclass(frozen=True)
class Notice:
    """A notice.

    Args:
        id: The same each time that it is sent.
        occasions: What it is, for `when`.
        time: When it happened, RFC 3339.
        data: As the history has it.
    """

    id: str
    occasions: tuple[str, ...]
    time: str
    data: Mapping[str, Any]

    @property
    def line(self) -> str:
        """In one line."""
        row = self.data
        value = f"{row['metric']} {row['value']:.6g}" if isinstance(row.get("value"), (int, float)) else ""
        about = (row.get("schedule"), row.get("run"), self.occasions[0], row.get("reason") or row.get("outcome"), value)
        text = str(row.get("text") or "")
        return " ".join(str(one) for one in about if one) + (f": {text}" if text else "")

    def body(self, form: str) -> dict[str, Any]:
        """Return what a webhook gets."""
        if form == "slack":
            # the three characters that Slack's text has a meaning for
            text = self.line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            return {"text": f"{_MARKS.get(self.occasions[0], ':large_green_circle:')} {text}"}
        return {"id": self.id, "occasion": self.occasions[0], "time": self.time, "message": self.line, **self.data}


def notice_of(row: Mapping[str, Any]) -> Notice | None:
    """Return the notice of a row of the history, None for a caller over HTTP, who has an answer."""
    if not row.get("schedule"):
        return None
    about = {key: row[key] for key in ("schedule", "schedule_time", "run", "job", "claim", "decision") if key in row}
    decision, end = str(row.get("decision")), row.get("end")
    if decision in ("refused", "skipped", "deferred"):
        why = {key: row[key] for key in ("reason", "text") if key in row}
        return Notice(f"{row['id']}-{decision}", (decision,), str(row["time"]), {**about, **why})
    if not isinstance(end, Mapping):
        return None
    good = end.get("outcome") in GOOD
    what = ("better", "finished") if end.get("outcome") == "registered" else ("finished" if good else "failed",)
    more = {key: value for key, value in end.items() if key != "reason"} | {"text": end.get("reason", "")}
    return Notice(f"{row['id']}-end", what, str(end.get("ended") or row["time"]), {**about, **more})


def waiting(row: Mapping[str, Any], step: str, text: str) -> Notice:
    """Return the notice of a step that waits for a person."""
    about = {key: row[key] for key in ("schedule", "run", "claim") if key in row}
    return Notice(
        f"{row['id']}-{step}-waiting", ("waiting",), str(row["time"]), {**about, "reason": step, "text": text}
    )


class Notices:
    """The notices of one trigger that were not sent yet.

    Args:
        wanted: Who gets which.
        send: Sends one; `deliver` by default.
    """

    def __init__(
        self,
        storage: Storage,
        wanted: tuple[Notify, ...],
        *,
        send: Callable[[Notify, Notice], None] | None = None,
    ) -> None:
        self.storage, self.wanted, self.send = storage, wanted, send or deliver

    def keep(self, notice: Notice | None) -> None:
        """Store a notice, once for each receiver that wants it."""
        if notice is None:
            return
        for to in self.wanted:
            if set(notice.occasions) & set(to.when):
                data = json.dumps(asdict(notice)).encode()
                row = data.decode() if len(data) <= LONGEST_ROW else '{"cut": true}'
                self.storage.write(f"{FOLDER}{notice.id}.{_name(to)}", data, generation=0, metadata={ROW: row})

    def send_all(self, now: datetime, late: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Send what was not sent, the oldest first, MOST at most; yield the log entry of each call."""
        receivers = {_name(to): to for to in self.wanted}
        items = sorted(self.storage.list(FOLDER, metadata=True), key=lambda item: item.created)
        down: set[str] = set()
        for item in items[:MOST]:
            if late():
                return
            name = item.name.rpartition(".")[2]
            to, notice = receivers.get(name), self._read(item.name, item.metadata.get(ROW, ""))
            age = now.timestamp() - (times.nanoseconds(item.created) or 0) / 1e9
            if notice is None and age <= OLD.total_seconds():
                continue  # of a newer version, which may send it
            if to is None or notice is None or age > OLD.total_seconds():
                yield {"severity": "WARNING", "message": f"notice dropped: {self.storage.uri(item.name)}"}
                self.storage.delete(item.name, item.generation)
                continue
            if name in down:
                continue  # it failed in this tick already
            receiver = to.topic or to.webhook or ""
            entry = {"notice": notice.id, "to": receiver, "schedule": notice.data.get("schedule", "")}
            try:
                self.send(to, notice)
            except VertexrigError as error:  # the next tick repeats it
                down.add(name)
                yield {
                    "severity": "WARNING",
                    "message": f"notice not sent: {notice.line}",
                    **entry,
                    "error": str(error)[:300],
                }
                continue
            # after the call: a tick that dies in between sends it again
            self.storage.delete(item.name)
            yield {"severity": "INFO", "message": f"notice sent: {notice.line}", **entry}

    def _read(self, name: str, row: str) -> Notice | None:
        data = as_json(row.encode())
        if data is None or data.get("cut"):
            data = self.storage.read_json(name) or {}
        try:
            notice = Notice(str(data["id"]), tuple(map(str, data["occasions"])), str(data["time"]), dict(data["data"]))
        except (KeyError, TypeError, ValueError):
            return None
        return notice if notice.occasions else None


def _name(to: Notify) -> str:
    """Return how the objects of a receiver end."""
    return hashlib.sha256((to.topic or to.webhook or "").encode()).hexdigest()[:8]


def deliver(to: Notify, notice: Notice) -> None:
    """Publish a notice, or post it to a webhook; RestError if it was not taken."""
    if to.topic:
        host = os.environ.get(PUBSUB_VARIABLE)
        rest = Rest(
            f"http://{host}/v1" if host else "https://pubsub.googleapis.com/v1", "Pub/Sub", attempts=1, most_s=CALL_S
        )
        data = base64.b64encode(json.dumps(notice.body("json")).encode()).decode()
        marks = {"id": notice.id, "occasion": notice.occasions[0], "schedule": str(notice.data["schedule"])}
        message = {"data": data, "attributes": marks}
        rest.call("POST", f"/{to.topic}:publish", json={"messages": [message]})
        return
    import requests

    until = time.monotonic() + CALL_S
    address = _secret(str(to.webhook))
    try:
        done = requests.post(
            address,
            json=notice.body(to.form),
            headers={ID_HEADER: notice.id},
            timeout=max(until - time.monotonic(), 0.1),
            allow_redirects=False,
            stream=True,
        )
        with done:
            read = 0
            while read < LONGEST_ANSWER and time.monotonic() < until and (part := done.raw.read1(8192)):
                read += len(part)
    except (requests.RequestException, OSError) as error:
        # the address is the secret, and requests' messages contain it
        raise RestError(f"the webhook of {to.webhook} cannot be reached: {type(error).__name__}") from None
    if done.status_code >= 300:
        raise RestError(f"the webhook of {to.webhook} answered {done.status_code}", status=done.status_code)


def _secret(name: str) -> str:
    """Return what a secret holds: its newest version, unless one is named."""
    url = os.environ.get(SECRETS_VARIABLE, "https://secretmanager.googleapis.com") + "/v1"
    rest = Rest(url, "Secret Manager", attempts=1, most_s=CALL_S / 2)
    version = name if "/versions/" in name else f"{name}/versions/latest"
    data = rest.call("GET", f"/{version}:access").data
    try:
        return base64.b64decode(data["payload"]["data"]).decode().strip()
    except (KeyError, TypeError, ValueError):
        raise RestError(f"{version} holds no address") from None
