"""Pipes, which pass bytes between two connections at the speed of the slower one, and connections to outside hosts."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

PATIENCE = 10.0
"""Seconds allowed for the head of a request, a TLS handshake, or a new connection."""
FIRST_BYTE, SILENT = 30.0, 600.0
"""Seconds allowed for a tunnel's first byte, and for silence after that; a tail of a log is kept alive by pings."""
HEAD_LIMIT = 16 * 1024
"""Most bytes of a request's or an answer's head."""


class PipeEnd(asyncio.Protocol):
    """One of two ends of a pipe: bytes that it receives are sent by the other.

    Args:
        on_lost: Called once this end is closed.
    """

    def __init__(self, on_lost: Callable[[], None] = lambda: None) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: PipeEnd | None = None
        self._on_lost = on_lost
        self._waiting = bytearray()
        self._heard = 0.0
        self._check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def join(self, other: PipeEnd) -> None:
        """Connect the ends; bytes that each received before are passed on first."""
        self.other, other.other = other, self
        # Either side may have sent bytes or closed its connection before this call.
        for end in (self, other):
            if end._waiting:
                end.data_received(bytes(end._take()))
            # asyncio has called connection_lost before there was another end to close.
            if end.transport is not None and end.transport.is_closing():
                end.connection_lost(None)

    def _take(self) -> bytes:
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken

    def close_when_silent(self) -> None:
        """Close both ends if this one sends no first byte in time, or both are silent for too long."""
        loop, other = asyncio.get_running_loop(), self.other
        heard = max(self._heard, other._heard) if other is not None and self._heard else 0.0
        left = heard + SILENT - loop.time() if heard else FIRST_BYTE
        if self._check is not None and (left <= 0 or not heard):
            if self.transport is not None:
                self.transport.close()
            return
        self._check = loop.call_later(left, self.close_when_silent)

    def data_received(self, data: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        if self.other is None or self.other.transport is None:
            self._waiting += data
        elif not self.other.transport.is_closing():
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass a half-close on where the other side supports it, which TLS does not; returns whether this side stays open."""
        target = self.other.transport if self.other is not None else None
        if target is not None and target.can_write_eof() and not target.is_closing():
            target.write_eof()
            # True keeps this side open: its answer may still be under way.
            return self.transport is not None and self.transport.can_write_eof()
        return False

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._check is not None:
            self._check.cancel()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()
        self._on_lost()


class RefusedUpstreamError(OSError):
    """The user's own proxy refuses to connect to a host."""


class _Handshake(PipeEnd):
    """An end whose first bytes are a proxy's answer to CONNECT."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return super().data_received(data)
        self._waiting += data
        head, found, rest = bytes(self._waiting).partition(b"\r\n\r\n")
        if found:
            self._waiting[:] = rest
            self.answer.set_result(head)
        elif len(self._waiting) > HEAD_LIMIT:
            self.answer.set_exception(RefusedUpstreamError("the proxy's answer has no end"))
        return None

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(RefusedUpstreamError("the proxy closed the connection"))
        super().connection_lost(error)


class Upstream:
    """Opens connections to allowed hosts: directly, or through the proxy in the user's environment.

    Args:
        own_port: The front's own port, which is not taken for the user's proxy.
    """

    def __init__(self, own_port: int) -> None:
        found = getproxies_environment()
        self._proxy = self._usable(found.get("https") or found.get("all") or "", own_port)
        self._plain_proxy = self._usable(found.get("http") or found.get("all") or "", own_port)

    @staticmethod
    def _usable(text: str, own_port: int) -> SplitResult | None:
        with suppress(ValueError):
            url = urlsplit(text if "//" in text else f"//{text}", "http")
            if url.hostname and url.scheme in ("http", "https"):
                # A server started in a shell of `local env` would otherwise ask itself for ever.
                own = url.hostname in ("127.0.0.1", "localhost") and url.port == own_port
                return None if own else url
        return None

    async def connect(self, host: str, port: int) -> PipeEnd:
        """Return a connection to an allowed host.

        Raises:
            OSError: The host cannot be reached.
        """
        try:
            return await asyncio.wait_for(self._connect(host, port), PATIENCE)
        except asyncio.TimeoutError:
            raise OSError(f"no answer within {PATIENCE:g} seconds") from None

    async def _connect(self, host: str, port: int) -> PipeEnd:
        loop = asyncio.get_running_loop()
        proxy = self._proxy if port == 443 else self._plain_proxy or self._proxy
        if proxy is None or proxy_bypass_environment(host):
            _, end = await loop.create_connection(PipeEnd, host, port)
            return end
        secure = ssl.create_default_context() if proxy.scheme == "https" else None
        transport, handshake = await loop.create_connection(
            _Handshake, str(proxy.hostname), proxy.port or (443 if secure else 80), ssl=secure
        )
        lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
        if proxy.username is not None:
            login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}")
        transport.write("\r\n".join([*lines, "", ""]).encode())
        try:
            status = (await handshake.answer).split(b"\r\n")[0].split(b" ", 2)
            if len(status) < 2 or status[1] != b"200":
                raise RefusedUpstreamError(
                    f"the proxy {proxy.hostname} answers {b' '.join(status[1:]).decode('latin-1')}"
                )
        except BaseException:
            transport.abort()
            raise
        return handshake
