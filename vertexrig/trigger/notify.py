"""Send notices of how runs ended: with each tick, to a Pub/Sub topic or a webhook, at least once, each with an id.

The content is in the history already. After each call one small object says that the notice was sent; a tick that dies before that
sends it again, with the same id. What is older than a day is not sent any more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import Rest, RestError
from vertexrig.cloud.storage import Storage
from vertexrig.errors import VertexrigError
from vertexrig.project.triggered import Notify
from vertexrig.spec.states import SUCCEEDED, short
from vertexrig.submit.chains import GOOD
from vertexrig.trigger.ticks import Looked

FOLDER = "vertexrig/notified"
RECENT = timedelta(days=1)
PUBSUB_VARIABLE, SECRETS_VARIABLE = "PUBSUB_EMULATOR_HOST", "VERTEXRIG_SECRETMANAGER"
"""Environment variables with other servers: host and port of the one, base URL of the other."""
ID_HEADER = "X-Vertexrig-Id"
_MARKS = {"failed": ":red_circle:", "refused": ":red_circle:", "waiting": ":large_yellow_circle:"}


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


def notices(rows: Iterable[Mapping[str, Any]], looked: Iterable[Looked], now: datetime) -> Iterator[Notice]:
    """Yield the notices of the history and of a tick: only of schedules, since a caller over HTTP has an answer."""
    for row in rows:
        # other programs may write to the bucket
        if not row.get("schedule") or not re.fullmatch(r"[0-9a-f]{1,32}", str(row.get("id"))):
            continue
        about = {
            key: row[key] for key in ("schedule", "schedule_time", "run", "job", "claim", "decision") if key in row
        }
        decision, end = str(row.get("decision")), row.get("end")
        if decision in ("refused", "skipped", "deferred"):
            why = {key: row[key] for key in ("reason", "text") if key in row}
            yield Notice(f"{row['id']}-{decision}", (decision,), str(row["time"]), {**about, **why})
        if isinstance(end, Mapping):
            good = end.get("outcome") in (*GOOD, short(SUCCEEDED))
            what = ("better", "finished") if end.get("outcome") == "registered" else ("finished" if good else "failed",)
            more = {key: value for key, value in end.items() if key != "reason"} | {"text": end.get("reason", "")}
            yield Notice(f"{row['id']}-end", what, str(end.get("ended") or row["time"]), {**about, **more})
    for one in looked:
        if one.problem and one.end is None and one.chain:
            row = {"schedule": one.schedule, "run": one.run, "reason": one.step, "text": one.answer["detail"]}
            yield Notice(f"{one.chain}-{one.step}-waiting", ("waiting",), times.rfc3339(now, 0), row)


class Notifier:
    """Sends notices, and records what was sent."""

    def __init__(
        self,
        storage: Storage,
        wanted: tuple[Notify, ...],
        *,
        send: Callable[[Notify, Notice], None] | None = None,
        now: Callable[[], datetime] = times.now,
    ) -> None:
        self.storage, self.wanted, self.send, self.now = storage, wanted, send or deliver, now

    def send_new(self, rows: Iterable[Mapping[str, Any]], looked: Iterable[Looked]) -> Iterator[dict[str, Any]]:
        """Send what is new; yield the log entry of each call.

        Args:
            rows: The history of `vertexrig.trigger.history.RECENT`, settled: a run that was started days ago may have ended now.
        """
        since = self.now() - RECENT
        first = times.nanoseconds_of(since)
        found = [one for one in notices(rows, looked, self.now()) if (times.nanoseconds(one.time) or 0) >= first]
        months = {one.time[:7] for one in found}
        sent = {item.name for month in months for item in self.storage.list(f"{FOLDER}/{month}/")}
        for to in self.wanted:
            receiver = to.topic or to.webhook or ""
            where = hashlib.sha256(receiver.encode()).hexdigest()[:8]
            for one in found:
                path = f"{FOLDER}/{one.time[:7]}/{one.id}.{where}"
                if path in sent or not set(one.occasions) & set(to.when):
                    continue
                entry = {"notice": one.id, "to": receiver, "schedule": one.data["schedule"]}
                try:
                    self.send(to, one)
                except VertexrigError as error:  # the next tick repeats it
                    yield {
                        "severity": "WARNING",
                        "message": f"notice not sent: {one.line}",
                        **entry,
                        "error": str(error)[:300],
                    }
                    continue
                # after the call: a tick that dies in between sends it again
                self.storage.write(path, b"{}", generation=0)
                yield {"severity": "INFO", "message": f"notice sent: {one.line}", **entry}


def deliver(to: Notify, notice: Notice) -> None:
    """Publish a notice, or post it to a webhook; RestError if it was not taken."""
    if to.topic:
        host = os.environ.get(PUBSUB_VARIABLE)
        rest = Rest(f"http://{host}/v1" if host else "https://pubsub.googleapis.com/v1", "Pub/Sub")
        data = base64.b64encode(json.dumps(notice.body("json")).encode()).decode()
        marks = {"id": notice.id, "occasion": notice.occasions[0], "schedule": str(notice.data["schedule"])}
        message = {"data": data, "attributes": marks}
        rest.call("POST", f"/{to.topic}:publish", json={"messages": [message]}, repeat=True)
        return
    import requests

    try:
        address = _secret(str(to.webhook))
        done = requests.post(address, json=notice.body(to.form), headers={ID_HEADER: notice.id}, timeout=10)
    except requests.RequestException as error:
        # the address is the secret, and requests' messages hold it
        raise RestError(f"the webhook of {to.webhook} cannot be reached: {type(error).__name__}") from None
    if done.status_code >= 300:
        raise RestError(f"the webhook of {to.webhook} answered {done.status_code}", status=done.status_code)


def _secret(name: str) -> str:
    """Return what a secret holds: its newest version, unless one is named."""
    rest = Rest(os.environ.get(SECRETS_VARIABLE, "https://secretmanager.googleapis.com") + "/v1", "Secret Manager")
    version = name if "/versions/" in name else f"{name}/versions/latest"
    data = rest.call("GET", f"/{version}:access").data
    try:
        return base64.b64decode(data["payload"]["data"]).decode().strip()
    except (KeyError, TypeError, ValueError):
        raise RestError(f"{version} holds no address") from None
