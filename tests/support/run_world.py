"""Runs as a world to explore: deliveries of several due times and ticks, by instances whose clocks are wrong, that can be frozen, woken,
killed and cut at every call, over scarce machines, holds, lists that lag and a Model Registry, all in memory.
"""

from __future__ import annotations

import functools
import random
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support import clouds
from tests.support.clouds_in_memory import START, Delivery, MemoryVertex
from tests.support.memory_models import MemoryFolder, MemoryModels
from tests.support.protocol import LIVING, STOPS, Broken, Move, Uploads, World, begun, passing, price, wander
from tests.support.scarce import QUOTA, STOCKOUT
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project.triggered import Budget, Notify, RunLimits, Schedule
from vertexrig.runs.candidates import CandidateRun, candidates_of
from vertexrig.runs.deliveries import NotStartedError
from vertexrig.runs.engine import Engine, NoMachinesError
from vertexrig.runs.policy import EVERY, Due, Hold, Holds
from vertexrig.runs.registration import Registrar
from vertexrig.runs.run import Run
from vertexrig.runs.steps import Steps
from vertexrig.runs.store import RunStore
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.labels import CANDIDATE_LABEL, FIRST_LABEL
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, LIVE, QUEUED, RUNNING, SUCCEEDED
from vertexrig.studies.register import Trained
from vertexrig.submit.budget import Ledger, OverBudgetError, Share, Terms
from vertexrig.submit.claims import LABEL, LEASE_S, EndedError, InProgressError, Key
from vertexrig.submit.submission import Request
from vertexrig.trigger import notify
from vertexrig.trigger.notify import Notice
from vertexrig.trigger.tick import Ticker
from vertexrig.workspace import Prepared, Workspace

NIGHTLY, ANA = "nightly", "ana_example_com"
DUE = tuple(times.rfc3339(START + timedelta(hours=hour), 0) for hour in range(3))
SKEWS = (0.0, 0.0, -600.0, 600.0)
LAGS = (0.0, 0.0, 30.0)
"""Of lists, shorter than the lease: a job that is not listed for longer may be overlapped."""
TICK_S, WAIT_S, RETRY_S = 700.0, 1200.0, 7200.0
MORE_STOPS = (*STOPS, "before delete", "after delete", "before send", "after send", "before upload", "after upload")
TOPIC = (Notify(topic="projects/p/topics/t", when=("finished", "failed", "refused", "skipped", "better")),)


@dataclass(frozen=True)
class Shape:
    """What a world's schedule is like."""

    candidates: int = 1
    overlap: Any = "allow"
    catch_up: bool = False
    retry_for: str | None = None
    steps: bool = False


@functools.cache
def workspace(shape: Shape) -> Workspace:
    """The world's project."""
    more = [{"strategy": "SPOT"}, {"machine_type": "n1-standard-8"}][: shape.candidates - 1]
    job = {
        "machine_type": "n1-standard-4", "timeout": "3600s", "base_output_directory": f"{clouds.BUCKET}/shared",
        **({"candidates": more, "retry_for": "6h", "wait": "20m", "preemptions": 2} if more else {}),
    }  # fmt: skip
    data = {**clouds.PROJECT, "jobs": {"cpu": job}, "sweeps": {}, "trigger": {}}
    made = Workspace(clouds.loaded(Path(tempfile.mkdtemp(prefix="vertexrig-run-")), data), uploaded=Uploads())
    schedule = Schedule(
        run="cpu", cron="0 * * * *", overlap=shape.overlap, catch_up=shape.catch_up, retry_for=shape.retry_for,
        then=("promote", "register") if shape.steps else (),
    )  # fmt: skip
    return made.overridden(replace(made.loaded, project=replace(made.loaded.project, schedules={NIGHTLY: schedule})))


@functools.cache
def prepared(shape: Shape) -> list[Prepared]:
    return workspace(shape).prepare_all("cpu")


class PricedCandidate(CandidateRun):
    """A candidate whose price is not computed anew each time."""

    @property
    def price(self) -> Estimate:  # type: ignore[override]
        return price()


class ScarceVertex(MemoryVertex):
    """Jobs that are refused for quota as tests say, and are cancelled in two steps."""

    refused: frozenset[str] = frozenset()
    wronged: tuple[str, ...] = ()
    """Jobs that were cancelled by a process that had seen them train."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._seen = threading.local()

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        if body["labels"].get(CANDIDATE_LABEL, "1") in self.refused:
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


class WorldSteps(Steps):
    """Steps that render nothing: the promoted job is the run's own."""

    def prepared(self, *_: Any) -> Any:
        return prepared(Shape())[0]


class WorldRegistrar(Registrar):
    """A registrar whose jobs have all trained the same model."""

    def _trained(self, *_: Any) -> tuple[Trained, tuple[str, str]]:
        return Trained("gs://my-bucket/model", "accuracy", 0.9, "MAXIMIZE", "cpu", "1"), ("tf", "2.17")


class WorldTicker(Ticker):
    """A ticker whose ends have no metric and no price, and whose notices go to the test."""

    def finish(self, run: Run) -> None:
        row = self.deliveries.keep(
            run, {"outcome": run.reason, "reason": run.text, "model": run.model, "jobs": dict(run.jobs)}
        )
        self.notices.keep(notify.notice_of({**row, "schedule": NIGHTLY}))


class RunWorld(World):
    """One schedule of deliveries and ticks.

    Args:
        shape: What the schedule is like.
        trials: How many the caller may start in a day.
        runs, engine, due, ledger, registrar, ticker: Classes; tests put broken ones here.
        parts: See `World`.
    """

    def __init__(
        self, shape: Shape = Shape(), trials: int | None = None, *, runs: type[RunStore] = RunStore, engine: type[Engine] = Engine,
        due: type[Due] = Due, ledger: type[Ledger] = Ledger, registrar: type[Registrar] = WorldRegistrar,
        ticker: type[Ticker] = WorldTicker, **parts: Any,
    ) -> None:  # fmt: skip
        super().__init__(**parts)
        self.shape, self.trials = shape, trials
        self.schedule = workspace(shape).loaded.project.schedules[NIGHTLY]
        self._runs, self._engine, self._due, self._ledger = runs, engine, due, ledger
        self._registrar, self._ticker = registrar, ticker
        self.vertex: ScarceVertex = ScarceVertex(self.clock, self._gate)
        self.models = MemoryModels(self.vertex, self.clock, self._gate)
        self.storage.objects["model/saved_model.pb"] = (b"", 1, 0.0)
        self.answers_of: dict[str, list[str]] = {}
        self.sent: list[str] = []
        self.surprises: list[Any] = []
        self.down, self.held_from = False, None
        self._arrived: set[str] = set()
        self._late: set[str] = set()
        self._claimed: dict[int, float] = {}

    def workspace(self) -> Workspace:
        return workspace(self.shape)

    # --- what is watched ---

    def _gate(self, name: str, effect: Any) -> Any:
        delivery = id(getattr(self._local, "delivery", None))

        def noted() -> Any:
            answer = effect()
            if name == "write" and any(
                key.startswith("claims/") and one[1] == answer for key, one in self.storage.objects.items()
            ):
                self._claimed[delivery] = self.clock()
            elif name == "create":
                self._made(answer, self._claimed.get(delivery, 0.0))
            return answer

        return super()._gate(name, noted)

    def _made(self, job: RemoteJob, claimed: float) -> None:
        if self.clock() > claimed + LEASE_S:
            self._late.add(job.name)  # its holder was frozen just before the create call: see `Ledger`
        elif self.held_from is not None and claimed > self.held_from and self._of_attempt(job):
            self.surprises.append(Broken(f"{job.name} was made while the schedule is on hold"))

    def _of_attempt(self, job: RemoteJob) -> bool:
        """Whether a job is of an attempt: steps read the holds once in a tick."""
        return FIRST_LABEL in job.labels or job.labels[LABEL][:32] in {self.key(due).digest[:32] for due in DUE}

    # --- what happens ---

    def hold(self, on: bool) -> None:
        until = times.rfc3339(self.clock.now() + timedelta(days=30), 0)
        Holds(self.storage).put(EVERY, Hold(until, "a freeze") if on else None)
        self.held_from = (self.clock() if self.held_from is None else self.held_from) if on else None  # type: ignore[assignment]

    def key(self, due: str) -> Key:
        return Key("schedule", f"vertexrig-{NIGHTLY} {due} {self.request.digest}")

    @property
    def request(self) -> Request:
        return Request("cpu", then=NIGHTLY if self.shape.steps else "")

    @property
    def terms(self) -> Terms:
        return Terms((Share("caller", ANA, RunLimits(trials_per_day=self.trials), "trigger.callers.ana.budget"),))

    def made_engine(self, skew: float, delivery: Delivery | None, waits: bool) -> Engine:
        submitter = self._submitter(delivery)
        submitter.ledger = self._ledger(
            self.storage, [self.vertex], Budget(), clock=self.clock, sleep=submitter.claims.sleep,
            now=lambda: self.clock.now() + timedelta(seconds=skew),
        )  # fmt: skip
        if not waits:
            submitter.claims.wait_s = 0

        def candidates(run: Run) -> list[CandidateRun]:
            found = []
            for one in candidates_of(prepared(self.shape), submitter):
                one.submitter.reconciler = submitter.reconciler
                one.submitter.estimate = submitter.estimate  # type: ignore[attr-defined]
                found.append(PricedCandidate(one.prepared, one.submitter))
            return found

        def due(run: Run) -> Due:
            return self._due(NIGHTLY, self.schedule, run.time, submitter)

        def now() -> datetime:
            return self.clock.now() + timedelta(seconds=skew)

        return self._engine(submitter, self._runs(self.storage), candidates, lambda _: self.terms, due, now=now)

    def arrive(self, number: int, skew: float) -> Delivery:
        """Start a delivery of a due time, by an instance whose clock is off."""
        due = DUE[number % len(DUE)]
        self._arrived.add(due)
        return self._begun(lambda delivery: self._deliver(due, skew, delivery))

    def _deliver(self, due: str, skew: float, delivery: Delivery | None) -> None:
        engine = self.made_engine(skew, delivery, True)
        about = {"id": f"{DUE.index(due):012x}", "time": due.replace("Z", ".000Z")}
        steps = ("promote", "register") if self.shape.steps else ()
        run = Run("", self.key(due), self.request.body, about, "ana@example.com", NIGHTLY, due, steps=steps)
        policy = self._due(NIGHTLY, self.schedule, due, engine.submitter)
        try:
            engine.begin(run, engine.candidates(run), policy.terms(self.terms))
            answer = "created"
        except (EndedError, NoMachinesError):
            answer = "skipped"
        except Exception as error:
            why = policy.not_started(error)
            if why is None:
                if isinstance(error, (OverBudgetError, RestError, InProgressError)):
                    answer = "refused"
                    self.answers_of.setdefault(due, []).append(answer)
                raise
            if why.decision == "deferred" and not (
                isinstance(error, NotStartedError) and error.reason == "no-machines"
            ):
                why = engine.wait(run, why)
            answer = why.decision
        self.answers_of.setdefault(due, []).append(answer)

    def tick(self, skew: float) -> Delivery:
        return self._begun(lambda delivery: self._tick(skew, delivery))

    def _tick(self, skew: float, delivery: Delivery | None) -> None:
        engine = self.made_engine(skew, delivery, False)
        registrar = self._registrar(
            workspace(self.shape).loaded, workspace(self.shape).catalog, self.models, engine.submitter.claims, engine.runs,
            lambda uri: MemoryFolder(self.storage, uri),
        )  # fmt: skip
        engine.step = WorldSteps(engine, registrar, registrar.folder).take

        def send(_: Notify, notice: Notice) -> None:
            def effect() -> None:
                if self.down:
                    raise RestError("down", status=503)
                self.sent.append(notice.id)

            self._gate("send", effect)

        def log(row: Mapping[str, Any]) -> None:
            if row.get("severity") == "ERROR" and "error" in row:
                self.surprises.append(Broken(f"a tick failed: {row}"))

        self._ticker(engine, log, wanted=TOPIC, clock=self.clock, send=send).tick({})

    def some(self, chance: random.Random, *states: str) -> dict[str, Any] | None:
        jobs = [job.data for job in self.vertex.jobs.values() if job.data["state"] in states]
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
        job = self.some(chance, was)
        if job is not None:
            job |= {"state": state, "endTime": times.rfc3339(self.clock.now())}
            if text:
                job["error"] = {"code": 8, "message": text}

    def one_trains(self) -> None:
        """Recorded jobs of two attempts of a run never train at one time, and none trains after one has succeeded."""
        busy: dict[str, list[str]] = {}
        for job in (one.data for one in self.vertex.jobs.values()):
            labels = job["labels"]
            if (
                "startTime" in job
                and job["state"] in (RUNNING, CANCELLING, SUCCEEDED)
                and self._recorded(labels[LABEL]) == job["name"]
            ):
                busy.setdefault(labels.get(FIRST_LABEL) or labels[LABEL], []).append(job["name"])
        wrong = [names for names in busy.values() if len(names) > 1]
        if wrong:
            raise Broken(f"these train at one time: {wrong}")

    # --- the end ---

    def finish(self, wake: bool) -> None:
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        self.vertex.lag = self.models.slow = 0.0
        self.vertex.refused, self.down = frozenset(), False
        self.clock.at += 150.0
        self.hold(False)
        chance = random.Random(len(self.vertex.jobs))
        for due in sorted(self._arrived):
            for _ in range(8):  # with healthy services until there is an answer, as Cloud Scheduler does
                if set(self.answers_of.get(due, ())) - {"refused"}:
                    break
                try:
                    self._deliver(due, 0.0, None)
                    break
                except (InProgressError, RestError):
                    self.clock.at += LEASE_S + 2.0
                except OverBudgetError:
                    break
            else:
                raise Broken(f"no answer for {due}")
        for number in range(60):
            self._look(self._parts(None)[1])
            for _ in range(len(self.vertex.jobs)):
                self.ends(chance, CANCELLED, was=CANCELLING)
                self.ends(chance, SUCCEEDED, was=RUNNING)
                self.starts(chance)
            self.clock.at += TICK_S if number < 20 else 6 * 3600.0  # a day's budget may be used up
            self._tick(0.0, None)
            if not any(name.startswith(("runs/", "notices/")) for name in self.storage.objects):
                break
        else:
            left = [name for name in self.storage.objects if name.startswith(("runs/", "notices/"))]
            raise Broken(f"these do not end: {[(name, self.storage.objects[name][0][:900]) for name in left]}")
        self._look(self._parts(None)[1])
        self._check()

    def _check(self) -> None:
        if self.surprises:
            raise Broken(f"{self.surprises[0]}")
        if self.vertex.wronged:
            raise Broken(f"these were seen training, and cancelled: {self.vertex.wronged}")
        for job in [one.data for one in self.vertex.jobs.values() if one.data["state"] == QUEUED]:
            self.train_or_end(job)  # a second job that lists show only now looks at its claim
        live = [name for name, one in self.vertex.jobs.items() if one.data["state"] in LIVE]
        if live:
            raise Broken(f"no run is open, and these live: {live}")
        rows = [self._row(name) for name in self.storage.objects if name.startswith("history/")]
        for due in DUE:
            answers, claim = self.answers_of.get(due, []), self._parts(None)[0].by_key(self.key(due))
            own = [row for row in rows if row.get("schedule_time") == due]
            if len(own) > 1:
                raise Broken(f"{len(own)} ends for {due}")
            left_out = claim is not None and claim.state == "ended" and "skipped" in answers
            if {"created", "deferred"} & set(answers) and not own and not left_out:
                raise Broken(f"{due} was answered {answers}, and has no end")
            ids = {
                job.data["labels"].get(FIRST_LABEL) or job.data["labels"][LABEL] for job in self.vertex.jobs.values()
            }
            jobs = [id for id in ids if claim is not None and id == claim.id]
            won = [
                one.data["name"] for one in self.vertex.jobs.values()
                if one.data["state"] == SUCCEEDED and (one.data["labels"].get(FIRST_LABEL) or one.data["labels"][LABEL]) in jobs
            ]  # fmt: skip
            if len(won) > 1:
                raise Broken(f"two jobs of {due} have succeeded: {won}")
            outcome = own[0]["end"]["outcome"] if own else ""
            good = outcome in ("SUCCEEDED", "registered", "done", "not-better")
            # a step may fail after the run's job has succeeded
            if (good and not won) or (won and not good and not self.shape.steps):
                raise Broken(f"{due} ended {outcome!r}, and these have succeeded: {won}: {own}")
            if (
                own
                and f"{own[0]['id']}-end" not in self.sent
                and f"{own[0]['id']}-{own[0]['decision']}" not in self.sent
            ):
                raise Broken(f"no notice of {due} was sent: {own[0]}")
        self._check_steps(rows)
        self._check_budget()

    def _row(self, name: str) -> dict[str, Any]:
        return self.storage.read_json(name) or {}

    def _check_steps(self, rows: list[dict[str, Any]]) -> None:
        if not self.shape.steps:
            return
        for models in self.models.models.values():
            marks = [
                row["versionDescription"].rpartition("(run ")[2]
                for row in models
                if "(run " in row["versionDescription"]
            ]
            ended = {row["end"].get("model") for row in rows if "end" in row}
            made = [f"{row['name']}@{row['versionId']}" for row in models if "(run " in row["versionDescription"]]
            if len(marks) != len(set(marks)) and set(made) - ended and len(made) > len(rows):
                raise Broken(f"more versions than runs: {made}, {ended}")

    def _check_budget(self) -> None:
        if self.trials is None:
            return
        days: dict[str, set[str]] = {}
        for day in ("2026-11-21", "2026-11-22", "2026-11-23"):
            for row in Ledger(self.storage, [self.vertex], Budget()).entries(day):
                if row.granted and row.shares & {f"caller-{ANA}"}:
                    days.setdefault(row.day, set()).add(row.claim)
        made = {
            job.data["labels"][LABEL]
            for name, job in self.vertex.jobs.items()
            if name not in self._late and "startTime" in job.data
        }
        if any(len(claims & made) > self.trials for claims in days.values()):
            raise Broken(f"the caller's {self.trials} a day are exceeded: {days}")


def explore(seed: int, steps: int = 30, shape: Shape | None = None, **parts: Any) -> RunWorld:
    """One schedule at random.

    Raises:
        Broken: A promise does not hold.
    """
    chance = random.Random(seed)
    drawn = Shape(
        candidates=chance.choice((1, 1, 3)),
        overlap=chance.choice(("allow", "skip", "wait")),
        catch_up=chance.random() < 0.5,
        retry_for=chance.choice((None, f"{RETRY_S:g}s")),
        steps=chance.random() < 0.3,
    )
    world = RunWorld(shape or drawn, chance.choice((None, None, 2)), **parts)

    def arrive() -> Delivery:
        return world.arrive(chance.randrange(len(DUE)), chance.choice(SKEWS))

    def scarce() -> None:
        world.vertex.refused = frozenset(str(n) for n in (1, 2, 3) if chance.random() < 0.4)

    def lagging() -> None:
        world.vertex.lag = chance.choice(LAGS)
        world.models.slow = chance.choice(LAGS)

    moves = (
        Move(0.18, lambda: begun(world, chance, arrive, MORE_STOPS), begins=True),
        Move(0.36, lambda: begun(world, chance, lambda: world.tick(chance.choice(SKEWS)), MORE_STOPS), begins=True),
        Move(0.46, lambda: passing(world, chance)),
        Move(0.50, lambda: setattr(world.clock, "at", world.clock.at + chance.choice((TICK_S, WAIT_S)))),
        Move(0.54, lambda: world.kill(chance.randrange(LIVING))),
        Move(0.57, lagging),
        Move(0.61, lambda: world.hold(world.held_from is None)),
        Move(0.67, lambda: world.starts(chance)),
        Move(0.70, lambda: world.ends(chance, FAILED, STOCKOUT, was=QUEUED)),
        Move(0.72, lambda: world.ends(chance, FAILED, STOCKOUT, was=RUNNING)),
        Move(0.76, lambda: world.ends(chance, SUCCEEDED, was=RUNNING)),
        Move(0.79, lambda: world.ends(chance, CANCELLED, was=CANCELLING)),
        Move(0.82, scarce),
        Move(0.84, lambda: setattr(world, "down", chance.random() < 0.5)),
    )
    with suppress(InProgressError):
        begun(world, chance, arrive, MORE_STOPS)
    try:
        wander(world, chance, steps, moves, MORE_STOPS)
    finally:
        world.close()
    return world
