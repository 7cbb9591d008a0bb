"""The state of the local Vertex damaged, and several servers that start at once."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from vertexrig.errors import ServiceError, UsageError
from vertexrig.local import control, server, state
from vertexrig.local.jobs.settings import Settings


def databases(root: Path) -> list[Path]:
    return sorted(root.rglob("*.sqlite3"))


@pytest.mark.parametrize("damage", ["garbage", "folder", "newer"])
def test_damaged_state_is_named(tmp_path: Path, damage: str) -> None:
    """Garbage, a folder or a newer schema in place of any database: the server does not start, and names the file and
    what to do; it starts again once the file is moved away."""
    with server.running(Settings(tmp_path / "whole")):
        names = [path.relative_to(tmp_path / "whole") for path in databases(tmp_path / "whole")]
    assert len(names) >= 4
    for number, name in enumerate(names):
        root = tmp_path / str(number)
        path = root / name
        path.parent.mkdir(parents=True)
        if damage == "garbage":
            path.write_bytes(os.urandom(5000))
        elif damage == "folder":
            path.mkdir()
        else:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA user_version = 99")
        with pytest.raises(UsageError) as refused, server.running(Settings(root)):
            pass
        assert str(path) in str(refused.value)
        assert ("newer vertexrig" if damage == "newer" else f"mv {path} {path}.damaged") in str(refused.value)
        path.rename(f"{path}.damaged")
        with server.running(Settings(root)):
            pass


def test_the_command_shows_no_traceback_for_damaged_state(tmp_path: Path) -> None:
    """`local up`, in the foreground and in the background, ends with the sentence and no traceback."""
    (tmp_path / "vertex.sqlite3").write_bytes(b"garbage" * 1000)
    for words, code in (([], 2), (["--detach"], 3)):
        argv = [sys.executable, "-m", "vertexrig", "local", "up", "--root", str(tmp_path), "--port", "0", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == code and "Traceback" not in done.stderr and "vertex.sqlite3" in done.stderr, (
            done.stderr
        )


def test_up_does_not_take_a_dying_server(tmp_path: Path) -> None:
    """While a killed server still holds its lock and nothing answers at its port, `up` waits and starts a new one."""
    with (tmp_path / "server.json").open("a+") as lock, closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        fcntl.flock(lock, fcntl.LOCK_EX)
        state.announce(lock, state.RunningServer(tmp_path, taken.getsockname()[1], 1))
        free = threading.Timer(0.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        free.start()
        here = control.up(Settings(tmp_path), 0)
        try:
            assert here.port != taken.getsockname()[1] and httpx.get(f"{here.url}/local/v1/status").status_code == 200
        finally:
            free.join()
            control.down(tmp_path)


def test_a_server_that_hangs_is_named(tmp_path: Path) -> None:
    """Where the lock is held and nothing ever answers, `up` gives up and names the process."""
    with (tmp_path / "server.json").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state.announce(lock, state.RunningServer(tmp_path, 1, 4242))
        with pytest.raises(ServiceError, match="process 4242 holds"):
            control.up(Settings(tmp_path), 0, timeout=0.3)


def test_two_ups_at_once_find_one_server(tmp_path: Path) -> None:
    """Four `up --detach` at once on one folder end with exit code 0 and name one and the same server."""
    argv = [
        sys.executable,
        "-m",
        "vertexrig",
        "local",
        "up",
        "--root",
        str(tmp_path / "state"),
        "--detach",
        "--format",
        "json",
    ]
    processes = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(4)
    ]
    try:
        ends = [(*process.communicate(timeout=90), process.returncode) for process in processes]
        assert [code for _, _, code in ends] == [0, 0, 0, 0], ends
        assert len({json.loads(out)["pid"] for out, _, _ in ends}) == 1
    finally:
        control.down(tmp_path / "state")


def test_commands_that_begin_together_leave_one_number(tmp_path: Path) -> None:
    """Commands that all take themselves for the one that started the server leave its number, so that the last one stops it."""
    together, left = threading.Barrier(8), []

    def use() -> None:
        for _ in range(60):
            together.wait()
            with state.in_use(tmp_path, begun=12345) as last:
                together.wait()
                left.append(last(12345))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(left) == 480 and sum(left) >= 60
