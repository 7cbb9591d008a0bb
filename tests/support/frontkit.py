"""What the tests of the front share: a user's proxy that leads nowhere, bytes as a client sends them, and TLS through the front."""

from __future__ import annotations

import base64
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localvertex import server
from localvertex.front.variables import FOLDER
from localvertex.jobs.settings import Settings
from localvertex.state import RunningServer

AIPLATFORM = "us-central1-aiplatform.googleapis.com"


@dataclass
class Sink:
    """A proxy of the user's that connects to nothing and keeps what it was asked for."""

    port: int
    heads: list[str] = field(default_factory=list)


@contextmanager
def sinking() -> Iterator[Sink]:
    class Keeping(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            found.heads.append(f"{self.path} {self.headers['Proxy-Authorization']}")
            self.send_error(502, "nothing leaves this test")

        do_GET = do_POST = do_CONNECT

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeping) as proxy:
        found = Sink(proxy.server_address[1])
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield found
        proxy.shutdown()


@contextmanager
def fronted(root: Path, sink: Sink, *, grpc: bool = False) -> Iterator[RunningServer]:
    """A server whose user has a proxy, which is the sink."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{sink.port}")
        patch.delenv("no_proxy", raising=False)
        patch.delenv("NO_PROXY", raising=False)
        with server.running(Settings(root / "vertex", allow_hosts=("*.example.com",)), grpc=grpc) as running:
            yield running


def login(here: RunningServer) -> bytes:
    """The header field that the token makes."""
    token = (here.root / FOLDER / "token").read_text()
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"vertexrig:{token}".encode()) + b"\r\n"


def spoken(here: RunningServer, sent: bytes) -> bytes:
    """What the front answers to bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", here.front_port), timeout=30) as connection:
        connection.sendall(sent.replace(b"{login}", login(here)))
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def tunnel(here: RunningServer, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """TLS through the front."""
    plain = socket.create_connection(("127.0.0.1", here.front_port), timeout=30)
    plain.sendall(f"CONNECT {host}:443 HTTP/1.1\r\n".encode() + login(here) + b"\r\n")
    assert plain.recv(200).startswith(b"HTTP/1.1 200 ")
    return context.wrap_socket(plain, server_hostname=host)
