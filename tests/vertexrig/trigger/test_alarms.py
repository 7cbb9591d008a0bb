"""Alarms of ticks: deliveries that do not come, runs that miss their deadline, ticks that fall behind and budgets that are nearly used."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.trigger_place import DATA, Place, nightly
from vertexrig import times
from vertexrig.cloud import cron
from vertexrig.cloud.rest import RestError
from vertexrig.runs import store
from vertexrig.runs.policy import Hold, Holds
from vertexrig.spec.states import FAILED
from vertexrig.trigger.notify import FOLDER

TOPIC = {"topic": "projects/my-project/topics/runs"}


def place_with(folder: Path, *, steps: bool = False, **keys: Any) -> Place:
    """A schedule that is due each night at 3, whose trigger tells a topic."""
    data = nightly(steps=steps, **keys)
    data["trigger"] |= {"notify": [TOPIC]}
    place = Place(folder, data)
    place.sent = []  # type: ignore[attr-defined]
    place.trigger.ticker.notices.send = lambda to, notice: place.sent.append(notice)  # type: ignore[attr-defined]
    return place


def at(place: Place, text: str) -> str:
    """Turn the clock to a time, such as 22T03:00; return it as Cloud Scheduler writes it."""
    wanted = times.parse(f"2026-11-{text}:00Z")
    assert wanted >= place.clock.now()
    place.clock.at += (wanted - place.clock.now()).total_seconds()
    return times.rfc3339(wanted, 0)


def tick(place: Place) -> list[Mapping[str, Any]]:
    """Tick; the alarms that were logged."""
    before = len(place.logs)
    reply = place.post({}, "/tick")
    assert reply.status == 200, reply.body
    return [row for row in place.logs[before:] if "alarm" in row]


def told(place: Place) -> list[tuple[str, str]]:
    """The notices that were sent: id and occasion."""
    return [(one.id, one.occasions[0]) for one in place.sent if one.occasions[0] in ("overdue", "late")]  # type: ignore[attr-defined]


def test_a_delivery_that_does_not_come(tmp_path: Path) -> None:
    """A due time without a delivery is logged as an error and told once, an hour after it, also of a schedule that fires weekly; the
    first tick after a deployment tells nothing of the time before.
    """
    place = place_with(tmp_path, cron="0 3 * * 3")  # the clock starts on a Saturday; Wednesday is the 25th
    place.fire("2026-11-11T03:00:00Z")
    assert tick(place) == []
    at(place, "25T03:50")
    assert tick(place) == []
    at(place, "25T04:01")
    (row,) = tick(place)
    assert row["message"].startswith("nightly sweep overdue: no delivery of 2026-11-25T03:00:00Z has come within 1h")
    about = {"severity": "ERROR", "alarm": "overdue", "schedule": "nightly", "schedule_time": "2026-11-25T03:00:00Z"}
    assert about.items() <= row.items()
    assert "schedule status nightly" in row["text"] and told(place) == [("nightly-20261125T030000Z-overdue", "overdue")]
    place.clock.at += 600
    assert tick(place) == [] and len(told(place)) == 1


def test_a_schedule_that_is_new(tmp_path: Path) -> None:
    """Of a schedule deployed after a due time, while its grace and deadline were not over, nothing is told about that time."""
    place = place_with(tmp_path, grace="2h", deadline="4h")
    for time in ("22T03:20", "22T05:10", "22T07:10"):
        at(place, time)
        assert tick(place) == []
    at(place, "23T05:10")
    assert [row["alarm"] for row in tick(place)] == ["overdue"]


def test_a_schedule_that_has_fired_before_its_first_tick(tmp_path: Path) -> None:
    """The run that is open is watched from its due time on."""
    place = place_with(tmp_path, grace="2h", deadline="4h")
    place.fire(at(place, "22T03:00"))
    at(place, "22T03:20")
    assert tick(place) == []
    at(place, "22T07:10")
    assert [row["alarm"] for row in tick(place)] == ["late"]


@pytest.mark.parametrize("what", ["open", "ended", "skipped", "refused"])
def test_a_delivery_that_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A run that is open, one that has ended within the hour, and one that was skipped are deliveries; one that was refused is none. Where
    the run was seen, the history is not listed, and otherwise once.
    """
    place = place_with(tmp_path)
    monkeypatch.setattr(times, "now", place.clock.now)
    assert tick(place) == []
    if what == "skipped":
        Holds(place.store).put("nightly", Hold("2026-12-01T00:00:00Z", "quarter end"))
    reply = place.fire(at(place, "22T03:00"), **({"set": {"image": "mine"}} if what == "refused" else {}))
    assert reply.body.get("decision") == ("skipped" if what == "skipped" else None), reply.body
    if what == "ended":
        place.sweep_ends(reply.body["name"], 0.8)
        place.clock.at += 60
        tick(place)
        assert not place.open
    listed: list[str] = []
    kept = place.trigger.ticker.deliveries.storage.list

    def noted(prefix: str, **options: Any) -> Any:
        listed.append(prefix)
        return kept(prefix, **options)

    monkeypatch.setattr(place.trigger.ticker.deliveries.storage, "list", noted)
    at(place, "22T04:05")
    assert [row["alarm"] for row in tick(place)] == (["overdue"] if what == "refused" else [])
    assert any(prefix.startswith("history/") for prefix in listed) is (what in ("skipped", "refused"))
    listed.clear()
    place.clock.at += 600
    assert tick(place) == [] and not any(prefix.startswith("history/") for prefix in listed)


def test_a_run_that_misses_its_deadline(tmp_path: Path) -> None:
    """At the deadline a run whose model is not registered is told once, with the step that it is at; one whose model is registered in time
    is not, and neither is one whose model is no better.
    """
    place = place_with(tmp_path, steps=True, deadline="7h")
    tick(place)
    for day, accuracy, seen in ((22, 0.9, []), (23, 0.9, []), (24, None, ["late"])):
        made = place.fire(at(place, f"{day}T03:00")).body["name"]
        place.sweep_ends(made, 0.7, 0.8)
        at(place, f"{day}T03:10")
        assert tick(place) == []
        (run,) = place.runs
        if accuracy is not None:
            place.trained(run.job, accuracy)
            at(place, f"{day}T03:20")
            assert tick(place) == [] and not place.open
        at(place, f"{day}T09:59")
        assert tick(place) == []
        at(place, f"{day}T10:01")
        alarms = tick(place)
        assert [row["alarm"] for row in alarms] == seen
    said = "no model is registered 7h after 2026-11-24T03:00:00Z: the run is in phase step, at promote"
    assert (
        said in alarms[0]["text"]
        and alarms[0]["claim"] == run.id
        and told(place) == [("nightly-20261124T030000Z-late", "late")]
    )
    place.clock.at += 600
    assert tick(place) == []


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_a_deadline_without_register(tmp_path: Path, state: str) -> None:
    """Of a schedule without `register` the run has to have succeeded; a run that failed before the deadline is late, too."""
    place = place_with(tmp_path, deadline="2h")
    tick(place)
    made = place.fire(at(place, "22T03:00")).body["name"]
    if state == FAILED.removeprefix("JOB_STATE_"):
        place.ends(made, FAILED)
    else:
        place.sweep_ends(made, 0.8)
    at(place, "22T03:10")
    tick(place)
    at(place, "22T05:01")
    assert [row["alarm"] for row in tick(place)] == ([] if state == "SUCCEEDED" else ["late"])


def test_a_tick_that_dies_tells_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alarm whose notice could not be kept, or whose tick could not write what it has told, is given again by the next tick, with the
    same id; another tick's runs are not held up by it.
    """
    place = place_with(tmp_path)
    tick(place)
    at(place, "22T04:05")
    write, failing = place.store.write, [FOLDER]

    def broken(name: str, *args: Any, **options: Any) -> Any:
        if failing and name.startswith(failing[0]):
            raise RestError("down", status=503)
        return write(name, *args, **options)

    monkeypatch.setattr(place.trigger.ticker.notices.storage, "write", broken)
    assert tick(place) == [] and "alarms were not checked" in str(place.logs)
    failing.clear()
    with monkeypatch.context() as patch:
        patch.setattr(store, "end_tick", lambda *_: None)
        place.clock.at += 600
        assert len(tick(place)) == 1
    place.clock.at += 600
    assert len(tick(place)) == 1
    place.clock.at += 600
    assert tick(place) == [] and {id for id, _ in told(place)} == {"nightly-20261122T030000Z-overdue"}


def test_another_time_is_another_schedule(tmp_path: Path) -> None:
    """A schedule that gets other times, or is resumed in the project file, is not overdue for what was due before; one that starts later
    is, from its first time on.
    """
    place = place_with(tmp_path, start="2026-11-25")
    tick(place)
    at(place, "24T12:00")
    assert tick(place) == []
    at(place, "25T12:00")
    assert [row["schedule_time"] for row in tick(place)] == ["2026-11-25T03:00:00Z"]
    data = copy.deepcopy(DATA)
    for more, alarms in (({"cron": "0 7 * * *"}, []), ({"paused": True}, []), ({}, [])):
        data["schedules"]["nightly"] |= {"cron": "0 3 * * *", "paused": False, **more}
        place.load(data)
        place.clock.at += 86_400
        assert tick(place) == alarms
    place.clock.at += 86_400
    assert [row["schedule_time"] for row in tick(place)] == ["2026-11-29T03:00:00Z"]


def test_what_is_not_overdue(tmp_path: Path) -> None:
    """A schedule that is paused in the project file, and due times outside its `start` and `end`, give no alarm."""
    for keys in ({"paused": True}, {"start": "2026-12-01"}, {"end": "2026-11-22"}):
        place = place_with(tmp_path, **keys)
        assert tick(place) == []
        at(place, "23T12:00")
        assert tick(place) == [], keys


def test_a_budget_that_is_nearly_used(tmp_path: Path) -> None:
    """The log entry of a run that got a job has the part of the day's limit that is used, also of a promoted job; without a limit it has none."""
    data = copy.deepcopy(DATA)
    data["trigger"] = {**data["trigger"], "budget": {"trials_per_day": 4}}
    place = Place(tmp_path, data)
    sweep = place.begin()
    assert place.logs[-1]["budget_used"] == 0.5
    place.sweep_ends(sweep, 0.8)
    assert place.tick()["state"] == "started"
    assert [row["budget_used"] for row in place.logs if row.get("state") == "started"] == [0.75]
    free = Place(tmp_path, DATA)
    free.begin()
    assert "budget_used" not in free.logs[-1]


@pytest.mark.parametrize("zone", ["Etc/UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("line", ["30 2 * * *", "15 * * * *", "30 2 * * 1"])
def test_the_last_time_of_a_schedule(line: str, zone: str) -> None:
    """The last due time is not later than now and is one at which the schedule fires; no other one lies between, but at most in the hour after
    a time that comes twice.
    """
    timetable, left_out = cron.parse(line, zone), set()
    for day in ("2024-03-10", "2024-03-31", "2024-04-07", "2024-10-06", "2024-10-27", "2024-11-03"):
        for minutes in range(-660, 900, 29):  # around the change of each zone
            now = times.parse(f"{day}T00:00:30Z") + timedelta(minutes=minutes)
            found = timetable.before(now)
            assert found <= now and timetable.after(found - timedelta(seconds=1)) == found
            if timetable.after(found) <= now:
                left_out.add(day)
                assert now - timetable.after(found) < timedelta(hours=1)
    assert left_out <= ({"2024-04-07", "2024-10-27", "2024-11-03"} if zone != "Etc/UTC" else set())
