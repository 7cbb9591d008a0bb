"""Backfill: a run for each due time that has passed, as its delivery would have made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds
from tests.support.trigger_place import Place, nightly
from vertexrig import times
from vertexrig.errors import UsageError
from vertexrig.project.triggered import Schedule
from vertexrig.runs import backfill
from vertexrig.runs.policy import Hold, Holds
from vertexrig.runs.store import RunStore
from vertexrig.submit.claims import Claims, Recorded
from vertexrig.trigger import callers

DUE = [f"2026-11-{day}T03:00:00Z" for day in (16, 17, 18)]


def place(folder: Path, **keys: Any) -> Place:
    return Place(folder, nightly(retry_for="6h", **keys))


def kept(here: Place, due: list[str] = DUE) -> list[str]:
    """The decisions about these due times."""
    loaded = here.trigger.loaded
    asked = callers.of_schedule("nightly", loaded.project.schedules["nightly"])
    shared = backfill.shared(
        asked, "nightly", (), loaded.project.invoker, "ana@example.com", loaded.digest, here.clock.now()
    )
    claims = Claims(here.store, wait_s=0, clock=here.clock)
    return [row[1] for row in backfill.keep(claims, RunStore(here.store), asked, "vertexrig-nightly", due, shared)]


def test_due_times_are_those_of_the_schedule() -> None:
    """Within its time zone, its start and its end, the oldest first; none, too many, or one to come is refused."""
    one = Schedule(run="x", cron="0 3 * * *", time_zone="Europe/Berlin", start="2026-10-25")
    at = times.parse
    found = backfill.due_times(one, at("2026-10-20T00:00:00Z"), at("2026-10-27T00:00:00Z"), at("2026-11-01T00:00:00Z"))
    assert found == ["2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"]
    for first, last, said in (
        ("2026-10-26T03:00:01Z", "2026-10-26T04:00:00Z", "nothing is due"),
        ("2026-10-26T03:00:00Z", "2026-11-02T03:00:00Z", "is to come"),
        ("2020-01-01T00:00:00Z", "2026-10-31T00:00:00Z", "more than 366"),
        (
            "2026-10-27T00:00:00Z",
            "2026-10-26T00:00:00Z",
            "--to 2026-10-26T00:00:00Z is before --at 2026-10-27T00:00:00Z",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            backfill.due_times(Schedule(run="x", cron="0 3 * * *"), at(first), at(last), at("2026-11-01T00:00:00Z"))


def test_each_due_time_gets_one_run(tmp_path: Path) -> None:
    """A time that had its run gets none; the others are started by a tick, none takes another's place, and a late delivery joins."""
    here = place(tmp_path)
    first = here.fire(DUE[1]).body["name"]
    assert kept(here) == ["deferred", "joined", "deferred"] and kept(here) == ["joined"] * 3
    here.clock.at += 600
    here.post({}, "/tick")
    assert len(here.vertex.jobs) == 3 and here.fire(DUE[0]).body["duplicate"] and len(here.vertex.jobs) == 3
    for name in here.vertex.jobs:
        here.ends(name)
    here.clock.at += 600
    here.post({}, "/tick")
    rows = {row["schedule_time"]: row for row in here.ended}
    assert set(rows) == set(DUE) and rows[DUE[1]]["job"] == first
    assert rows[DUE[0]]["detail"]["backfill"] == "ana@example.com" and "backfill" not in rows[DUE[1]].get("detail", {})


def test_no_run_takes_another_s_place(tmp_path: Path) -> None:
    """A delivery that waits, and runs of a backfill that are due before and after it, are all started when the hold ends."""
    here = place(tmp_path, catch_up=True)
    Holds(here.store).put("nightly", Hold("2027-01-01T00:00:00Z", "a freeze"))
    assert here.fire(DUE[1]).status == 202 and kept(here) == ["deferred", "joined", "deferred"]
    here.clock.at += 600
    here.post({}, "/tick")
    assert len(here.runs) == 3 and not here.vertex.jobs
    Holds(here.store).put("nightly", None)
    here.clock.at += 600
    here.post({}, "/tick")
    assert len(here.vertex.jobs) == 3


def test_the_claim_of_a_run_that_waits_is_left_alone(tmp_path: Path) -> None:
    """A due time whose run waits, under a claim that another candidate wrote, is joined; one that was answered for another body, too."""
    here = place(tmp_path, catch_up=True)
    Holds(here.store).put("nightly", Hold("2027-01-01T00:00:00Z", "a freeze"))
    here.fire(DUE[0])
    claims = Claims(here.store, clock=here.clock)
    (run,) = here.runs
    before = claims.by_key(run.key)
    assert before is not None and kept(here, DUE[:1]) == ["joined"] and claims.by_key(run.key) == before
    other = replace(run.key, text=run.key.text.replace(DUE[0], DUE[1]))
    claims.take(other, "another body", "sweep", lambda _: None, lambda _: Recorded())
    assert kept(here, DUE[1:2]) == ["in-progress"]


@pytest.mark.parametrize("overlap", ["skip", "wait"])
def test_runs_that_may_not_overlap_follow_one_another(tmp_path: Path, overlap: str) -> None:
    """With `overlap: skip` and `wait` the oldest starts first, and each of the others after the end of the one before it."""
    here = place(tmp_path, overlap=overlap)
    assert kept(here) == ["deferred"] * 3
    for number, time in enumerate(DUE, 1):
        here.clock.at += 600
        here.post({}, "/tick")
        assert len(here.vertex.jobs) == number
        (run,) = [one for one in here.runs if one.had_job]
        assert run.time == time
        here.ends(list(here.vertex.jobs)[-1])
    here.clock.at += 600
    here.post({}, "/tick")
    assert not here.open


def test_backfill_from_the_terminal(here: server.RunningServer, tmp_path: Path, terminal: Callable[..., str]) -> None:
    """`schedule run NAME --at --to` lists its due times in the schedule's time zone, with --dry-run without starting any; ticks are needed."""
    clouds.loaded(tmp_path, nightly(steps=True, time_zone="Europe/Berlin"))
    typed = partial(terminal, "schedule", "run", "nightly")
    span = ("--at", "2026-11-16", "--to", "2026-11-17T03:00")
    said = typed(*span, "--dry-run")
    assert said.splitlines() == ["2026-11-16 03:00:00 Europe/Berlin", "2026-11-17 03:00:00 Europe/Berlin"]
    store = RunStore(clouds.storage(here).below("vertexrig/vertexrig"))
    assert not list(store.open())
    assert typed(*span).count("deferred") == 2 and typed("--at", "2026-11-16").count("joined") == 1
    assert [(run.time, run.steps) for run in store.open() if not isinstance(run, str)] and len(list(store.open())) == 2
    assert "--to and --dry-run need --at" in typed("--dry-run", code=2)
    assert "is not a time such as" in typed("--at", "monday", code=2)
    clouds.loaded(tmp_path, nightly(time_zone="Europe/Berlin"))
    assert "ticks start what is backfilled" in typed(*span, code=2)
