"""What the history says of runs with candidates, and of deliveries that joined a run: ends, their cost, and what is printed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.scarce import STOCKOUT
from tests.support.trigger_place import Place
from tests.vertexrig.trigger.test_candidates_served import MON, Scarce
from vertexrig import times
from vertexrig.cli import remote, schedule
from vertexrig.runs.store import RunStore
from vertexrig.spec.states import FAILED, SUCCEEDED


def ran(here: Scarce, state: str, **more: Any) -> None:
    """Let the newest job have trained for an hour."""
    start = times.rfc3339(here.clock.now(), 0)
    here.clock.at += 3600
    here.ends(here.newest, state, startTime=start, **more)


def printed(here: Place, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """The lines of `schedule history`."""
    monkeypatch.setattr(remote, "own", lambda *_: here.store)
    monkeypatch.setattr(remote, "service", lambda *_: here.vertex)
    done = CliRunner().invoke(schedule.command, ["history", *words, f"--file={here.folder}/vertexrig.yaml"])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.parametrize("steps", [(), [{"promote": {"epochs": 30}}]], ids=["alone", "with steps"])
def test_a_run_without_machines_ends_as_that(tmp_path: Path, steps: Any) -> None:
    """Where the first candidate's job found no machines and the others were refused the run is exhausted, whatever its only job says."""
    here = Scarce(tmp_path, then=steps)
    here.fire(MON)
    here.refused = {"2", "3"}
    here.fails()
    here.ticked()
    here.ticked()
    (row,) = here.ended
    assert (row["end"]["outcome"], row["end"]["reason"]) == ("exhausted", "none of the 2 candidates got machines")
    assert times.parse(row["end"]["ended"]) > times.now() - timedelta(minutes=5)


def test_a_run_costs_what_all_its_tries_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was preempted after an hour is paid, too; each try is a line of its own, and has how long it waited for machines."""
    here = Scarce(tmp_path, candidates=[{"machine_type": "n1-standard-8"}])
    here.fire(MON, "daily")
    here.clock.at += 60
    ran(here, FAILED, error={"code": 8, "message": STOCKOUT})
    here.ticked()
    ran(here, SUCCEEDED)
    here.ticked()
    (row,) = here.ended
    tries = row["end"]["attempts"]
    assert [(one["reason"], one["waited_s"]) for one in tries] == [("preempted", 60), ("", 0)]
    first, second = (one["usd"] for one in tries)
    assert first > 0.2 and second > 1.5 * first and row["end"]["usd"] == pytest.approx(first + second, abs=1e-3)
    lines = printed(here, monkeypatch)
    assert [line.split()[:2] for line in lines[-2:]] == [["candidate", "1"], ["candidate", "2"]], lines
    assert f"${first:.2f}" in lines[-2] and "unchanged; " in lines[-2] and "machine_type: n1-standard-8" in lines[-1]


@pytest.mark.parametrize("words", [["--last=1"], ["--since=1h"]], ids=" ".join)
def test_an_end_is_written_once_however_few_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A delivery that joined a run gets no end of its own where the row of the one that made it is not shown."""
    here = Place(tmp_path)
    body = {"run": "cpu", "request_id": "once"}
    name = str(here.post(body).body["name"])
    (run,) = here.runs
    before = times.rfc3339(times.now() - timedelta(hours=2), 3)
    RunStore(here.store).save(replace(run, delivery={**run.delivery, "time": before}))
    here.post(body)
    here.ends(name)
    printed(here, monkeypatch, *words)
    assert [row["decision"] for row in here.ended] in ([], ["created"])


def test_the_history_of_an_unknown_schedule_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no delivery has and that is not in the file is a mistake; the nearest schedule is named."""
    here = Scarce(tmp_path)
    monkeypatch.setattr(remote, "own", lambda *_: here.store)
    monkeypatch.setattr(remote, "service", lambda *_: here.vertex)
    file = f"--file={here.folder}/vertexrig.yaml"
    done = CliRunner().invoke(schedule.command, ["history", "nihgtly", file, "--format=json"])
    assert not done.stdout  # the document of the error is the only one
    assert "there is no schedule 'nihgtly'. Did you mean 'nightly'?" in str(done.exception)
    assert CliRunner().invoke(schedule.command, ["history", "nightly", file]).exit_code == 0
