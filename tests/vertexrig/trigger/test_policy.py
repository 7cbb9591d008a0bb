"""The policy of schedules through the trigger: times, overlap, holds and what is tried again; over services in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds
from tests.support.trigger_place import DATA, Place, nightly
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.errors import ConfigError, UsageError
from vertexrig.project import caller_overrides
from vertexrig.runs import policy
from vertexrig.runs.policy import EVERY, Hold, Holds

BODY = {"run": "sweep", "args": {"epochs": 3}}
MON, TUE, WED = (f"2026-11-{day}T03:00:00Z" for day in (16, 17, 18))


def place(folder: Path, **keys: Any) -> Place:
    """A trigger whose schedule `nightly` has no steps, and these keys."""
    return Place(folder, nightly(**keys))


def ticked(here: Place) -> list[tuple[str, str, str]]:
    """Which deferred runs a tick decided."""
    here.clock.at += 600
    before = len(here.logs)
    assert here.post({}, "/tick").status == 200
    return [
        (row["schedule_time"][8:10], row["decision"], row["reason"]) for row in here.logs[before:] if "decision" in row
    ]


def waiting(here: Place) -> int:
    return len([run for run in here.runs if run.phase == "waiting"])


def held(here: Place, reason: str = "a freeze", until: str = "2027-01-01T00:00:00Z") -> None:
    Holds(here.store).put("nightly", Hold(until, reason))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [({"start": "2026-11-17"}, "before-start"), ({"end": "2026-11-16T03:00:00+01:00"}, "after-end"), ({"start": "2026-11-16", "end": "2026-11-17"}, "")],
)  # fmt: skip
def test_only_between_start_and_end(tmp_path: Path, keys: dict[str, Any], reason: str) -> None:
    """A run that is due before the start or from the end on is left out: by the time it is due for, whatever the clock says."""
    here = place(tmp_path, **keys)
    reply = here.fire(MON)
    assert (reply.status, reply.body.get("reason", "")) == ((200, reason) if reason else (201, ""))
    assert len(here.vertex.jobs) == (not reason) and here.logs[-1].get("decision") == (
        "skipped" if reason else "created"
    )


def test_a_run_that_would_overlap_is_left_out(tmp_path: Path) -> None:
    """While a run lives the next one is left out, for good: a repeat is answered the same when the first has ended; the one after it
    starts. A request of a caller is no run of the schedule.
    """
    here = place(tmp_path, overlap="skip")
    first = here.fire(MON).body["name"]
    assert here.vertex.jobs[first].data["labels"]["vertexrig_schedule"] == "nightly"
    reply = here.fire(TUE)
    assert (reply.status, reply.body["decision"], reply.body["reason"]) == (200, "skipped", "overlap")
    assert here.post({**BODY, "request_id": "mine"}).status == 201
    here.ends(first)
    assert here.fire(TUE).body["reason"] == "overlap" and here.fire(WED).status == 201
    assert here.fire(MON).body["duplicate"] and len(here.vertex.jobs) == 3


def test_steps_that_are_not_taken_are_of_the_run(tmp_path: Path) -> None:
    """A run whose steps have not ended lives: the next one would overlap it."""
    here = Place(tmp_path, nightly(steps=True, overlap="skip"))
    first = here.fire(MON).body["name"]
    here.sweep_ends(first, 0.5, 0.7)
    assert here.fire(TUE).body["reason"] == "overlap"
    here.ends(first, "JOB_STATE_FAILED")
    assert here.tick()["outcome"] == "failed"
    assert here.fire(WED).status == 201


def test_a_run_waits_for_the_one_before_it(tmp_path: Path) -> None:
    """With `wait` a run is kept and started by the tick after the one before it has ended, once; of several the newest."""
    here = place(tmp_path, overlap="wait")
    first = here.fire(MON).body["name"]
    assert [here.fire(time).status for time in (TUE, TUE, WED)] == [202, 202, 202] and waiting(here) == 2
    assert ticked(here) == [("17", "skipped", "superseded")] and ticked(here) == []
    assert here.fire(TUE).body["reason"] == "superseded"
    here.ends(first)
    assert ticked(here) == [("18", "created", "overlap")] and not waiting(here)
    assert here.fire(WED).body["duplicate"] and len(here.vertex.jobs) == 2 and ticked(here) == []


@pytest.mark.parametrize("catch_up", [False, True])
def test_nothing_starts_under_a_hold(tmp_path: Path, catch_up: bool) -> None:
    """A held run is left out, or kept if the schedule catches up: then the newest starts after the release. Callers are not held."""
    here = place(tmp_path, catch_up=catch_up)
    held(here, "end of quarter")
    replies = [here.fire(time) for time in (MON, TUE)]
    assert {(one.status, one.body["reason"]) for one in replies} == {(202 if catch_up else 200, "hold")}
    assert "end of quarter" in replies[0].body["detail"] and not here.vertex.jobs
    assert here.post(BODY).status == 201
    assert ticked(here) == ([("16", "skipped", "superseded")] if catch_up else [])
    Holds(here.store).put("nightly", None)
    assert ticked(here) == ([("17", "created", "hold")] if catch_up else [])
    assert here.fire(TUE).status == 200 and here.fire(WED).status == 201


def test_a_hold_ends_by_the_service_s_clock(tmp_path: Path) -> None:
    """A hold of all schedules holds each, until its end by the clock of Cloud Storage; what is no hold starts nothing."""
    here = place(tmp_path)
    holds = Holds(here.store)
    holds.put(EVERY, Hold("2026-11-21T13:00:00Z", "an hour"))  # the clock stands at noon
    assert here.fire(MON).body["reason"] == "hold" and holds.put("nightly", None) is False
    here.clock.at += 3600
    assert here.fire(TUE).status == 201 and not holds.current()
    here.store.write(policy.HOLDS, b'{"nightly": 1}')
    assert here.fire(WED).status == 500 and len(here.vertex.jobs) == 1
    assert "is not a list of holds" in str(here.logs[-1]["message_of_error"])


def test_steps_wait_under_a_hold(tmp_path: Path) -> None:
    """The step of a run whose schedule is held waits, however long, and is taken after the release."""
    here = Place(tmp_path)
    sweep = here.begin()
    here.sweep_ends(sweep, 0.7, 0.8)
    held(here)
    here.clock.at += 10 * 86_400
    assert "on hold until 2027" in here.tick()["text"]
    Holds(here.store).put("nightly", None)
    assert here.tick()["state"] in ("started", "ended")


def refusing(here: Place, monkeypatch: pytest.MonkeyPatch, status: int | None) -> None:
    def create(*_: Any) -> Any:
        raise RestError("custom_model_training_cpus is used up", status=status)

    monkeypatch.setattr(here.vertex, "create", create)


@pytest.mark.parametrize(("status", "reason"), [(429, "quota"), (503, "unavailable")])
def test_a_refused_run_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    """With `retry_for` a run that quota or an outage refused is kept, and the first tick that can starts it, once."""
    here = place(tmp_path, retry_for="6h")
    with monkeypatch.context() as patch:
        refusing(here, patch, status)
        reply = here.fire(MON)
        assert (reply.status, reply.body["decision"], reply.body["reason"]) == (202, "deferred", reason)
        assert "custom_model_training_cpus" in str(here.logs[-1]["service"]) and ticked(here) == []
    assert ticked(here) == [("16", "created", reason)]
    assert [one["decision"] for one in here.logs if one.get("schedule")] == ["deferred", "created"]
    assert here.fire(MON).body["duplicate"] and len(here.vertex.jobs) == 1


def test_a_run_that_could_not_be_kept_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `retry_for`, an outage before there is a claim is answered with an error, so that Cloud Scheduler delivers the request again."""
    here = place(tmp_path, retry_for="6h")

    def fails(*_: Any, **__: Any) -> Any:
        raise RestError("the bucket cannot be reached", status=503)

    with monkeypatch.context() as patch:
        patch.setattr(type(here.storage), "write", fails)
        assert here.fire(MON).status == 503
    assert not here.runs and here.fire(MON).status == 201 and len(here.vertex.jobs) == 1


def test_a_job_that_is_there_is_followed_under_a_hold(tmp_path: Path) -> None:
    """A hold that is placed after a job was made does not keep the tick from it: its end is in the history."""
    here = place(tmp_path)
    job = here.fire(MON).body["name"]
    held(here)
    here.ends(job, "JOB_STATE_FAILED")
    assert here.tick()["state"] == "ended" and here.ended[0]["end"]["outcome"] == "FAILED"


def test_a_run_that_was_on_hold_waits_for_what_fails_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the release a role is missing: the run waits for that, from then on, and is given up after three days."""
    here = place(tmp_path, catch_up=True)
    held(here)
    assert here.fire(MON).status == 202
    Holds(here.store).put("nightly", None)
    refusing(here, monkeypatch, 403)
    assert ticked(here) == [] and here.runs[0].reason == "unavailable"
    here.clock.at += 3 * 86_400 + 60
    assert here.tick()["outcome"] == "refused" and not here.open


def test_a_run_is_given_up_after_retry_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `retry_for` the run is refused, with an ERROR that names the cause; a late repeat starts nothing. What no time helps
    against is not kept, and neither is anything of a schedule without the key.
    """
    here = place(tmp_path, retry_for="6h")
    with monkeypatch.context() as patch:
        refusing(here, patch, 429)
        here.fire(MON)
        assert [one for _ in range(37) for one in ticked(here)] == [("16", "refused", "quota")]
        entry = here.logs[-2]
        assert entry["severity"] == "ERROR" and "given up after 6" in entry["text"], entry
    assert here.fire(MON).body["decision"] == "skipped" and not waiting(here)
    with monkeypatch.context() as patch:
        refusing(here, patch, 400)
        assert here.fire(TUE).status == 400 and not waiting(here)
        without = place(tmp_path)
        refusing(without, patch, 429)
        assert without.fire(TUE).status == 429 and not waiting(without)


def test_a_deployment_ends_what_its_file_does_not_have(tmp_path: Path) -> None:
    """A run that waits is left out when its schedule is gone, refused when its values are not open any more; an odd object is named."""
    here = place(tmp_path, catch_up=True)
    held(here)
    here.fire(MON)
    here.store.write("runs/odd.json", b"{}")
    here.load({**DATA, "schedules": {}})
    assert ticked(here) == [("16", "refused", "changed")]
    assert any("is not a run" in str(one.get("message")) for one in here.logs)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"start": "tomorrow"}, "'tomorrow' is not a time such as"),
        ({"start": "2026-12-02", "end": "2026-12-01"}, "the end 2026-12-01 is not after the start 2026-12-02"),
        ({"retry_for": "long"}, "'long' is not a duration such as 6h"),
    ],
)
def test_a_policy_that_says_nothing_is_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    """A time, an order or a duration that is wrong is refused with the key, before anything is deployed."""
    with pytest.raises(ConfigError, match=said):
        caller_overrides.check_rules(clouds.loaded(tmp_path, nightly(**keys)))


def test_until_takes_times_and_durations() -> None:
    """The end of a hold is a time in any zone or a duration, and is not over."""
    now = times.parse("2026-11-21T12:00:00Z")
    assert policy.until("2d", now) == "2026-11-23T12:00:00Z"
    assert policy.until("2026-12-24T18:00:00+01:00", now) == "2026-12-24T17:00:00Z"
    for text in ("2026-11-20", "soon"):
        with pytest.raises(UsageError):
            policy.until(text, now)


def test_hold_and_release_from_the_terminal(
    here: server.RunningServer, tmp_path: Path, terminal: Callable[..., str]
) -> None:
    """`schedule hold` keeps a function from starting a run that is due, `release` ends it; both print what is held."""
    clouds.loaded(tmp_path, nightly())
    run = partial(terminal, "schedule")
    assert "nightly: on hold until " in run("hold", "nightly", "--until", "2d", "--reason", "end of quarter")
    assert "all schedules" in run("hold", "--until", "1h", "--reason", "a freeze")
    kept = clouds.storage(here).below("vertexrig/vertexrig").read_json(policy.HOLDS) or {}
    assert kept["nightly"]["reason"] == "end of quarter"
    assert "nightly: on hold until" in run("release") and "no schedule is on hold" in run("release", "nightly")
    assert "nightly was not on hold" in run("release", "nightly")
    assert "Did you mean 'nightly'?" in run("hold", "nigtly", "--until", "1h", "--reason", "x", code=2)
