"""Routes requests that came through the front by their host."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localvertex.front.proxy import Journal
from localvertex.http import HOST_STATE, NO_METHOD, STAND_IN, UNSERVED, unserved
from vertexrig.guard import LoopbackGuard, Refusal


@dataclass(frozen=True)
class HostedApi:
    """An API by its hosts.

    Args:
        name: The host in messages.
        hosts: Regular expression that matches host names in full.
        app: The application that answers.
        prefix: Put in front of the path for `app`; `\\1` is the first group of `hosts`.
        path: Regular expression for the beginning of its paths, where several APIs share a host.
        stand_in: Whether its answers are only plausible, and nothing is done; each kind of call is noted.
    """

    name: str
    hosts: str
    app: ASGIApp
    prefix: str = ""
    path: str = ""
    stand_in: bool = False


class FrontApp:
    """Answers requests through the front by the first API that matches, and all other requests by `plain`."""

    def __init__(self, plain: ASGIApp, services: tuple[HostedApi, ...], journal: Journal) -> None:
        self.plain, self.services, self.journal = plain, services, journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request."""
        host = (scope.get("state") or {}).get(HOST_STATE)
        if host is None:
            return await self.plain(scope, receive, send)
        if scope["type"] != "http":
            # 1008: policy violation (RFC 6455). No API of Google's that is served here has a WebSocket.
            return await send({"type": "websocket.close", "code": 1008})
        # The connection was made for `host`; a request on it that names another one in its Host field is refused here.
        refusal = LoopbackGuard(self.plain, frozenset({host})).refusal(scope)
        if refusal is not None:
            self.journal.refuse(refusal)
            return await Refusal(403, refusal).send(send)
        for row in self.services:
            match = re.fullmatch(row.hosts, host)
            if match is not None and re.match(row.path, scope["path"]):
                if row.stand_in:
                    scope["state"][STAND_IN] = True
                    self._note(scope, "answered without effect")
                return await row.app(_below(match.expand(row.prefix), scope), receive, self._noting(scope, send))
        self._note(scope, "not served")
        refused = unserved(f"{host}: {scope['method']} {scope['path'][:200]}")
        return await refused.response()(scope, receive, send)

    def _noting(self, scope: Scope, send: Send) -> Send:
        """Return `send`, which also notes answers of methods that are not served."""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start" and (
                message["status"] == UNSERVED or scope["state"].get(NO_METHOD)
            ):
                self._note(scope, "not served")
            await send(message)

        return noted

    def _note(self, scope: Scope, what: str) -> None:
        self.journal.note(f"{what}: {scope['state'][HOST_STATE]} {scope['method']} {_kind(scope['path'])}")


def _kind(path: str) -> str:
    """Return a path without the numbers and names of resources, which differ from call to call."""
    # Six characters or more with a digit among them; `v1` and `b` stay.
    shown = re.sub(r"(?<=/)(?=[^/:]*\d)[^/:]{6,}", "…", path)
    return re.sub(r"(?<=/projects/)[^/:]+", "…", shown)[:120]


def _below(prefix: str, scope: Scope) -> Scope:
    """Return the request with its path below a prefix."""
    if not prefix:
        return scope
    # Both forms: the API's tables match the undecoded path.
    raw = scope.get("raw_path") or scope["path"].encode()
    return {**scope, "path": prefix + scope["path"], "raw_path": prefix.encode() + raw}
