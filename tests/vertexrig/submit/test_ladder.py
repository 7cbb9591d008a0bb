"""Candidates are tried in order, one job at a time, in every schedule that is tried; and each part of the ladder is needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.ladder_world import QUOTA, ROUND_S, STOCKOUT, LadderWorld, explore
from tests.support.protocol import Broken, Uploads
from tests.support.tools import brief
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project.triggered import Budget
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
from vertexrig.submit import ladder as ladders
from vertexrig.submit import rungs
from vertexrig.submit.budget import OverBudgetError
from vertexrig.submit.claims import Claim, Claims, OtherBodyError, Recorded, fresh_key
from vertexrig.submit.ladder import Ladder
from vertexrig.submit.rungs import Move, Rung, move, ways
from vertexrig.submit.submission import Submitter, left_out
from vertexrig.workspace import Workspace

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 10_400 if LONG else 200


@pytest.mark.parametrize("part", brief(range(PARTS), 1))
def test_one_job_trains_in_every_schedule(part: int) -> None:
    """Those who go on with a ladder are frozen, woken, killed and cut at any call, over lists that lag, machines that are refused,
    run out and are taken away, and jobs that wait too long: two jobs never train at one time, each try is left for a reason, in the
    order of the file, and the ladder ends with the one job that has succeeded, or with none when its time is over.
    """
    for seed in range(part, SCHEDULES, PARTS):
        try:
            explore(seed)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


# --- each part is needed ---


class GoesOnUnseen(Ladder):
    """The next candidate is started once the one before it was asked to end."""

    def cancel(self, rung: Rung, what: Move) -> None:
        super().cancel(rung, what)
        held = self._claims.by_key(self._key(rung.place, rung.again)) if rung.place or rung.again else self._held(0, 0)
        if held is not None:
            self._claims.give_up(held, {"reason": what.why, "text": "", rungs.SEEN: "now"})


class CancelsUndecided(Ladder):
    """A job that waits too long is cancelled, and nobody writes down why."""

    def cancel(self, rung: Rung, what: Move) -> None:
        super().cancel(rung, replace(what, act="cancel"))


def _patient_with_none(claim: Any, job: RemoteJob | None, wait_s: float | None = None) -> Move:
    """What a job that trains is cancelled for, too: its time in the queue."""
    told = move(claim, job and RemoteJob({k: v for k, v in job.data.items() if k != "startTime" or job.ended}), wait_s)
    return told


BROKEN: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "the end of a job is not waited for": (480, {"ladder": GoesOnUnseen}),
    "the decision to cancel is not kept": (0, {"ladder": CancelsUndecided}),
    "a trainer does not look at its claim": (150, {"look": lambda *_: None}),
}
"""What is broken, and a schedule from which on one breaks soon."""


@pytest.mark.parametrize("name", brief(list(BROKEN), 2))
def test_each_part_is_needed(name: str) -> None:
    """Without it a schedule is found that breaks."""
    first, parts = BROKEN[name]
    for seed in range(first, first + 1500):
        try:
            explore(seed, **parts)
        except Broken:
            return
    raise AssertionError("1,500 schedules, and none breaks")


def test_what_trains_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a table that forgets that a job has begun, a schedule is found in which it is cancelled."""
    monkeypatch.setattr(ladders, "move", _patient_with_none)
    with pytest.raises(Broken, match="seen training"):
        for seed in range(1500):
            explore(seed)


# --- the table ---

NOW = "2026-11-23T08:00:00Z"


def job(state: str, *, began: bool = False, error: str = "") -> RemoteJob:
    data: dict[str, Any] = {"name": "projects/p/locations/r/customJobs/1", "state": state}
    return RemoteJob(
        data | ({"startTime": NOW} if began else {}) | ({"error": {"code": 8, "message": error}} if error else {})
    )


def claim(state: str = "created", age_s: float = 0.0, **ended: str) -> Claim:
    return Claim("i", "t", "b", "cpu", "step", state, ended=ended, age_s=age_s)


@pytest.mark.parametrize("held, seen, act, why", [
    (None, None, "start", ""),
    (claim("claimed"), None, "start", ""),
    (claim("released"), None, "start", ""),
    (claim("ended", reason="quota"), None, "next", "quota"),
    (claim("ended", reason="over-budget"), None, "next", "over-budget"),
    (claim("ended", reason="superseded"), None, "end", "superseded"),
    (claim(), None, "end", "gone"),
    (claim(age_s=1199), job(QUEUED), "wait", ""),
    (claim(age_s=1201), job(QUEUED), "give-up", "waited"),
    (claim(age_s=1201), job(PENDING), "give-up", "waited"),
    (claim(age_s=1201), job(PENDING, began=True), "wait", ""),
    (claim(age_s=9999), job(RUNNING, began=True), "wait", ""),
    (claim(reason="waited"), job(QUEUED), "cancel", "waited"),
    (claim(reason="waited"), job(CANCELLING), "wait", ""),
    (claim(reason="waited"), job(RUNNING, began=True), "wait", ""),
    (claim(reason="waited"), job(CANCELLED), "leave", "waited"),
    (claim(reason="waited"), job(SUCCEEDED, began=True), "end", "succeeded"),
    (claim(), job(PARTIALLY_SUCCEEDED, began=True), "end", "failed"),
    (claim(), job(CANCELLED), "end", "cancelled"),
    (claim(), job(EXPIRED), "leave", "waited"),
    (claim(), job(EXPIRED, began=True), "end", "cancelled"),
    (claim(), job(FAILED, error=STOCKOUT), "leave", "stockout"),
    (claim(), job(FAILED, error=QUOTA), "leave", "quota"),
    (claim(), job(FAILED, began=True, error=STOCKOUT), "leave", "preempted"),
    (claim(), job(FAILED, began=True, error="The replica workerpool0-0 exited with a non-zero status of 1."), "end", "failed"),
    (claim(reason="stockout", seen=NOW), None, "next", "stockout"),
])  # fmt: skip
def test_what_is_done_about_a_try(held: Claim | None, seen: RemoteJob | None, act: str, why: str) -> None:
    """Each state of a claim and its job has one answer; `wait` is 20 minutes."""
    assert move(held, seen, 1200.0) == Move(act, why)  # type: ignore[arg-type]


# --- one ladder, step by step ---


@pytest.fixture
def world() -> Iterator[LadderWorld]:
    """Healthy services, and machines as the test says."""
    made = LadderWorld()
    yield made
    made.close()


def fail(world: LadderWorld, text: str) -> None:
    """The newest job fails."""
    newest = list(world.vertex.jobs.values())[-1].data
    newest |= {"state": FAILED, "error": {"code": 8, "message": text}}


def numbers(world: LadderWorld) -> list[tuple[int, str]]:
    return [(one.candidate, one.reason) for one in world.made(None).tries()]


def test_a_refused_candidate_gives_way_at_once(world: LadderWorld) -> None:
    """Two candidates are refused for quota: one call makes the job of the third, with its number and the first claim in its labels."""
    world.vertex.refused = frozenset("12")
    at = world.through()
    assert at.said == "candidate 3 of 3" and at.state == "waiting" and at.made is not None
    (made,) = world.vertex.jobs.values()
    assert made.data["labels"]["vertexrig_candidate"] == "3"
    assert first_of(made.data["labels"]) == world.made(None).first_claim.id
    assert numbers(world) == [(1, "quota"), (2, "quota"), (3, "")]


def test_a_job_that_lists_show_late_is_called_off(world: LadderWorld) -> None:
    """One whose maker died before it was recorded trains while another delivery is refused for quota and goes on: it is cancelled as
    soon as lists show it.
    """
    world.vertex.lag = 150.0
    dead = world.drive()
    dead.step(until="after create")
    world.close()
    (stray,) = world.vertex.jobs.values()
    world.train(stray.data)
    assert stray.data["state"] == RUNNING
    world.clock.at += 70
    world.vertex.refused = frozenset("1")
    assert world.through().said == "candidate 2 of 3" and stray.data["state"] == RUNNING
    world.clock.at += 100
    assert world.through().said == "candidate 2 of 3" and stray.data["state"] == CANCELLING


def test_all_tries_write_into_one_run() -> None:
    """A job that fails over finds the checkpoints of the one before it: both have the output folder of the first try."""
    data = {**clouds.PROJECT, "trigger": {}, "sweeps": {}}
    data["jobs"] = {"cpu": {"machine_type": "n1-standard-4", "timeout": "3600s", "candidates": [{"strategy": "SPOT"}]}}
    world = _of(data)
    first = world.advance()
    fail(world.world, STOCKOUT)
    second = world.advance()
    assert first.made and second.made and first.made.output == second.made.output != ""
    assert second.made.name != first.made.name


def test_a_sweep_begins_anew() -> None:
    """A study's trials have other values than those before it, so each try of a sweep has a folder of its own."""
    data = {**clouds.PROJECT, "trigger": {}}
    data["sweeps"] = {"sweep": {**data["sweeps"]["sweep"], "candidates": [{"strategy": "SPOT"}]}}
    world = _of(data, "sweep")
    first = world.advance()
    fail(world.world, STOCKOUT)
    second = world.advance()
    assert first.made and second.made and first.made.output != second.made.output


def test_a_person_who_cancels_ends_it(world: LadderWorld) -> None:
    """A job that nobody decided to give up, and that is found cancelled, was cancelled by a person: no other is started."""
    world.through()
    next(iter(world.vertex.jobs.values())).data["state"] = CANCELLED
    assert world.through().state == "cancelled" and len(world.vertex.jobs) == 1


def test_the_time_for_another_round_is_kept(world: LadderWorld) -> None:
    """After the last candidate the first is tried again, but not before ten minutes are over, and not after `retry_for`."""
    world.vertex.refused = frozenset("123")
    at = world.through()
    assert at.state == "waiting" and at.text.endswith(f"again in {ROUND_S:.0f} s") and not world.vertex.jobs
    world.clock.at += ROUND_S / 2
    assert world.through().text.endswith(f"again in {ROUND_S / 2:.0f} s")
    world.clock.at += ROUND_S
    world.vertex.refused = frozenset("1")
    assert world.through().said == "candidate 2 of 3"
    world.clock.at += 6 * 3600
    fail(world, STOCKOUT)
    assert world.through().said == "candidate 3 of 3"
    fail(world, STOCKOUT)
    assert world.through().state == "exhausted"
    assert [number for number, _ in numbers(world)] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("run", ["20200101-120000-ab12", "my-run"])
def test_a_resumed_run_has_its_own_time_for_another_round(world: LadderWorld, run: str) -> None:
    """`retry_for` counts from the request, not from the run of years ago that it resumes, whatever name that has."""
    world.vertex.refused = frozenset("123")
    ladder = world.made(None)
    ladder.run_id = run
    assert ladder.advance().state == "waiting" and world.made(None).first_claim.run_id == run
    world.clock.at += ROUND_S + 1
    world.vertex.refused = frozenset()
    assert ladder.advance().said == "candidate 1 of 3" and [one.reason for one in ladder.tries()][-1] == ""
    world.clock.at += 6 * 3600
    for _ in range(3):
        fail(world, STOCKOUT)
        at = ladder.advance()
    assert at.state == "exhausted"


@pytest.mark.parametrize("price, usd", [
    ({"usd_per_hour": 2.0, "complete": True, "trials": None}, "1.0000"),
    ({"usd_per_hour": 0.0, "complete": False, "trials": None}, None),
    ({"usd_per_hour": 2.0, "complete": True, "trials": 4}, None),
    ({"usd_per_hour": 2.0}, None),
])  # fmt: skip
def test_what_a_try_cost_is_known_with_its_whole_price(price: dict[str, Any], usd: str | None) -> None:
    """A job that began on Spot machines has cost something, and nobody knows what; one that never began has cost nothing."""
    ran = {"createTime": NOW, "startTime": NOW, "endTime": "2026-11-23T08:30:00Z", "state": FAILED}
    held = replace(claim(), job=Recorded("n", estimate=price))
    assert rungs.course(RemoteJob(ran), held).get("usd") == usd
    assert rungs.course(RemoteJob({**ran, "startTime": ""}), held)["usd"] == "0"


def test_a_preempted_candidate_is_tried_again(world: LadderWorld) -> None:
    """`preemptions: 2` gives a candidate a second job before the next one's turn."""
    for _ in range(3):
        world.through()
        newest = list(world.vertex.jobs.values())[-1].data
        newest["startTime"] = NOW
        fail(world, STOCKOUT)
    world.through()
    assert numbers(world) == [(1, "preempted"), (1, "preempted"), (2, "preempted"), (2, "")]


def test_a_repeat_is_seen_when_fewer_are_allowed_by_now(world: LadderWorld) -> None:
    """Where `preemptions` is lowered while a candidate's second job trains, that is the one job; a stray of an earlier repeat is still
    called off.
    """

    def lowered() -> Ladder:
        ladder = world.made(None)
        ladder.settings = replace(ladder.settings, preemptions=1)
        return ladder

    world.through()
    first = next(iter(world.vertex.jobs.values())).data
    first["startTime"] = NOW
    fail(world, STOCKOUT)
    world.through()
    _, second = (one.data for one in world.vertex.jobs.values())
    second |= {"state": RUNNING, "startTime": NOW}
    at = lowered().advance()
    assert at.state == "training" and at.made is not None and at.made.name == second["name"]
    second |= {"state": FAILED, "error": {"code": 8, "message": STOCKOUT}}
    assert lowered().advance().said == "candidate 2 of 3" and len(world.vertex.jobs) == 3
    second["state"] = RUNNING  # as if a second job of that try were seen only now
    lowered().advance()
    assert second["state"] == CANCELLING


def test_a_candidate_that_cannot_fit_is_passed_over(world: LadderWorld) -> None:
    """One of which it is known that it cannot fit gets no job; its try holds the sum."""
    ladder = world.made(None)
    ladder.cannot = lambda way: "8 of 4 GPUs" if way.number == 1 else ""
    assert ladder.advance().said == "candidate 2 of 3"
    first, _ = ladder.tries()
    assert (first.reason, first.text, first.job) == ("quota", "8 of 4 GPUs", "")


def test_another_project_file_is_refused(world: LadderWorld) -> None:
    """Whoever goes on with other candidates than those that were begun with finds no try of theirs, and makes no job."""
    frozen = world.drive()
    frozen.step(until="before create")
    world.close()
    ladder = world.made(None)
    ladder.body = "another"
    with pytest.raises(OtherBodyError):
        ladder.advance()
    assert not world.vertex.jobs


def test_the_cheapest_is_tried_first() -> None:
    """`prefer: price` tries by price, what has none last; the numbers stay those of the file."""
    data = {**clouds.PROJECT, "trigger": {}, "sweeps": {}}
    data["jobs"] = {"cpu": {
        "machine_type": "n1-standard-8", "timeout": "3600s", "prefer": "price",
        "candidates": [{"strategy": "SPOT"}, {"machine_type": "n1-standard-4"}],
    }}  # fmt: skip
    world = _of(data)
    ways = [way.prepared for way in sorted(world.ladder.ways, key=lambda way: way.number)]
    assert world.ladder.ways[0].submitter.first_allowed(ways).candidate == 3
    seen = []
    for _ in range(3):
        seen.append(world.advance().candidate)
        fail(world.world, STOCKOUT)
    assert seen == [3, 1, 2]


def test_the_dearest_counts_until_there_is_a_job() -> None:
    """A day with room for the cheap candidate only refuses the request; with room for the dearest, the day counts what was started."""
    data = {**clouds.PROJECT, "trigger": {}, "sweeps": {}}
    data["jobs"] = {"cpu": {
        "machine_type": "n1-standard-4", "timeout": "3600s", "candidates": [{"machine_type": "n1-standard-32"}],
    }}  # fmt: skip
    with pytest.raises(OverBudgetError, match="usd_per_day"):
        _of(data, limits=Budget(usd_per_day=0.5)).advance()
    world = _of(data, limits=Budget(usd_per_day=20))
    at = world.advance()
    assert at.made is not None
    (row,) = world.ladder.ways[0].submitter.ledger.entries(world.world.clock.now().date().isoformat())
    assert row.granted and row.usd == at.made.estimate["usd_at_most"]
    fail(world.world, STOCKOUT)
    again = world.advance()
    assert again.made is not None and again.candidate == 2
    (row,) = world.ladder.ways[0].submitter.ledger.entries(world.world.clock.now().date().isoformat())
    assert abs(row.usd - again.made.estimate["usd_at_most"]) < 0.02 and row.usd > at.made.estimate["usd_at_most"]


def test_a_candidate_over_the_budget_of_one_run_is_passed_over() -> None:
    """What one run may cost is held for each candidate."""
    data = {**clouds.PROJECT, "trigger": {}, "sweeps": {}}
    data["jobs"] = {"cpu": {
        "machine_type": "n1-standard-32", "timeout": "3600s", "candidates": [{"machine_type": "n1-standard-4"}],
    }}  # fmt: skip
    world = _of(data, limits=Budget(usd_per_run=0.5))
    assert world.advance().candidate == 2
    assert [one.reason for one in world.ladder.tries()] == ["over-budget", ""]
    told = left_out([way.prepared for way in world.ladder.ways], Budget(usd_per_run=0.5))
    assert [*told] == [1] and "more than $0.50 per run (trigger.budget.usd_per_run)" in told[1]


class _Of:
    """A ladder of one project over services in memory."""

    def __init__(self, world: LadderWorld, ladder: Ladder) -> None:
        self.world, self.ladder = world, ladder

    def advance(self) -> Any:
        return self.ladder.advance()


def _of(data: Mapping[str, Any], name: str = "cpu", limits: Budget | None = None) -> _Of:
    world = LadderWorld()
    workspace = Workspace(clouds.loaded(Path(tempfile.mkdtemp()), dict(data)), uploaded=Uploads())
    claims = Claims(world.storage, clock=world.clock, sleep=lambda _: None)
    submitter = Submitter(workspace, world.vertex, world.storage, claims=claims, limits=limits)
    submitter.ledger.now = world.clock.now
    return _Of(world, Ladder(ways(workspace.prepare_all(name), submitter), "body", fresh_key(), now=world.clock.now))
