"""Credentials of a process that runs as an account of its own, from the metadata server: asked for once, in time, and again after a 401."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from vertexrig.cloud.rest import Rest, RestError

PROGRAM = """
import json, sys
from vertexrig.cloud import rest

found = rest.Rest("https://storage.googleapis.com", "storage")
try:
    try:
        found.session  # signed for Google, answered by the stand-in
        found.url = sys.argv[1]
    except Exception:
        pass
    print(json.dumps([found.call("POST", "/jobs", json={"run": "cpu"}).data["token"] for _ in range(3)]))
except rest.RestError as error:
    print(json.dumps([str(error), error.status, error.outcome_unknown, error.exit_code]))
"""


class Both(BaseHTTPRequestHandler):
    """A metadata server that numbers its tokens, and a service that takes those from `good` on."""

    asked: ClassVar[list[tuple[str, str]]] = []
    bodies: ClassVar[list[bytes]] = []
    good: ClassVar[int] = 1

    def do_GET(self) -> None:
        if "/token" not in self.path:  # google-auth also asks for the project, the account and the universe
            return self.answer(
                404 if "universe" in self.path else 200, {"email": "a@p.iam.gserviceaccount.com", "scopes": []}
            )
        Both.asked.append((self.path, self.headers.get("Metadata-Flavor", "")))
        self.answer(200, {"access_token": f"t{len(Both.asked)}", "expires_in": 3599, "token_type": "Bearer"})

    def do_POST(self) -> None:
        Both.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        number = int(self.headers["Authorization"].removeprefix("Bearer t"))
        self.answer(200 if number >= Both.good else 401, {"token": number})

    def answer(self, status: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def host() -> Iterator[str]:
    """Serve both; yields host:port."""
    Both.asked, Both.bodies, Both.good = [], [], 1
    server = ThreadingHTTPServer(("127.0.0.1", 0), Both)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def calls(host: str, folder: Path, metadata: str) -> list[Any]:
    """Make three calls in a process with that metadata server and no other credentials; return the tokens they went out with, or the error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "CLOUDSDK_"))}
    env = {**kept, "CLOUDSDK_CONFIG": str(folder), "GCE_METADATA_HOST": metadata, "GCE_METADATA_IP": metadata}
    command = [sys.executable, "-c", PROGRAM, f"http://{host}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_one_token_serves_many_calls(host: str, tmp_path: Path) -> None:
    """The metadata server is asked for one token, for the scope, with its header."""
    assert calls(host, tmp_path, host) == [1, 1, 1]
    ((path, flavor),) = Both.asked
    assert "cloud-platform" in path and flavor == "Google"


def test_a_refused_token_is_replaced_once(host: str, tmp_path: Path) -> None:
    """After a 401 the same call goes out with a new token; a second 401 is the answer."""
    Both.good = 2
    assert calls(host, tmp_path, host) == [2, 2, 2] and Both.bodies == [b'{"run": "cpu"}'] * 4
    Both.good, Both.bodies = 99, []
    assert calls(host, tmp_path, host)[1:] == [401, False, 3] and len(Both.bodies) == 2


def test_without_a_metadata_server_a_call_has_no_credentials(host: str, tmp_path: Path) -> None:
    """Without any credentials the error says so; it is the caller's 401, ends with exit code 3, and nothing was sent."""
    text, *rest = calls(host, tmp_path, "127.0.0.1:1")
    assert text.startswith("no credentials for storage: ") and rest == [401, False, 3] and not Both.bodies


def test_a_key_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key file named in GOOGLE_APPLICATION_CREDENTIALS comes first, and the error names it."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/key.json")
    with pytest.raises(RestError, match=r"no credentials for storage: .*key\.json"):
        Rest("https://storage.googleapis.com", "storage").call("GET", "/b")


def test_calls_to_this_machine_load_no_credentials(host: str) -> None:
    """A local Vertex is called without credentials, and without the time that google-auth takes to load."""
    code = (
        f"import sys; from vertexrig.cloud.rest import Rest; session = Rest('http://{host}', 's').session; "
        "sys.exit(session.auth is not None or 'google.auth' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
