"""`function serve` against functions-framework on the same folder: the same answers, but for what its guard refuses."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import clouds, functions, tools
from vertexrig.cli import function
from vertexrig.project import config
from vertexrig.trigger import stage

JSON = {"Content-Type": "application/json"}
DRY = b'{"run": "cpu", "args": {"epochs": 0}}'
CASES: list[tuple[str, str, bytes | None, dict[str, str]]] = [
    ("GET", "/", None, {}), ("HEAD", "/", None, {}), ("GET", "/openapi.json", None, {}), ("GET", "/jobs?limit=0", None, {}),
    ("GET", "/jobs?limit=2&run=cpu", None, {}), ("GET", "/jobs/x%2fy", None, {}), ("GET", "/jobs/9", None, {}),
    ("DELETE", "/jobs/9", None, {}), ("DELETE", "/jobs/9", b"{}", JSON), ("GET", "/favicon.ico", None, {}),
    ("GET", "/robots.txt", None, {}), ("POST", "/", b"{", JSON), ("POST", "/", b"", JSON), ("POST", "/", DRY, JSON),
    ("POST", "/", b"x" * 70_000, JSON), ("POST", "/tick", b"{}", JSON), ("PUT", "/", b"{}", JSON), ("PATCH", "/", b"{}", JSON),
    ("OPTIONS", "/", None, {}), ("TRACE", "/", None, {}), ("FOO", "/", None, {}), ("GET", "//", None, {}),
    ("GET", "/a/../jobs", None, {}), ("GET", "/%ff", None, {}), ("GET", "/jobs?run=%ff", None, {}),
]  # fmt: skip
OURS = [("POST", "/", DRY, {"Content-Type": "text/plain"}, 415), ("POST", "/", b"x" * 2_000_000, JSON, 413)]
"""What the guard answers itself: other types than JSON, which any web page may send, and a body of more than 1 MiB."""


def ask(port: int, case: tuple[str, str, bytes | None, dict[str, str]]) -> tuple[int, dict[str, str], bytes]:
    """Status, headers but for those of the server, and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(case[0], case[1], body=case[2], headers=case[3])
    answer = connection.getresponse()
    named = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, {name: named[name] for name in named.keys() - {"date", "server", "connection"}}, answer.read()


@pytest.mark.whole
def test_it_answers_the_same(tmp_path: Path) -> None:
    """Each page, method and body has the status, headers and content that functions-framework gives it, and the guard's own are its own;
    Ctrl-C ends it with 130.
    """
    with clouds.cloud(tmp_path / "cloud") as here:
        loaded = clouds.loaded(tmp_path)
        folder = stage.stage(loaded, tmp_path / "build/peer").folder
        port = functions.free_port()
        words = [sys.executable, "-m", "vertexrig", "function", "serve", "--port", str(port)]
        env = {**os.environ, **clouds.variables(here), "PYTHONPATH": str(tools.REPOSITORY)}
        with (tmp_path / "serve.log").open("wb") as log:
            serve = subprocess.Popen(
                words, cwd=tmp_path, env=env, stdout=log, stderr=log,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
            )  # fmt: skip
        try:
            functions.opened(port, serve, tmp_path / "serve.log")
            with functions.serving(folder, clouds.variables(here)) as url:
                peer = int(url.rpartition(":")[2])
                for case in CASES:
                    assert ask(port, case) == ask(peer, case), case[:2]
            for method, path, body, headers, status in OURS:
                assert ask(port, (method, path, body, headers))[0] == status
            serve.send_signal(signal.SIGINT)
            assert serve.wait(20) == 130
            said = (tmp_path / "serve.log").read_text()
            assert said.endswith("\ninterrupted\n") and "Traceback" not in said
        finally:
            serve.terminate()
            serve.wait(20)


def test_a_port_in_use_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the port and --port, and schedules still call the function where it was served before."""
    clouds.loaded(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:9")
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it serves"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(function.command, ["serve", f"--port={port}"])
    assert f"port {port} of 127.0.0.1 cannot be used" in str(done.exception) and "--port" in str(done.exception)
    assert not (tmp_path / stage.SERVED).exists() and not (tmp_path / config.STAGED_FOLDER).exists()


def test_ctrl_c_while_the_function_is_imported(tmp_path: Path) -> None:
    """The server's process ends with 130 and without a traceback also before it serves."""
    (tmp_path / "main.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    words = [
        sys.executable,
        str(Path(function.__file__).with_name("function_server.py")),
        str(tmp_path),
        "trigger",
        "0",
    ]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")
