"""HTTP on this machine: `http` asks servers, `answering` is one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

http = httpx.Client(verify=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
"""`httpx.get` reads all root certificates at each call, 27 ms of processor."""


@contextmanager
def answering(answer: Callable[[str, str, bytes], tuple[int, Any]]) -> Iterator[str]:
    """The URL of a server whose status and body a function of method, path and body gives; what is not bytes is sent as JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = answer(self.command, self.path, data)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = do_any

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(20)
