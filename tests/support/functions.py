"""The staged function served by functions-framework in a child process, and a wrapper that kills it in the middle."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

WRAPPER = """
import os, re, signal, sys
import requests
sys.path.insert(0, os.path.dirname(os.environ["MAIN"]))
from dataclasses import replace
from vertexrig.cloud.storage import Storage
from vertexrig.submit import claims
claims.LEASE_S, claims.WAIT_S, claims.CREATE_WITHIN_S = float(os.environ.get("LEASE", "120")), float(os.environ.get("WAIT", "15")), 60.0
when, _, number = os.environ.get("KILL", "never:0").partition(":")
later, aged = float(os.environ.get("LATER", "0")), Storage.read_aged
def read_aged(storage, name):
    found = aged(storage, name)
    return found and replace(found, age_s=found.age_s + later)
Storage.read_aged = read_aged
calls, send = 0, requests.Session.send
def counted(session, request, **options):
    global calls
    calls += 1
    hit = calls == int(number) if number.isdigit() else re.search(number, f"{request.method} {request.url}")
    if when == "before" and hit:
        os.killpg(0, signal.SIGKILL)
    answer = send(session, request, **options)
    if when == "after" and hit:
        os.killpg(0, signal.SIGKILL)
    return answer
requests.Session.send = counted
from functions_framework._cli import _cli
_cli()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def opened(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server that was started takes connections; its log is the message if it ends before."""
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.02)


@contextmanager
def serving(
    folder: Path,
    env: Mapping[str, str],
    *,
    wrapped: bool = False,
    target: str = "trigger",
    python: str = sys.executable,
) -> Iterator[str]:
    """functions-framework on the staged folder; yields its URL once it listens.

    Args:
        folder: The staged folder.
        env: Variables of the process; nothing of ours but PATH is passed on.
        wrapped: Run under the wrapper, which reads KILL (`before:3`: at its third HTTP call; `after:POST .*/customJobs$`: at a call
            like that), LEASE, WAIT, and LATER: it sees claims so many seconds later.
        target: trigger or on_event.
        python: The interpreter that has functions-framework.
    """
    port = free_port()
    kind = "http" if target == "trigger" else "cloudevent"
    start = ["-c", WRAPPER] if wrapped else ["-m", "functions_framework"]
    words = ["--target", target, "--source", str(folder / "main.py"), "--signature-type", kind]
    clean = {"PATH": os.environ["PATH"], "MAIN": str(folder / "main.py"), **env}
    clean["PYTHONPYCACHEPREFIX"] = str(folder.parent / "compiled")  # the folder stays as it was staged
    log = (folder.parent / f"function-{port}.log").open("wb")
    process = subprocess.Popen(
        [python, *start, *words, "--host", "127.0.0.1", "--port", str(port)],
        env=clean, cwd=folder, start_new_session=True, stdout=log, stderr=log,
    )  # fmt: skip
    try:
        opened(port, process, Path(log.name))
        yield f"http://127.0.0.1:{port}"
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def deliver(url: str, body: Any, headers: Mapping[str, str] | None = None) -> requests.Response | None:
    """One delivery; None if the process died on it."""
    try:
        return requests.post(url, json=body, headers=dict(headers or {}), timeout=60)
    except requests.RequestException:
        return None


def until_done(url: str, body: object, headers: Mapping[str, str] | None = None) -> requests.Response:
    """Deliver again and again, as Cloud Scheduler does, until the answer is below 300."""
    until = time.monotonic() + 60
    while True:
        answer = deliver(url, body, headers)
        if answer is not None and answer.status_code < 300:
            return answer
        assert time.monotonic() < until, answer and answer.text
        assert answer is not None and answer.status_code == 503 and answer.headers["Retry-After"], answer
        time.sleep(0.3)
