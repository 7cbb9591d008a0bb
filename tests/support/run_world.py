"""Runs as a world to explore: deliveries of several due times and ticks, by instances whose clocks are wrong, that can be frozen, woken,
killed and cut at every call, over scarce machines, holds, lists that lag and a Model Registry, all in memory.
"""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import permutations
from typing import Any

from tests.support import clouds, tools
from tests.support.clouds_in_memory import START, Delivery, MemoryVertex, current
from tests.support.memory_models import MemoryFolder, MemoryModels
from tests.support.protocol import (
    LIVING,
    STOPS,
    Broken,
    Move,
    Uploads,
    World,
    begun,
    passing,
    price,
    repeatable,
    wander,
)
from tests.support.scarce import QUOTA, STOCKOUT
from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project.triggered import Budget, Notify, RunLimits, Schedule
from vertexrig.runs.candidates import CandidateRun, candidates_of
from vertexrig.runs.deliveries import NotStartedError
from vertexrig.runs.engine import Engine, NoMachinesError
from vertexrig.runs.policy import EVERY, PATIENCE_S, Due, Hold, Holds
from vertexrig.runs.registration import Registrar
from vertexrig.runs.run import Attempt, Run
from vertexrig.runs.steps import Steps
from vertexrig.runs.store import RunStore
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.labels import CANDIDATE_LABEL, CLAIM_LABEL, FIRST_LABEL
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, LIVE, QUEUED, RUNNING, SUCCEEDED
from vertexrig.studies.register import Servable, Trained
from vertexrig.submit.budget import Ledger, OverBudgetError, Share, Terms
from vertexrig.submit.claims import LEASE_S, EndedError, InProgressError, Key
from vertexrig.submit.submission import Request
from vertexrig.trigger import notify
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.jobs import JobPages
from vertexrig.trigger.notify import Notice
from vertexrig.trigger.tick import Ticker
from vertexrig.workspace import Prepared, Workspace

NIGHTLY, ANA, ASKED = "nightly", "ana_example_com", Key("request", "asked")
DUE = tuple(times.rfc3339(START + timedelta(hours=hour), 0) for hour in range(3))
SKEWS = (0.0, 0.0, -600.0, 600.0)
LAGS = (0.0, 0.0, 30.0)
"""Of lists, shorter than the lease: a job that is not listed for longer may be overlapped."""
TICK_S, WAIT_S, RETRY_S, DAY_S = 700.0, 1200.0, 7200.0, 86_400.0
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
def rendered(candidates: int) -> tuple[Workspace, list[Prepared]]:
    """The world's project without its schedule, and its job with so many candidates."""
    more = [{"strategy": "SPOT"}, {"machine_type": "n1-standard-8"}][: candidates - 1]
    job = {
        "machine_type": "n1-standard-4", "timeout": "3600s", "base_output_directory": f"{clouds.BUCKET}/shared",
        **({"candidates": more, "retry_for": "6h", "wait": "20m", "preemptions": 2} if more else {}),
    }  # fmt: skip
    data = {**clouds.PROJECT, "jobs": {"cpu": job}, "sweeps": {}, "trigger": {}}
    made = Workspace(clouds.loaded(tools.new_folder(), data), uploaded=Uploads())
    return made, made.prepare_candidates("cpu")


@functools.cache
def workspace(shape: Shape) -> Workspace:
    """The world's project."""
    made, _ = rendered(shape.candidates)
    schedule = Schedule(
        run="cpu", cron="0 * * * *", overlap=shape.overlap, catch_up=shape.catch_up, retry_for=shape.retry_for,
        then=("promote", "register") if shape.steps else (),
    )  # fmt: skip
    return made.overridden(replace(made.loaded, project=replace(made.loaded.project, schedules={NIGHTLY: schedule})))


class PricedCandidate(CandidateRun):
    """A candidate whose price is not computed anew each time."""

    @property
    def price(self) -> Estimate:  # type: ignore[override]
        return price()


class ScarceVertex(MemoryVertex):
    """Jobs that are refused for quota as tests say, and are cancelled in two steps."""

    refused: frozenset[str] = frozenset()
    wronged: tuple[str, ...] = ()
    """Jobs that trained, and were cancelled by a process that had seen that, or had not looked at them."""

    def __init__(self, *parts: Any, spared: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> None:
        super().__init__(*parts)
        self.spared = spared  # whether nobody may cancel a job that trains
        self._seen: dict[Delivery | None, str] = {}
        self._looked: set[tuple[Delivery | None, str]] = set()

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        if body["labels"].get(CANDIDATE_LABEL, "1") in self.refused:
            raise RestError(QUOTA, status=429)
        return super().create(collection, body)

    def get(self, name: str) -> RemoteJob | None:
        job = super().get(name)
        self._seen[current()] = name if job is not None and "startTime" in job.data else ""
        self._looked.add((current(), name))
        return job

    def cancel(self, name: str) -> None:
        def effect() -> None:
            job = self.jobs[name].data
            looked = (current(), name) in self._looked and self._seen.get(current()) != name
            if job["state"] == RUNNING and not looked and self.spared(job):
                self.wronged += (name,)
            if job["state"] in ENDED:
                raise RestError("it has ended", status=400)
            job["state"] = CANCELLING

        self.gate("cancel", effect)


class WorldSteps(Steps):
    """Steps that render nothing: the promoted job is the run's own."""

    def prepared(self, *_: Any) -> Any:
        return rendered(1)[1][0]


class WorldPages(JobPages):
    """The pages about jobs, without their answers."""

    def _own(self, number: str) -> RemoteJob:
        found = self.submitter.vertex.get(number)
        assert found is not None
        return found

    def _row(self, job: RemoteJob, *, detail: bool = False) -> dict[str, Any]:
        return {}


class WorldRegistrar(Registrar):
    """A registrar whose jobs have all trained the same model."""

    broken = False

    def register(self, *parts: Any) -> Any:
        if self.broken:
            raise RestError("the registry is down", status=503)
        return super().register(*parts)

    def _trained(self, *_: Any) -> tuple[Trained, Servable]:
        return Trained("gs://my-bucket/model", "accuracy", 0.9, "MAXIMIZE", "cpu", "1"), Servable("tf", "2.17", "")


class WorldTicker(Ticker):
    """A ticker whose ends have no metric and no price, and whose notices go to the test."""

    def finish(self, run: Run) -> None:
        row = self.deliveries.write_end(
            run, {"outcome": run.reason, "reason": run.text, "model": run.model, "jobs": dict(run.jobs), "step": run.at}
        )
        self.notices.keep(notify.notice_of({**row, "schedule": NIGHTLY}))


class RunWorld(World):
    """One schedule of deliveries and ticks.

    Args:
        shape: What the schedule is like.
        trials: How many the caller may start in a day.
        runs, engine, due, ledger, registrar, ticker, steps, pages: Classes; tests put broken ones here.
        parts: See `World`.
    """

    def __init__(
        self, shape: Shape = Shape(), trials: int | None = None, *, runs: type[RunStore] = RunStore, engine: type[Engine] = Engine,
        due: type[Due] = Due, ledger: type[Ledger] = Ledger, registrar: type[Registrar] = WorldRegistrar,
        ticker: type[Ticker] = WorldTicker, steps: type[WorldSteps] = WorldSteps,
        pages: type[WorldPages] = WorldPages, **parts: Any,
    ) -> None:  # fmt: skip
        super().__init__(**parts)
        self.shape, self.trials = shape, trials
        self.schedule = workspace(shape).loaded.project.schedules[NIGHTLY]
        self._runs, self._engine, self._due, self._ledger = runs, engine, due, ledger
        self._registrar, self._ticker, self._steps, self._pages = registrar, ticker, steps, pages
        self.vertex: ScarceVertex = ScarceVertex(self.clock, self._gate, spared=self._spared)
        self.models = MemoryModels(self.vertex, self.clock, self._gate)
        self.storage.objects["model/saved_model.pb"] = (b"", 1, 0.0)
        self.answers_of: dict[str, list[str]] = {}
        self.sent: list[str] = []
        self.surprises: list[Any] = []
        self.down, self.held_from = False, None
        self._arrived: set[str] = set()
        self._late: set[str] = set()
        self._expired: set[str] = set()
        self._claimed: dict[Delivery | None, float] = {}
        self._ids: dict[str, set[str]] = {}
        self._cancelling: set[str] = set()
        self._cancelled: dict[str, float] = {}
        self._newer: dict[Delivery | None, tuple[set[str], set[str]]] = {}
        self.asked: list[str] = []
        self.broken_at: float | None = None
        self.broken_s = 0.0
        self._neighbour()

    def workspace(self) -> Workspace:
        return workspace(self.shape)

    @property
    def jobs(self) -> dict[str, RemoteJob]:
        """The trigger's own jobs."""
        return {
            name: job
            for name, job in self.vertex.jobs.items()
            if not job.data["labels"][CLAIM_LABEL].startswith("b" * 32)
        }

    def _neighbour(self) -> None:
        """Put an open run of another trigger into the bucket, with its claim, a notice, and two jobs, of which that trigger has still to cancel
        one.
        """
        id, own = f"{'b' * 32}-{'b' * 12}", self.storage.below("vertexrig/other")
        run = Run(
            id, Key("schedule", "b"), self.request.body, {}, "bo@example.com", NIGHTLY, DUE[0], attempts=(Attempt(1),)
        )
        RunStore(own).save(run)
        own.write(f"claims/{'b' * 32}.json", b"{}")
        own.write("notices/b-end.00000000", b"{}")
        for _ in range(2):
            job = self.vertex.create(
                "customJobs", {"labels": {CLAIM_LABEL: id, FIRST_LABEL: id}, "jobSpec": {}, "displayName": "b"}
            )
            job.data["state"] = RUNNING
        self.others = self._of_neighbour()

    def _of_neighbour(self) -> dict[str, Any]:
        stored = {name: one[0] for name, one in self.storage.objects.items() if name.startswith("vertexrig/other/")}
        return stored | {name: job.data["state"] for name, job in self.vertex.jobs.items() if name not in self.jobs}

    # --- what is watched ---

    def _gate(self, name: str, effect: Any) -> Any:
        delivery = current()

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
        id = self._run_of(job.labels)
        if claimed > self._cancelled.get(id, claimed):
            self.surprises.append(Broken(f"{job.name} was made after a caller had cancelled its run"))
        first = sum(self._run_of(one.data["labels"]) == id for one in self.jobs.values()) == 1
        newer, waiting = self._newer.get(current(), (set[str](), set[str]()))
        if (
            first
            and id in waiting
            and any(id in self.ids(due) and self._with_job(DUE[place + 1 :]) & newer for place, due in enumerate(DUE))
        ):
            self.surprises.append(Broken(f"{job.name} was made though a newer run of the schedule has its job"))

    def _of_attempt(self, job: RemoteJob) -> bool:
        """Whether a job is of an attempt: steps read the holds once in a tick."""
        return FIRST_LABEL in job.labels or job.labels[CLAIM_LABEL][:32] in {self.key(due).digest[:32] for due in DUE}

    def ids(self, due: str) -> set[str]:
        """The ids that the claim of a due time has had."""
        found = self.storage.objects.get(self.key(due).path)
        known = self._ids.setdefault(due, set())
        if found is not None:
            known.add(str(json.loads(found[0])["id"]))
        return known

    def _run_of(self, labels: Mapping[str, str]) -> str:
        """The run of a job, also of one of a step."""
        id = labels.get(FIRST_LABEL) or labels[CLAIM_LABEL]
        steps = {Key("step", f"{one} 0 promote").digest[:32]: one for due in DUE for one in self.ids(due)}
        return steps.get(id[:32], id)

    def _spared(self, job: Mapping[str, Any]) -> bool:
        """Whether a job is the recorded one of its claim, and nobody cancels its run."""
        return self._run_of(job["labels"]) not in self._cancelling and self._is_recorded(job)

    def _is_recorded(self, job: Mapping[str, Any]) -> bool:
        path = f"claims/{job['labels'][CLAIM_LABEL][:32]}"
        found = next((one[0] for name, one in self.storage.objects.items() if name.startswith(path)), b"{}")
        return bool(json.loads(found).get("job", {}).get("name") == job["name"])

    def _with_job(self, dues: Sequence[str]) -> set[str]:
        """The open runs of due times that have a recorded job."""
        had = {self._run_of(one.data["labels"]) for one in self.jobs.values() if self._is_recorded(one.data)}
        return {id for due in dues for id in self.ids(due) if id in had and f"runs/{id}.json" in self.storage.objects}

    def _waiting(self) -> set[str]:
        """The runs that wait for a job."""
        stored = (json.loads(one[0]) for name, one in self.storage.objects.items() if name.startswith("runs/"))
        return {run["id"] for run in stored if run.get("phase") == "waiting"}

    # --- what happens ---

    def cancel(self, number: int) -> Delivery:
        """Start the DELETE of one of the jobs, by a caller."""
        return self._begun(lambda delivery: self._cancel(number, delivery))

    def _cancel(self, number: int, delivery: Delivery) -> None:
        names = list(self.jobs)
        if not names:
            return
        name = names[number % len(names)]
        id = self._run_of(self.jobs[name].data["labels"])
        engine = self.made_engine(0.0, delivery, False)
        ticker = self._ticker(
            engine, self._registrar(*self._about(engine)), lambda _: None, wanted=TOPIC, clock=self.clock
        )
        self._cancelling.add(id)

        def stop(id: str) -> str | None:
            run = engine.runs.read(id)
            return None if run is None else ticker.engine.stop(run)

        reply = self._pages(engine.submitter, lambda _: True, stop).cancel(name)
        assert isinstance(reply, Reply)
        self._cancelled.setdefault(id, self.clock())

    def expire(self) -> None:
        """Delete the claims of requests that were answered long ago, as a lifecycle rule of the bucket does."""
        if self.deliveries:
            return
        for due in DUE:
            path, answered = self.key(due).path, set(self.answers_of.get(due, ())) - {"refused"}
            if answered and path in self.storage.objects and self.clock() - self.storage.objects[path][2] > DAY_S:
                self.ids(due)
                del self.storage.objects[path]
                self._arrived.discard(due)
                self._expired.add(due)

    def breaks(self, on: bool) -> None:
        """Let the Model Registry fail, or work again."""
        if self.broken_at is not None:
            self.broken_s += self.clock() - self.broken_at
        self.broken_at = self.clock() if on else None

    def ask(self, caller: str) -> Delivery:
        """Start a delivery of a request with an id; each caller sends another body under that id."""
        return self._begun(lambda delivery: self._asked(caller, delivery))

    def _asked(self, caller: str, delivery: Delivery | None) -> None:
        engine = self.made_engine(0.0, delivery, True)
        body = replace(self.request, args={"of": caller}).body
        run = Run("", ASKED, body, {"id": caller, "time": DUE[0].replace("Z", ".000Z")}, caller)
        if not engine.begin(run, engine.candidates(run), self.terms)[1].duplicate:
            self.asked.append(caller)

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
            made = candidates_of(rendered(self.shape.candidates)[1], submitter)
            return [PricedCandidate(one.prepared, one.submitter) for one in made]

        def due(run: Run) -> Due:
            return self._due(NIGHTLY, self.schedule, run.time, submitter)

        def now() -> datetime:
            return self.clock.now() + timedelta(seconds=skew)

        return self._engine(submitter, self._runs(self.storage), candidates, lambda _: self.terms, due, now=now)

    def arrive(self, number: int, skew: float) -> Delivery:
        """Start a delivery of a due time, by an instance whose clock is off."""
        due = DUE[number % len(DUE)]
        if due in self._expired:
            return self._begun(lambda _: None)  # it is not delivered any more
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
                why = engine.keep_waiting(run, why)
            if why is None:
                self.answers_of.setdefault(due, []).append("refused")
                raise
            answer = why.decision
        self.answers_of.setdefault(due, []).append(answer)

    def tick(self, skew: float) -> Delivery:
        return self._begun(lambda delivery: self._tick(skew, delivery))

    def _tick(self, skew: float, delivery: Delivery | None) -> None:
        engine = self.made_engine(skew, delivery, False)
        registrar = self._registrar(*self._about(engine))
        registrar.broken = self.broken_at is not None  # type: ignore[attr-defined]
        self._newer[delivery] = self._with_job(DUE), self._waiting()
        engine.step = self._steps(engine, registrar, registrar.folder).take

        def send(_: Notify, notice: Notice) -> None:
            def effect() -> None:
                if self.down:
                    raise RestError("down", status=503)
                self.sent.append(notice.id)

            self._gate("send", effect)

        def log(row: Mapping[str, Any]) -> None:
            if row.get("severity") == "ERROR" and "error" in row:
                self.surprises.append(Broken(f"a tick failed: {row}"))

        self._ticker(engine, registrar, log, wanted=TOPIC, clock=self.clock, send=send).tick({})

    def _about(self, engine: Engine) -> tuple[Any, ...]:
        """What a registrar is made of."""
        own = workspace(self.shape)
        return (
            own.loaded,
            own.catalog,
            self.models,
            engine.submitter.claims,
            engine.runs,
            lambda uri: MemoryFolder(self.storage, uri),
        )

    def some(self, chance: random.Random, *states: str) -> dict[str, Any] | None:
        jobs = [job.data for job in self.jobs.values() if job.data["state"] in states]
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
        for job in (one.data for one in self.jobs.values()):
            labels = job["labels"]
            if (
                "startTime" in job
                and job["state"] in (RUNNING, CANCELLING, SUCCEEDED)
                and self._recorded(labels[CLAIM_LABEL]) == job["name"]
            ):
                busy.setdefault(labels.get(FIRST_LABEL) or labels[CLAIM_LABEL], []).append(job["name"])
        wrong = [names for names in busy.values() if len(names) > 1]
        if wrong:
            raise Broken(f"these train at one time: {wrong}")

    def later(self, seconds: float) -> None:
        self.clock.at += seconds

    def wake(self, verdicts: Sequence[str], lives: bool) -> None:
        """Let the one that is frozen go on for so many stops; kill it there unless it lives."""
        for one in self.deliveries if verdicts else ():
            one.step(*verdicts)
        if not lives:
            self.close()

    # --- the end ---

    def finish(self, wake: bool) -> None:
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        self.vertex.lag = self.models.slow = 0.0
        self.vertex.refused, self.down = frozenset(), False
        self.breaks(False)
        self.clock.at += 150.0
        self.hold(False)
        chance = random.Random(len(self.jobs))
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
            for _ in range(len(self.jobs)):
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
        for job in [one.data for one in self.jobs.values() if one.data["state"] == QUEUED]:
            self.train_or_end(job)  # a second job that lists show only now looks at its claim
        live = [name for name, one in self.jobs.items() if one.data["state"] in LIVE]
        if live:
            raise Broken(f"no run is open, and these live: {live}")
        rows = [self._row(name) for name in self.storage.objects if name.startswith("history/")]
        for due in DUE:
            answers, claim = self.answers_of.get(due, []), self._parts(None)[0].by_key(self.key(due))
            ids_of, own = self.ids(due), [row for row in rows if row.get("schedule_time") == due]
            if len(own) > 1:
                raise Broken(f"{len(own)} ends for {due}")
            left_out = claim is not None and claim.state == "ended" and "skipped" in answers
            if {"created", "deferred"} & set(answers) and not own and not left_out:
                raise Broken(f"{due} was answered {answers}, and has no end")
            ids = {job.data["labels"].get(FIRST_LABEL) or job.data["labels"][CLAIM_LABEL] for job in self.jobs.values()}
            jobs, cancelled = [id for id in ids if id in ids_of], bool(ids_of & self._cancelling)
            won = [
                one.data["name"] for one in self.jobs.values()
                if one.data["state"] == SUCCEEDED and (one.data["labels"].get(FIRST_LABEL) or one.data["labels"][CLAIM_LABEL]) in jobs
            ]  # fmt: skip
            if len(won) > 1:
                raise Broken(f"two jobs of {due} have succeeded: {won}")
            outcome = own[0]["end"]["outcome"] if own else ""
            if outcome in ("changed", "gone") or (
                not cancelled
                and (outcome == "CANCELLED" or "CANCELLED" in str(own[0]["end"].get("reason") if own else ""))
            ):
                raise Broken(f"nobody cancelled {due}, and the file is the same: {own[0]['end']}")
            if won and "skipped" in answers:
                raise Broken(f"{due} was answered {answers}, and these have succeeded: {won}")
            good = outcome in ("SUCCEEDED", "registered", "done", "not-better")
            # a step may fail after the run's job has succeeded
            if (good and not won) or (won and not good and not self.shape.steps):
                raise Broken(f"{due} ended {outcome!r}, and these have succeeded: {won}: {own}")
            if outcome == "given-up" and own[0]["end"]["step"] != "run" and self.broken_s < PATIENCE_S:
                raise Broken(f"{due} was given up though its step did not fail for three days: {own[0]['end']}")
            if (
                own
                and f"{own[0]['id']}-end" not in self.sent
                and f"{own[0]['id']}-{own[0]['decision']}" not in self.sent
            ):
                raise Broken(f"no notice of {due} was sent: {own[0]}")
        self._check_steps(rows)
        self._check_budget()
        self._check_overlap()
        for row in rows:
            if (
                row.get("request") == ASKED.digest
                and row.get("job")
                and row.get("caller") not in self.asked[:1]
                and self.asked
            ):
                raise Broken(f"the job was made for {self.asked}, and the run is {row.get('caller')}'s")
        if self._of_neighbour() != self.others:
            raise Broken(f"what belongs to another trigger is {self._of_neighbour()}, and was {self.others}")

    def _row(self, name: str) -> dict[str, Any]:
        return self.storage.read_json(name) or {}

    def _check_steps(self, rows: list[dict[str, Any]]) -> None:
        if not self.shape.steps:
            return
        ids = [id for due in DUE for id in self.ids(due)]
        known = {
            key.digest[:32] for id in ids for key in (Key("step", f"{id} 0 promote"), Key("step", f"{id} 1 register"))
        }
        for name, labels in ((name, job.data["labels"]) for name, job in self.jobs.items()):
            if FIRST_LABEL not in labels and labels[CLAIM_LABEL] not in ids and labels[CLAIM_LABEL][:32] not in known:
                raise Broken(f"{name} is of no run and no step")
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

    def _check_overlap(self) -> None:
        """With `overlap: skip` or `wait`, no run begins between two jobs of another one."""
        if self.shape.overlap == "allow":
            return
        made: dict[str, list[str]] = {}
        for name, job in self.jobs.items():
            if name not in self._late and self._of_attempt(RemoteJob(job.data)):
                made.setdefault(self._run_of(job.data["labels"]), []).append(job.data["createTime"])
        for one, other in permutations(made, 2):
            if min(made[one]) < min(made[other]) < max(made[one]):
                raise Broken(f"{other} began among the attempts of {one}: {made}")

    def _check_budget(self) -> None:
        if self.trials is None:
            return
        begun: dict[str, str] = {}
        for name, job in self.jobs.items():
            if name not in self._late and "startTime" in job.data:
                run = job.data["labels"].get(FIRST_LABEL) or job.data["labels"][CLAIM_LABEL]
                begun[run] = min(job.data["createTime"][:10], begun.get(run, "9"))
        counts = Counter(begun.values())
        if any(count > self.trials for count in counts.values()):
            raise Broken(f"the caller's {self.trials} a day are exceeded: {counts}")


@dataclass(frozen=True)
class Script:
    """What happens in a world one after the other, by words: `d0` to `d2` deliver a due time, and the keys of `WORDS` are the rest."""

    shape: Shape
    words: str

    @property
    def moves(self) -> list[str]:
        return self.words.split()


_PATIENT = f"{RETRY_S:g}s"
SCRIPTS: Mapping[str, Script] = {
    "candidates": Script(Shape(3), "d0 wait tick start cancelled tick start tick stockout tick start succeed tick"),
    "slow-cancel": Script(Shape(3), "d0 wait tick start start tick cancelled tick succeed"),
    "slow-write": Script(Shape(3), "d0 stockout tick wait tick cancelled tick start succeed"),
    "preempted": Script(Shape(3), "d0 stockout tick start preempt tick tick start wait tick succeed"),
    "none": Script(Shape(3), "scarce d0 d0 plenty pause tick tick start"),
    "refused": Script(Shape(1), "scarce d0 plenty d0 start succeed tick"),
    "late": Script(Shape(1), "d0 lease d0 start start tick succeed"),
    "left-out": Script(Shape(1), "d1 lease hold d1 free d1 start start"),
    "superseded": Script(Shape(1, "wait"), "d0 d1 d2 tick start d1 succeed tick tick start"),
    "overlap": Script(Shape(1, "skip"), "d0 lease d1 d0 start tick succeed"),
    "held": Script(Shape(1, "wait", True), "hold pause d0 d1 tick free tick d0 tick start"),
    "again": Script(Shape(1, retry_for=_PATIENT), "d0 stockout tick pause tick start stockout tick pause tick"),
    "given-up": Script(
        Shape(1, retry_for=_PATIENT), "scarce d0 tick wait wait wait wait wait wait tick plenty d0 tick"
    ),
    "budget": Script(Shape(1, "wait"), "d0 start d1 succeed tick start d2 succeed tick start succeed tick"),
    "steps": Script(Shape(1, steps=True), "d0 start succeed tick tick start succeed tick lease tick"),
    "stopped": Script(
        Shape(3, retry_for=_PATIENT), "d0 stockout lease delete lease tick pause tick start succeed tick"
    ),
    "stopped-late": Script(Shape(3), "d0 wait tick delete lease cancelled tick start succeed tick"),
    "stopped-step": Script(Shape(1, steps=True), "d0 start succeed tick delete lease tick start succeed tick tick"),
    "expired": Script(Shape(1, "wait", True), "hold lease d0 days expire free tick start succeed tick"),
    "corrected": Script(Shape(1), "scarce ana plenty lease bo start tick succeed tick"),
    "begins": Script(Shape(3), "d0 tick wait tick start succeed tick"),
    "failing-held": Script(
        Shape(1, steps=True),
        "d0 start succeed tick tick start succeed breaks tick mends hold tick pause tick days free breaks tick mends tick",
    ),
    "round": Script(
        Shape(3, "skip", retry_for=_PATIENT),
        "d0 stockout tick stockout tick stockout lease d1 tick pause pause tick start succeed tick",
    ),
    "replaced": Script(Shape(1, retry_for=_PATIENT), "scarce d0 plenty lease d1 lease tick start succeed tick"),
    "steps-wait": Script(
        Shape(3, "wait", steps=True), "d0 start d1 succeed tick tick stockout tick start succeed tick"
    ),
}
"""Short worlds; in each schedule of one a delivery or tick is frozen at a call, and wakes, is cut or is killed later."""
_ALL = [""] * 400
_WORK = ("tick", "delete", "ana", "bo")
_AFTER: Sequence[tuple[Sequence[str], bool]] = (
    ([], False), (["", ""], False), (_ALL, True), (["fail", *_ALL], True), (["", "fail", *_ALL], True), (["", "repeat", *_ALL], True),
)  # fmt: skip
"""What becomes of the frozen one: it is killed before its call or after it, goes on, is cut before or after it, or makes it twice."""


def words(world: RunWorld, chance: random.Random) -> dict[str, Callable[[], Any]]:
    """Return what the words of a script do."""
    refuse = partial(setattr, world.vertex, "refused")
    return {
        **{f"d{number}": partial(world.arrive, number, chance.choice(SKEWS)) for number in range(len(DUE))},
        "tick": lambda: world.tick(chance.choice(SKEWS)),
        "pause": partial(world.later, TICK_S),
        "wait": partial(world.later, WAIT_S + 1),
        "lease": partial(world.later, LEASE_S + 2),
        "days": partial(world.later, 4 * DAY_S),
        "delete": lambda: world.cancel(chance.randrange(4)),
        "expire": world.expire,
        "ana": partial(world.ask, "ana@example.com"),
        "bo": partial(world.ask, "bo@example.com"),
        "breaks": partial(world.breaks, True),
        "mends": partial(world.breaks, False),
        "hold": partial(world.hold, True),
        "free": partial(world.hold, False),
        "scarce": partial(refuse, frozenset("123")),
        "plenty": partial(refuse, frozenset()),
        "start": partial(world.starts, chance),
        "stockout": lambda: world.ends(chance, FAILED, STOCKOUT, was=QUEUED),
        "preempt": lambda: world.ends(chance, FAILED, STOCKOUT, was=RUNNING),
        "succeed": lambda: world.ends(chance, SUCCEEDED, was=RUNNING),
        "cancelled": lambda: world.ends(chance, CANCELLED, was=CANCELLING),
    }


@functools.cache
def _calls(script: Script, actor: int, **parts: Any) -> int:
    """Return how many calls the delivery or tick of a move makes, where none is frozen."""
    world = RunWorld(script.shape, **parts)
    act = words(world, random.Random(0))
    for place, word in enumerate(script.moves):
        work = act[word]()
        for count in range(400) if isinstance(work, Delivery) else ():
            work.step()
            if work.done:
                if place == actor:
                    return count // 2 + 1
                break
    raise LookupError(f"{script.moves[actor]} does not end")


@repeatable
def played(seed: int, script: Script, actor: int | None = None, **parts: Any) -> RunWorld:
    """One schedule of a script: one of its deliveries and ticks is frozen before a call, and let go on before a later move.

    Args:
        actor: The move that is frozen; any by default.

    Raises:
        Broken: A promise does not hold.
    """
    chance = random.Random(seed)
    world = RunWorld(script.shape, chance.choice((None, None, 2)), **parts)
    world.vertex.lag = chance.choice(LAGS)
    moves, act = script.moves, words(world, chance)
    if actor is None:
        actor = chance.choice([place for place, word in enumerate(moves) if word in _WORK or word[1:].isdigit()])
    stop, back = (
        2 * chance.randrange(_calls(script, actor, **parts)),
        chance.randint(actor + 1, min(actor + 4, len(moves))),
    )
    verdicts, lives = chance.choice(_AFTER)
    try:
        for place, word in enumerate([*moves, ""]):
            if place == back:
                world.wake(verdicts, lives)
            work = act[word]() if word else None
            if isinstance(work, Delivery):
                work.step(*_ALL[: stop if place == actor else None])
                world.deliveries = [one for one in world.deliveries if not one.done]
        world.finish(True)
    finally:
        world.close()
    return world


@repeatable
def explore(seed: int, steps: int = 30, shape: Shape | None = None, **parts: Any) -> RunWorld:
    """One schedule: of a script for an odd number, of moves at random for an even one.

    Raises:
        Broken: A promise does not hold.
    """
    if seed % 2 and shape is None:
        return played(seed, [*SCRIPTS.values()][seed // 2 % len(SCRIPTS)], **parts)
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
        Move(0.86, lambda: begun(world, chance, lambda: world.cancel(chance.randrange(4)), MORE_STOPS), begins=True),
        Move(0.87, lambda: world.breaks(world.broken_at is None)),
    )
    with suppress(InProgressError):
        begun(world, chance, arrive, MORE_STOPS)
    try:
        wander(world, chance, steps, moves, MORE_STOPS)
    finally:
        world.close()
    return world
