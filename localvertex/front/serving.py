"""The HTTP server of the local Vertex and its front, the proxy of `vertexrig local run`, on two ports and in one event loop.

The front passes decrypted requests to the server in memory, without another connection or process.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn

from localvertex.front.assembly import Front
from localvertex.front.pipes import HEAD_LIMIT, PipeEnd
from localvertex.front.proxy import Connections, Gate, NamedGate, most_connections
from localvertex.http import HOST_STATE
from localvertex.state import HOST
from vertexrig.guard import serving_protocol

HEAD_PATIENCE = 30.0
"""Seconds for the head of a request to be complete, and for the first one to begin."""
# Written by hand: h11 answers nothing before there is a request.
_FULL = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_IDENTITY = re.compile(rb"\r\ntransfer-encoding:[ \t]*identity[ \t]*(?=\r\n)", re.IGNORECASE)


_Guarded: Any = serving_protocol()


class LocalProtocol(_Guarded):  # type: ignore[misc]
    """uvicorn's HTTP protocol with limits on connections and on the time for a request's head.

    It accepts `Transfer-Encoding: identity`, which TensorFlow's GCS file system sends, and h11 refuses: RFC 9112 dropped it.
    """

    note: Callable[[str], None]
    most = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begun = bytearray()
        self._late: asyncio.TimerHandle | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # The front counts its own connections.
        if HOST_STATE not in self.app_state and len(self.connections) > self.most:
            self.note(f"refused: more than {self.most} connections are open")
            transport.write(_FULL.encode())
            transport.close()
        else:
            self._late = self.loop.call_later(HEAD_PATIENCE, transport.close)

    def data_received(self, data: bytes) -> None:
        # Only the head of a request is collected; a body passes as it comes.
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            return super().data_received(data)  # type: ignore[no-any-return]
        self._begun += data
        end = self._begun.find(b"\r\n\r\n")
        if end < 0 and len(self._begun) <= HEAD_LIMIT:
            if self._late is None:
                self._late = self.loop.call_later(HEAD_PATIENCE, self.transport.close)
            return None
        self._in_time()
        whole, self._begun = bytes(self._begun), bytearray()
        return super().data_received(_IDENTITY.sub(b"", whole[:end]) + whole[end:] if end > 0 else whole)  # type: ignore[no-any-return]

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def connection_lost(self, error: Exception | None) -> None:
        self._in_time()
        super().connection_lost(error)
        self.on_lost()


def protocol(note: Callable[[str], None]) -> type[asyncio.Protocol]:
    """Return the HTTP protocol class of a server; `note` takes the reason of each refused connection."""
    own = {"note": staticmethod(note), "most": most_connections()}
    return type(LocalProtocol.__name__, (LocalProtocol,), own)


def server_with(
    config: uvicorn.Config,
    front: Front,
    listener: socket.socket,
    tls: socket.socket,
) -> uvicorn.Server:
    """Return a uvicorn server that also opens and closes the front's two ports: `listener`, and `tls` for direct TLS."""

    class FrontedServer(uvicorn.Server):
        connections: Connections | None = None

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loop = asyncio.get_running_loop()

            def new_http(host: str | None = None, on_lost: Callable[[], None] = lambda: None) -> asyncio.Protocol:
                state = {**self.lifespan.state, **({} if host is None else {HOST_STATE: host})}
                made: Any = self.config.http_protocol_class
                http = made(config=self.config, server_state=self.server_state, app_state=state, _loop=loop)
                http.on_lost = on_lost
                return http  # type: ignore[no-any-return]

            async def listen() -> list[asyncio.Server]:
                kinds = (new_http, lambda: Gate(connections), lambda: NamedGate(connections))
                opened = [await loop.create_server(kind, HOST, 0, backlog=1024) for kind in kinds]
                self.servers += opened
                return opened

            self.connections = connections = front.connections(listener.getsockname()[1], new_http)
            # Before uvicorn's own port, so that `started` means that all ports are open.
            proxy = await loop.create_server(lambda: Gate(connections), sock=listener, backlog=1024)
            direct = await loop.create_server(lambda: NamedGate(connections), sock=tls, backlog=1024)
            await super().startup(sockets)
            # uvicorn closes what is in this list when it stops.
            self.servers += [proxy, direct]
            front.runs.listen = listen

        async def main_loop(self) -> None:
            await super().main_loop()
            for transport in list(self.connections.open if self.connections else ()):
                if isinstance(transport.get_protocol(), (Gate, PipeEnd)):  # uvicorn ends the others itself
                    transport.abort()

    return FrontedServer(config)
