"""Runs in thousands of schedules at random: deliveries and ticks that are frozen, woken, killed, cut and repeated at any call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.protocol import Broken
from tests.support.run_world import DUE, SCRIPTS, TICK_S, RunWorld, Shape, WorldSteps, WorldTicker, explore, played
from tests.support.tools import brief
from vertexrig.cloud.rest import RestError
from vertexrig.runs.engine import Engine
from vertexrig.runs.policy import Due
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import LEASE_S, Claim, Claims, fresh_key
from vertexrig.submit.reconcile import Reconciler, recorded

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 10_400 if LONG else 160


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(590, id="a job that ran for less than a second counts in the caller's day"),
        pytest.param(6092, id="a tick writes only over what it wrote itself"),
    ],
)
def test_a_schedule_that_broke_a_promise_once(seed: int) -> None:
    """These schedules found faults that are mended."""
    explore(seed)


@pytest.mark.whole
@pytest.mark.parametrize("part", brief(range(PARTS), 2))
def test_runs_keep_their_promises_in_every_schedule(part: int) -> None:
    """One job per request and never two that train, no run lost, one end and a notice for each, no job while the schedule is on hold, a
    caller's day never exceeded: over machines that are refused, run out and are taken away, lists that lag and clocks ten minutes off.
    """
    for seed in range(part, SCHEDULES, PARTS):
        try:
            explore(seed)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


class WrittenOver(RunStore):
    """A run is written over whatever generation is there."""

    def save(self, run: Run) -> Run | None:
        current = self.storage.generation(self.path(run.id)) or 0
        return super().save(replace(run, generation=current if run.generation else 0))


class WrittenOnce(RunStore):
    """An open run is not written again by a further delivery."""

    def add(self, run: Run, check_claim: Any) -> tuple[Run, bool]:
        saved = self.save(replace(run, generation=0))
        return (saved, True) if saved is not None else (self.read(run.id) or run, False)


class FirstBodyStays(RunStore):
    """A run that a refused delivery left is kept for a corrected body."""

    def add(self, run: Run, check_claim: Any) -> tuple[Run, bool]:
        found = self.read(run.id)
        return super().add(run if found is None else replace(run, body=found.body, caller=found.caller), check_claim)


class NotStopped(Engine):
    """A DELETE cancels the job that lives, and is not written."""

    def stop(self, run: Run) -> str:
        return run.job if run.phase == "step" else run.attempts[-1].job if run.attempts else ""


class SeesOnlyLists(Engine):
    """A job is cancelled as the tick's list had it."""

    def move(self, run: Run, job: Any = None, *parts: Any) -> Any:
        vertex = self.submitter.vertex
        if job is not None:
            self.submitter.vertex = Listed(vertex, job)  # type: ignore[assignment]
        try:
            return super().move(run, job, *parts)
        finally:
            self.submitter.vertex = vertex


class Listed:
    """A service that says of one job what a list said."""

    def __init__(self, vertex: Any, job: Any) -> None:
        self.vertex, self.job = vertex, job

    def get(self, name: str) -> Any:
        return self.job if name == self.job.name else self.vertex.get(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.vertex, name)


class HoldsCount(Engine):
    """The time of a hold counts as time in which a step failed."""

    def _on_hold(self, run: Run, text: str, at: Any) -> Run:
        return run


class NewIds(Claims):
    """A claim that was deleted while its run waited gets another id."""

    def take(self, *parts: Any, claim_id: str = "", **more: Any) -> Any:
        return super().take(*parts[:6], **more)


class EndsBetweenAttempts(Due):
    """A run without steps is taken for ended between two attempts."""

    def _may_repeat(self, run: Run) -> bool:
        return False


class OlderOnesStart(WorldTicker):
    """A run that waits is replaced only by one that waits, too."""

    def _newest(self, found: Any) -> dict[str, str]:
        return super()._newest([run for run in found if run.phase == "waiting"])


class ForgottenFirst(Engine):
    """A run is deleted before its end is in the history."""

    def close(self, run: Run, *parts: Any, **more: Any) -> Any:
        finish, self.finish = self.finish, lambda ended: (self.runs.forget(ended), finish(ended))  # type: ignore[assignment, func-returns-value]
        try:
            return super().close(run, *parts, **more)
        finally:
            self.finish = finish


class NextOneUnseen(Engine):
    """The next candidate starts once the job before it was asked to end."""

    def _carry_out(self, run: Run, action: Any, job: Any, at: Any) -> Any:
        found = super()._carry_out(run, action, job, at)
        if action.do == "give-up":
            return self.runs.save(self._attempt_over(found.run, action.why, action.text, at)) or found
        return found


class ClaimsGoOn(Engine):
    """A run that ends without a job leaves its claim as it was."""

    def _end_claim(self, run: Run, reason: str, text: str) -> Claim | None:
        return Claim("", "", "", "", "", "ended", ended={"reason": reason, "text": text})


class NoHold(Due):
    """Nobody reads the holds."""

    def check_hold(self) -> None:
        return None


class EndsAreReplaced(Claims):
    """A job that a frozen holder made is recorded over the end of its claim."""

    def record(self, claim: Claim, job: Any, current: Claim | None = None) -> Claim:
        there = current or self.by_id(claim.id) or claim
        if there.state == "ended":
            self.storage.write(claim.path, claim.to_bytes())
            there = claim
        return super().record(claim, job, there)


def _looks_away(*_: Any) -> None:
    """A trainer trains whatever its claim says."""


class SentFirst(WorldTicker):
    """The notice of an end is stored after the run is deleted."""

    def finish(self, run: Run) -> None:
        keep, self.notices.keep = self.notices.keep, lambda _: None  # type: ignore[method-assign]
        super().finish(run)
        self.engine.runs.forget(run)
        self.notices.keep = keep  # type: ignore[method-assign]
        super().finish(run)


class DeletedFirst(WorldTicker):
    """A notice is deleted before it is sent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        send = self.notices.send

        def first(to: Any, notice: Any) -> None:
            for item in self.storage.list(f"notices/{notice.id}."):
                self.storage.delete(item.name)
            send(to, notice)

        self.notices.send = first


class NobodysRuns(Engine):
    """A tick starts runs as itself, not as their caller."""

    def _start_attempt(self, run: Run, action: Any, at: Any) -> Any:
        self.terms = lambda _: Terms()
        return super()._start_attempt(run, action, at)


class PromotesAgain(WorldSteps):
    """The job of a step has another key each time."""

    def _promote(self, run: Run, index: int, step: Any, sweep: Any) -> Any:
        made = self.engine.submitter.submit(self.prepared(), fresh_key(), "asked", terms=self.engine.terms(run))
        return self._made(run, index, run.name, made)


class CancelsOthers(Reconciler):
    """Of two jobs whose claim is not among the trigger's own, the older one is kept."""

    def look(self, claim_id: str, collection: str) -> list[str]:
        jobs = self.with_label(claim_id, collection)
        if len(jobs) > 1 and self.claims.by_id(claim_id) is None:
            return self.keep_recorded(Claim(claim_id, "", "", "", "", job=recorded(jobs[0], claim_id)), jobs)
        return super().look(claim_id, collection)


BROKEN: Mapping[str, tuple[str, int, dict[str, Any]]] = {
    "writes without a generation": ("slow-write", 2, {"runs": WrittenOver}),
    "a run that is not written again": ("refused", 1, {"runs": WrittenOnce}),
    "a run that is deleted first": ("refused", 6, {"engine": ForgottenFirst}),
    "the end of a job is not awaited": ("slow-cancel", 2, {"engine": NextOneUnseen}),
    "claims of ended runs stay open": ("held", 4, {"engine": ClaimsGoOn}),
    "holds are not read": ("held", 2, {"due": NoHold}),
    "ends of claims are replaced": ("left-out", 0, {"claims": EndsAreReplaced}),
    "a trainer does not look at its claim": ("late", 0, {"look": _looks_away}),
    "a notice comes after the run is deleted": ("refused", 6, {"ticker": SentFirst}),
    "a notice is deleted before the call": ("refused", 6, {"ticker": DeletedFirst}),
    "a tick does not count a run for its caller": ("budget", 4, {"engine": NobodysRuns}),
    "a step has no key of its own": ("steps", 3, {"steps": PromotesAgain}),
    "a caller's DELETE is not written": ("stopped", 0, {"engine": NotStopped}),
    "a caller's DELETE of a job that is given up is not written": ("stopped-late", 0, {"engine": NotStopped}),
    "a caller's DELETE does not stop the steps": ("stopped-step", 0, {"engine": NotStopped}),
    "a waiting run whose claim was deleted gets another id": ("expired", 2, {"claims": NewIds}),
    "a corrected body gets the run of the one before": ("corrected", 1, {"runs": FirstBodyStays}),
    "a job is not looked at before it is cancelled": ("begins", 3, {"engine": SeesOnlyLists}),
    "a step is given up for the time of a hold": ("failing-held", 0, {"engine": HoldsCount}),
    "a run overlaps between its attempts": ("round", 0, {"due": EndsBetweenAttempts}),
    "an older run starts after a newer one": ("replaced", 1, {"ticker": OlderOnesStart}),
    "jobs of another trigger are cancelled": ("refused", 1, {"reconciler": CancelsOthers}),
}
"""What is broken, and the script whose schedules find it, with the move that is frozen."""


@pytest.mark.parametrize("what", BROKEN)
def test_each_part_is_needed(what: str) -> None:
    """Without this part one of 300 schedules breaks a promise."""
    script, actor, parts = BROKEN[what]
    with pytest.raises((Broken, RestError, LookupError)):
        for seed in range(300):
            played(seed, SCRIPTS[script], actor, **parts)


def test_a_run_that_another_delivery_relies_on_is_kept() -> None:
    """A delivery whose last attempt fails leaves the run that it opened, if another one was answered by it that ticks continue."""
    world = RunWorld(Shape(3))
    world.vertex.refused = frozenset("123")
    first = world.arrive(0, 0.0)
    while sum(name.startswith("claims/") for name in world.storage.objects) < 3:
        first.step()
    world.arrive(0, 0.0).step(*[""] * 400)
    assert world.answers_of == {DUE[0]: ["deferred"]}
    world.later(TICK_S)
    first.step(*[""] * 400)
    assert first.error is not None and world.answers_of == {DUE[0]: ["deferred", "refused"]}
    world.finish(True)  # and has its end


def test_a_repeat_writes_how_far_it_is() -> None:
    """A delivery that continues the candidates of one that died writes its own attempts, so that ticks find its job."""
    world = RunWorld(Shape(3))
    world.vertex.refused = frozenset("12")
    first = world.arrive(0, 0.0)
    while sum(name.startswith("claims/") for name in world.storage.objects) < 2:
        first.step()
    world.close()
    world.later(LEASE_S + 2)
    world.arrive(0, 0.0).step(*[""] * 400)
    assert [len(run.attempts) for run in RunStore(world.storage).open() if isinstance(run, Run)] == [3]


def test_a_run_whose_first_candidate_was_refused_waits() -> None:
    """A delivery whose last candidate fails for a reason that the schedule waits out leaves a run that ticks continue."""
    world = RunWorld(Shape(3, retry_for="7200s"))
    world.vertex.refused = frozenset("12")
    work = world.arrive(0, 0.0)
    while work.name != "before create":
        work.step()
    work.step("refuse", *[""] * 400)
    assert world.answers_of == {DUE[0]: ["deferred"]}
    world.finish(True)
