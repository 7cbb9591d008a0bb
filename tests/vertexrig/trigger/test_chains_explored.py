"""Chains in thousands of schedules at random: frozen, killed and cut ticks take each step once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.chain_world import MODEL, WorldRegistrar, WorldTicker, explore
from tests.support.protocol import Broken
from tests.support.tools import brief
from vertexrig.cloud.rest import RestError
from vertexrig.project.triggered import RegisterStep
from vertexrig.studies import register
from vertexrig.submit.chains import Chain
from vertexrig.submit.claims import Claim
from vertexrig.trigger.registration import folder_of

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 16_000 if LONG else 800


@pytest.mark.parametrize("there", [False, True], ids=["first", "next"])
@pytest.mark.parametrize("part", brief(range(PARTS), 2))
def test_each_step_is_taken_once_in_every_schedule(part: int, there: bool) -> None:
    """Ticks that are frozen, woken, killed, cut and repeated at any call, beside deliveries of the run, over lists that lag and
    uploads that take their time: one run, one promoted job and one version survive, and the version has the aliases.
    """
    for seed in range(part, SCHEDULES // 2, PARTS):
        try:
            explore(seed, there=there)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


@pytest.mark.parametrize("there", [False, True], ids=["first", "next"])
@pytest.mark.parametrize("part", brief(range(PARTS), 2))
def test_what_is_registered_was_measured_beside_what_is_there(part: int, there: bool) -> None:
    """The same with `evaluate`, beside others who register versions of their own: a version is uploaded only after a job has measured it
    beside the one that is there then; each measurement has one job.
    """
    for seed in range(part, SCHEDULES // (2 if LONG else 4), PARTS):
        try:
            explore(seed, there=there, evaluates=True)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


class OnceIsEnough(WorldRegistrar):
    """Whatever version was measured counts."""

    def _upload(self, chain: Chain, key: Any, step: Any, job: Any, display: str, evaluation: Any) -> Any:
        there = register.present(self.models, display, step.alias)
        return super()._upload(chain, key, step, job, display, replace(evaluation, champion=folder_of(there)))


def test_the_look_at_what_is_there_is_needed() -> None:
    """Without it a schedule is found that compares with a version that is not there any more."""

    class Stale(WorldTicker):
        def _measured(self, step: Any, job: Any) -> Any:
            return replace(
                super()._measured(step, job), champion=self.registrar.rivals(self.chain, RegisterStep(), job)[0]
            )

        def _follow(self, walk: Any) -> Any:
            self.chain = walk.chain
            return super()._follow(walk)

    with pytest.raises((Broken, RestError)):
        for seed in range(2_000):
            explore(seed, there=True, evaluates=True, registrar=OnceIsEnough, ticker=Stale)


class NobodyCleans(WorldRegistrar):
    """Second versions stay."""

    def clean(self, display: str) -> list[str]:
        return []


class ModelsOfTheirOwn(WorldRegistrar):
    """The service chooses the id of a new model."""

    def _begin(self, taken: Any, body: Mapping[str, Any], parent: str, chain: Chain) -> dict[str, Any]:
        return self.models.begin_upload(body, parent, "" if parent else taken.claim.token)


class NobodyClaims(WorldRegistrar):
    """Every tick uploads."""

    def register(self, chain: Chain, key: Any, step: Any, job: Any, evaluation: Any = None) -> Any:
        there = register.present(self.models, "cpu", "champion")
        body = self._body(chain, step, MODEL, "cpu")
        made = self.models.begin_upload(body, str(there["name"]) if there else "", "" if there else "one")
        return self._finish(chain, Claim("", "", "", "", "", state="created", job=made), step, "cpu", "")


@pytest.mark.parametrize(
    ("broken", "there"), [(NobodyCleans, True), (ModelsOfTheirOwn, False), (NobodyClaims, True)], ids=lambda one: getattr(one, "__name__", "")
)  # fmt: skip
def test_each_part_of_it_is_needed(broken: type[WorldRegistrar], there: bool) -> None:
    """Without one of them a schedule is found that leaves two versions."""
    with pytest.raises((Broken, RestError)):
        for seed in range(2_000):
            explore(seed, there=there, registrar=broken)
