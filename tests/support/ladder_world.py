"""Ladders as a world to explore: the real `Ladder` over services in memory, where machines are scarce at random and whoever goes on
with the ladder can be frozen, woken, killed and cut at each call.
"""

from __future__ import annotations

import functools
import itertools
import random
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import clouds
from tests.support.clouds_in_memory import Delivery, MemoryVertex
from tests.support.protocol import (
    LIVING,
    REQUEST,
    Broken,
    Move,
    Uploads,
    World,
    begun,
    lagging,
    passing,
    price,
    wander,
)
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.labels import CANDIDATE_LABEL
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, QUEUED, RUNNING, SUCCEEDED
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import LABEL, LEASE_S, EndedError, InProgressError
from vertexrig.submit.ladder import Ladder, LadderState
from vertexrig.submit.rungs import CandidateRun, ways
from vertexrig.workspace import Prepared, Workspace

WAIT_S, ROUND_S = 1200.0, 600.0
STOPS = ("before create", "after create", "before cancel", "after cancel", "before write", "after write", "never")
QUOTA = "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_cpus"
STOCKOUT = (
    "Resources are insufficient in region: us-central1. Please try a different region or use a different accelerator."
)
"""As `vertexrig.submit.scarcity` has them recorded."""


@functools.cache
def candidates() -> list[Prepared]:
    """A job with two candidates besides."""
    folder = Path(tempfile.mkdtemp(prefix="vertexrig-ladder-"))
    job = {
        "machine_type": "n1-standard-4",
        "timeout": "3600s",
        "base_output_directory": f"{clouds.BUCKET}/shared",
        "wait": "20m",
        "retry_for": "6h",
        "preemptions": 2,
        "candidates": [{"strategy": "SPOT"}, {"machine_type": "n1-standard-8"}],
    }
    data = {**clouds.PROJECT, "jobs": {"cpu": job}, "sweeps": {}, "trigger": {}}
    return Workspace(clouds.loaded(folder, data), uploaded=Uploads()).prepare_all("cpu")


class ScarceVertex(MemoryVertex):
    """Jobs that are refused for quota as tests say, and are cancelled in two steps."""

    refused: frozenset[str] = frozenset()
    """Candidates whose create is refused."""
    wronged: tuple[str, ...] = ()
    """Jobs that were cancelled by one who had seen them train."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._seen = threading.local()

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        if body["labels"][CANDIDATE_LABEL] in self.refused:
            raise RestError(QUOTA, status=429)
        return super().create(collection, body)

    def get(self, name: str) -> RemoteJob | None:
        job = super().get(name)
        self._seen.trains = job is not None and "startTime" in job.data and job.name
        return job

    def cancel(self, name: str) -> None:
        def effect() -> None:
            job = self.jobs[name].data
            if getattr(self._seen, "trains", "") == name:
                self.wronged += (name,)
            if job["state"] in ENDED:
                raise RestError("it has ended", status=400)
            job["state"] = CANCELLING

        self.gate("cancel", effect)


class LadderWorld(World):
    """One schedule of a ladder.

    Args:
        ladder: The class of the ladder; tests put broken ones here.
        parts: As of `World`.
    """

    def __init__(self, ladder: type[Ladder] = Ladder, **parts: Any) -> None:
        super().__init__(**parts)
        self.ladder = ladder
        self.vertex: ScarceVertex = ScarceVertex(self.clock, self._gate)

    def workspace(self) -> Workspace:
        return candidates()[0].workspace

    def made(self, delivery: Delivery | None) -> Ladder:
        """The ladder as a delivery sees it."""
        found = []
        own = self._submitter(delivery)
        for way in ways(candidates(), own):
            way.submitter.reconciler, way.submitter.estimate = own.reconciler, own.estimate  # type: ignore[method-assign]
            found.append(_Priced(way.prepared, way.submitter))
        return self.ladder(
            found,
            "the body",
            REQUEST,
            run_id="20261121-120000-ab12",
            terms=Terms(),
            round_s=ROUND_S,
            now=self.clock.now,
        )

    def drive(self) -> Delivery:
        """Start one who goes on with the ladder."""
        return self._begun(lambda delivery: self.made(delivery).advance())

    def some(self, chance: random.Random, *states: str, begun: bool | None = None) -> dict[str, Any] | None:
        """A job in one of these states."""
        jobs = [job.data for job in self.vertex.jobs.values() if job.data["state"] in states]
        jobs = [job for job in jobs if begun is None or begun == ("startTime" in job)]
        return chance.choice(jobs) if jobs else None

    def starts(self, chance: random.Random) -> None:
        """Let a job that waits get its machines: its trainer looks at the claim, and trains or ends."""
        job = self.some(chance, QUEUED)
        if job is not None:
            self.train_or_end(job)
            if job["state"] == RUNNING:
                job["startTime"] = times.rfc3339(self.clock.now(), 0)
            self.one_trains()

    def ends(self, chance: random.Random, state: str, text: str = "", *, was: str) -> None:
        """Let a job end."""
        job = self.some(chance, was)
        if job is not None:
            job |= {"state": state, "endTime": times.rfc3339(self.clock.now())}
            if text:
                job["error"] = {"code": 8, "message": text}

    def one_trains(self) -> None:
        """Recorded jobs of two tries never train at one time, and none trains when that of another try has succeeded. One that is not
        recorded, as its maker died and lists show it late, may until it is seen (`vertexrig.submit.reconcile`).

        Raises:
            Broken: They do.
        """
        trained = [job.data for job in self.vertex.jobs.values() if "startTime" in job.data]
        busy = [job for job in trained if job["state"] in (RUNNING, CANCELLING, SUCCEEDED)]
        active = [job["name"] for job in busy if self._recorded(job["labels"][LABEL]) == job["name"]]
        if len(active) > 1:
            raise Broken(f"these train at one time: {active}")

    def finish(self, wake: bool) -> None:
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        self.vertex.lag, self.clock.at = 0.0, self.clock.at + 150.0
        chance = random.Random(len(self.vertex.jobs))
        standing = self.through()
        for _ in range(60):
            if standing.ended:
                break
            # whatever is cancelled ends, and whatever waits gets its machines at last
            self.ends(chance, CANCELLED, was=CANCELLING)
            self.ends(chance, SUCCEEDED, was=RUNNING)
            self.starts(chance)
            self.clock.at += ROUND_S
            standing = self.through()
        if not standing.ended:
            raise Broken(f"the ladder does not end: {standing}")
        self.check(standing)

    def through(self) -> LadderState:
        """Go on with healthy services until there is an answer."""
        for _ in range(8):
            try:
                return self.made(None).advance()
            except (InProgressError, RestError):
                self.clock.at += LEASE_S + 2.0
            except EndedError as error:
                raise Broken(f"the request ended: {error}") from None
        raise Broken("no answer after eight tries")

    def check(self, standing: LadderState) -> None:
        """What must hold when a ladder has ended.

        Raises:
            Broken: It does not.
        """
        ladder = self.made(None)
        tries = ladder.tries()
        # a second job that lists show only now looks at its claim when it gets its machines
        for job in [one.data for one in self.vertex.jobs.values() if one.data["state"] == QUEUED]:
            self.train_or_end(job)
        if any(not one.reason for one in tries[:-1]):
            raise Broken(f"a try was left without a reason: {tries}")
        alive = [name for name, job in self.vertex.jobs.items() if job.data["state"] not in (*ENDED, CANCELLING)]
        if alive:
            raise Broken(f"the ladder is over, and {alive} live")
        won = [one.job for one in tries if one.job and self.vertex.jobs[one.job].data["state"] == SUCCEEDED]
        if (standing.state == "succeeded") != bool(won):
            raise Broken(f"the ladder is {standing.state}, and these jobs have succeeded: {won}")
        if self.vertex.wronged:
            raise Broken(f"these were seen training, and cancelled: {self.vertex.wronged}")
        if standing.state == "cancelled":
            raise Broken("nobody has cancelled a job, and the ladder says so")
        places = [(one.candidate, one.reason) for one in tries]
        for (number, reason), (after, _) in itertools.pairwise(places):
            if after not in (number % 3 + 1, number if reason == "preempted" else 0):
                raise Broken(f"the order of the candidates is {places}")


class _Priced(CandidateRun):
    """A way whose price is not computed anew each time."""

    @property
    def price(self) -> Estimate:  # type: ignore[override]
        return price()


def explore(seed: int, steps: int = 40, **parts: Any) -> LadderWorld:
    """One schedule at random.

    Raises:
        Broken: A promise does not hold.
    """
    chance, world = random.Random(seed), LadderWorld(**parts)

    def scarce() -> None:
        world.vertex.refused = frozenset(str(n) for n in (1, 2, 3) if chance.random() < 0.4)

    moves = (
        Move(0.28, lambda: begun(world, chance, world.drive, STOPS), begins=True),
        Move(0.42, lambda: passing(world, chance)),
        Move(0.45, lambda: setattr(world.clock, "at", world.clock.at + WAIT_S)),
        Move(0.48, lambda: world.kill(chance.randrange(LIVING))),
        Move(0.52, lambda: lagging(world, chance)),
        Move(0.58, lambda: world.starts(chance)),
        Move(0.62, lambda: world.ends(chance, FAILED, STOCKOUT, was=QUEUED)),
        Move(0.66, lambda: world.ends(chance, FAILED, STOCKOUT, was=RUNNING)),
        Move(0.68, lambda: world.ends(chance, SUCCEEDED, was=RUNNING)),
        Move(0.73, lambda: world.ends(chance, CANCELLED, was=CANCELLING)),
        Move(0.78, scarce),
    )
    try:
        wander(world, chance, steps, moves, STOPS)
    finally:
        world.close()
    return world
