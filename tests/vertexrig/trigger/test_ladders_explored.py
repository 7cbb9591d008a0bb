"""Requests for a run with candidates and ticks, in schedules at random: no job is left that nobody goes on with."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from tests.support import ladder_world
from tests.support.clouds_in_memory import Delivery
from tests.support.ladder_world import ROUND_S, LadderWorld, ScarceVertex, candidates, explore
from tests.support.protocol import REQUEST, Broken
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.spec.states import LIVE
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import LABEL, Claims
from vertexrig.submit.ladder import Ladder
from vertexrig.submit.rungs import ways
from vertexrig.submit.submission import Request
from vertexrig.trigger import ladders
from vertexrig.trigger.ladders import OPEN, Climber, Ladders, OpenLadder

SCHEDULES = 400 * (26 if os.environ.get("ATTACK") == "long" else 1)
FOUND = 900
"""A schedule from which on one breaks soon, where a part is left out."""
ASKED = Request("cpu")
KEY = {"kind": REQUEST.kind, "text": REQUEST.text, "window_s": None}
ABOUT = OpenLadder("", KEY, {"run": "cpu", "set": {}, "args": {}, "then": ""})


class Denying(ScarceVertex):
    """The first creates are refused, and not for machines."""

    denied = 2

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        if self.denied:
            self.denied -= 1
            self.gate("create", lambda: None)
            raise RestError("Permission denied", status=403)
        return super().create(collection, body)


class KeptWorld(LadderWorld):
    """One schedule of requests and ticks."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.vertex, self.chance = Denying(self.clock, self._gate), random.Random(0)

    def drive(self) -> Delivery:
        return self._begun(self._ask if self.chance.random() < 0.5 else self._tick)

    def _ask(self, delivery: Delivery) -> object:
        return ladders.start(self._submitter(delivery), candidates(), REQUEST, ASKED, Terms(), ABOUT)

    def _tick(self, delivery: Delivery) -> object:
        own = self._submitter(delivery)

        def made(one: OpenLadder) -> Ladder:
            found = ways(candidates(), own)
            key, now = one.claim_key, self.clock.now
            return Ladder(found, ASKED.digest, key, first=one.id, run_id=one.run_id, round_s=ROUND_S, now=now)

        return Climber(own, made, lambda row: None).tick(lambda error: None)

    def finish(self, wake: bool) -> None:
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        claim = Claims(self.storage).by_key(REQUEST)
        jobs = [job.data for job in self.vertex.jobs.values() if job.data["state"] in LIVE]
        live = [job["name"] for job in jobs if self._recorded(job["labels"][LABEL]) == job["name"]]
        if live and claim is not None and not Ladders(self.storage).is_open(claim.id):
            raise Broken(f"{live} lives, and nothing goes on with it")


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("before write", "after write", "before delete", "before read")
    monkeypatch.setattr(ladder_world, "STOPS", (*ladder_world.STOPS, *more))
    monkeypatch.setattr(ladder_world, "LadderWorld", KeptWorld)


def test_what_lives_is_gone_on_with_in_every_schedule() -> None:
    """Requests that are refused, and told so, beside others of the same id that get a job: ticks go on with that job."""
    for seed in range(SCHEDULES):
        explore(seed, steps=24)


def test_that_it_is_written_again_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one that is there is not written again, a refused request deletes what another one's job needs."""

    def once(self: Ladders, one: OpenLadder) -> bool:
        return self.storage.write(f"{OPEN}{one.id}.json", json.dumps(asdict(one)).encode(), generation=0) is not None

    monkeypatch.setattr(Ladders, "keep", once)
    with pytest.raises(Broken, match="nothing goes on with it"):
        for seed in range(FOUND, FOUND + 3000):
            explore(seed, steps=24)
