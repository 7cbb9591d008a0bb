"""The trigger attacked from outside, over real HTTP: hostile requests, duplicates at one time, and kills."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from localvertex import server
from tests.support import clouds, functions
from vertexrig.trigger import stage

LONG = os.environ.get("ATTACK") == "long"


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    data = {**clouds.PROJECT, "trigger": {**clouds.PROJECT["trigger"], "budget": {"trials_per_day": 100_000}}}
    return stage.stage(clouds.loaded(root, data), root / "build/function").folder


@pytest.fixture(scope="module")
def url(here: server.RunningServer, staged: Path) -> Iterator[str]:
    with functions.serving(staged, clouds.variables(here)) as served:
        yield served


def _request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    if body and not any(one.lower().startswith(("content-length", "transfer-encoding")) for one in headers):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


KEYS = (
    "image", "container.image_uri", "jobs.cpu.container.command", "service_account", "network", "bucket", "project",
    "region", "spec", "base_output_directory", "labels.vertexrig_claim", "labels.vertexrig_run", "__class__", "args",
    "jobs.cpu.__init__", "trigger.allow", "kms_key_name", "package_uris", "env", "worker.machine_type",
)  # fmt: skip
VALUES: tuple[object, ...] = (
    "evil", "gs://evil/x", "{{ cycler.__init__ }}", "${HOME}", "$(AIP_MODEL_DIR)", "a\nb", "\u0000", None, [], {}, [[]],
    True, -1, 1e308, "x" * 2000, "🙂",
)  # fmt: skip
PATHS = (
    "/jobs/0", "/jobs/-1", "/jobs/1%2e", "/jobs/../x", "/jobs/1:cancel", "/jobs/" + "9" * 64, "/jobs/9?x=1/../..", "//", "/%00",
    "/jobs/%0d%0aX:1", "/openapi.json/..", "/.git/config", "/vertexrig.yaml", "/main.py", "/robots.txt", "/favicon.ico",
    "/jobs/" + "%F0%9F%99%82", "/?run=cpu", "/jobs/١٢",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")
BODIES = (
    b"", b"null", b"[]", b"0", b'"cpu"', b"{", b"}{", b"\xff\xfe", b"\x00" * 9, b"[" * 60000, b'{"run":' * 3000, b'{"run": NaN}',
    b'{"run": "cpu", "run": "cpu"}', b'{"run": "\\ud800"}', b'{"run": "cpu"', b"run=cpu&args=1", b"<run>cpu</run>",
    b'{"run": "cpu"}' + b" " * 70_000, b'{"run": 1e999}', b"\xef\xbb\xbf{}", b"9" * 5000, b'{"run": "cpu", "dry_run": "no"}',
    b'{"run": "cpu", "request_id": "../../x"}', b'{"run": "cpu", "set": []}', b'{"run": ["cpu"]}', b'{"run": "no-such"}',
)  # fmt: skip
HEADERS = (
    "Content-Length: -1", "Content-Length: 9999999999", "Content-Length: x", "Transfer-Encoding: gzip",
    "Content-Encoding: gzip", "Content-Type: text/html", "X-Cloud-Trace-Context: " + "a" * 3000, "traceparent: 00-zz-zz",
    "X-CloudScheduler-JobName: ../../x", "X-CloudScheduler-ScheduleTime: 9999-99-99T00:00:00Z", "Cookie: a=b",
    "X-HTTP-Method-Override: DELETE", "Expect: 100-continue", "Range: bytes=0-1", "Authorization: Bearer x",
)  # fmt: skip


def hostile() -> Iterator[tuple[str, bytes]]:
    """Each hostile request with a name; none of them asks for a job in a way that the project file allows."""
    for method, path in itertools.product(METHODS, PATHS if LONG else PATHS[::2]):
        yield f"{method} {path}", _request(method, path, b'{"run": "no-such"}' if method == "POST" else b"")
    for key, value in itertools.product(KEYS, VALUES if LONG else VALUES[::8]):
        yield f"set {key}", _request("POST", "/", json.dumps({"run": "cpu", "set": {key: value}}).encode())
        yield f"args {key}", _request("POST", "/", json.dumps({"run": "cpu", "args": {key: value}}).encode())
    for number, body in enumerate(BODIES):
        yield f"body {number}", _request("POST", "/", body)
    for header in HEADERS:
        yield header, _request("POST", "/", b'{"run": "no-such"}', header)
    yield "no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 400 + b"\r\n\r\n"
    yield "half a head", b"POST / HTTP/1.1\r\nHost: x\r\n"
    yield "half a body", _request("POST", "/", b'{"run"', "Content-Length: 500")
    yield "two lengths", _request("POST", "/", b"{}", "Content-Length: 2", "Content-Length: 300")
    yield "length and chunks", _request("POST", "/", b"0\r\n\r\n{}", "Content-Length: 2", "Transfer-Encoding: chunked")
    yield "a line without end", b"GET /" + b"a" * 70_000


def _answer(url: str, content: bytes) -> tuple[int, bytes]:
    """Status and the whole of an answer, 0 if the connection was closed without one."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    with socket.create_connection((parts.hostname, parts.port), 20) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            got = b""
            while part := connection.recv(65536):
                got += part
        except OSError:
            got = b""
    return (int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/") else 0), got


@pytest.mark.whole
def test_hostile_requests_start_nothing(here: server.RunningServer, url: str) -> None:
    """More than two hundred hostile requests: none is answered with a job, an error of ours, or what is inside; and the
    function serves on.
    """
    before = {job.name for job in clouds.jobs(here)}
    tried = list(hostile())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: _answer(url, one[1]), tried))
    assert len(tried) >= 200
    wrong = [
        (name, status) for (name, _), (status, text) in zip(tried, answers, strict=True)
        if status == 201 or (status >= 500 and status not in (501, 505))
        or any(word in text for word in (b"Traceback", b"site-packages", b"/build/function"))
    ]  # fmt: skip
    assert not wrong
    assert {job.name for job in clouds.jobs(here)} == before
    assert requests.get(url, timeout=30).json()["project"] == "my-project"


@pytest.mark.whole
def test_concurrent_duplicates_of_many_requests(here: server.RunningServer, staged: Path, url: str) -> None:
    """Many requests, each delivered many times at once to two processes: each gets one job, and one 201."""
    requests_, deliveries = (60, 40) if LONG else (4, 12)
    with functions.serving(staged, clouds.variables(here)) as other, ThreadPoolExecutor(40) as pool:
        order = [number for _ in range(deliveries) for number in range(requests_)]
        bodies = [{"run": "cpu", "request_id": f"many-{number}"} for number in order]
        sent = enumerate(bodies)
        answers = list(pool.map(lambda one: functions.deliver((url, other)[one[0] % 2], one[1]), sent))
    for number in range(requests_):
        own = [answer for at, answer in zip(order, answers, strict=True) if at == number and answer is not None]
        assert len({answer.json()["name"] for answer in own}) == 1 and {answer.status_code for answer in own} <= {
            200,
            201,
        }
        assert sum(answer.status_code == 201 for answer in own) == 1
        claims = [job.labels["vertexrig_claim"] for job in clouds.jobs(here)]
        assert claims.count(own[0].json()["claim"]) == 1


@pytest.mark.parametrize("number", range(30 if LONG else 2))
@pytest.mark.whole
def test_killed_under_load_and_delivered_again(here: server.RunningServer, staged: Path, number: int) -> None:
    """A process that is killed in the middle of several requests: delivered again, each has one job that lives."""
    point = f"{('before', 'after')[number % 2]}:{4 + 5 * number}"
    bodies = [{"run": "cpu", "request_id": f"load-{number}-{one}"} for one in range(6)]
    with functions.serving(staged, {**clouds.variables(here), "KILL": point}, wrapped=True) as url:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda body: functions.deliver(url, body), bodies))
    with functions.serving(staged, {**clouds.variables(here), "LEASE": "2", "WAIT": "1"}, wrapped=True) as url:
        names = [functions.until_done(url, body).json()["name"] for body in bodies]
    assert len(set(names)) == len(bodies)
    claims = {job.name: job.labels["vertexrig_claim"] for job in clouds.jobs(here)}
    for name in names:
        assert list(claims.values()).count(claims[name]) == 1
