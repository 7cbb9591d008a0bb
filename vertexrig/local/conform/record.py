"""Records every call to a local Vertex and its answer, as lines of a recording: what a program really asked for.

A line is `{"run", "step", "request", "answer"}`, as `vertexrig local conform --recording` writes them, blanked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vertexrig.local.conform.blank import Blanks

MOST_BYTES = 1024 * 1024
"""Bytes of a body that are recorded; of a longer one only its size is."""


class _Kept:
    """What is kept of a body while it passes: at most one byte more than is recorded, and its size."""

    def __init__(self) -> None:
        self.data, self.size = bytearray(), 0

    def add(self, part: bytes) -> None:
        """The next part of it."""
        self.size += len(part)
        self.data += part[: MOST_BYTES + 1 - len(self.data)]

    def recorded(self) -> Any:
        """The body as JSON or text, or its size where it is neither or too long."""
        try:
            text = bytes(self.data).decode("utf-8") if self.size <= MOST_BYTES else None
        except UnicodeDecodeError:
            text = None
        if text is None:
            return f"<{self.size} bytes>"
        try:
            return json.loads(text) if text else ""
        except (ValueError, RecursionError):
            return text


class CallRecorder:
    """An ASGI application around another one.

    Args:
        app: What answers.
        file: Where lines are added.
        mounts: Service by the path it is mounted at; what fits none is Cloud Storage's.
    """

    def __init__(self, app: ASGIApp, file: Path, mounts: Mapping[str, str]) -> None:
        self.app, self.file, self.mounts = app, file, mounts
        self._blanks, self._lock, self._calls = Blanks(), threading.Lock(), 0
        file.parent.mkdir(parents=True, exist_ok=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, and write it down when it is answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked, answered, status = _Kept(), _Kept(), [0]

        async def take_request() -> Message:
            message = await receive()
            asked.add(message.get("body", b""))
            return message

        async def pass_answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            answered.add(message.get("body", b""))
            await send(message)

        # Written after the answer, so that recording makes no client wait.
        await self.app(scope, take_request, pass_answer)
        self._write(scope, asked, {"status": status[0], "body": answered.recorded()})

    def _write(self, scope: Scope, asked: _Kept, answer: Mapping[str, Any]) -> None:
        path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "replace").split("?", 1)[0]
        mount = next((mount for mount in self.mounts if path.startswith(f"{mount}/")), "")
        query = scope.get("query_string", b"").decode("ascii", "replace")
        request: dict[str, Any] = {
            "api": self.mounts.get(mount, "storage"),
            "method": scope["method"],
            "path": path[len(mount) :] + (f"?{query}" if query else ""),
        }
        if asked.size:
            request["body"] = asked.recorded()
        # Opened for each line: a recording is whole up to the last call, however the server ends.
        with self._lock, self.file.open("a", encoding="utf-8") as file:
            self._calls += 1
            line = {"run": "up", "step": str(self._calls), "request": request, "answer": answer}
            file.write(json.dumps(self._blanks(line), ensure_ascii=False) + "\n")
