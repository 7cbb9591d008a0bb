"""What a person who runs the trigger meets: one command, typed, tells the cause and the remedy, and the remedy works when typed.

A function that was killed, a schedule that is paused and five more are in `bench/demo_day_two.py`, which `test_make.py` runs.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.server import RunningServer
from tests.support import clouds, tools
from vertexrig import times
from vertexrig.cloud.storage import Storage
from vertexrig.runs.store import RunStore, owner
from vertexrig.trigger.app import Call, Trigger

pytestmark = pytest.mark.whole
DATA: dict[str, Any] = {
    **clouds.PROJECT,
    "trigger": {**clouds.PROJECT["trigger"], "uri": "http://127.0.0.1:9"},
    "schedules": {"nightly": {"run": "cpu", "cron": "0 3 * * 1"}},
}
Rig = Callable[..., str]


@pytest.fixture
def rig(here: RunningServer, tmp_path: Path) -> Iterator[Rig]:
    """Types a command in the project's folder, in backticks or not, and returns what it printed."""

    def typed(line: str, *codes: int) -> str:
        done = tools.vertexrig(
            *shlex.split(line.strip("`"))[1:], cwd=tmp_path, env=server.env(here, project="my-project")
        )
        assert done.returncode in (codes or (0,)), done.stdout + done.stderr
        return done.stdout + done.stderr

    clouds.loaded(tmp_path, DATA)
    typed("vertexrig schedule apply")
    yield typed


def wrong(rig: Rig) -> list[dict[str, str]]:
    """The differences that `schedule status` tells of the schedule."""
    said = rig("vertexrig schedule status nightly --format=json", 0, 1)
    (found, *_) = json.JSONDecoder().raw_decode(said)[0]["schedules"]
    return list(found["differences"])


def delivered(here: RunningServer, folder: Path, day: int) -> str:
    """The job that a delivery of Cloud Scheduler started."""
    storage, vertex = Storage(clouds.BUCKET, url=here.url), clouds.vertex(here)
    trigger = Trigger(clouds.loaded(folder, DATA), vertex=vertex, storage=storage, log=lambda _: None)
    headers = {
        "x-cloudscheduler-jobname": "vertexrig-nightly",
        "x-cloudscheduler-scheduletime": f"2026-11-{day:02}T03:00:00Z",
    }
    reply = trigger.handle(Call("POST", "/", headers, lambda most: b'{"run": "cpu"}'))
    assert reply.status == 201, reply.body
    return str(reply.body["name"])


def test_a_job_that_stays_pending_and_is_cancelled(here: RunningServer, tmp_path: Path, rig: Rig) -> None:
    """A job without machines is named with its age and the command that cancels it; that works, and a job that a person cancelled is named
    with the command that runs the schedule again.
    """
    job = delivered(here, tmp_path, 2)
    store = RunStore(Storage(clouds.BUCKET, url=here.url).below("vertexrig/vertexrig"))
    (run,) = [one for one in store.open() if not isinstance(one, str) and one.schedule == "nightly"]
    assert job and store.save(replace(run, since=times.rfc3339(times.now() - timedelta(hours=5), 3)))
    (pending,) = [one for one in wrong(rig) if "PENDING" in one["message"]]
    assert "for 5 h: it has no machines yet" in pending["message"]
    rig(pending["fix"].partition(", or ")[2])
    end = time.monotonic() + 60
    while not (ended := [one for one in wrong(rig) if "ended CANCELLED" in one["message"]]):
        assert time.monotonic() < end
    rig(ended[0]["fix"].rpartition(", then ")[2])
    assert "CANCELLED" in rig("vertexrig schedule history nightly")


def test_a_function_that_is_stopped(rig: Rig) -> None:
    """The function that nothing serves any more is named with the command that serves it."""
    (stopped,) = [one for one in wrong(rig) if "cannot be reached" in one["message"]]
    assert "http://127.0.0.1:9" in stopped["message"] and stopped["fix"].startswith("`vertexrig function serve`, then ")
    rig(stopped["fix"].rpartition(", then ")[2])
    assert "Build the function and serve it" in rig("vertexrig function serve --help")


def test_two_triggers_on_one_bucket(here: RunningServer, tmp_path: Path, rig: Rig) -> None:
    """A file of the same function at another URL is told whose schedule it is, and takes it over with the command that is named."""
    clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], "uri": "http://127.0.0.1:10"}})
    (other,) = [one for one in wrong(rig) if "belongs to another trigger" in one["message"]]
    assert "calls http://127.0.0.1:9" in other["message"]
    rig(other["fix"].rpartition(", or ")[2])
    assert not [one for one in wrong(rig) if "another trigger" in one["message"]]
    assert owner(Storage(clouds.BUCKET, url=here.url).below("vertexrig/vertexrig")) == "http://127.0.0.1:10"
    clouds.loaded(tmp_path, DATA)
    rig("vertexrig schedule apply --adopt nightly")  # as other tests find it
