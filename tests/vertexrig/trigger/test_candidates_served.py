"""Runs with candidates through the trigger, over services in memory: one request, one answer, and ticks that go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.scarce import QUOTA, STOCKOUT
from tests.support.trigger_place import Place, nightly
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project.triggered import RunLimits
from vertexrig.runs.policy import PATIENCE_S, Hold, Holds
from vertexrig.runs.store import OPEN
from vertexrig.spec.states import CANCELLED, FAILED, RUNNING, SUCCEEDED
from vertexrig.submit.budget import Share
from vertexrig.trigger.app import Call

MON = "2026-11-16T03:00:00Z"


class Scarce(Place):
    """A place where some candidates are refused for quota."""

    def __init__(
        self,
        folder: Path,
        *,
        then: Any = (),
        budget: Any = None,
        schedule: Mapping[str, Any] = {},
        job: Mapping[str, Any] = {},
        **keys: Any,
    ) -> None:
        data = nightly(**({"then": list(then)} if then else {}), **schedule)
        few, more = {"strategy": "SPOT"}, {"machine_type": "n1-standard-8"}
        data["jobs"]["cpu"] |= {"wait": "20m", "candidates": [few, more], **keys, **job}
        data["sweeps"]["sweep"] |= {"wait": "20m", "candidates": [few], **keys}
        data["schedules"]["daily"] = {"run": "cpu", "cron": "0 3 * * *", "args": {"epochs": 3}, **schedule}
        data["trigger"] |= {"budget": budget} if budget else {}
        super().__init__(folder, data)
        self.refused: set[str] = set()
        self.failing: dict[str, RestError] = {}
        made = self.vertex.create

        def create(collection: str, body: Mapping[str, Any]) -> RemoteJob:
            if body["labels"].get("vertexrig_candidate") in self.refused:
                raise RestError(QUOTA, status=429)
            if error := self.failing.get(body["labels"].get("vertexrig_candidate", "")):
                raise error
            return made(collection, body)

        self.vertex.create = create  # type: ignore[method-assign]

    def ticked(self, seconds: float = 600.0) -> list[tuple[str, str]]:
        """State and candidate of each run that a tick went on with."""
        self.clock.at += seconds
        reply = self.post({}, "/tick")
        assert reply.status == 200, reply.body
        states = {"ended": "outcome", "started": ""}
        found = (
            (row.get(states.get(row["state"], "state")) or "waiting", row.get("candidate", ""))
            for row in reply.body["runs"]
        )
        return [(state.lower(), candidate) for state, candidate in found]

    @property
    def newest(self) -> str:
        return list(self.vertex.jobs)[-1]

    def fails(self, text: str = STOCKOUT) -> None:
        """Let the newest job fail before it has begun."""
        self.ends(self.newest, FAILED, error={"code": 8, "message": text})


@pytest.fixture
def here(tmp_path: Path) -> Scarce:
    return Scarce(tmp_path)


def test_a_request_gets_the_first_that_is_not_refused(here: Scarce) -> None:
    """The job as it stands is refused for quota: the answer is one job, `candidate 2 of 3`; a repeat gets the same."""
    here.refused = {"1"}
    body = {"run": "cpu", "request_id": "once"}
    first = here.post(body)
    assert (first.status, first.body["candidate"]) == (201, "candidate 2 of 3")
    again = here.post(body)
    assert (again.status, again.body["name"], again.body["candidate"]) == (200, first.body["name"], "candidate 2 of 3")
    assert len(here.vertex.jobs) == 1 and len(here.runs) == 1


@pytest.mark.parametrize(
    ("run", "candidate", "expected"),
    [
        ("cpu", {"strategy": "SPOT"}, ("--epochs=7", "mine", 3600)),
        ("cpu", {"args.epochs": 9, "labels": {"team": "theirs"}, "timeout": "60s"}, ("--epochs=9", "theirs", 60)),
        ("sweep", {"args": {"epochs": 9}, "labels.team": "theirs"}, ("--epochs=9", "theirs", 3600)),
        ("sweep", {"strategy": "SPOT"}, ("--epochs=7", "mine", 3600)),
    ],
)
def test_a_caller_asks_for_every_candidate(
    tmp_path: Path, run: str, candidate: dict[str, Any], expected: tuple[str, str, int]
) -> None:
    """What the caller sets holds for a candidate, too, but for what that candidate itself changes."""
    here = Scarce(tmp_path, candidates=[candidate])
    here.refused = {"1"}
    reply = here.post({"run": run, "args": {"epochs": 7}, "set": {"labels.team": "mine"}})
    assert (reply.status, reply.body["candidate"]) == (201, "candidate 2 of 2")
    job = here.vertex.get(reply.body["name"])
    assert job is not None
    spec = job.data["jobSpec" if run == "cpu" else "trialJobSpec"]
    timeout = int(spec["scheduling"]["timeout"].removesuffix("s"))
    arguments = spec["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
    assert (next(one for one in arguments if "epochs" in one), job.labels["team"], timeout) == expected


def test_ticks_go_on_where_a_job_waits_too_long(here: Scarce) -> None:
    """After `wait` a tick cancels the job; the next candidate comes only once that is seen, and when it has succeeded the run is over."""
    assert here.post({"run": "cpu"}).body["candidate"] == "candidate 1 of 3"
    assert here.ticked() == [("waiting", "candidate 1 of 3")] and len(here.vertex.jobs) == 1
    first = here.newest
    here.vertex.cancel = lambda name: here.vertex.jobs[name].data.update(state="JOB_STATE_CANCELLING")  # type: ignore[method-assign]
    here.ticked(900)
    assert here.ticked() == [("waiting", "candidate 1 of 3")] and len(here.vertex.jobs) == 1
    here.ends(first, CANCELLED)
    assert here.ticked() == [("waiting", "candidate 2 of 3")] and len(here.vertex.jobs) == 2
    here.vertex.jobs[here.newest].data.update(state=RUNNING, startTime=times.rfc3339(here.clock.now(), 0))
    assert here.ticked(9000) == [("training", "candidate 2 of 3")]
    here.ends(here.newest)
    assert here.ticked() == [("succeeded", "candidate 2 of 3")] and len(here.runs) == 0
    assert here.ticked() == []
    said = [str(row["message"]) for row in here.logs if str(row.get("message", "")).startswith("cpu ")]
    assert said == ["cpu created", "cpu candidate 2 of 3 started", "cpu ended SUCCEEDED"]


def test_a_run_that_no_candidate_can_take_is_refused(here: Scarce) -> None:
    """All are refused and there is no `retry_for`: 409 with a row for each try, an ERROR for the schedule, and nothing is left open."""
    here.refused = {"1", "2", "3"}
    reply = here.fire(MON, "daily")
    assert (reply.status, reply.body["type"]) == (409, "urn:vertexrig:problem:no-machines")
    rows = [(one["id"], one["path"]) for one in reply.body["findings"]]
    assert rows == [("quota", f"candidate {n}") for n in (1, 2, 3)]
    (entry,) = (row for row in here.logs if row.get("decision") == "refused")
    assert entry["severity"] == "ERROR" and entry["reason"] == "no-machines"
    assert len(here.runs) == 0 and not here.vertex.jobs


@pytest.mark.parametrize("scheduled", [True, False, {"retry_for": "6h"}])
def test_another_round_comes_by_ticks(tmp_path: Path, scheduled: Any) -> None:
    """With `retry_for`, be it the schedule's, the request is deferred, and the tick after ten minutes tries the first again, once."""
    here = Scarce(tmp_path, **({"schedule": scheduled} if isinstance(scheduled, dict) else {"retry_for": "6h"}))
    here.refused = {"1", "2", "3"}
    reply = here.fire(MON, "daily") if scheduled else here.post({"run": "cpu", "request_id": "once"})
    assert (reply.status, reply.body["decision"], reply.body["reason"]) == (202, "deferred", "no-machines")
    assert (reply.body["state"], reply.body["candidate"]) == ("waiting", "candidate 3 of 3")
    here.refused = {"1"}
    assert here.ticked(60) == [("waiting", "candidate 3 of 3")] and not here.vertex.jobs
    assert here.ticked(601) == [("waiting", "candidate 2 of 3")] and len(here.vertex.jobs) == 1
    assert here.ticked(60) == [("waiting", "candidate 2 of 3")] and len(here.vertex.jobs) == 1
    (created,) = (row for row in here.logs if row.get("decision") == "created")
    assert (created["candidate"], created["job"]) == ("candidate 2 of 3", here.newest)


def test_the_history_has_the_end_of_a_later_candidates_steps(tmp_path: Path) -> None:
    """Where the first candidate was refused the answer still names the chain, and the delivery ends as the chain does, with every try."""
    here = Scarce(tmp_path, then=[{"promote": {"epochs": 30}}])
    here.refused = {"1"}
    reply = here.fire(MON)
    assert (reply.status, reply.body["candidate"], reply.body["then"]) == (201, "candidate 2 of 2", ["promote"])
    (run,) = here.runs
    assert run.id == reply.body["claim"]
    here.sweep_ends(here.newest, 0.5, 0.7)
    here.ticked()
    assert len(here.vertex.jobs) == 2
    here.ends(here.newest)
    here.ticked()
    here.ticked()
    (row,) = here.ended
    assert (row["claim"], row["end"]["outcome"]) == (run.id, "done")
    assert [(one["candidate"], one["reason"]) for one in row["end"]["attempts"]] == [(1, "quota"), (2, "")]


def test_the_history_has_the_steps_of_a_run_that_a_tick_started(tmp_path: Path) -> None:
    """Where a tick makes the first job the delivery in the history names the steps, and ends as they do."""
    here = Scarce(tmp_path, then=[{"promote": {"epochs": 30}}], retry_for="3h")
    here.refused = {"1", "2"}
    assert here.fire(MON).status == 202
    here.refused = {"1"}
    here.ticked(601)
    (made,) = (row for row in here.logs if row.get("decision") == "created")
    assert (made["claim"], made["then"]) == (here.runs[0].id, ["promote"])
    here.ticked(60)
    here.sweep_ends(here.newest, 0.5, 0.7)
    here.ticked()
    here.ends(here.newest)
    here.ticked()
    here.ticked()
    rows = here.ended
    assert [(row["detail"]["then"], row["end"]["outcome"]) for row in rows] == [(["promote"], "done")]


def test_the_dearest_candidate_counts_until_there_is_a_job(tmp_path: Path) -> None:
    """A day's budget with room for the first candidate only refuses the request; with more, it counts what was started."""
    poor = Scarce(tmp_path, candidates=[{"machine_type": "n1-standard-32"}], budget={"usd_per_day": 0.6})
    assert poor.post({"run": "cpu"}).status == 422
    rich = Scarce(tmp_path, candidates=[{"machine_type": "n1-standard-32"}], budget={"usd_per_day": 2.2})
    assert [rich.post({"run": "cpu", "request_id": str(n)}).status for n in range(3)] == [201, 201, 422]


def test_what_is_not_allowed_any_more_ends(here: Scarce) -> None:
    """A deployment that closes the run ends it with a reason, and an object that is no run is named."""
    here.post({"run": "cpu", "args": {"epochs": 3}})
    data = nightly(steps=True)
    data["trigger"]["runs"] = ["sweep"]
    data["jobs"]["cpu"]["candidates"] = [{"strategy": "SPOT"}]
    here.load(data)
    here.store.write(f"{OPEN}odd.json", b"{}")
    here.fails()
    assert here.ticked() == [("changed", "candidate 1 of 2")]
    (row,) = here.ended
    assert "does not allow this run any more" in row["end"]["reason"]
    assert any("odd.json is not a run" in str(row) for row in here.logs)
    assert SUCCEEDED not in str(here.logs)


DENIED = RestError("Permission 'aiplatform.customJobs.create' denied", status=403)
UNSURE = RestError("the service is unavailable", status=503, outcome_unknown=True)
TUE = "2026-11-17T03:00:00Z"


def test_a_first_try_that_may_have_failed_is_made_once(here: Scarce) -> None:
    """Whether a create took effect is not known: ticks make the job under the same claim, and one only."""
    here.failing = {"1": UNSURE}
    assert here.post({"run": "cpu"}).status >= 500 and len(here.runs) == 1
    here.failing = {}
    for _ in range(4):
        here.ticked(301)
    assert len(here.vertex.jobs) == 1 and len(here.runs) == 1


def test_a_body_posted_again_and_again_has_one_job_each(here: Scarce) -> None:
    """While the first job trains more requests with its body come than a claim remembers: no tick makes a job of their own."""
    for _ in range(11):
        here.post({"run": "cpu"})
        here.vertex.jobs[here.newest].data.update(state=RUNNING, startTime=times.rfc3339(here.clock.now(), 0))
        here.clock.at += 400
    for _ in range(3):
        assert here.ticked() == [("training", "candidate 1 of 3")] * 11
    assert len(here.vertex.jobs) == 11


def test_a_later_request_of_the_same_body_keeps_its_job(here: Scarce) -> None:
    """Without an id the same body after the window is a request of its own: ticks of the first one's second attempt cancel nothing of it,
    and that attempt goes on in the folder of the first, whose claim is the later request's.
    """
    name = here.post({"run": "cpu"}).body["name"]
    here.clock.at += 400
    later = here.post({"run": "cpu"}).body["name"]
    assert later != name and len(here.runs) == 2
    here.ends(name, FAILED, error={"code": 8, "message": STOCKOUT})
    for _ in range(3):
        here.ticked(60)
    assert len(here.vertex.jobs) == 3
    assert here.vertex.jobs[later].data["state"] not in (CANCELLED, "JOB_STATE_CANCELLING")
    jobs = [here.vertex.jobs[one].data for one in (name, here.newest)]
    assert len({job["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"] for job in jobs}) == 1
    assert jobs[1]["labels"]["vertexrig_candidate"] == "2"


@pytest.mark.parametrize("refused", [set[str](), {"1"}], ids=["first", "second"])
def test_what_was_refused_is_not_started_later(here: Scarce, refused: set[str]) -> None:
    """The function may not create jobs for some nights: each is answered so, and none starts when it may again; the same id may."""
    here.refused, here.failing = refused, {"1": DENIED, "2": DENIED}
    assert here.fire(MON, "daily").status >= 400
    assert here.post({"run": "cpu", "request_id": "once"}).status >= 400
    assert len(here.runs) == 0
    here.refused, here.failing = set(), {}
    assert here.ticked() == [] and not here.vertex.jobs
    assert here.post({"run": "cpu", "request_id": "once"}).status == 201 and len(here.runs) == 1


def test_a_try_waits_for_days_and_then_ends(here: Scarce) -> None:
    """The next candidate may not be created: ticks try it for three days, and end the run; nothing is made of it afterwards."""
    here.post({"run": "cpu", "request_id": "once"})
    here.fails()
    here.failing = {"2": DENIED}
    here.ticked()
    assert here.ticked(PATIENCE_S - 3600) == [("waiting", "candidate 1 of 3")]
    assert here.ticked(7200) == [("given-up", "candidate 1 of 3")]
    (row,) = here.ended
    assert row["end"]["reason"].startswith("given up after 3 days: Permission") and row["end"]["attempts"][0]["job"]
    here.failing = {}
    assert here.ticked() == [] and len(here.vertex.jobs) == 1


def test_what_the_service_calls_wrong_ends(here: Scarce) -> None:
    """The service's word about the job itself, 400, is the same tomorrow: the run ends with it."""
    here.post({"run": "cpu", "request_id": "once"})
    here.fails()
    here.failing = {"2": RestError("List of found errors: 1.Field: job_spec", status=400)}
    assert (
        here.ticked() == [("failed", "candidate 1 of 3")] and "List of found errors" in here.ended[0]["end"]["reason"]
    )


def test_a_first_candidate_without_a_price_is_gone_on_from(tmp_path: Path) -> None:
    """The budget for one run passes over the job as it stands: the next one is kept with its steps under the request's claim."""
    then = [{"promote": {"epochs": 30}}]
    here = Scarce(
        tmp_path, then=then, budget={"usd_per_run": 50}, job={"strategy": "SPOT"}, candidates=[{"strategy": "STANDARD"}]
    )
    reply = here.fire(MON)
    assert (reply.status, reply.body["candidate"]) == (201, "candidate 2 of 2")
    assert len(here.runs) == 1 and here.open
    here.sweep_ends(here.newest, 0.5, 0.7)
    assert here.ticked() == [("over-budget", "candidate 2 of 2")]
    (row,) = here.ended  # the promoted job has no price either
    assert (row["end"]["outcome"], row["end"]["step"]) == ("over-budget", "promote")


@pytest.mark.parametrize("overlap", ["skip", "wait"])
def test_a_run_does_not_overlap_with_itself(tmp_path: Path, overlap: str) -> None:
    """The steps of a run wait under its first try, and its next candidate starts all the same."""
    here = Scarce(tmp_path, then=[{"promote": {"epochs": 30}}], schedule={"overlap": overlap})
    assert here.fire(MON).status == 201
    here.fails()
    assert here.ticked() == [("waiting", "candidate 2 of 2")] and len(here.vertex.jobs) == 2


def test_a_held_run_keeps_its_candidates(tmp_path: Path) -> None:
    """Held when it is due and caught up with: after the release it has all its candidates, and its steps follow."""
    here = Scarce(tmp_path, then=[{"promote": {"epochs": 30}}], schedule={"catch_up": True})
    holds = Holds(here.store)
    holds.put("nightly", Hold("2099-01-01T00:00:00Z", "freeze"))
    assert here.fire(MON).body["reason"] == "hold" and here.runs[0].phase == "waiting"
    assert here.ticked() == [("waiting", "candidate 1 of 2")] and not here.vertex.jobs
    holds.put("nightly", None)
    here.ticked()
    assert len(here.vertex.jobs) == 1 and len(here.runs) == 1 and here.open
    here.fails()
    assert here.ticked() == [("waiting", "candidate 2 of 2")] and len(here.vertex.jobs) == 2
    here.sweep_ends(here.newest, 0.5, 0.7)
    here.ticked()
    assert here.vertex.jobs[here.newest].data["labels"]["vertexrig_run"] == "sweep-best"


@pytest.mark.parametrize("catch_up", [True, False])
def test_a_hold_makes_the_next_candidate_wait(tmp_path: Path, catch_up: bool) -> None:
    """A hold that is made while the first candidate is tried stops the run, and its release lets it go on."""
    here = Scarce(tmp_path, schedule={"catch_up": catch_up})
    here.fire(MON, "daily")
    here.fails()
    Holds(here.store).put("*", Hold("2099-01-01T00:00:00Z", "freeze"))
    assert here.ticked() == [("waiting", "candidate 1 of 3")] and len(here.vertex.jobs) == 1
    Holds(here.store).put("*", None)
    assert here.ticked() == [("waiting", "candidate 2 of 3")] and len(here.vertex.jobs) == 2


def test_a_night_without_machines_is_kept_once_and_gives_way(tmp_path: Path) -> None:
    """What waits for machines is not deferred as well; the next night takes its place, and is refused when its time is over."""
    here = Scarce(tmp_path, retry_for="6h", schedule={"retry_for": "1h"})
    here.refused = {"1", "2", "3"}
    assert here.fire(MON, "daily").status == 202 and here.fire(TUE, "daily").status == 202
    assert len(here.runs) == 2
    assert sorted(here.ticked(7200)) == [("superseded", "candidate 3 of 3"), ("waiting", "candidate 3 of 3")]
    assert [row.get("reason") for row in here.logs if row.get("decision") == "skipped"] == ["superseded"]
    here.refused = set()
    assert here.ticked(700) == [("waiting", "candidate 1 of 3")] and len(here.vertex.jobs) == 1
    assert here.fire(MON, "daily").body["reason"] == "superseded" and len(here.vertex.jobs) == 1
    assert not [row for row in here.logs if row.get("decision") == "refused"]


def test_a_callers_limit_passes_over_a_candidate(tmp_path: Path) -> None:
    """What a caller may spend on one run is held for each candidate, and a dry run shows the one that would be made."""
    here = Scarce(tmp_path, job={"machine_type": "n1-standard-32"}, candidates=[{"machine_type": "n1-standard-4"}])
    terms = here.trigger.terms
    share = Share("caller", "mlops", RunLimits(usd_per_run=0.5), "trigger.callers.mlops.budget")
    here.trigger.terms = lambda caller: replace(terms(caller), shares=(share,))  # type: ignore[method-assign]
    would = here.post({"run": "cpu", "dry_run": True})
    assert (would.status, would.body["candidate"]) == (200, "candidate 2 of 2") and "n1-standard-4" in str(would.body)
    assert here.post({"run": "cpu"}).body["candidate"] == "candidate 2 of 2" and len(here.runs) == 1


def test_an_answer_that_was_lost_is_no_refusal(here: Scarce) -> None:
    """A create call that fails with a stock-out and may have taken effect starts no other candidate before that is known."""
    here.failing = {"1": RestError(STOCKOUT, status=503, outcome_unknown=True)}
    assert here.post({"run": "cpu"}).status == 503 and not here.vertex.jobs
    here.failing = {}
    here.ticked()
    assert [job.data["labels"]["vertexrig_candidate"] for job in here.vertex.jobs.values()] == ["1"]


def test_a_run_that_ends_leaves_no_job_of_its_next_attempt(here: Scarce) -> None:
    """Where the next attempt's create call was lost and has taken effect, the run that is ended then has that job."""
    here.post({"run": "cpu"})
    here.fails()
    made = here.vertex.create

    def lost(collection: str, body: Mapping[str, Any]) -> RemoteJob:
        made(collection, body)
        raise RestError("no answer", status=503, outcome_unknown=True)

    listed, here.vertex.list = here.vertex.list, lambda *_, **__: iter(())  # type: ignore[method-assign, assignment]
    here.vertex.create = lost  # type: ignore[method-assign]
    here.ticked()
    here.vertex.create, here.vertex.list = made, listed  # type: ignore[method-assign]
    (run,) = here.runs
    here.clock.at += 120
    assert here.trigger.ticker.engine.stop(run) == here.newest
    assert [one.candidate for one in here.runs[0].attempts] == [1, 2]


def test_a_repeat_is_answered_the_same_without_candidates(here: Scarce) -> None:
    """After a run has ended with its second candidate a repeat names that candidate's job, also once the candidates are taken away."""
    body = {"run": "cpu", "request_id": "once"}
    here.post(body)
    here.fails()
    here.ticked()
    trained = here.newest
    here.ends(trained)
    here.ticked()
    assert not here.runs and here.post(body).body["name"] == trained
    here.load(nightly())
    again = here.post(body)
    assert (again.status, again.body["name"]) == (200, trained)


def test_a_claim_that_cannot_be_read_stops_no_other_run(tmp_path: Path) -> None:
    """A newer version wrote the claim of a run without a job: the tick names it, and goes on with the other runs of the schedule."""
    here = Scarce(tmp_path, retry_for="6h")
    here.refused = {"1", "2", "3"}
    here.fire(MON, "daily")
    here.refused, here.failing = set(), {"1": RestError("no answer", status=503, outcome_unknown=True)}
    before = {item.name for item in here.store.list("claims/")}
    here.fire(TUE, "daily")
    (name,) = {item.name for item in here.store.list("claims/")} - before
    here.store.write(name, json.dumps({**(here.store.read_json(name) or {}), "tenant": "a"}).encode())
    here.failing = {}
    states = [state for state, _ in here.ticked()]
    assert len(states) == 2 and len(here.vertex.jobs) == 1
    assert any("whether cpu" in str(row.get("message")) for row in here.logs)


def test_a_repeat_after_a_refused_first_candidate_is_answered_with_the_job(here: Scarce) -> None:
    """The first candidate was refused and the second one has trained: after the end, too, a repeat names its job."""
    here.refused = {"1"}
    body = {"run": "cpu", "request_id": "once"}
    first = here.post(body).body["name"]
    here.ends(first)
    here.ticked()
    assert not here.runs
    again = here.post(body)
    assert (again.status, again.body.get("name")) == (200, first)


def test_a_run_whose_claim_is_a_later_request_s_ends(here: Scarce) -> None:
    """After its create call failed, a request without an id that came again after the window gets a run of its own; the first one ends."""
    here.failing = {"1": RestError("no answer", status=503, outcome_unknown=True)}
    assert here.post({"run": "cpu"}).status == 503
    here.failing = {"1": RestError("down", status=503)}
    here.ticked()
    here.failing = {}
    here.clock.at += 400
    later = here.post({"run": "cpu"}).body["name"]
    assert len(here.runs) == 2
    assert sorted(state for state, _ in here.ticked()) == ["failed", "waiting"] and list(here.vertex.jobs) == [later]
    assert "its claim is gone or a later request's" in here.ended[0]["end"]["reason"]


def test_a_service_that_fails_in_a_tick_is_logged(here: Scarce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run that a tick could not go on with leaves a warning with the service's words."""
    here.post({"run": "cpu"})

    def get(name: str) -> Any:
        raise RestError("the service is down", status=503)

    monkeypatch.setattr(here.vertex, "get", get)
    here.ends(here.newest)
    here.ticked()
    assert [row for row in here.logs if row["severity"] == "WARNING" and "the service is down" in str(row["message"])]


def test_an_ended_job_of_a_run_at_a_step_stays_as_it_is(tmp_path: Path) -> None:
    """DELETE of the first job of a run whose promoted job trains cancels that one, and the run ends as its step does."""
    here = Scarce(tmp_path, then=["promote"])
    sweep = here.fire(MON).body["name"]
    here.sweep_ends(sweep, 0.5, 0.9)
    here.ticked()
    here.ticked()
    promoted = here.newest
    assert promoted != sweep
    reply = here.trigger.handle(Call("DELETE", f"/jobs/{sweep.rpartition('/')[2]}", {}))
    assert reply.status == 202 and len(here.runs) == 1 and here.runs[0].phase == "step"
    assert here.vertex.jobs[promoted].data["state"] == CANCELLED
