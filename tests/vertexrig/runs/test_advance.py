"""The table of a run, and a person's run with candidates step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support import clouds, tools
from tests.support.clouds_in_memory import Clock, MemoryStorage
from tests.support.protocol import Uploads
from tests.support.run_world import ScarceVertex
from tests.support.scarce import QUOTA, STOCKOUT
from vertexrig import times
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project.triggered import Budget
from vertexrig.runs.advance import Action, Seen, advance
from vertexrig.runs.candidates import candidates_of, time_and_cost
from vertexrig.runs.engine import Moved
from vertexrig.runs.run import Attempt, Run, parse
from vertexrig.runs.store import OtherTriggerError, RunStore, begin_tick, end_tick, owner
from vertexrig.runs.submitted import SubmittedRun
from vertexrig.spec.labels import first_of
from vertexrig.spec.states import (
    CANCELLED,
    CANCELLING,
    EXPIRED,
    FAILED,
    PARTIALLY_SUCCEEDED,
    PENDING,
    QUEUED,
    RUNNING,
    SUCCEEDED,
)
from vertexrig.submit.budget import OverBudgetError
from vertexrig.submit.claims import Claims, Key, fresh_key
from vertexrig.submit.submission import Submitter, left_out
from vertexrig.workspace import Workspace

NOW = "2026-11-23T08:00:00Z"
LATER = (times.nanoseconds("2026-11-23T08:20:01Z") or 0) / 1e9
ID = "0" * 32 + "-" + "0" * 12
BODY = {"run": "cpu", "set": {}, "args": {}, "then": ""}
KEY = Key("request", "one")


def job(state: str, *, began: bool = False, ran_s: float = 0, error: str = "") -> RemoteJob:
    data: dict[str, Any] = {"name": "projects/p/locations/r/customJobs/1", "state": state, "createTime": NOW}
    data |= {"startTime": NOW} if began or ran_s else {}
    data |= {"endTime": times.rfc3339(times.parse(NOW) + timedelta(seconds=ran_s))} if ran_s else {}
    return RemoteJob(data | ({"error": {"code": 8, "message": error}} if error else {}))


def at(*attempts: Attempt, **about: Any) -> Run:
    return Run(ID, KEY, BODY, attempts=attempts, **about)


ONE, GIVEN_UP = Attempt(1, job="j"), Attempt(1, job="j", reason="waited")


@pytest.mark.parametrize("run, seen, do, why", [
    (at(Attempt(1)), None, "find-or-make", ""),
    (at(ONE), None, "end", "gone"),
    (at(ONE), job(QUEUED), "give-up", "waited"),
    (at(ONE), job(PENDING), "give-up", "waited"),
    (at(ONE), job(PENDING, began=True), "wait", ""),
    (at(ONE), job(RUNNING, began=True), "wait", ""),
    (at(GIVEN_UP), job(QUEUED), "cancel", "waited"),
    (at(GIVEN_UP), job(CANCELLING), "wait", ""),
    (at(GIVEN_UP), job(RUNNING, began=True), "wait", ""),
    (at(GIVEN_UP), job(CANCELLED), "attempt-over", "waited"),
    (at(GIVEN_UP), job(SUCCEEDED, began=True), "end", "SUCCEEDED"),
    (at(ONE, steps=("promote",)), job(SUCCEEDED, began=True), "step", ""),
    (at(ONE), job(PARTIALLY_SUCCEEDED, began=True), "end", "PARTIALLY_SUCCEEDED"),
    (at(ONE), job(CANCELLED), "end", "CANCELLED"),
    (at(ONE), job(EXPIRED), "attempt-over", "waited"),
    (at(ONE), job(EXPIRED, began=True), "end", "EXPIRED"),
    (at(ONE), job(FAILED, error=STOCKOUT), "attempt-over", "stockout"),
    (at(ONE), job(FAILED, error=QUOTA), "attempt-over", "quota"),
    (at(ONE), job(FAILED, began=True, error=STOCKOUT), "attempt-over", "preempted"),
    (at(ONE), job(FAILED, began=True, error="The replica workerpool0-0 exited with a non-zero status of 1."), "end", "FAILED"),
    (at(phase="step"), None, "step", ""),
    (at(phase="ended", reason="done"), None, "end", "done"),
])  # fmt: skip
def test_each_phase_and_job_has_one_action(run: Run, seen: RemoteJob | None, do: str, why: str) -> None:
    """`wait` is 20 minutes, and the job was made 20 minutes and a second ago."""
    found = advance(run, Seen(LATER, seen, order=(1, 2), wait_s=1200.0))
    assert (found.do, found.why) == (do, why)


def over(*attempts: Attempt) -> Run:
    return at(*attempts, phase="waiting", since=NOW, retry_since=NOW, reason=attempts[-1].reason)


@pytest.mark.parametrize("run, more, action", [
    (over(Attempt(1, reason="quota")), {}, Action("start", candidate=2)),
    (over(Attempt(1, reason="preempted")), {}, Action("start", candidate=1)),
    (over(Attempt(1, reason="preempted"), Attempt(1, reason="preempted")), {}, Action("start", candidate=2)),
    (over(Attempt(2, reason="quota")), {"retry_for_s": 9e9}, Action("start", candidate=1)),
    (over(Attempt(2, reason="quota")), {}, Action("end", "exhausted", "none of the 2 candidates got machines")),
    (over(Attempt(1, reason="quota")), {"problem": "closed"}, Action("end", "changed", "closed")),
    (over(Attempt(1, reason="quota")), {"hold": "a freeze"}, Action("wait", "hold", "a freeze")),
    (replace(over(Attempt(1, reason="quota")), stopped=NOW), {}, Action("end", "CANCELLED", "it was cancelled; no other job was made for it")),
    (at(Attempt(1, job="j"), stopped=NOW), {"job": job(QUEUED)}, Action("cancel")),
    (at(Attempt(1, job="j"), stopped=NOW), {"job": job(SUCCEEDED)}, Action("end", "SUCCEEDED")),
    (at(Attempt(1, job="j")), {"job": job(EXPIRED), "order": (1,)}, Action("end", "EXPIRED", "its job ended EXPIRED")),
    (at(GIVEN_UP), {"job": job(CANCELLED, ran_s=60)}, Action("attempt-over", "waited", "its job ended CANCELLED")),
    (at(GIVEN_UP), {"job": job(CANCELLED, ran_s=3600)}, Action("end", "CANCELLED", "its job was cancelled")),
    (at(GIVEN_UP), {"job": job(EXPIRED, ran_s=3600)}, Action("end", "EXPIRED", "its job ended EXPIRED")),
    (at(Attempt(1)), {"hold": "a freeze"}, Action("find-or-make", "hold", "a freeze", 1)),
    (over(Attempt(1, job="j", reason="stockout", text="none")), {"order": (1,)}, Action("end", "FAILED", "none")),
    (over(Attempt(1, job="j", reason="stockout")), {"order": (1,), "retry_for_s": 9e9}, Action("start", candidate=1)),
    (at(phase="waiting", reason="overlap", time=NOW), {"newest": "2026-11-24T08:00:00Z"},
     Action("end", "superseded", "the run due at 2026-11-24T08:00:00Z has taken its place")),
    (at(phase="waiting", reason="overlap", time=NOW), {"newest": NOW}, Action("start", candidate=1)),
    (at(phase="waiting", reason="overlap", time=NOW), {"newest": "2026-11-22T08:00:00Z"}, Action("start", candidate=1)),
])  # fmt: skip
def test_what_follows_an_attempt(run: Run, more: Mapping[str, Any], action: Action) -> None:
    """The next candidate, the same one after a preemption, another round after ten minutes while `retry_for` lasts, or the end."""
    assert advance(run, Seen(LATER, **{"order": (1, 2), "preemptions": 2, **more})) == action


def test_another_round_waits_ten_minutes() -> None:
    """The pause counts from the end of the last candidate."""
    run = replace(over(Attempt(2, reason="quota")), since="2026-11-23T08:15:01Z")
    found = advance(run, Seen(LATER, order=(1, 2), retry_for_s=9e9))
    assert (found.do, found.text) == ("wait", "all 2 candidates were tried; the first is attempted again in 300 s")


def test_a_run_is_read_as_it_was_written() -> None:
    """Every part of a run survives its object, and an object with a part of another type is not a run."""
    run = at(GIVEN_UP, steps=("promote",), step=0, jobs={"cpu": "j"}, measured={"job": "m"}, since=NOW, phase="step")
    assert parse(ID, run.to_bytes()) == run
    data = json.loads(run.to_bytes())
    odd: list[dict[str, Any]] = [
        {"id": "x"}, {"key": {}}, {"body": {}}, {"attempts": [{}]}, {"attempts": [{"candidate": "1"}]}, {"phase": "done"},
        {"step": "0"}, {"since": "soon"}, {"run_id": "../x"}, {"steps": {}}, {"jobs": []}, {"body": {**BODY, "set": {"a": []}}},
    ]  # fmt: skip
    assert [parse(ID, json.dumps({**data, **one}).encode()) for one in odd] == [None] * len(odd)


def test_one_tick_at_a_time_and_one_function_a_prefix() -> None:
    """A second tick finds the lease; a function at another URL is refused before anything is written."""
    clock = Clock()
    storage = MemoryStorage(clock)
    lease = begin_tick(storage, "https://a", 60.0, clock.now)
    assert (
        lease is not None
        and begin_tick(storage, "https://a", 60.0, clock.now) is None
        and owner(storage) == "https://a"
    )
    before = dict(storage.objects)
    with pytest.raises(OtherTriggerError, match="belongs to the function at https://a, and this one is https://b"):
        begin_tick(storage, "https://b", 60.0, clock.now)
    assert storage.objects == before
    end_tick(storage, lease, "x")
    again = begin_tick(storage, "https://a", 60.0, clock.now)
    assert again is not None and again.after == "x"
    clock.at += 61
    assert begin_tick(storage, "https://a", 60.0, clock.now) is not None  # of a tick that died


@pytest.mark.parametrize("price, usd", [
    ({"usd_per_hour": 2.0, "complete": True, "trials": None}, 1.0),
    ({"usd_per_hour": 0.0, "complete": False, "trials": None}, None),
    ({"usd_per_hour": 2.0, "complete": True, "trials": 4}, None),
])  # fmt: skip
def test_what_an_attempt_cost_is_known_with_its_whole_price(price: dict[str, Any], usd: float | None) -> None:
    """A job that began has cost something; one that never began has cost nothing."""
    ran = {"createTime": NOW, "startTime": NOW, "endTime": "2026-11-23T08:30:00Z", "state": FAILED}
    assert time_and_cost(RemoteJob(ran), price).get("usd") == usd
    assert time_and_cost(RemoteJob({**ran, "startTime": ""}), price)["usd"] == 0


# --- a person's run ---


class Submission:
    """A person's run with candidates over services in memory."""

    def __init__(
        self, name: str = "cpu", limits: Budget | None = None, like: Submission | None = None, **keys: Any
    ) -> None:
        self.clock = like.clock if like else Clock()
        self.storage = like.storage if like else MemoryStorage(self.clock)
        self.vertex = like.vertex if like else ScarceVertex(self.clock)
        own = {
            "machine_type": "n1-standard-4",
            "timeout": "3600s",
            "candidates": [{"strategy": "SPOT"}, {"machine_type": "n1-standard-8"}],
        }
        data: dict[str, Any] = {**clouds.PROJECT, "trigger": {}}
        data["jobs"] = {"cpu": {**own, **keys} if name == "cpu" else clouds.PROJECT["jobs"]["cpu"]}
        data["sweeps"] = (
            {"sweep": {**data["sweeps"]["sweep"], "candidates": own["candidates"], **keys}} if name == "sweep" else {}
        )
        workspace = Workspace(clouds.loaded(tools.new_folder(), data), uploaded=Uploads())
        claims = Claims(self.storage, clock=self.clock, sleep=lambda _: None)
        submitter = Submitter(workspace, self.vertex, self.storage, claims=claims, limits=limits)
        submitter.ledger.now = self.clock.now
        self.key = like.key if like else fresh_key()
        self.run = SubmittedRun(candidates_of(workspace.prepare_candidates(name), submitter), "asked", self.key)
        self.run.engine.now = self.clock.now

    def __call__(self) -> Moved:
        return self.run.advance()

    @property
    def newest(self) -> dict[str, Any]:
        return list(self.vertex.jobs.values())[-1].data

    def fails(self, text: str = STOCKOUT) -> None:
        self.newest.update(state=FAILED, error={"code": 8, "message": text})

    @property
    def attempts(self) -> list[tuple[int, str]]:
        return [(one["candidate"], one["reason"]) for one in self.run.attempts()]


def test_refused_candidates_give_way_at_once() -> None:
    """Two candidates are refused for quota: one call makes the job of the third, with its number and the run in its labels."""
    submission = Submission()
    submission.vertex.refused = frozenset("12")
    state = submission()
    assert submission.run.which_candidate == "candidate 3 of 3" and state.state == "waiting" and state.made is not None
    assert (
        submission.newest["labels"]["vertexrig_candidate"] == "3"
        and first_of(submission.newest["labels"]) == submission.run.run.id
    )
    assert submission.attempts == [(1, "quota"), (2, "quota"), (3, "")]


@pytest.mark.parametrize("name", ["cpu", "sweep"])
def test_attempts_of_a_job_share_a_folder(name: str) -> None:
    """A job finds the checkpoints of the attempt before it; each attempt of a sweep has a folder of its own."""
    submission = Submission(name)
    first = submission().made
    submission.fails()
    second = submission().made
    assert first and second and second.name != first.name and (first.output == second.output) is (name == "cpu")


def test_a_person_who_cancels_ends_it() -> None:
    """A job that is found cancelled without a decision was cancelled by a person: no other starts. `stop` in a pause ends it, too."""
    submission = Submission()
    submission()
    submission.newest["state"] = CANCELLED
    assert (
        submission().run.reason == "CANCELLED"
        and submission().run.reason == "CANCELLED"
        and len(submission.vertex.jobs) == 1
    )
    other = Submission(retry_for="6h")
    other.vertex.refused = frozenset("123")
    assert other().state == "waiting" and other.run.stop() == ""
    other.vertex.refused, other.clock.at = frozenset(), 700.0
    assert other().run.reason == "CANCELLED" and not other.vertex.jobs


def test_the_time_for_another_round_is_kept() -> None:
    """After the last candidate the first is attempted again, but not before ten minutes are over, and not after `retry_for`."""
    submission = Submission(retry_for="6h")
    submission.vertex.refused = frozenset("123")
    assert submission().text.endswith("again in 600 s") and not submission.vertex.jobs
    submission.clock.at += 300
    assert submission().text.endswith("again in 300 s")
    submission.clock.at += 600
    submission.vertex.refused = frozenset("1")
    submission()
    assert submission.run.which_candidate == "candidate 2 of 3"
    submission.clock.at += 6 * 3600
    submission.fails()
    submission()
    assert submission.run.which_candidate == "candidate 3 of 3"
    submission.fails()
    assert submission().run.reason == "exhausted" and [number for number, _ in submission.attempts] == [
        1,
        2,
        3,
        1,
        2,
        3,
    ]


def test_a_preempted_candidate_is_attempted_again() -> None:
    """`preemptions: 2` gives a candidate a second job before the next one's turn."""
    submission = Submission(preemptions=2)
    for _ in range(3):
        submission()
        submission.newest["startTime"] = NOW
        submission.fails()
    submission()
    assert submission.attempts == [(1, "preempted"), (1, "preempted"), (2, "preempted"), (2, "")]


def test_a_candidate_that_cannot_fit_is_passed_over() -> None:
    """One that is known not to fit gets no job; its attempt has the sum."""
    submission = Submission()
    submission.run.engine.cannot = lambda one: "8 of 4 GPUs" if one.number == 1 else ""
    submission()
    assert submission.run.which_candidate == "candidate 2 of 3"
    first, _ = submission.run.attempts()
    assert (first["reason"], first["text"], first["job"]) == ("quota", "8 of 4 GPUs", "")


def test_the_cheapest_is_attempted_first() -> None:
    """`prefer: price` orders by price, without a price last; the numbers stay those of the file."""
    submission = Submission(
        machine_type="n1-standard-8",
        prefer="price",
        candidates=[{"strategy": "SPOT"}, {"machine_type": "n1-standard-4"}],
    )
    seen = []
    for _ in range(3):
        seen.append(submission().run.attempts[-1].candidate)
        submission.fails()
    assert seen == [3, 1, 2]


def test_the_most_trials_of_a_candidate_count_until_there_is_a_job() -> None:
    """A dear candidate with fewer trials does not hide those of the first one: a day has room for them, or the request is refused."""
    few = {"max_trial_count": 2, "parallel_trial_count": 1, "machine_type": "n1-standard-64"}
    trials = clouds.PROJECT["sweeps"]["sweep"]["max_trial_count"]
    with pytest.raises(OverBudgetError, match="trials_per_day"):
        Submission("sweep", Budget(trials_per_day=trials - 1), candidates=[few])()
    submission = Submission("sweep", Budget(trials_per_day=trials), candidates=[few])
    submission.vertex.refused = frozenset("1")
    assert submission().run.attempts[-1].candidate == 2
    (row,) = submission.run.engine.submitter.ledger.entries(submission.clock.now().date().isoformat())
    assert row.trials == 2  # once there is a job, its own


def test_a_repeat_finds_the_job_of_a_candidate_that_is_first_no_more() -> None:
    """A project file that prefers another candidate is no other body: the same request is answered with its job."""
    first = Submission(machine_type="n1-standard-8", candidates=[{"machine_type": "n1-standard-4"}])
    made = first().made
    other: dict[str, Any] = {
        "machine_type": "n1-standard-8",
        "candidates": [{"machine_type": "n1-standard-4"}],
        "prefer": "price",
    }
    again = Submission(like=first, **other)()
    assert (
        made
        and again.made
        and again.made.name == made.name
        and again.made.duplicate
        and again.run.attempts[-1].candidate == 1
    )
    other_way = Submission(**other)
    made = other_way().made
    again = Submission(like=other_way, **{**other, "prefer": "order"})()
    assert made and again.made and again.made.name == made.name and again.run.attempts[-1].candidate == 2


def test_a_candidate_over_the_budget_of_one_run_is_passed_over() -> None:
    """What one run may cost is compared for each candidate."""
    submission = Submission(
        limits=Budget(usd_per_run=0.5), machine_type="n1-standard-32", candidates=[{"machine_type": "n1-standard-4"}]
    )
    assert submission().run.attempts[-1].candidate == 2 and [reason for _, reason in submission.attempts] == [
        "over-budget",
        "",
    ]
    why = left_out([one.prepared for one in submission.run.candidates], Budget(usd_per_run=0.5))
    assert [*why] == [1] and "more than $0.50 per run (trigger.budget.usd_per_run)" in why[1]


def test_no_tick_reads_a_persons_run() -> None:
    """It is kept apart from the trigger's runs, also after its end, for those who ask for its attempts."""
    submission = Submission()
    submission()
    assert list(RunStore(submission.storage).open()) == [] and any(
        name.startswith("submitted/") for name in submission.storage.objects
    )
    assert asdict(submission.run.run.attempts[0])["candidate"] == 1
