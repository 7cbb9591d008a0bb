"""Who is told what has come of runs: a topic and webhooks, at least once with an id."""

from __future__ import annotations

import base64
import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.trigger_place import DATA, Place
from vertexrig.cloud.rest import RestError
from vertexrig.errors import ConfigError
from vertexrig.project import caller_overrides
from vertexrig.project.triggered import Notify
from vertexrig.spec.states import FAILED
from vertexrig.trigger import notify

SECRET = "projects/my-project/secrets/slack"


@contextmanager
def outside(slow: str = " ") -> Iterator[tuple[str, list[tuple[str, dict[str, str], Any]], list[int]]]:
    """Pub/Sub, Secret Manager and a webhook in one: its URL, the calls it got, and statuses that the next calls get.

    Args:
        slow: Part of a path that is answered with a byte each 0.1 s, for 20 s.
    """
    got: list[tuple[str, dict[str, str], Any]] = []
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.endswith(":access"):
                address = base64.b64encode(f"{url}/hook?key=hidden".encode()).decode()
                said: dict[str, Any] = {"payload": {"data": address}}
            else:
                said = {}
                got.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(statuses.pop(0) if statuses and self.path.startswith("/hook") else 200)
            self.end_headers()
            for _ in range(200 if slow in self.path else 0):
                self.wfile.write(b" ")
                time.sleep(0.1)
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url, got, statuses
    finally:
        server.shutdown()
        server.server_close()


def place_with(folder: Path, *wanted: dict[str, Any]) -> Place:
    data = copy.deepcopy(DATA)
    data["trigger"] = {**data["trigger"], "notify": list(wanted)}
    return Place(folder, data)


def test_a_topic_and_a_webhook_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused run and a failed one are told to a topic in full and to Slack in a line, each once, with an id; a call that fails is made
    again at the next tick, and no log entry has the webhook's address.
    """
    with outside() as (url, got, statuses):
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", url.removeprefix("http://"))
        monkeypatch.setenv("VERTEXRIG_SECRETMANAGER", url)
        place = place_with(tmp_path, {"topic": "projects/my-project/topics/runs"},
                           {"webhook": SECRET, "form": "slack", "when": ["failed"]})  # fmt: skip
        assert place.fire(set={"image": "mine"}).status == 403
        made = place.fire()
        assert made.status == 201, made.body
        place.ends(made.body["name"], FAILED, error={"code": 3, "message": "no <data> & more"})
        statuses.append(503)
        for _ in range(3):
            assert place.post({}, "/tick").status == 200
        topic = [body["messages"][0] for path, _, body in got if path == "/v1/projects/my-project/topics/runs:publish"]
        ids = [one["attributes"]["id"] for one in topic]
        assert {one["attributes"]["occasion"] for one in topic} == {"refused", "failed"} and len(set(ids)) == 2
        full = [json.loads(base64.b64decode(one["data"])) for one in topic]
        assert {row["schedule"] for row in full} == {"nightly"}
        assert any(row.get("reason") == "not-allowed" for row in full)
        hooks = [(headers, body) for path, headers, body in got if path.startswith("/hook")]
        assert len({headers["X-Vertexrig-Id"] for headers, _ in hooks}) == 1
        assert ":red_circle:" in hooks[0][1]["text"] and "no &lt;data&gt; &amp; more" in hooks[0][1]["text"]
        before = len(got)
        place.post({}, "/tick")
        assert len(got) == before
        assert "hidden" not in json.dumps(place.logs) and any(
            "notice not sent" in str(row["message"]) for row in place.logs
        )


@pytest.mark.parametrize(
    ("slow", "to"),
    [(":publish", Notify(topic="projects/p/topics/t")), (":access", Notify(webhook=SECRET)), ("/hook", Notify(webhook=SECRET))],
    ids=["topic", "secret", "webhook"],
)  # fmt: skip
def test_a_receiver_that_answers_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch, slow: str, to: Notify) -> None:
    """A call has ended after its limit, whichever of its services sends a byte now and then: a topic, a secret, a webhook."""
    monkeypatch.setattr(notify, "CALL_S", 0.5)
    with outside(slow) as (url, _, _):
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", url.removeprefix("http://"))
        monkeypatch.setenv("VERTEXRIG_SECRETMANAGER", url)
        begun = time.monotonic()
        with suppress(RestError):  # a webhook whose answer has begun has the notice
            notify.deliver(to, notify.Notice("1-end", ("failed",), "2026-11-22T02:00:01Z", {"schedule": "nightly"}))
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("wanted", "said"),
    [({}, "either a topic or a webhook"), ({"topic": "runs"}, "projects/PROJECT/topics/NAME"),
     ({"webhook": "https://hooks.slack.com/x"}, "projects/PROJECT/secrets/NAME"), ({"topic": "projects/p/topics/t", "when": ["ended"]}, "ended")],
)  # fmt: skip
def test_a_wrong_entry(tmp_path: Path, wanted: dict[str, Any], said: str) -> None:
    """A webhook's address in the file, no place or two, and an occasion that is none are refused with their line."""
    with pytest.raises(ConfigError, match=said):
        caller_overrides.check_rules(
            clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], "notify": [wanted]}})
        )
