"""Services that fail or are slow, for tests: a real HTTP server, alone or in front of a local Vertex."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import requests


@dataclass(frozen=True)
class Fault:
    """What is wrong with a service.

    Args:
        status: Answers this itself; 0 closes the connection without an answer; None passes the call on.
        body: The body of its own answer.
        headers: Header fields of its own answer.
        wait: Seconds before anything happens.
        hold: Seconds between the call's effect and the answer.
        drip: Seconds between the bytes of the answer's body.
    """

    status: int | None = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    hold: float = 0.0
    drip: float = 0.0


HEALTHY = Fault()
When = Callable[[str, str], bool]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: str
    fault: Fault
    when: When
    busy: threading.Semaphore
    """Held by each call that is answered."""

    def _any(self) -> None:
        with self.busy:
            self._handled()

    def _handled(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.fault if type(self).when(self.command, self.path) else HEALTHY
        time.sleep(fault.wait)
        status, headers, content = fault.status, fault.headers, fault.body
        if status is None:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            passed = requests.request(
                self.command, self.target + self.path, data=body, headers=kept, allow_redirects=False, timeout=60
            )
            status, content = passed.status_code, passed.content
            headers = {
                name: value for name, value in passed.headers.items()
                if name.lower() not in ("content-length", "content-encoding", "transfer-encoding", "connection", "server", "date")
            }  # fmt: skip
        time.sleep(fault.hold)
        if status == 0:
            self.close_connection = True
            return
        try:
            self._answer(status, headers, content, fault.drip)
        except OSError:
            self.close_connection = True  # the caller has given up

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, drip: float) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        for place in range(0, len(content), 1 if drip else max(1, len(content))):
            self.wfile.write(content[place : place + 1] if drip else content)
            time.sleep(drip)

    do_GET = do_POST = do_DELETE = do_PATCH = _any

    def log_message(self, *_: object) -> None:
        pass


MOST_CALLS = 1000
"""Calls that a service answers at one time."""


@contextmanager
def faulty(
    fault: Fault, *, target: str = "", when: When = lambda method, path: True, settled: bool = False
) -> Iterator[str]:
    """A service with a fault; yields its URL.

    Args:
        fault: What is wrong.
        target: Base URL of the service that calls are passed on to.
        when: Method and path -> whether the fault applies; other calls are passed on at once.
        settled: End only when every call that came has had its effect, also one that its caller has given up.
    """
    busy = threading.Semaphore(MOST_CALLS)
    parts = {"target": target, "fault": fault, "when": staticmethod(when), "busy": busy}
    handler = type("Handler", (_Handler,), parts)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        for _ in range(MOST_CALLS if settled else 0):
            assert busy.acquire(timeout=60)
        server.server_close()
        thread.join(10)


class Endpoint(BaseHTTPRequestHandler):
    """Answers every create with the resource it was sent, and keeps it."""

    received: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.received.append((self.path, body))
        answer = {**body, "name": self.path.partition("?")[0].removeprefix("/v1/") + "/1", "state": "JOB_STATE_PENDING"}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass
