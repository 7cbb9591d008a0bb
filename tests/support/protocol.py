"""The protocol of claims as a world to explore: the real Claims, Submitter, Ledger and Reconciler over services in
memory, where every delivery can be frozen, woken, killed and cut before or after the effect of each call, and every job
starts at any time and looks at its claim as the trainer does.
"""

from __future__ import annotations

import functools
import random
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar
from unittest import mock

from tests.support import clouds, tools
from tests.support.clouds_in_memory import Clock, Delivery, MemoryStorage, MemoryVertex, current
from tests.support.tools import REPOSITORY
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RESOURCES
from vertexrig.project.triggered import Budget
from vertexrig.spec.estimate import Estimate, estimate
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import FAILED, QUEUED, RUNNING
from vertexrig.submit import claims
from vertexrig.submit.claims import LEASE_S, WINDOW_S, Claims, InProgressError, Key
from vertexrig.submit.reconcile import Reconciler, seen_twice
from vertexrig.submit.submission import Submitted, Submitter
from vertexrig.workspace import Prepared, Workspace

sys.path.insert(0, str(REPOSITORY / "trainer_pkg"))
from trainer import fence as fence  # test_protocol.py breaks it
from trainer.errors import SurplusJobError

REQUEST, BODY = Key("request", "once"), Key("body", "again", WINDOW_S)
VERDICTS = ("", "", "", "", "fail", "fail", "refuse", "refuse", "repeat")
TICKS = (1.0, 5.0, 25.0, LEASE_S + 2.0, LEASE_S + 2.0, WINDOW_S + 2.0)
LAGS = (0.0, 0.0, 30.0, 150.0)
STOPS = ("before create", "before create", "after create", "before cancel", "before write", "after write", "never")
"""Where a delivery is frozen that went well so far."""
LIVING = 4
"""Deliveries at one time at most."""


class Broken(AssertionError):
    """What the protocol promises does not hold."""


class Uploads:
    """One package in the bucket, whatever the version."""

    def package(self, tf_version: str | None) -> str:
        return f"{clouds.BUCKET}/packages/t.tar.gz"

    def image(self, kind: str) -> str:
        raise NotImplementedError  # the job names a prebuilt image


@functools.cache
def prepared() -> tuple[Workspace, Prepared]:
    """A rendered job whose runs share one folder, so that nothing is rendered again for a run."""
    folder = tools.new_folder()
    job = {"machine_type": "n1-standard-4", "timeout": "3600s", "base_output_directory": f"{clouds.BUCKET}/shared"}
    data = {**clouds.PROJECT, "jobs": {"cpu": job}, "sweeps": {}, "trigger": {}}
    workspace = Workspace(clouds.loaded(folder, data), uploaded=Uploads())
    return workspace, workspace.prepare("cpu")


@functools.cache
def price() -> Estimate:
    workspace, job = prepared()
    return estimate(job.document, workspace.catalog)


class World:
    """One schedule of the protocol.

    Args:
        claims: The class of the claims; tests put broken ones here.
        reconciler: The same for the reconciler.
        look: What a trainer does at its start.
    """

    def __init__(
        self,
        claims: type[Claims] = Claims,
        reconciler: type[Reconciler] = Reconciler,
        look: Callable[..., None] = fence.check,
    ) -> None:
        self._claims, self._reconciler, self._fence = claims, reconciler, look
        self.clock = Clock()
        self.storage, self.vertex = MemoryStorage(self.clock, self._gate), MemoryVertex(self.clock, self._gate)
        self.deliveries: list[Delivery] = []
        self.answers: list[tuple[Key, Submitted]] = []

    def _gate(self, name: str, effect: Any) -> Any:
        delivery = current()
        return effect() if delivery is None else delivery.gate(name, effect)

    def _parts(self, delivery: Delivery | None) -> tuple[Claims, Reconciler]:
        def sleep(seconds: float) -> None:
            if delivery is not None:
                delivery.sleep()
            self.clock.at += max(seconds, 1.0)

        claims = self._claims(self.storage, clock=self.clock, sleep=sleep)
        return claims, self._reconciler(self.vertex, claims)

    def deliver(self, key: Key) -> Delivery:
        """Start a delivery of a request; it stops before its first call."""
        return self._begun(lambda delivery: self.submit(key, delivery))

    def _begun(self, work: Callable[[Delivery], object]) -> Delivery:
        self.deliveries.append(Delivery(work))
        return self.deliveries[-1]

    def _submitter(self, delivery: Delivery | None) -> Submitter:
        claims, reconciler = self._parts(delivery)
        limits = Budget(trials_per_day=1_000_000)
        submitter = Submitter(self.workspace(), self.vertex, self.storage, claims=claims, limits=limits, fence=True)
        submitter.reconciler, submitter.ledger.now = reconciler, self.clock.now
        return submitter

    def workspace(self) -> Workspace:
        """The project that the deliveries are of."""
        return prepared()[0]

    def submit(self, key: Key, delivery: Delivery | None) -> Submitted:
        made = self._submitter(delivery).submit(prepared()[1], key, "the body")
        self.answers.append((key, made))
        return made

    def look(self) -> Delivery:
        """Start what `jobs` and `doctor` do about second jobs."""
        return self._begun(lambda delivery: self._look(self._parts(delivery)[1]))

    def _look(self, reconciler: Reconciler) -> None:
        for claim, collection in seen_twice([job for kind in RESOURCES for job in self.vertex.list(kind)]):
            reconciler.look(claim, collection)

    def train(self, job: dict[str, Any]) -> None:
        """Let a job's trainer look at its claim, and train or end."""
        (program,) = (pool["pythonPackageSpec"] for pool in job["jobSpec"]["workerPoolSpecs"])
        environment = {one["name"]: one["value"] for one in program["env"]}
        job["state"] = RUNNING
        try:
            self._fence(environment, lambda uri: self.storage.objects[uri.removeprefix("gs://my-bucket/")][0])
        except SurplusJobError:
            job["state"] = FAILED

    def start(self, number: int) -> None:
        """Let one of the jobs that wait for machines start: its trainer looks at the claim, and trains or ends."""
        waiting = [job.data for job in self.vertex.jobs.values() if job.data["state"] == QUEUED]
        if not waiting:
            return
        self.train_or_end(waiting[number % len(waiting)])

    def train_or_end(self, job: dict[str, Any]) -> None:
        """Let a job start: it trains if it is the recorded one, or none is recorded and one may yet be.

        Raises:
            Broken: It does otherwise.
        """
        self.train(job)
        id = job["labels"][CLAIM_LABEL]
        held, recorded = self._parts(None)[0].by_id(id), self._recorded(id)
        over = held is not None and held.id == id and held.state == "ended" and not recorded
        other = over or recorded not in (None, "", job["name"])
        if other != (job["state"] == FAILED):
            raise Broken(f"{job['name']} {'trains beside' if other else 'ends without'} another job that is recorded")

    def _recorded(self, id: str) -> str | None:
        """The job that is recorded for an id of a claim; None if the claim knows the id no more."""
        held = self._parts(None)[0].by_id(id)
        return None if held is None else held.job.name if held.id == id else held.before[id]

    def step(self, number: int, *verdicts: str, until: str = "") -> None:
        """Wake a delivery for one half of a call, or several, and freeze it again."""
        if self.deliveries:
            delivery = self.deliveries[number % len(self.deliveries)]
            delivery.step(*verdicts, until=until)
            if delivery.done:
                self.deliveries.remove(delivery)

    def kill(self, number: int) -> None:
        if self.deliveries:
            self.deliveries.pop(number % len(self.deliveries)).kill()

    def close(self) -> None:
        while self.deliveries:
            self.kill(0)

    def _through(self, key: Key) -> Submitted:
        """Deliver with healthy services until there is an answer, as Cloud Scheduler does."""
        for _ in range(6):
            try:
                return self.submit(key, None)
            except (InProgressError, RestError):
                self.clock.at += LEASE_S + 2.0
        raise Broken("no job after six deliveries")

    def finish(self, wake: bool) -> None:
        """Let all end, services be well and lists catch up, deliver once more and look once more; then all must hold.

        Args:
            wake: Frozen deliveries go on to their end; otherwise they die.
        """
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        self.vertex.lag, self.clock.at = 0.0, self.clock.at + max(LAGS)
        self._through(REQUEST)
        before = set(self.vertex.jobs)
        self.clock.at += WINDOW_S + 2.0
        newest = self._through(BODY)
        if newest.duplicate or newest.name in before:
            raise Broken("the same body after its window was answered with an old job")
        self._look(self._parts(None)[1])
        self._check()

    def _check(self) -> None:
        alive: dict[str, list[str]] = {}
        for job in self.vertex.surviving():
            alive.setdefault(job.labels[CLAIM_LABEL], []).append(job.name)
        if any(len(names) > 1 for names in alive.values()):
            raise Broken(f"two jobs survive: {alive}")
        ones = [id for id in alive if id.startswith(REQUEST.digest[:32])]
        if len(ones) != 1:
            raise Broken(f"{len(ones)} jobs survive for a request with an id")
        for key, made in self.answers:
            if made.claim not in alive:
                raise Broken(f"a {key.kind} was answered with a job, and none of its claim survives")
            if made.duplicate and made.name not in alive[made.claim]:
                raise Broken(f"{made.name} was given as the recorded job, and another one survives")
        for id, (name,) in alive.items():
            known = self._recorded(id)
            if known not in (name, None, ""):
                raise Broken(f"{known} is recorded, and {name} survives")


@dataclass(frozen=True)
class Move:
    """One thing that can happen in a world.

    Args:
        below: It happens where a number from 0 to 1 is below this, and not below that of a move before it.
        act: Does it.
        begins: It begins a delivery, so it needs room for one; without room the next move happens.
    """

    below: float
    act: Callable[[], object]
    begins: bool = False


def wander(world: World, chance: random.Random, steps: int, moves: Sequence[Move], stops: Sequence[str]) -> None:
    """Make moves at random, and where none is drawn let a delivery go on, maybe up to a stop; then all must hold.

    Raises:
        Broken: A promise does not hold.
    """
    try:
        for _ in range(steps):
            drawn, room = chance.random(), len(world.deliveries) < LIVING
            move = next((one for one in moves if drawn < one.below and (room or not one.begins)), None)
            if move is not None:
                move.act()
            else:
                verdicts = chance.choices(VERDICTS, k=chance.choice((1, 1, 1, 3, 8)))
                world.step(chance.randrange(LIVING), *verdicts, until=chance.choice(("", *stops)))
        world.finish(chance.random() < 0.5)
    finally:
        world.close()


def begun(world: World, chance: random.Random, delivery: Callable[[], Delivery], stops: Sequence[str] = STOPS) -> None:
    """Begin a delivery and let it go to a stop."""
    delivery()
    world.step(len(world.deliveries) - 1, until=chance.choice(stops))


def passing(world: World, chance: random.Random) -> None:
    """Let time pass."""
    world.clock.at += chance.choice(TICKS)


def lagging(world: World, chance: random.Random) -> None:
    """Let lists of jobs be late from here on, or no longer."""
    world.vertex.lag = chance.choice(LAGS)


_Of = ParamSpec("_Of")
_World = TypeVar("_World")


def repeatable(explore: Callable[Concatenate[int, _Of], _World]) -> Callable[Concatenate[int, _Of], _World]:
    """Make a schedule the same each time that it runs: the ids that the code under test draws come from its seed, too."""

    @functools.wraps(explore)
    def seeded(seed: int, *parts: _Of.args, **more: _Of.kwargs) -> _World:
        chance = random.Random(f"ids of {seed}")
        with (
            mock.patch("uuid.uuid4", lambda: uuid.UUID(int=chance.getrandbits(128))),
            mock.patch.object(claims, "new_run_id", lambda: f"20261121-120000-{chance.getrandbits(16):04x}"),
        ):
            return explore(seed, *parts, **more)

    return seeded


@repeatable
def explore(seed: int, steps: int = 24, **parts: Any) -> World:
    """One schedule at random.

    Raises:
        Broken: A promise does not hold.
    """
    chance, world = random.Random(seed), World(**parts)
    share = chance.choice((0.0, 0.5, 1.0))  # of the deliveries that are of the request with an id

    def deliver() -> Delivery:
        return world.deliver(REQUEST if chance.random() < share else BODY)

    moves = (
        Move(0.25, lambda: begun(world, chance, deliver), begins=True),
        Move(0.28, world.look, begins=True),
        Move(0.45, lambda: passing(world, chance)),
        Move(0.49, lambda: world.kill(chance.randrange(LIVING))),
        Move(0.55, lambda: lagging(world, chance)),
        Move(0.60, lambda: world.start(chance.randrange(LIVING))),
    )
    wander(world, chance, steps, moves, STOPS)
    return world
