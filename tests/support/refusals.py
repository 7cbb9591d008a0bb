"""A way to a Vertex on which some answers are others: the next calls of the Model Registry are refused, or an upload is not over at once.

Everything else is passed on, so that what answers is the local Vertex's own registry.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

_MODELS = re.compile(r"/v1/projects/[^/]+/locations/[^/]+/models([:/@?].*)?")


class Way:
    """What the next calls answer.

    Args:
        behind: URL of the Vertex.
    """

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.refusals: list[tuple[int, str, str]] = []
        """Status code, name of the status and message of each of the next calls of the registry."""
        self.slow = False
        """An upload's operation is not done in its first answer, as on Vertex AI."""

    def answer(self, method: str, path: str, data: bytes) -> tuple[int, bytes]:
        """Status and body."""
        if _MODELS.fullmatch(path) and self.refusals:
            status, reason, message = self.refusals.pop(0)
            return status, json.dumps({"error": {"code": status, "status": reason, "message": message}}).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        passed = requests.request(method, self.behind + path, data=data, headers=headers, timeout=30)
        if self.slow and path.endswith("/models:upload") and passed.ok:
            return 200, json.dumps({"name": passed.json()["name"]}).encode()
        return passed.status_code, passed.content


@contextmanager
def way(behind: str) -> Iterator[tuple[str, Way]]:
    """Its URL and what it answers, while the block lasts."""
    kept = Way(behind)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _do(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = kept.answer(self.command, self.path, data)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _do

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=20)
