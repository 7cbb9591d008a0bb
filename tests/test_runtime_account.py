"""The token of the account that a function runs as: asked for once, in time, again after a 401, and as google.auth asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
import requests

from vertexrig.cloud.rest import SCOPE, Rest, RestError
from vertexrig.cloud.runtime import NoTokenError, RuntimeAccount


class Both(BaseHTTPRequestHandler):
    """A metadata server that numbers its tokens, and a service that takes those from `good` on."""

    asked: ClassVar[list[tuple[str, str]]] = []
    bodies: ClassVar[list[bytes]] = []
    seconds: ClassVar[Any] = 3599
    failing: ClassVar[int] = 0
    good: ClassVar[int] = 1

    def do_GET(self) -> None:
        Both.asked.append((self.path, self.headers.get("Metadata-Flavor", "")))
        if "/token" not in self.path:  # google.auth also asks for the account and the universe
            return self.answer(
                404 if "universe" in self.path else 200, {"email": "a@p.iam.gserviceaccount.com", "scopes": []}
            )
        if Both.failing:
            Both.failing -= 1
            return self.answer(503, {})
        tokens = sum("/token" in path for path, _ in Both.asked)
        return self.answer(200, {"access_token": f"t{tokens}", "expires_in": Both.seconds, "token_type": "Bearer"})

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
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve both as on Cloud Run; yields host:port."""
    Both.asked, Both.bodies, Both.seconds, Both.failing, Both.good = [], [], 3599, 0, 1
    server = ThreadingHTTPServer(("127.0.0.1", 0), Both)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("K_SERVICE", "trigger")
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def post(host: str, account: RuntimeAccount) -> requests.Response:
    return requests.post(f"http://{host}/jobs", json={"run": "cpu"}, auth=account, timeout=10)


def test_one_token_serves_many_calls(host: str) -> None:
    """The metadata server is asked once, for the scope, with its header."""
    account = RuntimeAccount(SCOPE)
    assert [post(host, account).json()["token"] for _ in range(3)] == [1, 1, 1]
    assert len(Both.asked) == 1 and "cloud-platform" in Both.asked[0][0] and Both.asked[0][1] == "Google"


def test_a_token_near_its_end_is_not_used(host: str) -> None:
    """A token with less than 225 s left is asked for anew."""
    Both.seconds = 224
    account = RuntimeAccount(SCOPE)
    assert [post(host, account).json()["token"] for _ in range(3)] == [1, 2, 3]


def test_a_refused_token_is_replaced_once(host: str) -> None:
    """After a 401 the same call goes out with a new token; a second 401 is the answer."""
    Both.good = 2
    account = RuntimeAccount(SCOPE)
    assert post(host, account).json() == {"token": 2} and Both.bodies == [b'{"run": "cpu"}'] * 2
    Both.good = 9
    answer = post(host, account)
    assert (answer.status_code, answer.json()) == (401, {"token": 3}) and len(Both.bodies) == 4


def test_a_metadata_server_that_stumbles_is_asked_again(host: str) -> None:
    """A 503 of the metadata server is not the end."""
    Both.failing = 2
    assert RuntimeAccount(SCOPE).token() == "t3"


@pytest.mark.parametrize("seconds", [None, "soon"])
def test_an_answer_that_is_no_token(host: str, seconds: object) -> None:
    """An answer without a token's fields is an error that names the server."""
    Both.seconds = seconds
    with pytest.raises(NoTokenError, match=f"{host} answered with something other than a token"):
        RuntimeAccount(SCOPE).token()


def test_without_a_metadata_server_a_call_has_no_credentials(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a call says which server gave no token; it is the caller's 401, and nothing was sent."""
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    with pytest.raises(RestError, match=r"no credentials for storage: the metadata server at 127\.0\.0\.1:1") as caught:
        Rest("https://storage.googleapis.com", "storage").call("POST", "/b", json={})
    assert caught.value.status == 401 and not caught.value.outcome_unknown


def test_only_google_s_hosts_get_the_token(host: str) -> None:
    """A service's session is signed by the account for Google's hosts over https; google.auth decides for all others."""
    assert isinstance(Rest("https://storage.googleapis.com", "storage").session.auth, RuntimeAccount)
    assert Rest(f"http://{host}", "local").session.auth is None
    code = "import sys; from vertexrig.cloud.rest import Rest; Rest('https://storage.googleapis.com', 's').session; "
    loaded = subprocess.run(
        [sys.executable, "-c", code + "print('google.auth' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "False"


@pytest.mark.parametrize(("name", "value"), [("K_SERVICE", None), ("GOOGLE_APPLICATION_CREDENTIALS", "/no/key.json")])
def test_elsewhere_google_auth_decides(
    host: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    """Outside of Cloud Run, and where a key file is named, the credentials are google.auth's."""
    if value is None:
        monkeypatch.delenv(name)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/key.json")
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(RestError, match=r"no credentials for storage: .*key\.json"):
        Rest("https://storage.googleapis.com", "storage").call("GET", "/b")


def test_google_auth_asks_for_the_same(host: str) -> None:
    """The contract of the metadata server above: google.auth takes its token, and asks by the same path and header."""
    code = (
        "import google.auth.compute_engine as gce, google.auth.transport.requests as r; "
        f"c = gce.Credentials(scopes=[{SCOPE!r}]); c.refresh(r.Request()); print(c.token)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    theirs = [(path.partition("?"), flavor) for path, flavor in Both.asked if "/token" in path]
    assert done.stdout.strip() == "t1" and len(theirs) == 1
    RuntimeAccount(SCOPE).token()
    ours = Both.asked[-1][0].partition("?"), Both.asked[-1][1]
    assert ours[1] == theirs[0][1] == "Google" and ours[0][2] == theirs[0][0][2]
    assert ours[0][0] == theirs[0][0][0]
