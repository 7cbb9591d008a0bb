"""Runs in thousands of schedules at random: deliveries and ticks that are frozen, woken, killed, cut and repeated at any call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.protocol import Broken
from tests.support.run_world import Shape, WorldRegistrar, WorldTicker, explore
from tests.support.tools import brief
from vertexrig.cloud.rest import RestError
from vertexrig.runs.engine import Engine
from vertexrig.runs.policy import Due
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.submit.claims import Claim, Claims

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 10_400 if LONG else 400


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

    def keep(self, run: Run) -> tuple[Run, bool]:
        saved = self.save(replace(run, generation=0))
        return (saved, True) if saved is not None else (self.read(run.id) or run, False)


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
            return self.runs.save(self._over(found.run, action.why, action.text, at)) or found
        return found


class ClaimsGoOn(Engine):
    """A run that ends without a job leaves its claim as it was."""

    def _end_claim(self, run: Run, index: int, reason: str, text: str) -> Claim | None:
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


class SentFirst(WorldTicker):
    """The notice of an end is stored after the run is deleted."""

    def finish(self, run: Run) -> None:
        keep, self.notices.keep = self.notices.keep, lambda _: None  # type: ignore[method-assign]
        super().finish(run)
        self.engine.runs.forget(run)
        self.notices.keep = keep  # type: ignore[method-assign]
        super().finish(run)


BROKEN: Mapping[str, tuple[int, dict[str, Any]]] = {
    "writes without a generation": (0, {"runs": WrittenOver}),
    "a run that is not written again": (0, {"runs": WrittenOnce}),
    "a run that is deleted first": (0, {"engine": ForgottenFirst}),
    "the end of a job is not awaited": (0, {"engine": NextOneUnseen, "shape": Shape(candidates=3, overlap="allow")}),
    "claims of ended runs stay open": (0, {"engine": ClaimsGoOn}),
    "holds are not read": (0, {"due": NoHold}),
    "ends of claims are replaced": (0, {"claims": EndsAreReplaced}),
    "a trainer does not look at its claim": (0, {"look": lambda *_: None}),
    "a notice comes after the run is deleted": (0, {"ticker": SentFirst}),
}
"""What is broken, and a schedule from which on one breaks soon."""


QUICK = ("a run that is deleted first", "holds are not read", "a notice comes after the run is deleted")
"""Variants that few schedules find; `make attack` searches for the others, which take minutes each."""


@pytest.mark.parametrize("what", BROKEN if LONG else QUICK)
def test_each_part_is_needed(what: str) -> None:
    """Without this part some schedule breaks a promise."""
    first, parts = BROKEN[what]
    with pytest.raises((Broken, RestError, LookupError)):
        for seed in range(first, first + 3_000):
            explore(seed, **parts)


class NobodyCleans(WorldRegistrar):
    """Second versions stay."""

    def clean(self, display: str) -> list[str]:
        return []
