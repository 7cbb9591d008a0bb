"""Runs of one trigger: what a tick costs, whose a run is, what is attempted again, and two triggers on one bucket."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_models import MemoryFolder
from tests.support.scarce import STOCKOUT
from tests.support.trigger_place import DATA, Place
from tests.vertexrig.trigger.test_policy import MON, TUE, held, place
from vertexrig import times
from vertexrig.runs.deliveries import Delivery
from vertexrig.runs.store import RunStore
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import FAILED, RUNNING, SUCCEEDED
from vertexrig.submit.claims import Key
from vertexrig.trigger import history


def counted(here: Place) -> Counter[str]:
    """Counts the calls of services from here on."""
    found = Counter[str]()

    def gate(name: str, effect: Any) -> Any:
        found[name] += 1
        return effect()

    here.storage.gate = here.vertex.gate = gate
    here.store.gate = here.trigger.storage.gate = here.trigger.ticker.storage.gate = gate  # type: ignore[attr-defined]
    return found


def test_a_tick_costs_what_is_open(tmp_path: Path) -> None:
    """Ten open runs take at most 20 requests, however many have ended."""
    here = Place(tmp_path)
    for number in range(10):
        here.post({"run": "cpu", "request_id": f"one-{number}"})
    for job in here.vertex.jobs.values():
        job.data.update(state=RUNNING, startTime=times.rfc3339(here.clock.now(), 0))
    for _ in range(300):
        Delivery(decision="created", run="cpu").write(here.store)
    here.post({}, "/tick")
    here.clock.at += 600
    calls = counted(here)
    rows = here.post({}, "/tick").body["runs"]
    assert [row["state"] for row in rows] == ["training"] * 10 and calls.total() <= 20, calls


def test_a_job_that_fails_for_machines_is_attempted_again(tmp_path: Path) -> None:
    """A job without candidates that was accepted and ends for stock-out gets another attempt after ten minutes, within `retry_for`."""
    here = place(tmp_path, retry_for="6h")
    first = here.fire(MON).body["name"]
    here.ends(first, FAILED, error={"code": 8, "message": STOCKOUT})
    assert here.tick()["text"].startswith("it is attempted again in") and len(here.vertex.jobs) == 1
    row = here.tick()
    assert row["state"] == "started" and row["job"] != first and len(here.vertex.jobs) == 2
    here.sweep_ends(row["job"], 0.9)
    here.tick()
    (ended,) = here.ended
    assert ended["end"]["outcome"] == "SUCCEEDED"
    assert [(one["job"], one["reason"]) for one in ended["end"]["attempts"]] == [(first, "stockout"), (row["job"], "")]
    without = place(tmp_path / "without") if (tmp_path / "without").mkdir() is None else here
    name = without.fire(TUE).body["name"]
    without.ends(name, FAILED, error={"code": 8, "message": STOCKOUT})
    assert without.tick()["outcome"] == "FAILED" and len(without.vertex.jobs) == 1


def test_headers_with_another_body_are_an_ordinary_request(tmp_path: Path) -> None:
    """The policy of a schedule applies to its own request only: another body is not held, and takes no run's place."""
    here = place(tmp_path, catch_up=True)
    held(here)
    assert here.fire(MON).body["reason"] == "hold"
    headers = {"x-cloudscheduler-jobname": "vertexrig-nightly", "x-cloudscheduler-scheduletime": TUE}
    reply = here.post({"run": "cpu"}, headers=headers)
    assert reply.status == 201 and "vertexrig_schedule" not in here.vertex.jobs[reply.body["name"]].data["labels"]
    here.clock.at += 600
    here.post({}, "/tick")
    assert [run.time for run in here.runs if run.phase == "waiting"] == [MON]


def test_two_triggers_share_a_bucket(tmp_path: Path) -> None:
    """Each trigger's tick touches its own objects only, and a second function of the same name is refused."""
    here = Place(tmp_path)
    here.begin()
    data = copy.deepcopy(DATA)
    data["schedules"] = {}
    data["trigger"] = {**data["trigger"], "function": "other"}
    other = Place(tmp_path / "b") if (tmp_path / "b").mkdir() is None else here
    other.storage, other.vertex = here.storage, here.vertex
    other.store = other.storage.below("vertexrig/other")
    other.load(data)
    before = {name: one for name, one in here.storage.objects.items() if name.startswith("vertexrig/vertexrig/")}
    assert other.post({}, "/tick").body == {"runs": []}
    assert before.items() <= here.storage.objects.items()
    data["trigger"] |= {"uri": "https://one.a.run.app"}
    other.load(data)
    assert other.post({}, "/tick").status == 200
    data["trigger"] |= {"uri": "https://two.a.run.app"}
    other.load(data)
    reply = other.post({}, "/tick")
    assert reply.status == 409 and "https://one.a.run.app" in reply.body["detail"]


CALL_S = 0.1
"""What a call of a service takes, by the clock of the place."""


def test_many_ends_are_reported_within_half_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs whose jobs have all ended since the last tick: each tick ends within half of the function's timeout, and in the end each run has
    one row in the history and one notice.
    """
    count, data = 300, copy.deepcopy(DATA)
    data["trigger"]["notify"] = [{"topic": "projects/my-project/topics/runs", "when": ["finished"]}]
    here = Place(tmp_path, data)
    monkeypatch.setattr(history, "Storage", lambda uri, url: MemoryFolder(here.storage, uri))
    first = here.post({"run": "cpu", "request_id": "first"}).body["name"]
    (run,), job = here.runs, here.vertex.jobs[first]
    at = times.rfc3339(here.clock.now(), 0)
    for number in range(count):
        name, id = first[:-4] + f"{number:08}", f"{number:032x}-{number:012x}"
        data = {
            **job.data,
            "name": name,
            "state": SUCCEEDED,
            "startTime": at,
            "endTime": at,
            "labels": {CLAIM_LABEL: id},
        }
        here.vertex.jobs[name] = replace(job, data=data)
        made = replace(run, id=id, key=Key("schedule", id), schedule="nightly", time=MON, generation=0)
        RunStore(here.store).save(
            replace(made, attempts=(replace(run.attempts[0], job=name),), delivery={"id": id[-12:], "time": MON})
        )
    here.vertex.jobs[first].data.update(state=SUCCEEDED, startTime=at, endTime=at)
    sent: list[str] = []
    here.trigger.ticker.notices.send = lambda _, notice: sent.append(str(notice.data["claim"]))  # type: ignore[union-attr]

    def gate(_: str, effect: Any) -> Any:
        here.clock.at += CALL_S
        return effect()

    here.storage.gate = here.vertex.gate = gate
    here.store.gate = here.trigger.storage.gate = here.trigger.ticker.storage.gate = gate  # type: ignore[attr-defined, union-attr]
    for _ in range(count):
        if not here.runs and not any("/notices/" in name for name in here.storage.objects):
            break
        begun = here.clock.at
        assert here.post({}, "/tick").status == 200
        assert here.clock.at - begun <= 60 + 20 * CALL_S
        here.clock.at += 60
    ended = Counter(str(row.get("claim")) for row in here.ended)
    assert len(sent) == len(set(sent)) == count
    assert set(sent) <= ended.keys() and set(ended.values()) == {1}
