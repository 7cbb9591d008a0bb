"""`function serve` attacked: by other users, web pages, and bodies without an end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.attacks.wire import FOREIGN, NOBODY, as_user, exchange, needs_root, on_linux, request, status_of

MODULES = (
    "json",
    "tarfile",
    "uuid",
    "runpy",
    "io",
    "flask",
    "functions_framework",
    "uvicorn",
    "asgi",
    "guard",
    "vertexrig_guard",
    "main",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has modules with the names of those that a server imports."""
    folder = tmp_path_factory.mktemp("served")
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write(__name__)\n")
    return folder


@pytest.fixture(scope="module")
def function(folder: Path) -> Iterator[int]:
    """The port of `function serve` on a project, with a local Vertex behind it."""
    (folder / "vertexrig.yaml").write_text(
        "project: my-project\nbucket: gs://my-bucket\njobs: {cpu: {machine_type: n1-standard-4}}\n"
    )
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        server.running(Settings(folder / ".vertexrig", options=RunOptions(grace=0.5))),
        (folder / "log").open("wb") as log,
    ):
        argv = [sys.executable, "-m", "vertexrig", "function", "serve", "--port", str(port)]
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while status_of(_tried(port)) != 200:
                assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.05)
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def _tried(port: int) -> bytes:
    try:
        return exchange(port, request("GET", "/"))
    except OSError:
        return b""


def test_no_module_of_the_project_is_imported(function: int, folder: Path) -> None:
    """The server imports the staged function and its own packages: nothing of the project's folder, which is its working directory."""
    assert status_of(exchange(function, request("GET", "/"))) == 200 and not (folder / "ran").exists()


DRY = b'{"run": "cpu", "dry_run": true}'


def test_function_serve_has_the_same_guard(function: int) -> None:
    """A page of another origin, another host and a body that is not application/json are refused by `function serve`;
    a program of this user gets the trigger's own answers.
    """
    for headers in FOREIGN:
        for kind in ("text/plain", "application/json"):
            assert status_of(exchange(function, request("POST", "/", DRY, Content_Type=kind, **headers))) in (400, 403)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert status_of(exchange(function, request("POST", "/", DRY, Content_Type=kind))) == 415
    assert status_of(exchange(function, request("POST", "/", DRY))) == 415
    listing = exchange(function, request("GET", "/"))
    assert status_of(listing) == 200 and b'"cpu"' in listing
    for body, status in ((b"{", 400), (b'{"run": "other"}', 404), (b"x" * 2_000_000, 413)):
        assert status_of(exchange(function, request("POST", "/", body, Content_Type="application/json"))) == status
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (15, b'{"run": "none"}')
    sent = request("POST", "/", chunked, Content_Type="application/json", Transfer_Encoding="chunked")
    assert status_of(exchange(function, sent)) == 404 and status_of(exchange(function, request("PUT", "/x"))) == 415


@needs_root
@on_linux
def test_function_serve_refuses_another_user(function: int) -> None:
    """Another user of the machine starts nothing through `function serve`."""
    answer = as_user(NOBODY, function, request("POST", "/", DRY, Content_Type="application/json"))
    assert status_of(answer) == 403 and b"65534" in answer


@pytest.mark.whole
def test_unfinished_bodies_are_few_and_end(function: int) -> None:
    """Of 40 requests whose body never ends, 32 are waited for, the others get 503 at once; others are served meanwhile,
    and each that waited gets 408.
    """
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    connections = [socket.create_connection(("127.0.0.1", function), 30) for _ in range(40)]
    try:
        for connection in connections:
            connection.sendall(head)
        answers = [connection.recv(4096) for connection in connections]
        assert sorted(map(status_of, answers)) == [408] * 32 + [503] * 8
    finally:
        for connection in connections:
            connection.close()
    assert status_of(exchange(function, request("GET", "/"))) == 200
