"""Calls of an ASGI application from inside its own process and event loop, without a connection."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.types import ASGIApp

from localvertex.http import Json
from vertexrig.guard import Address


async def call(
    app: ASGIApp, method: str, target: str, body: Any, headers: Mapping[str, str], client: Address
) -> tuple[int, Json]:
    """Return the status and JSON of the answer to a request with an encoded target, and without a body if that is None."""
    path, _, query = target.partition("?")
    sent = b"" if body is None else json.dumps(body).encode()
    fields = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [*fields, (b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())],
        # No address: the application behind gRPC has no guard that asks for it, since `RpcServer` has its own.
        "client": client, "server": None,
    }  # fmt: skip
    parts: list[bytes] = []
    # What a client sees where the application ends without an answer.
    status = 500

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, json.loads(b"".join(parts) or b"{}")
