"""Bytes as a client sends them, also as another user of the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

FOREIGN = (
    {"Host": "evil.example"}, {"Host": "evil.example:8642"}, {"Host": ""}, {"Host": "127.0.0.1.evil.example"},
    {"Host": "[::1"}, {"Host": "localhost@evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
    {"Origin": "http://localhost:3000"}, {"Origin": "file://"}, {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
)  # fmt: skip
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


def exchange(port: int, data: bytes, timeout: float = 10) -> bytes:
    """Send bytes and read until the server closes the connection, has answered, or `timeout` seconds have passed."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        try:
            connection.sendall(data)
            while chunk := connection.recv(65536):
                answer += chunk
        except OSError:
            pass
    return answer


def status_of(answer: bytes) -> int:
    """The status of the first answer, 0 where the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request as bytes; header names are given with _ for -, and Host is 127.0.0.1 unless given."""
    fields = {
        "Host": "127.0.0.1",
        "Connection": "close",
        **{key.replace("_", "-"): text for key, text in headers.items()},
    }
    fields |= {"Content-Length": str(len(body))} if body and "Transfer-Encoding" not in fields else {}
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {text}" for key, text in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def as_user(user: int, port: int, data: bytes) -> bytes:
    """Send bytes as another user of this machine, from a process that belongs to it."""
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat >&3; cat <&3"
    return subprocess.run(
        ["bash", "-c", script],
        input=data,
        capture_output=True,
        timeout=30,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
    ).stdout
