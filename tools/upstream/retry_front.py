"""The Retry Test API of Google's storage test bench, in front of the local Vertex.

    python -m tools.upstream.retry_front SERVER -- COMMAND…

COMMAND runs with STORAGE_EMULATOR_HOST set to an address that passes each request on to SERVER, but breaks the ones that a
retry test asks for: https://github.com/googleapis/storage-testbench. The local Vertex itself breaks nothing on request.
It has no notifications and no HMAC keys, of which every test of python-storage makes one before it begins: this program keeps them.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

STAND_INS = Path(__file__).parent / "stand_ins"
_BUCKET, _OBJECT = r"/storage/v1/b/[^/]+", r"/storage/v1/b/[^/]+/o/[^/]+"
_CHANGES = (("GET", "get"), ("PATCH", "patch"), ("PUT", "update"), ("DELETE", "delete"))
_ACLS = (("bucket_acl", f"{_BUCKET}/acl"), ("default_object_acl", f"{_BUCKET}/defaultObjectAcl"), ("object_acl", f"{_OBJECT}/acl"))  # fmt: skip
_HMAC = "/storage/v1/projects/[^/]+/hmacKeys"
_KEPT = re.compile(rf"({_BUCKET}/notificationConfigs|{_HMAC})(?:/([^/]+))?")
_METHODS = [
    ("GET", "/storage/v1/b", "buckets.list"),
    ("POST", "/storage/v1/b", "buckets.insert"),
    *((verb, _BUCKET, f"buckets.{name}") for verb, name in _CHANGES),
    ("GET", f"{_BUCKET}/iam", "buckets.getIamPolicy"),
    ("PUT", f"{_BUCKET}/iam", "buckets.setIamPolicy"),
    ("GET", f"{_BUCKET}/iam/testPermissions", "buckets.testIamPermissions"),
    ("POST", f"{_BUCKET}/lockRetentionPolicy", "buckets.lockRetentionPolicy"),
    ("GET", f"{_BUCKET}/o", "objects.list"),
    ("GET", f"/download{_OBJECT}", "objects.get"),
    *((verb, _OBJECT, f"objects.{name}") for verb, name in _CHANGES),
    ("POST", f"{_OBJECT}/compose", "objects.compose"),
    ("POST", f"{_OBJECT}/copyTo/.+", "objects.copy"),
    ("POST", f"{_OBJECT}/rewriteTo/.+", "objects.rewrite"),
    *((verb, f"(?:/resumable)?/upload{_BUCKET}/o", "objects.insert") for verb in ("POST", "PUT")),
    ("GET", "/storage/v1/projects/[^/]+/serviceAccount", "serviceaccount.get"),
    *(row for name, path in _ACLS for row in (("GET", path, f"{name}.list"), ("POST", path, f"{name}.insert"))),
    *((verb, f"{path}/[^/]+", f"{name}.{change}") for name, path in _ACLS for verb, change in _CHANGES),
    ("GET", f"{_BUCKET}/notificationConfigs", "notifications.list"),
    ("POST", f"{_BUCKET}/notificationConfigs", "notifications.insert"),
    *((verb, f"{_BUCKET}/notificationConfigs/[^/]+", f"notifications.{name}") for verb, name in _CHANGES),
    ("GET", _HMAC, "hmacKey.list"),
    ("POST", _HMAC, "hmacKey.create"),
    *((verb, f"{_HMAC}/[^/]+", f"hmacKey.{name}") for verb, name in _CHANGES),
]


def method_of(verb: str, path: str) -> str:
    """Return the name that retry tests give a request's method, "" for none."""
    found = (name for one, pattern, name in _METHODS if one == verb and re.fullmatch(pattern, path))
    return f"storage.{name}" if (name := next(found, "")) else ""


class Front(ThreadingHTTPServer):
    """Serves retry tests and passes everything else on.

    Args:
        server: Host and port of the local Vertex.
    """

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.lock = server, threading.Lock()
        self.tests: dict[str, dict[str, list[str]]] = {}
        self.kept: dict[str, dict[str, Any]] = {}

    def next_of(self, test: str, method: str, *, take: bool) -> str:
        """Return the next instruction of a test for a method, "" for none; with `take` it is done."""
        with self.lock:
            left = self.tests.get(test, {}).get(method, [])
            if not left:
                return ""
            return left.pop(0) if take else left[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _any(self) -> None:
        path = urlsplit(self.path)
        body = self._body()
        if path.path.startswith("/retry_test"):
            return self._test(path.path, body)
        method, test = method_of(self.command, path.path), self.headers.get("x-retry-test-id", "")
        return self._broken(method, test, parse_qs(path.query), body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _any

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _test(self, path: str, body: bytes) -> None:
        """Create, show or delete a retry test."""
        name = path.removeprefix("/retry_test").strip("/")
        if self.command == "POST":
            name = secrets.token_hex(8)
            self.server.tests[name] = json.loads(body)["instructions"]
        left = self.server.tests.get(name, {})
        if self.command == "DELETE":
            self.server.tests.pop(name, None)
        shown = {"id": name, "instructions": left, "completed": not any(left.values())}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(shown).encode())

    def _broken(self, method: str, test: str, query: dict[str, list[str]], body: bytes) -> None:
        """Do what the next instruction of the test says, or pass the request on."""
        what = self.server.next_of(test, method, take=False)
        if match := re.fullmatch(r"return-(\d+)", what):
            self.server.next_of(test, method, take=True)
            message = {"error": {"code": int(match[1]), "message": f"Retry Test: Caused a {match[1]}"}}
            return self._send(int(match[1]), {"Content-Type": "application/json"}, json.dumps(message).encode())
        if what == "return-reset-connection":
            self.server.next_of(test, method, take=True)
            return self._reset()
        if _KEPT.fullmatch(urlsplit(self.path).path):
            return self._keep(body)
        chunk = re.fullmatch(r"bytes (\d+)-(\d+)/(?:\d+|\*)", self.headers.get("content-range", ""))
        if (match := re.fullmatch(r"return-(\d+)-after-(\d+)K", what)) and chunk and "upload_id" in query:
            limit, start = int(match[2]) * 1024, int(chunk[1])
            if start < limit <= int(chunk[2]) + 1:
                self.server.next_of(test, method, take=True)
                self._pass(body[: limit - start], {"content-range": f"bytes {start}-{limit - 1}/*"})
                return self._send(int(match[1]), {}, b"")
        status, headers, data = self._pass(body, {})
        match = re.fullmatch(r"return-broken-stream(?:-after-(\d+)K)?", what)
        if match and query.get("alt") == ["media"]:
            self.server.next_of(test, method, take=True)
            self._head(status, {**headers, "Content-Length": str(len(data))})
            self.wfile.write(data[: int(match[1]) * 1024 if match[1] else 4])
            return self._reset()
        return self._send(status, headers, data)

    def _keep(self, body: bytes) -> None:
        """Make, show, change, list or delete a notification or an HMAC key."""
        path, kept = urlsplit(self.path).path, self.server.kept
        json_type = {"Content-Type": "application/json"}
        if self.command == "POST":
            name = secrets.token_hex(8)
            made = {**json.loads(body or b"{}"), "id": name, "accessId": name, "state": "ACTIVE", "etag": "CAE="}
            kept[f"{path}/{name}"] = made
            return self._send(200, json_type, json.dumps({**made, "metadata": made, "secret": "secret"}).encode())
        if (place := _KEPT.fullmatch(path)) and place[2]:
            if path not in kept:
                return self._send(404, json_type, b'{"error": {"code": 404, "message": "Not found."}}')
            if self.command == "DELETE":
                del kept[path]
                return self._send(204, {}, b"")
            kept[path] |= json.loads(body or b"{}")
            answer = kept[path]
        else:
            answer = {"items": [one for known, one in kept.items() if known.startswith(f"{path}/")]}
        return self._send(200, json_type, json.dumps(answer).encode())

    def _pass(self, body: bytes, changed: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.behind, timeout=60)
        skipped = ("content-length", "transfer-encoding", "connection", *changed)
        headers = {key: value for key, value in self.headers.items() if key.lower() not in skipped}
        connection.request(self.command, self.path, body, {**headers, **changed, "Content-Length": str(len(body))})
        response = connection.getresponse()
        data = response.read()
        left = ("content-length", "transfer-encoding", "connection")
        kept = {key: value for key, value in response.getheaders() if key.lower() not in left}
        connection.close()
        return response.status, kept, data

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self._head(status, {**headers, "Content-Length": str(len(data))})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _reset(self) -> None:
        """End the connection so that the client sees a reset."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.connection.close()


def main() -> int:
    """Run the command that the arguments name; its exit code."""
    server, _, *command = sys.argv[1:]
    with Front(server) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{front.server_address[1]}"
        # The tests pull and start the test bench by docker; a program of that name that does nothing comes first.
        path = f"{STAND_INS / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(command, env={**os.environ, "STORAGE_EMULATOR_HOST": address, "PATH": path}, check=False)
        front.shutdown()
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
