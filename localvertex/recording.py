"""Record every call to a local Vertex and its answer, as one line of JSON each.

A line is `{"run", "step", "request", "answer"}`, as `python -m tools.fidelity --recording` writes them. Private values (ids, project
numbers, names, tokens, addresses) are replaced by placeholders. An id has the same placeholder everywhere in a recording: the first
one is `<id 1>`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# In this order: a bearer token may hold what later patterns find. An e-mail address is looked for only where one can begin: tried from each
# character of a long text, it took 97 s of `make fidelity` (2026-11-28).
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\bbearer +[\w.~+/=-]+"), "<token>"),
    (re.compile(r"ya29\.[\w.-]+|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*|\bAIza[\w-]{30,}"), "<token>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w"), "<email>"),
    (re.compile(r"\bgk3-[\w-]+"), "<host>"),
    (re.compile(r"(?<=-workerpool\d-)[0-9a-f]{6,}(?=-)"), "<cluster>"),
    (re.compile(r"(?<=projects/)\d{6,15}(?!\d)"), "<number>"),
    (re.compile(r"(?<=project=)\d{6,15}(?!\d)|(?<=service-)\d{6,15}(?=@)"), "<number>"),
    (re.compile(r"(?<=projects/)[a-z][a-z0-9-]{4,28}[a-z0-9](?![a-z0-9-])"), "<project>"),
    (re.compile(r"(?:(?<=gs://)|(?<=/b/))(?!google-cloud-aiplatform/)[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "<bucket>"),
    # Project numbers have twelve digits.
    (re.compile(r"\b\d{12}\b"), "<number>"),
    (re.compile(r"/(?:tmp|home|Users|root|var)/[^\s\"',;:]+"), "<path>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
)
# Ids of jobs have 16 to 20 digits, and so may a fraction, which stays.
_ID = re.compile(r"(?<![\d.])\d{16,20}(?!\d|\.\d)")
_SECRET = re.compile(r"(?i)token|authorization|password|secret|credential|api.?key|cookie|etag")


class Blanks:
    """Replaces private values in the lines of one recording by placeholders.

    Args:
        names: Further texts to replace, with what replaces them: the project's id, its bucket.

    Attributes:
        ids: The placeholder of each id.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        # The longest first: a bucket's name often begins with the project's id.
        self._names = sorted((names or {}).items(), key=lambda pair: -len(pair[0]))
        self.ids: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        """Return a JSON value with its private texts replaced."""
        if isinstance(value, dict):
            return {
                self._text(key): "<secret>" if _SECRET.search(key) and isinstance(item, str) else self(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for name, by in self._names:
            text = text.replace(name, by)
        # Before the patterns, which would take a part of an id for a project number.
        text = _ID.sub(lambda match: self.ids.setdefault(match[0], f"<id {len(self.ids) + 1}>"), text)
        for pattern, by in _PATTERNS:
            text = pattern.sub(by, text)
        return text


MOST_BYTES = 1024 * 1024
"""Most bytes of a body that are recorded; for a longer one only its size is."""


class _Body:
    """A body as it passes: its size, and its first bytes, at most one more than are recorded."""

    def __init__(self) -> None:
        self.data, self.size = bytearray(), 0

    def add(self, part: bytes) -> None:
        """Add the next part."""
        self.size += len(part)
        self.data += part[: MOST_BYTES + 1 - len(self.data)]

    def recorded(self) -> Any:
        """Return the body as JSON or text, or its size where it is neither or too long."""
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
    """An ASGI application around another one, which adds a line to a file for each call. A path below no mount is Cloud Storage's."""

    def __init__(self, app: ASGIApp, file: Path, mounts: Mapping[str, str]) -> None:
        self.app, self.file, self.mounts = app, file, mounts
        self._blanks, self._lock, self._calls = Blanks(), threading.Lock(), 0
        file.parent.mkdir(parents=True, exist_ok=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, and record it when it is answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked, answered, status = _Body(), _Body(), [0]

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

    def _write(self, scope: Scope, asked: _Body, answer: Mapping[str, Any]) -> None:
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
