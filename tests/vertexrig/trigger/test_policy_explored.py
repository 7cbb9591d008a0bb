"""Policy in thousands of schedules at random: what is deferred, left out, held or over a caller's budget is decided once, and holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.policy_world import explore
from tests.support.protocol import Broken
from tests.support.tools import brief
from vertexrig.project.triggered import RunLimits
from vertexrig.submit.budget import Ledger, Share, Terms
from vertexrig.submit.claims import Claim, Claims
from vertexrig.trigger.deferred import DeferredRun, Retrier
from vertexrig.trigger.deliveries import Delivery
from vertexrig.trigger.policy import Due

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 12_000 if LONG else 600


@pytest.mark.parametrize("part", brief(range(PARTS), 2))
def test_policy_holds_in_every_schedule(part: int) -> None:
    """Deliveries of several due times and ticks, by instances whose clocks are ten minutes off, frozen, woken, killed, cut, refused and
    repeated at any call: one job or one end for each, no deferred run is lost, no job is made under a hold, runs overlap only where that
    is allowed, and a caller's day is never exceeded.
    """
    for seed in range(part, SCHEDULES, PARTS):
        try:
            explore(seed)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


class NothingEnds(Due):
    """A run that is left out leaves its claim as it was."""

    def ends(self, error: Exception) -> Mapping[str, str] | None:
        return None


class HeldBeforeTheClaim(Due):
    """The holds are looked at when a delivery comes, and not once more with the claim held."""

    def terms(self, terms: Terms) -> Terms:
        super().check_hold()
        return super().terms(terms)

    def check_hold(self) -> None:
        return None


class NoHold(Due):
    """Nobody looks at the holds."""

    def check_hold(self) -> None:
        return None


class RunsOverlap(Due):
    """Runs share nothing."""

    @property
    def share(self) -> Share:
        return replace(super().share, limits=RunLimits())


class ForgottenFirst(Retrier):
    """A deferred run is deleted before it is tried."""

    def _look(self, one: DeferredRun, newest: str, held: bool) -> Delivery | None:
        self.deferrals.forget(one)
        return super()._look(one, newest, held)


class EndedWithoutAClaim(Retrier):
    """A run that another one takes the place of is only deleted."""

    def _end(self, one: DeferredRun, decision: Any, reason: str, text: str) -> Delivery | None:
        self.deferrals.forget(one)
        return self._delivery(one, decision, reason, text)


class SaidAfterwards(Retrier):
    """What a tick has decided is said when it has gone through all."""

    def _decided(self, one: DeferredRun, delivery: Delivery) -> Delivery:
        self.deferrals.forget(one)
        return delivery

    def tick(self, *parts: Any) -> list[Delivery]:
        found = super().tick(*parts)
        for one in found:
            self.keep(one)
        return found


class RowsAreNotWrittenAgain(Ledger):
    """A delivery uses the row that an earlier one of its request was granted, which that one may take out."""

    def take_out(self, rows: Any) -> None:
        for item in rows:
            self.storage.delete(item.name)


class EndsAreReplaced(Claims):
    """A job that a frozen holder made is recorded over the end of its claim."""

    def record(self, claim: Claim, job: Any, current: Claim | None = None) -> Claim:
        there = current or self.by_id(claim.id) or claim
        if there.state == "ended":
            self.storage.write(claim.path, claim.to_bytes())
            there = claim
        return super().record(claim, job, there)


class ClocksOfOurs(Ledger):
    """The age of a row is told by the instance's own clock."""

    @property
    def _ahead(self) -> Any:
        return timedelta()

    @_ahead.setter
    def _ahead(self, value: Any) -> None:
        pass


BROKEN: dict[str, dict[str, Any]] = {
    "nothing ends": {"due": NothingEnds},
    "nobody looks at the holds": {"due": NoHold},
    "held before the claim is taken": {"due": HeldBeforeTheClaim},
    "runs share nothing": {"due": RunsOverlap},
    "forgotten before it is tried": {"retrier": ForgottenFirst},
    "ended without a claim": {"retrier": EndedWithoutAClaim},
    "said when it is forgotten": {"retrier": SaidAfterwards},
    "another delivery's row is taken out": {"ledger": RowsAreNotWrittenAgain},
    "ends are replaced": {"claims": EndsAreReplaced},
    "ages by clocks that are wrong": {"ledger": ClocksOfOurs},
}
FOUND = {"ages by clocks that are wrong": 5298}
"""A schedule that breaks without the part, where that is not one of the first."""


@pytest.mark.parametrize("what", brief(list(BROKEN), 2))
def test_each_part_of_it_is_needed(what: str) -> None:
    """Without this part some schedule breaks a promise."""
    with pytest.raises(Broken):
        for seed in (FOUND.get(what, 0), *range(3_000)):
            explore(seed, **BROKEN[what])
