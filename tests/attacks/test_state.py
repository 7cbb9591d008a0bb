"""The state of the local Vertex damaged, and several servers that start at once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from localvertex import server, state
from localvertex.front import control
from localvertex.jobs.settings import Settings
from localvertex.sqlite import Database
from tests.attacks.wire import on_linux
from tests.support.tools import REPOSITORY, vertexrig
from vertexrig.errors import ServiceError, UsageError

SOON_S = 20.0
"""Seconds within which an error comes, where `up` itself would wait for 30."""


def databases(root: Path) -> list[Path]:
    return sorted(root.rglob("*.sqlite3"))


def test_a_database_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    """A folder that cannot be created is the reason given; the user is not told to move the database away."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"state\.sqlite3 cannot be opened: .*(exists|directory)") as refused:
        Database(tmp_path / "file/state.sqlite3", "")
    assert "mv " not in str(refused.value)


@pytest.mark.parametrize("damage", ["garbage", "folder", "newer"])
def test_a_damaged_database_is_named(tmp_path: Path, damage: str) -> None:
    """Garbage, a folder or a newer schema in place of a database: the file is named, and what to do."""
    path = tmp_path / "state.sqlite3"
    if damage == "garbage":
        path.write_bytes(os.urandom(5000))
    elif damage == "folder":
        path.mkdir()
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError) as refused:
        Database(path, "")
    assert ("newer vertexrig" if damage == "newer" else f"mv {path} {path}.damaged") in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_server_names_each_damaged_database(tmp_path: Path) -> None:
    """A server whose databases are all damaged names one after the other, and starts once they are moved away."""
    with server.running(Settings(tmp_path)):
        damaged = databases(tmp_path)
    assert len(damaged) >= 3
    for path in damaged:
        path.write_bytes(os.urandom(5000))
    for _ in range(len(damaged)):
        with pytest.raises(UsageError) as refused, server.running(Settings(tmp_path)):
            pass
        (path,) = (one for one in databases(tmp_path) if f"mv {one} {one}.damaged" in str(refused.value))
        path.rename(f"{path}.damaged")
    with server.running(Settings(tmp_path)):
        pass


@pytest.mark.whole
def test_the_command_shows_no_traceback_for_damaged_state(tmp_path: Path) -> None:
    """`local up`, in the foreground and in the background, ends with the sentence and no traceback."""
    (state.bind(tmp_path) / "vertex.sqlite3").write_bytes(b"garbage" * 1000)
    for words, code in (([], 2), (["--detach"], 3)):
        done = vertexrig("local", "up", "--root", str(tmp_path), "--port", "0", *words, cwd=tmp_path)
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


@on_linux
def test_a_frozen_server_is_named(tmp_path: Path) -> None:
    """Beside a server that is stopped (SIGSTOP), `up` ends with its process and what to do; let go on, it
    is found.
    """
    here = control.up(Settings(tmp_path), 0)
    process = psutil.Process(here.pid)
    try:
        process.suspend()
        began = time.monotonic()
        with pytest.raises(ServiceError, match=f"process {here.pid} holds .*`kill -CONT {here.pid}` lets it go on"):
            control.up(Settings(tmp_path), 0)
        assert time.monotonic() - began < SOON_S
        process.resume()
        assert control.up(Settings(tmp_path), 0).pid == here.pid
    finally:
        process.resume()
        control.down(tmp_path)


@pytest.mark.whole
@on_linux
@pytest.mark.parametrize("left", [0, 600])
def test_a_full_disk_is_named(tmp_path: Path, left: int) -> None:
    """`up` on a disk with no room, or few KiB, ends and says that there is no space."""
    script = (
        f"mount -t tmpfs -o size=2m none {tmp_path} && head -c {(2048 - left) * 1024} /dev/zero >{tmp_path}/full || exit 77\n"
        f"{sys.executable} -m vertexrig local up --detach --port 0 --root {tmp_path}/state\ncode=$?\n"
        f"{sys.executable} -m vertexrig local down --root {tmp_path}/state >&2\nexit $code"
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    if done.returncode in (1, 77) and "vertexrig" not in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    assert done.returncode == 2 and "state cannot be used: No space left on device" in done.stderr, done
    assert time.monotonic() - began < SOON_S


@pytest.mark.whole
def test_two_ups_at_once_find_one_server(tmp_path: Path) -> None:
    """Three `up --detach` at once on one folder end with exit code 0 and name one and the same server."""
    up = ("local", "up", "--root", str(tmp_path / "state"), "--detach", "--format", "json")
    try:
        with ThreadPoolExecutor(3) as pool:
            ends = list(pool.map(lambda _: vertexrig(*up, cwd=tmp_path), range(3)))
        assert [done.returncode for done in ends] == [0, 0, 0], ends
        assert len({json.loads(done.stdout)["pid"] for done in ends}) == 1
    finally:
        control.down(tmp_path / "state")


def test_commands_that_begin_together_leave_one_number(tmp_path: Path) -> None:
    """Commands that all take themselves for the one that started the server leave its number, so that the last one stops it."""
    together, left = threading.Barrier(8), []

    def use() -> None:
        for _ in range(60):
            together.wait()
            with state.in_use(tmp_path) as use:
                use.begun(12345)
                together.wait()
                left.append(use.last(12345))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(left) == 480 and sum(left) >= 60


def test_state_that_came_with_a_folder_is_not_resumed(tmp_path: Path) -> None:
    """State that was copied or moved, with what waits in it, is refused with what to type; adopted, or made here, it is used."""
    with server.running(Settings(tmp_path / "made")):
        pass
    with server.running(Settings(tmp_path / "made")):
        pass
    shutil.copytree(tmp_path / "made", tmp_path / "copied")
    (tmp_path / "made").rename(tmp_path / "moved")
    for root in (tmp_path / "copied", tmp_path / "moved"):
        before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
        with (
            pytest.raises(state.ForeignStateError, match=f"vertexrig local up --adopt --root {root}"),
            server.running(Settings(root)),
        ):
            pass
        assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before
        state.bind(root, adopt=True)
        with server.running(Settings(root)):
            pass


@pytest.mark.parametrize("part", ["vertex.sqlite3", "envs", "rehearsals", "scheduler", "link", "pipe"])
def test_each_part_of_a_state_that_acts_is_asked_about(tmp_path: Path, part: str) -> None:
    """Jobs, environments, rehearsals or schedules that came without a place of their own are refused, and so are a link and a
    pipe; buckets alone are not.
    """
    root = tmp_path / "state"
    (root / "gs/my-bucket").mkdir(parents=True)
    state.bind(root)
    (root / "binding.json").unlink()
    if part == "link":
        (root / "server.log").symlink_to(tmp_path / "elsewhere")
    elif part == "pipe":
        os.mkfifo(root / "gs/my-bucket/pipe")
    else:
        (root / part).mkdir()
    with pytest.raises(state.ForeignStateError):
        state.bind(root)
    state.bind(root, adopt=True)
