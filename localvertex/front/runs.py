"""Commands of `vertexrig local run`: each has ports of its own at the server, by which its calls are told from all others.

By ports, since some clients send no credentials of a proxy's (a JVM), and others are led here by name and know no proxy.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from localvertex.http import MAKER

KEPT = 20
"""Ended commands whose ports stay open, for what they left in the background."""

Listen = Callable[[], Awaitable[list[asyncio.Server]]]
"""Has the server answer at three further ports: as at its own, at the front's, and where TLS begins at once."""


@dataclass(frozen=True)
class CommandPorts:
    """The ports of the command that a process runs, in the order of `Listen`, and what listens there."""

    id: str
    process: int
    ports: tuple[int, ...]
    servers: list[asyncio.Server]

    @property
    def over(self) -> bool:
        """Whether its process has ended."""
        with suppress(PermissionError):  # another user's, such as root's
            try:
                os.kill(self.process, 0)
            except ProcessLookupError:
                return True
        return False


class Commands:
    """The commands that one server has ports for.

    Attributes:
        listen: Set by the server as it starts.
    """

    def __init__(self) -> None:
        self.listen: Listen | None = None
        self._open: list[CommandPorts] = []
        self._by_port: dict[int, str] = {}

    async def begin(self, process: int) -> CommandPorts:
        """Open ports for a command; those of the oldest that have ended are closed.

        Raises:
            OSError: The system gives no more.
        """
        assert self.listen is not None
        for one in [one for one in self._open if one.over][:-KEPT]:
            self._open.remove(one)
            for server in one.servers:
                server.close()
            for port in one.ports:
                del self._by_port[port]
        servers = await self.listen()
        ports = tuple(one.sockets[0].getsockname()[1] for one in servers)
        made = CommandPorts(secrets.token_hex(8), process, ports, servers)
        self._open.append(made)
        self._by_port |= dict.fromkeys(ports, made.id)
        return made

    def at(self, port: int) -> str:
        """Name the command whose port it is, "" if it is none's."""
        return self._by_port.get(port, "")

    def around(self, app: ASGIApp, piped: Mapping[int, int]) -> ASGIApp:
        """Return an application that answers as `app` does, and knows of each request which command's it is.

        `piped` has the port that a client of gRPC came to, by the port that the gRPC server sees.
        """

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                # A call of gRPC comes from inside this process, and has no server.
                here, client = scope.get("server"), scope.get("client")
                port = here[1] if here else piped.get(client[1]) if client else None
                MAKER.set(self.at(port or 0))
            await app(scope, receive, send)

        return told
