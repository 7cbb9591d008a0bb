"""The proxy on loopback: it ends TLS for hosts of Google's APIs, passes connections to a few other hosts, and refuses the rest.

A client sends `CONNECT host:443` with the token of the proxy's URL. A JVM cannot send the token; the kernel says which user
holds its connection, and the user who started the server is accepted. After TLS with a certificate of the folder's own
authority, HTTP/1.1 goes to the server in this process, and HTTP/2 (gRPC) to the port of the gRPC server. No library has a
proxy that ends TLS in the process that answers and checks the user of a connection.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import ctypes
import gc
import hmac
import logging
import os
import re
import resource
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import responses
from typing import Any

from localvertex.front.authority import Authority
from localvertex.front.hosts import METADATA, Handling, Hosts, is_google, is_host, is_storage
from localvertex.front.pipes import HEAD_LIMIT, PATIENCE, PipeEnd, Upstream
from localvertex.front.variables import USER
from localvertex.http import MAKER
from localvertex.state import HOST
from vertexrig import guard
from vertexrig.text import clean

_LOG = logging.getLogger(__name__)

# An IPv6 address in brackets, or anything without a colon; `is_host` decides what is a name.
_TARGET = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/@\s]+):([0-9]{1,5})")
_ABSOLUTE = re.compile(r"http://(\[[0-9a-fA-F:.]+\]|[^:/\[\]@\s]+)(?::([0-9]{1,5}))?(/\S*)?", re.IGNORECASE)
_MOST_CONNECTIONS = 1000
_FILES_OF_CONNECTION = 4
"""Open files that a connection takes: three of its own, and one for the rest of the server."""
_MANY = 100
"""Connections at one time above which memory is returned to the system later."""
_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# Messages hold names that clients choose: a loop over random hosts must not fill memory and log.
_KINDS_KEPT = 200
# gcloud looks so for a metadata server, and goes on without one.
_PROBES = re.compile(rf"refused: (?:{'|'.join(map(re.escape, sorted(METADATA)))}):443 is not served")
_RUNS_KEPT = 50
"""Newest commands of `local run` for which a message is counted."""

NewHttp = Callable[[str, Callable[[], None]], asyncio.Protocol]
"""Makes the HTTP protocol of a connection, given its host and a function to call when the connection is closed."""


class Journal:
    """Counts what was refused or not served, by message; each message is logged once.

    Attributes:
        piped: Ports of the front's own ends of the connections that it hands to the gRPC server, with the ports that
            their clients came to.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._by_run: dict[str, dict[str, int]] = {}
        self._refusals: set[str] = set()
        self.piped: dict[int, int] = {}

    def refused(self) -> dict[str, int]:
        """Return each refusal and its count."""
        return {what: self.counts[what] for what in sorted(self._refusals)}

    def refuse(self, why: str, run: str | None = None) -> None:
        """Count a refusal; see `note`."""
        what = clean(f"refused: {why}")
        self.note(what, run)
        # `note` drops new messages beyond its bound.
        if what in self.counts:
            self._refusals.add(what)

    def noted(self, run: str = "") -> dict[str, int]:
        """Return each message and its count, without those of probes; with `run` only those of that command, and of calls by no
        command, such as replicas'.
        """
        kinds = self.counts
        if run:
            kinds = {what: own.get(run, 0) + own.get("", 0) for what, own in list(self._by_run.items())}
        return {what: times for what, times in kinds.items() if times and not _PROBES.match(what)}

    def note(self, what: str, run: str | None = None) -> None:
        """Count a message.

        Args:
            what: The message, which may have a client's words.
            run: Id of the `local run` command it belongs to; that of the current request by default.
        """
        what = clean(what)
        seen = self.counts.get(what, 0)
        if not seen and len(self.counts) >= _KINDS_KEPT:
            return
        self.counts[what] = seen + 1
        run, own = MAKER.get() if run is None else run, self._by_run.setdefault(what, {})
        own[run] = own.get(run, 0) + 1
        if len(own) > _RUNS_KEPT:
            del own[next(filter(None, own))]
        if not seen:
            _LOG.warning("%s", what)


@dataclass
class Connections:
    """State and settings that the connections of one front share.

    Args:
        token: The secret that clients send.
        grpc_port: The gRPC server's port on loopback, None while none runs.
        run_at: Returns the id of the `local run` command that has a port, "" if no command has it.
        most: Most connections at one time.
    """

    authority: Authority
    hosts: Hosts
    token: str
    new_http: NewHttp
    grpc_port: Callable[[], int | None]
    journal: Journal
    upstream: Upstream
    run_at: Callable[[int], str]
    most: int
    open: dict[asyncio.Transport, int | None] = field(default_factory=dict)
    """Each connection with its user, None where the system does not say."""
    peak: int = 0

    def full(self, user: int | None) -> str:
        """Return why another connection of a user is refused, or "": a tenth is reserved for other users, such as root."""
        if len(self.open) >= self.most:
            return f"more than {self.most} connections are open"
        own = self.most - self.most // 10
        if user is not None and sum(one == user for one in self.open.values()) >= own:
            return f"more than {own} connections of the user with id {user} are open"
        return ""

    def enter(self, transport: asyncio.Transport, user: int | None) -> None:
        """Count a connection."""
        self.open[transport] = user
        self.peak = max(self.peak, len(self.open))

    def leave(self, transport: asyncio.Transport) -> None:
        """Remove a closed connection from the count; after many have closed, return their memory to the system."""
        self.open.pop(transport, None)
        if self.peak > _MANY > 4 * len(self.open):
            self.peak = 0
            asyncio.get_running_loop().call_later(1, _give_back)


def allow_files() -> None:
    """Raise this process' limit of open files, 1,024 in most shells, to what `_MOST_CONNECTIONS` need, or as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS * _FILES_OF_CONNECTION
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS can allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return the limit of connections, by the limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(64, min(_MOST_CONNECTIONS, soft // _FILES_OF_CONNECTION))


def _give_back() -> None:
    """Return free memory to the system: a connection with TLS takes 280 KB, which glibc keeps (measured 2026-11-22)."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class _TurnedAway(Exception):
    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class Gate(asyncio.Protocol):
    """One connection from its first byte until its target is known."""

    def __init__(self, shared: Connections) -> None:
        self.shared = shared
        self.transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._rest = bytearray()  # decrypted bytes that came before the connection was handed over
        self._passed = self._ended = False
        self._user: int | None = None
        self._run = ""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        client, server = self._ends()
        self._run = self.shared.run_at(server[1]) if server else ""
        self._user = guard.peer_user(client, server) if client and guard.KNOWS_USERS else None
        # Checked before it is counted, so that a refused connection does not count.
        full = self.shared.full(self._user)
        if full:
            return self._refuse(_TurnedAway(503, full))
        self.shared.enter(transport, self._user)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._late)
        # Before a byte is read: other users of the machine learn nothing but this refusal.
        refusal = guard.refusal_of(self._user) if client and guard.KNOWS_USERS else None
        if refusal is not None:
            self._refuse(_TurnedAway(403, refusal))
        return None

    def _late(self) -> None:
        self._refuse(_TurnedAway(400, f"the head of the request was not complete within {PATIENCE:g} seconds"))

    def data_received(self, data: bytes) -> None:
        if self._passed:
            self._rest += data
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= HEAD_LIMIT:
            return
        # Later bytes are collected for the protocol that takes the connection over.
        self._passed = True
        # Now: if the loop was paused, the timer would run before the task below.
        self._settled()
        try:
            if end < 0 or end > HEAD_LIMIT:
                raise _TurnedAway(431, f"the head of the request has more than {HEAD_LIMIT} bytes")
            # A client may send its body in the packet of the head.
            self._rest += self._head[end + 4 :]
            self._task = asyncio.get_running_loop().create_task(self._answer(bytes(self._head[:end])))
        except _TurnedAway as refusal:
            self._refuse(refusal)

    def eof_received(self) -> bool:
        """Keep the connection half-open: the client may still be waiting for its answer. Returns whether it stays open."""
        self._ended = self._passed and self.transport is not None and self.transport.can_write_eof()
        return self._ended

    def connection_lost(self, error: Exception | None) -> None:
        self._settled()
        if self.transport is not None:
            self.shared.leave(self.transport)

    def _refuse(self, refusal: _TurnedAway) -> None:
        """Answer with the refusal in the body and the reason phrase; most clients show only the latter."""
        self._passed = True
        self.shared.journal.refuse(refusal.message, self._run)
        if self.transport is None or self.transport.is_closing():
            return
        body = f"{refusal.message}\n".encode()
        # Line breaks would begin another header field.
        reason = refusal.message.encode("ascii", "replace").decode().replace("\r", " ").replace("\n", " ")[:300]
        login = 'Proxy-Authenticate: Basic realm="vertexrig"\r\n' if refusal.code == 407 else ""
        head = (
            f"HTTP/1.1 {refusal.code} {reason or responses[refusal.code]}\r\n{login}Content-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    async def _answer(self, head: bytes) -> None:
        try:
            method, target, headers = _parsed(head)
            self._authorise(headers)
            if method == "CONNECT":
                await self._connect(target)
            else:
                await self._plain(method, target)
        except _TurnedAway as refusal:
            self._refuse(refusal)
        except OSError as error:  # a client that breaks off, or does not trust the certificate
            if isinstance(error, ssl.SSLError):
                self.shared.journal.refuse(f"the TLS handshake failed: {error.reason or error}", self._run)
            if self.transport is not None:
                self.transport.abort()

    def _ends(self) -> tuple[guard.Address, guard.Address]:
        """Return the addresses and ports of the client and of this server."""
        assert self.transport is not None
        client: Any = self.transport.get_extra_info("peername") or ()
        server: Any = self.transport.get_extra_info("sockname") or ()
        return client[:2], server[:2]

    def _authorise(self, headers: dict[str, str]) -> None:
        """Raise a 407 unless the client sends the token, or the kernel says that the server's own user holds the connection.

        Web pages cannot reach this: a browser sends CONNECT, or a whole URL, only to the proxy in its settings.
        """
        if "proxy-authorization" not in headers and self._user == os.geteuid():
            return
        kind, _, given = headers.get("proxy-authorization", "").partition(" ")
        try:
            login = base64.b64decode(given.strip(), validate=True) if kind.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            login = b""
        # In constant time: the time of an answer must not show how much of a token is right.
        if not hmac.compare_digest(login, f"{USER}:{self.shared.token}".encode()):
            raise _TurnedAway(407, "the token of the proxy's URL is missing or wrong; `vertexrig local run` sets it")

    def _handling(self, host: str, port: int, usual: int) -> Handling:
        handling = self.shared.hosts.handling(host, port, usual)
        if handling is Handling.REFUSED:
            raise _TurnedAway(403, self.shared.hosts.refusal(host, port, usual))
        return handling

    async def _connect(self, target: str) -> None:
        match = _TARGET.fullmatch(target)
        host, port = (match.group(1).lower(), int(match.group(2))) if match else ("", 0)
        if not is_host(host) or not 0 < port < 65536:
            raise _TurnedAway(400, "CONNECT names no host and port")
        # Bytes before the answer are not encrypted, and must not be taken for a part of TLS.
        if self._rest:
            raise _TurnedAway(400, "bytes came before the answer to CONNECT")
        if self._handling(host, port, 443) is Handling.PASSED:
            await self._pass(host, port, _CONNECTED, b"")
        elif port != 443 or host in METADATA:
            served = (
                "the metadata server speaks HTTP, at port 80" if host in METADATA else "Google's APIs have port 443"
            )
            raise _TurnedAway(403, f"{host}:{port} is not served: {served}")
        else:
            await self._serve(host.rstrip("."))

    async def _serve(self, host: str) -> None:
        """Answer CONNECT, and end TLS here."""
        assert self.transport is not None
        context = self._context(host)
        self.transport.write(_CONNECTED)
        await self._secure(context, lambda: host)

    def _context(self, host: str) -> ssl.SSLContext:
        # Clients that offer both speak HTTP/1.1 here; those of gRPC offer h2 only.
        return self.shared.authority.context(host, ("http/1.1", "h2") if self.shared.grpc_port() else ("http/1.1",))

    async def _secure(self, context: ssl.SSLContext, host: Callable[[], str]) -> None:
        """End TLS here, and pass the connection to the server of the protocol that was negotiated.

        Args:
            context: TLS context of this end.
            host: Returns the host that the client addressed, which is known after the handshake.
        """
        assert self.transport is not None
        plain, loop = self.transport, asyncio.get_running_loop()
        try:
            made = await loop.start_tls(plain, self, context, server_side=True, ssl_handshake_timeout=PATIENCE)
        finally:
            # asyncio tells no protocol that its connection was lost during a handshake (sslproto.SSLProtocol.connection_lost)
            self.shared.leave(plain)
        # The client has closed the connection during the handshake.
        if made is None or made.is_closing():
            return
        self.shared.enter(made, self._user)
        self.transport = made
        if made.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            grpc = self.shared.grpc_port()
            # The gRPC server has ended since the handshake began.
            if grpc is None:
                return made.abort()
            piped, own = self.shared.journal.piped, list[int]()

            def forget() -> None:
                for one in own:
                    piped.pop(one, None)

            transport, end = await loop.create_connection(lambda: PipeEnd(forget), HOST, grpc)
            own.append(transport.get_extra_info("sockname")[1])
            # The gRPC server sees a client at this port; the journal shows by it that the call came through the
            # front.
            piped[own[0]] = made.get_extra_info("sockname")[1]
            return self._join(end)
        return self._speak_http(host(), made, bytes(self._rest))

    def _settled(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _plain(self, method: str, target: str) -> None:
        """Serve a request without TLS, whose target is a whole URL: of the metadata server, Cloud Storage, or an allowed host."""
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            raise _TurnedAway(400, "this is a proxy: send CONNECT, or a request whose target is a whole http URL")
        host, port, path = match.group(1).lower(), int(match.group(2) or 80), match.group(3) or "/"
        if not is_host(host) or not 0 < port < 65536:
            raise _TurnedAway(400, "the URL names no host")
        kept = [
            line
            for line in bytes(self._head).split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
            if line.partition(b":")[0].strip().lower()
            # Fields of the connection to this proxy, and its token, which no other host may see.
            not in (b"proxy-authorization", b"proxy-connection", b"connection", b"keep-alive")
        ]
        # One request per connection, so that a second one to another host cannot follow unseen.
        lines = [f"{method} {path} HTTP/1.1".encode("latin-1"), *kept, b"Connection: close", b"", b""]
        request = b"\r\n".join(lines)  # what follows it is in _rest, and may still grow
        if self._handling(host, port, 80) is Handling.PASSED:
            return await self._pass(host, port, b"", request)
        if host not in METADATA and not is_storage(host):
            raise _TurnedAway(403, f"http://{host} is not served: Google's APIs are asked with https")
        assert self.transport is not None
        return self._speak_http(host, self.transport, request + bytes(self._rest))

    def _speak_http(self, host: str, transport: asyncio.Transport, received: bytes) -> None:
        """Hand the connection to the HTTP server in this process."""
        http = self.shared.new_http(host, lambda: self.shared.leave(transport))
        transport.set_protocol(http)
        http.connection_made(transport)
        if received:
            http.data_received(received)

    async def _pass(self, host: str, port: int, answer: bytes, request: bytes) -> None:
        """Join the client with a host that is not Google's."""
        assert self.transport is not None
        try:
            end = await self.shared.upstream.connect(host.strip("[]"), port)
        except OSError as error:
            raise _TurnedAway(502, f"{host}:{port} cannot be reached: {error}") from None
        assert end.transport is not None
        self.transport.write(answer)
        end.transport.write(request)
        self._join(end)

    def _join(self, end: PipeEnd) -> None:
        """Replace this protocol by a pipe to another connection."""
        transport = self.transport
        assert transport is not None
        own = PipeEnd(on_lost=lambda: self.shared.leave(transport))
        own.connection_made(transport)
        transport.set_protocol(own)
        # Before the ends are joined, which hands on what waits.
        own._waiting += self._rest
        own.join(end)
        own.close_when_silent()
        if self._ended:
            own.eof_received()


class NamedGate(Gate):
    """A connection that begins with TLS, which names the host, from a client that uses no proxy.

    It has no token; the user of the connection is checked, as at the server's own port.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._passed:
            self._passed = True
            self._settled()
            self._task = asyncio.get_running_loop().create_task(self._named())

    async def _named(self) -> None:
        named: list[str] = []

        def chosen(end: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
            host = (name or "").rstrip(".").lower()
            if not is_google(host) or host in METADATA:
                why = self.shared.hosts.refusal(host, 443, 443) if host else "TLS names no host"
                self.shared.journal.refuse(why, self._run)
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            named.append(host)
            end.context = self._context(host)
            return None

        # This context waits for the host's name, and is then replaced by that host's.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = chosen
        try:
            await self._secure(context, lambda: named[0])
        except OSError as error:
            if named:
                why = f"the TLS handshake failed: {getattr(error, 'reason', None) or error}"
                self.shared.journal.refuse(why, self._run)
            if self.transport is not None:
                self.transport.abort()


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return the method, target and headers of a request's head."""
    # latin-1 takes every byte; fields of HTTP have no encoding of their own.
    lines = head.decode("latin-1").split("\r\n")
    match = re.fullmatch(r"([A-Z]{1,20}) (\S{1,8000}) HTTP/1\.[01]", lines[0])
    if match is None:
        raise _TurnedAway(400, "this is not an HTTP request")
    pairs = (line.partition(":") for line in lines[1:])
    return match.group(1), match.group(2), {name.strip().lower(): value.strip() for name, _, value in pairs}
