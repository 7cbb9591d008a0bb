"""The policy of schedules as a world to explore: deliveries of several due times and ticks, by instances whose clocks are wrong, that can
be frozen, woken, killed and cut at every call, under holds, quota, overlap and a caller's budget, over the services in memory of
`tests/support/protocol.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.clouds_in_memory import START, Delivery
from tests.support.protocol import (
    LIVING,
    STOPS,
    Broken,
    Move,
    World,
    begun,
    passing,
    prepared,
    wander,
)
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.project.triggered import Budget, RunLimits, Schedule
from vertexrig.spec.states import LIVE, QUEUED, RUNNING, SUCCEEDED
from vertexrig.submit.budget import Ledger, OverBudgetError, Share, Terms
from vertexrig.submit.claims import FOLDER, LABEL, LEASE_S, EndedError, InProgressError, Key
from vertexrig.submit.submission import Request, Submitter
from vertexrig.trigger import deferred
from vertexrig.trigger.deferred import DeferredRun, Retrier
from vertexrig.trigger.deliveries import Delivery as Told
from vertexrig.trigger.deliveries import NotStartedError
from vertexrig.trigger.policy import EVERY, Due, Hold, Holds
from vertexrig.workspace import Workspace

NIGHTLY, ASKED = "nightly", Request("cpu")
ANA = "ana_example_com"
DUE = tuple(times.rfc3339(START + timedelta(hours=hour), 0) for hour in range(4))
SKEWS = (0.0, 0.0, -600.0, 600.0)
LAGS = (0.0, 0.0, 30.0)
"""Of lists, shorter than the lease: a job that is not listed for longer may be overlapped."""
TICK_S = 700.0
RETRY_S = 7200.0


def scheduled(schedule: Schedule) -> Workspace:
    """The world's project with one schedule."""
    workspace, _ = prepared()
    loaded = workspace.loaded
    return workspace.overridden(replace(loaded, project=replace(loaded.project, schedules={NIGHTLY: schedule})))


def key_of(due: str) -> Key:
    return Key("schedule", f"rig-{NIGHTLY} {due} {ASKED.digest}")


class PolicyWorld(World):
    """One schedule of deliveries and ticks.

    Args:
        schedule: Its policy.
        trials: What the caller may start in a day.
        due: The class of what is due; tests put broken ones here.
        retrier: The same for ticks.
        ledger: The same for the ledger.
        parts: See `World`.
    """

    def __init__(
        self,
        schedule: Schedule,
        trials: int | None = None,
        *,
        due: type[Due] = Due,
        retrier: type[Retrier] = Retrier,
        ledger: type[Ledger] = Ledger,
        **parts: Any,
    ) -> None:
        super().__init__(**parts)
        self.schedule, self.trials, self._workspace = schedule, trials, scheduled(schedule)
        self._due, self._retrier, self._ledger = due, retrier, ledger
        self.said: list[tuple[Key, str]] = []
        """What deliveries and ticks said about a request."""
        self.surprises: list[Exception] = []
        self._arrived: set[str] = set()
        self.held_from: float | None = None
        self._taken: dict[int, float] = {}
        self._late: set[str] = set()

    def workspace(self) -> Workspace:
        return self._workspace

    # --- what is watched ---

    def _gate(self, name: str, effect: Any) -> Any:
        delivery = id(getattr(self._local, "delivery", None))

        def noted() -> Any:
            answer = effect()
            if name == "write" and any(
                key.startswith(FOLDER) and one[1] == answer for key, one in self.storage.objects.items()
            ):
                self._taken[delivery] = self.clock()
            elif name == "create":
                self._made(answer.name, self._taken.get(delivery, 0.0))
            return answer

        return super()._gate(name, noted)

    def _made(self, name: str, taken: float) -> None:
        """Hold a job that was made just now against the promises."""
        if self.clock() > taken + LEASE_S:
            self._late.add(name)  # its holder was frozen just before: see `Ledger`
            return
        if self.held_from is not None and taken > self.held_from:
            self.surprises.append(Broken(f"{name} was made under a hold"))
        live = {one.data["labels"][LABEL]: job for job, one in self.vertex.jobs.items() if one.data["state"] in LIVE}
        if self.schedule.overlap != "allow" and len(live) - 1 > len(self._late & set(live.values())):
            self.surprises.append(Broken(f"{len(live)} runs of the schedule live at a time: {live}"))

    # --- what happens ---

    def hold(self, on: bool) -> None:
        """A person holds the schedule, or releases it."""
        until = times.rfc3339(self.clock.now() + timedelta(days=30), 0)
        Holds(self.storage).put(EVERY, Hold(until, "a freeze") if on else None)
        self.held_from = (self.clock() if self.held_from is None else self.held_from) if on else None

    def end(self, number: int, *also: str | None) -> None:
        """Let one of the recorded jobs succeed; the others end at their fence."""
        live = [job.data for job in self.vertex.jobs.values() if job.data["state"] in (QUEUED, RUNNING)]
        recorded = [job for job in live if self._recorded(job["labels"][LABEL]) in (job["name"], *also)]
        if recorded:
            recorded[number % len(recorded)].update(state=SUCCEEDED, endTime=times.rfc3339(self.clock.now()))

    def start(self, number: int) -> None:
        raise NotImplementedError  # the fence has worlds of its own

    def _start_all(self) -> None:
        """Let the jobs start that wait for machines: each looks at its claim, and trains or ends."""
        for job in [one.data for one in self.vertex.jobs.values() if one.data["state"] == QUEUED]:
            self.train(job)

    def arrive(self, number: int, skew: float) -> Delivery:
        """Start a delivery of a due time, by an instance whose clock is off."""
        due = DUE[number % len(DUE)]
        self._arrived.add(due)
        return self._begun(lambda delivery: self._deliver(due, skew, delivery))

    def tick(self, skew: float) -> Delivery:
        return self._begun(lambda delivery: self._tick(skew, delivery))

    def _mine(self, skew: float, delivery: Delivery | None) -> Submitter:
        submitter = self._submitter(delivery)
        submitter.ledger = self._ledger(
            self.storage, [self.vertex], Budget(), clock=self.clock, sleep=submitter.claims.sleep,
            now=lambda: self.clock.now() + timedelta(seconds=skew),
        )  # fmt: skip
        return submitter

    @property
    def terms(self) -> Terms:
        return Terms((Share("caller", ANA, RunLimits(trials_per_day=self.trials), "trigger.callers.ana.budget"),))

    def _deliver(self, due: str, skew: float, delivery: Delivery | None) -> str:
        submitter, key = self._mine(skew, delivery), key_of(due)
        here = self._due(NIGHTLY, self.schedule, due, submitter)
        try:
            deferred.start(
                lambda terms: submitter.submit(prepared()[1], key, ASKED.digest, terms=terms),
                key, ASKED, self.terms, here,
            )  # fmt: skip
        except EndedError:
            said = "skipped"
        except NotStartedError as error:
            said = error.decision
        except OverBudgetError:
            said = "refused"
        else:
            said = "created"
        self.said.append((key, said))
        return said

    def _tick(self, skew: float, delivery: Delivery | None) -> list[Told]:
        submitter = self._mine(skew, delivery)
        submitter.claims.wait_s = 0

        def again(one: DeferredRun, due: Due) -> Any:
            here = self._due(due.name, due.schedule, due.time, due.submitter)
            return submitter.submit(prepared()[1], one.claim_key, ASKED.digest, terms=here.terms(self.terms))

        def keep(one: Told) -> None:
            self.said.append((key_of(one.schedule_time), one.decision))
            waited = one.detail["deferred_s"]
            if one.decision == "refused" and one.reason in ("quota", "unavailable") and waited < RETRY_S:
                self.surprises.append(Broken(f"given up after {waited} s: {one}"))

        return self._retrier(submitter, again, keep).tick(self.surprises.append)

    # --- the end ---

    def finish(self, wake: bool) -> None:
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        self.vertex.lag, self.clock.at = 0.0, self.clock.at + max(LAGS)
        self.hold(False)
        answered = {key for key, what in self.said if what != "refused"}
        for due in sorted(due for due in self._arrived if key_of(due) not in answered):
            for _ in range(6):  # with healthy services until there is an answer, as Cloud Scheduler does
                try:
                    self._deliver(due, 0.0, None)
                    break
                except (InProgressError, RestError):
                    self.clock.at += LEASE_S + 2.0
            else:
                raise Broken(f"no answer for {due} after six deliveries")
        for _ in range(12):
            self._look(self._parts(None)[1])
            self._start_all()
            for _ in self.vertex.jobs:
                self.end(0, "", None)
            self.clock.at += TICK_S
            self._tick(0.0, None)
            if not list(self.storage.list(deferred.FOLDER)):
                break
        else:
            raise Broken("a run is deferred, and nothing keeps it")
        self._look(self._parts(None)[1])
        self._check()

    def _check(self) -> None:
        if self.surprises:
            raise Broken(f"{self.surprises[0]!r}")
        alive: dict[str, list[str]] = {}
        for job in self.vertex.surviving():
            alive.setdefault(job.labels[LABEL], []).append(job.name)
        if any(len(names) > 1 for names in alive.values()):
            raise Broken(f"two jobs survive: {[names for names in alive.values() if len(names) > 1]}")
        claims, _ = self._parts(None)
        for due in DUE:
            key = key_of(due)
            said, held = [what for one, what in self.said if one == key], claims.by_key(key)
            jobs = [id for id in alive if id.startswith(key.digest[:32])]
            if len(jobs) > 1:
                raise Broken(f"two runs for {due}: {jobs}")
            if said and held is None:
                raise Broken(f"{due} was answered {said}, and has no claim")
            if held is None:
                continue
            if held.state == "ended" and jobs:
                raise Broken(f"{due} has ended ({held.ended}), and {jobs} survives")
            if "created" in said and held.state != "created" and not jobs:
                raise Broken(f"{due} was answered {said}, and its claim is {held.state}")
            if "skipped" in said and held.state != "ended":
                raise Broken(f"{due} was answered {said}, and its claim is {held.state}")
            if "deferred" in said and held.state not in ("created", "ended") and not jobs:
                raise Broken(f"{due} was deferred, and is lost: {said}, {held.state}")
            if "deferred" in said and jobs and not {"created", "joined"} & set(said):
                raise Broken(f"{due} was deferred, {jobs} survives, and nobody said so: {said}")
        self._check_budget()

    def _check_budget(self) -> None:
        days: dict[str, set[str]] = {}
        for day in ("2026-11-21", "2026-11-22", "2026-11-23"):
            for row in Ledger(self.storage, [self.vertex], Budget()).entries(day):
                if row.granted and row.shares & {f"caller-{ANA}"}:
                    days.setdefault(row.day, set()).add(row.claim)
        if self.trials is not None:
            made = {job.data["labels"][LABEL] for name, job in self.vertex.jobs.items() if name not in self._late}
            if any(len(claims & made) > self.trials for claims in days.values()):
                raise Broken(f"the caller's {self.trials} a day are exceeded: {days}")
            unpaid = made - set().union(*days.values(), set())
            if unpaid:
                raise Broken(f"{unpaid} have jobs and no row")


def explore(seed: int, steps: int = 30, *, least: Schedule | None = None, **parts: Any) -> PolicyWorld:
    """One schedule at random.

    Args:
        seed: Which.
        steps: Its moves.
        least: A certain policy.
        parts: See `PolicyWorld`.

    Raises:
        Broken: A promise does not hold.
    """
    chance = random.Random(seed)
    schedule = Schedule(
        run="cpu",
        cron="0 * * * *",
        overlap=chance.choice(("allow", "skip", "wait")),
        catch_up=chance.random() < 0.5,
        retry_for=chance.choice((None, f"{RETRY_S:g}s", f"{RETRY_S:g}s")),
    )
    world = PolicyWorld(least or schedule, chance.choice((None, 1, 2)), **parts)

    def arrive() -> Delivery:
        return world.arrive(chance.randrange(len(DUE)), chance.choice(SKEWS))

    def lagging() -> None:
        world.vertex.lag = chance.choice(LAGS)

    def far() -> None:
        world.clock.at += chance.choice((TICK_S, 3600.0))

    moves: Sequence[Move] = (
        Move(0.22, lambda: begun(world, chance, arrive), begins=True),
        Move(0.36, lambda: begun(world, chance, lambda: world.tick(chance.choice(SKEWS))), begins=True),
        Move(0.48, lambda: passing(world, chance)),
        Move(0.52, far),
        Move(0.56, lambda: world.kill(chance.randrange(LIVING))),
        Move(0.59, lagging),
        Move(0.66, lambda: world.hold(world.held_from is None)),
        Move(0.74, lambda: world.end(chance.randrange(LIVING))),
    )
    begun(world, chance, arrive)
    wander(world, chance, steps, moves, STOPS)
    return world
