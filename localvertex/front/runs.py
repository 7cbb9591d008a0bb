"""Commands of `vertexrig local run`: each has its own ports at the server, which identify its calls.

The token of a proxy would not do: a JVM does not send it, and some clients use no proxy.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from localvertex.http import MAKER
from localvertex.state import lives

KEPT = 20
"""Ended commands whose ports stay open, for processes that they left in the background."""

Listen = Callable[[], Awaitable[list[asyncio.Server]]]
"""Opens three more ports of the server: one like its own, one like the front's, and one for direct TLS."""


@dataclass(frozen=True)
class CommandPorts:
    """The ports of a command, in the order of `Listen`, and the servers that listen on them."""

    id: str
    process: int
    ports: tuple[int, ...]
    servers: list[asyncio.Server]


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
        for one in [one for one in self._open if not lives(one.process)][:-KEPT]:
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
        """Return the id of the command that has a port, "" if no command has it."""
        return self._by_port.get(port, "")

    def around(self, app: ASGIApp, piped: Mapping[int, int]) -> ASGIApp:
        """Return an application that answers as `app` does, with `MAKER` set to the command of each request.

        `piped` maps the client port that the gRPC server sees to the port of the front that the client used.
        """

        async def marked(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                # A call of gRPC comes from inside this process, and has no server.
                here, client = scope.get("server"), scope.get("client")
                port = here[1] if here else piped.get(client[1]) if client else None
                MAKER.set(self.at(port or 0))
            await app(scope, receive, send)

        return marked
