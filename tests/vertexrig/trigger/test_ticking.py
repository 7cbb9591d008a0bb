"""What one tick does beside another: rows are kept as they are decided, and no kind of run holds up the others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.chain_place import DATA
from tests.vertexrig.trigger.test_ladders import TUE, Scarce
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.trigger import deferred, ticking
from vertexrig.trigger.ladders import OPEN, Ladders

WED = "2026-11-18T03:00:00Z"
PROMOTE = [{"promote": {"epochs": 30}}]


def decisions(here: Scarce) -> list[str]:
    """What the history has, the oldest first."""
    rows = here.trigger.deliveries.rows(times.parse("2026-11-01T00:00:00Z"))
    return [row["decision"] for row in reversed(rows)]


def broken(*_: Any, **__: Any) -> Any:
    raise RestError("the service is unavailable", status=503)


def test_a_job_of_a_tick_is_in_the_history_whatever_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of a deferred run has its row before the object is deleted; where runs with candidates cannot be listed then, the tick is
    answered with that, and chains and ends are looked at all the same.
    """
    here = Scarce(tmp_path, schedule={"retry_for": "6h"}, then=PROMOTE, candidates=[], wait=None)
    here.failing = {"": RestError("no quota", status=429)}
    assert here.fire().status == 202
    here.failing = {}
    chains = list[str]()

    def look(_: Any, chain: Any) -> Any:
        chains.append(chain.id)
        return broken()

    with monkeypatch.context() as patch:
        patch.setattr(Ladders, "open", broken)
        patch.setattr(type(here.trigger.ticker), "look", look)
        patch.setattr(deferred.Deferrals, "forget", broken)
        assert here.post({}, "/tick").status == 503
    assert decisions(here) == ["deferred", "created"] and chains


def test_a_run_that_ends_is_in_the_history_before_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tick dies before it keeps the end of a run with candidates, the history has the row."""
    here = Scarce(tmp_path, retry_for="6h")
    here.refused = {"1", "2", "3"}
    assert here.fire("cpu").status == 202 and here.fire("cpu", TUE).status == 202
    monkeypatch.setattr(Ladders, "close", broken)
    here.ticked()
    assert decisions(here) == ["deferred", "deferred", "skipped"] and here.open_ones == 2


def test_many_runs_of_one_kind_hold_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each look takes its time a tick leaves the rest of the runs with candidates to the next one, not always the same, and looks at
    chains.
    """
    here = Scarce(tmp_path, then=PROMOTE)
    assert here.fire().status == 201
    (name,) = (name for name in here.storage.objects if name.startswith(OPEN))
    content, id = here.storage.objects[name][0].decode(), name.removeprefix(OPEN).removesuffix(".json")
    seen = set[str]()

    def slow(_: Ladders, asked: str) -> None:
        if asked != id:
            here.clock.at += 15
            seen.add(asked)
            broken()

    monkeypatch.setattr(Ladders, "end", slow)
    for number in range(9):
        other = f"x{number}{id[2:]}"
        here.storage.write(f"{OPEN}{other}.json", content.replace(id, other).encode())
    for _ in range(30):
        began = here.clock()
        reply = here.post({}, "/tick")
        assert here.clock() - began <= ticking.TICK_S and len(reply.body["chains"]) == 1
    assert len(seen) == 9


@pytest.mark.parametrize(("overlap", "status"), [("skip", 200), ("wait", 202)])
def test_steps_of_a_later_candidate_are_of_the_run(tmp_path: Path, overlap: str, status: int) -> None:
    """A run whose first candidate was refused lives until its steps are taken, also before a tick has seen its job end: the next one would
    overlap it.
    """
    here = Scarce(tmp_path, then=PROMOTE, schedule={"overlap": overlap})
    here.refused = {"1"}
    assert here.fire().status == 201
    here.sweep_ends(here.newest, 0.5, 0.7)
    here.refused = set()
    assert here.fire(time=TUE).status == status
    here.ticked()
    assert here.vertex.jobs[here.newest].data["labels"]["vertexrig_run"] == "sweep-best"
    here.fire(time=WED)
    here.ticked()
    assert len(here.vertex.jobs) == 2
    here.ends(here.newest)
    here.ticked()
    here.ticked()
    assert len(here.vertex.jobs) == 2 + (overlap == "wait")


def test_a_run_that_has_begun_goes_on_without_candidates_in_the_file(tmp_path: Path) -> None:
    """Where a deployment takes the candidates away while the second one trains, the steps follow that one's job."""
    here = Scarce(tmp_path, then=PROMOTE)
    here.refused = {"1"}
    assert here.fire().status == 201
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"]["then"] = PROMOTE
    here.load(data)
    here.ticked()
    assert here.open
    here.sweep_ends(here.newest, 0.5, 0.7)
    here.ticked()
    assert here.vertex.jobs[here.newest].data["labels"]["vertexrig_run"] == "sweep-best"
