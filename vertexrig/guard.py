"""Refuse requests of other users and of web pages to a server on this machine that runs code: local Vertex, `function serve`.

A request must come from a loopback address and from this user (or root), name a loopback host (else a web page could
reach the server by DNS rebinding), and must not be sent by a web page of another origin. This module imports nothing
of vertexrig: `function serve` loads it from its file, beside the staged copy of the tool that it serves.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Address = tuple[str, int]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names and peer addresses of this machine."""

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
KNOWS_USERS = sys.platform == "linux" and TABLES[0].exists()
"""Whether the kernel's table names the user of a connection; without it every user of the machine is answered."""

# linux/netlink.h and linux/sock_diag.h; the layouts below are those of inet_diag_req_v2 and inet_diag_msg in
# linux/inet_diag.h: 16 bytes of netlink header, then the message, with the user and the inode in its last 8 bytes.
NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20

MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
JSON_TYPES = frozenset({"application/json", "application/cloudevents+json"})
BODY_LIMIT, BODY_SECONDS, UNFINISHED = 1 << 20, 10.0, 32
"""Limits of `function serve`: bytes of a body, seconds to receive it, and bodies received at the same time."""


_STATUSES = {
    403: "PERMISSION_DENIED",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    503: "UNAVAILABLE",
}


class Refusal(Exception):
    """The reason why a request is refused."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)

    async def send(self, send: Send) -> None:
        """Answer with the error as the Google APIs write it, and close the connection: its body was not read."""
        error = {"code": self.code, "message": self.message, "status": _STATUSES[self.code]}
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.code, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})


def _kernel_form(address: Address) -> tuple[str, str]:
    """Return an IPv4 address and port as `/proc/net/tcp` and `/proc/net/tcp6` write them: words in the machine's byte order."""
    # The second word is that of an IPv4 address in IPv6 form (::ffff:a.b.c.d).
    word, mapped = struct.unpack("=2I", socket.inet_aton(address[0]) + bytes([0, 0, 255, 255]))
    ending = f"{word:08X}:{address[1]:04X}"
    return ending, f"{0:016X}{mapped:08X}{ending}"


def _asked_kernel(client: Address, server: Address) -> int | None:
    """`peer_user` by the kernel's sock_diag(7), which looks up one socket; None also where that is not available.

    Reading /proc/net/tcp walks the kernel's whole table: 120 ms on a busy machine with 350 sockets (2026-11-21).
    """
    ends = struct.pack("!HH4s12x4s12x", client[1], server[1], socket.inet_aton(client[0]), socket.inet_aton(server[0]))
    # All states of a connection (the mask of ones), any interface (0), and no cookie (-1).
    wanted = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + struct.pack("=Iq", 0, -1)
    header = struct.pack("=IHHII", 16 + len(wanted), _SOCK_DIAG_BY_FAMILY, 1, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(header + wanted)
            answer = kernel.recv(4096)
    except (OSError, AttributeError):
        return None
    # 16 bytes of header and 72 of inet_diag_msg.
    if len(answer) < 88 or struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    user, inode = struct.unpack_from("=II", answer, 80)
    # Without such a connection the kernel answers with a listening socket of the client's port, which has no other end.
    return int(user) if inode and answer[20:24] == ends[:4] else None


def peer_user(client: Address, server: Address) -> int | None:
    """Return the id of the user at the client's end of an IPv4 connection on loopback; None if the connection is closed."""
    user = _asked_kernel(client, server)
    if user is not None:
        return user
    for table, ours, theirs in zip(TABLES, _kernel_form(client), _kernel_form(server), strict=True):
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # A socket that its process closed has inode 0 and, on many kernels, user 0: it must not pass for root's.
            if fields[1] == ours and fields[2] == theirs and fields[9] != "0":
                return int(fields[7])
    return None


def user_refusal(client: Address, server: Address) -> str | None:
    """Return why a connection is refused because of its user, None if it is accepted: only this user and root are answered."""
    return refusal_of(peer_user(client, server)) if KNOWS_USERS else None


ANSWERED: list[int] = []
"""Users who are answered in addition to this one and root: those of containers that run for this process."""


def refusal_of(user: int | None) -> str | None:
    """Return why a user is refused, None if accepted; the user None is one that the kernel does not name."""
    if user in (0, os.geteuid(), *ANSWERED):
        return None
    who = "nobody whom the system's table of connections names" if user is None else f"the user with id {user}"
    return f"This server answers only the user who started it (id {os.geteuid()}) and root, not {who}."


class LoopbackGuard:
    """Refuses requests that do not come from this user's own programs on this machine."""

    def __init__(self, app: Application, hosts: frozenset[str] = LOOPBACK) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one ASGI request."""
        refusal = self.refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await Refusal(403, refusal).send(send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def refusal(self, scope: Scope) -> str | None:
        """Return why a request is refused, or None."""
        headers = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in scope["headers"]]
        hosts = [value for key, value in headers if key == "host"]
        # None is a call from inside this process (`rpc.call_rest`).
        peer = scope.get("client") or ("127.0.0.1", 0)
        if peer[0] not in LOOPBACK and not peer[0].startswith("127."):
            return f"This server answers this machine only, not {peer[0]}."
        # Two Host fields are read differently by different programs.
        if len(hosts) != 1 or host_name(hosts[0]) not in self.hosts:
            return f"This server answers to {', '.join(sorted(self.hosts))}, not to host {', '.join(hosts)!r}."
        for key, value in headers:
            if key == "origin" and value.lower() not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
                return f"Requests of the web page {value!r} are refused."
            if key == "sec-fetch-site" and value not in ("same-origin", "none"):
                return "Requests of another site's page are refused."
        state = scope.get("state") or {}
        if "user_refusal" in state:  # asked once for each connection, see `serving_protocol`
            return str(state["user_refusal"]) if state["user_refusal"] else None
        return user_refusal(peer, scope["server"]) if scope.get("client") else None


def serving_protocol() -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol, which looks up the user of a connection once instead of at each request."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class GuardedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if self.client and self.server and self.server[1] is not None:
                self.app_state = {
                    **self.app_state,
                    "user_refusal": user_refusal(self.client, (self.server[0], self.server[1])),
                }

    return GuardedProtocol


class BodyGuard:
    """Reads whole bodies before the application is called, in bounded time and number."""

    def __init__(self, app: Application) -> None:
        self.app, self._reading = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one ASGI request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            body = await self._body(scope, receive)
        except Refusal as refusal:
            return await refusal.send(send)
        if body is None:  # the client went away
            return None
        rest = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> MutableMapping[str, Any]:
            return rest.pop() if rest else await receive()

        return await self.app(scope, replay, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        # a DELETE has no body as a rule, and is none that a page may send without asking
        bare = scope["method"] == "DELETE" and headers.get("content-length", "0") == "0" and not kind
        if scope["method"] in MUTATING and kind not in JSON_TYPES and not bare:
            raise Refusal(415, f"The content type is {kind or 'missing'!r}; send {' or '.join(sorted(JSON_TYPES))}.")
        if self._reading >= UNFINISHED:
            raise Refusal(503, f"{UNFINISHED} requests whose body is not complete are open; try again later.")
        # No lock: everything between two awaits is one step of the event loop.
        self._reading += 1
        try:
            whole: bytes | None = await asyncio.wait_for(_read(receive), BODY_SECONDS)
            return whole
        except asyncio.TimeoutError:
            raise Refusal(408, f"The body was not complete within {BODY_SECONDS:g} seconds.") from None
        finally:
            self._reading -= 1


async def _read(receive: Receive) -> bytes | None:
    """Return a request's whole body, None if the client went away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if len(body) > BODY_LIMIT:
            raise Refusal(413, f"The body has more than {BODY_LIMIT} bytes.")
        if not message.get("more_body"):
            return bytes(body)


def host_name(header: str) -> str:
    """Return the host of a Host header, without its port and brackets, in lower case."""
    match = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", header.strip())
    return (match.group(1) or match.group(2)).lower() if match else ""
