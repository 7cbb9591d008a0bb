"""The tick: looks at every open chain and takes the next step of those whose job has ended, each step exactly once.

Nothing is remembered between ticks: how far a chain is follows from the claims of its steps, so a tick that dies, is frozen or
comes twice changes nothing but the time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from vertexrig import times
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import ConfigError, UsageError, VertexrigError
from vertexrig.project import caller_overrides
from vertexrig.project.triggered import EvaluateStep, NextStep, PromoteStep, RegisterStep, name_of
from vertexrig.spec import from_data
from vertexrig.spec.states import SUCCEEDED, short
from vertexrig.studies.register import MODEL_DIR, SUMMARY
from vertexrig.submit.budget import OverBudgetError
from vertexrig.submit.chains import GOOD, Chain, ChainEnd, Chains, Outcome, ended
from vertexrig.submit.claims import LABEL, Claims, InProgressError, digest
from vertexrig.submit.submission import Submitter
from vertexrig.submit.uploaded import NoPackageError
from vertexrig.trigger import callers, promotion
from vertexrig.trigger.ladders import Ladders
from vertexrig.trigger.policy import EVERY, PATIENCE_S, Hold, Holds
from vertexrig.trigger.registration import Evaluation, Registrar, display_name
from vertexrig.workspace import Prepared

PER_RUN = ("usd_per_run", "trials_per_run")
"""Limits of the budget that waiting does not help against."""


@dataclass(frozen=True)
class Looked:
    """What a tick found of one chain.

    Args:
        state: `waits`, `started` (a step's job was made), `ended`, or `unknown` (see the log).
        step: Where it is: `run`, or a step.
        detail: In one line.
        job: The job that it waits for, or that was started.
        problem: It waits for something that does not come by itself.
        end: How it ended.
        inside: The detail is a service's word about the trigger itself: for the log, not for callers.
    """

    chain: str
    schedule: str
    run: str
    state: str
    step: str
    detail: str
    job: str = ""
    problem: bool = False
    end: ChainEnd | None = None
    inside: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """As the log has it."""
        row = {key: value for key, value in asdict(self).items() if key not in ("problem", "end", "inside")}
        if self.end is not None:
            row |= {"outcome": self.end.outcome, "model": self.end.model}
        return row

    @property
    def answer(self) -> dict[str, Any]:
        """As the tick's answer has it."""
        hidden = {"detail": "a service refused the trigger or cannot be reached; its log says why"}
        return self.data | (hidden if self.inside else {})

    @property
    def severity(self) -> str:
        """Of its log entry; "" for what need not be logged."""
        if self.end is not None:
            return "INFO" if self.end.outcome in GOOD else "ERROR"
        return "WARNING" if self.problem else "INFO" if self.state == "started" else ""


@dataclass
class _Walk:
    """How far a chain was followed.

    Args:
        job: The job that it waits for.
        jobs: The resource names of the jobs by what ran.
        since: Since when the step could have been taken.
    """

    chain: Chain
    step: str = "run"
    job: str = ""
    jobs: dict[str, str] = field(default_factory=dict)
    since: str = ""

    def looked(self, state: str, detail: str, **more: Any) -> Looked:
        one = self.chain
        line = " ".join(detail.split())[:1000]
        return Looked(one.id, one.schedule, one.run, state, self.step, line, self.job, **more)


class _OverError(VertexrigError):
    """The chain ends here."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        self.outcome = outcome
        super().__init__(reason)


class Ticker:
    """Takes the next steps of a project's chains.

    Args:
        submitter: Makes jobs; its claims should not wait, for the next tick comes anyway.
        clock: Seconds, from any start; the tick as a whole is timed by it.
    """

    def __init__(
        self,
        submitter: Submitter,
        models: ModelsClient,
        *,
        folder: Callable[[str], Storage] = Storage,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = times.now,
    ) -> None:
        self.submitter, self.clock, self.now = submitter, clock, now
        self.loaded, self.vertex, self.folder = submitter.workspace.loaded, submitter.vertex, folder
        self.claims: Claims = submitter.claims
        self.chains = Chains(submitter.storage)
        self.holds: dict[str, Hold] = {}
        catalog = submitter.workspace.catalog
        self.registrar = Registrar(self.loaded, catalog, models, self.claims, self.chains, folder)

    def tick(self, unexpected: Callable[[Exception], None], late: Callable[[], bool] = lambda: False) -> list[Looked]:
        """Look at every open chain (`vertexrig.trigger.ticking.Tick`)."""
        found = list(self.chains.open())
        self.holds = Holds(self.submitter.storage).current() if found else {}
        random.shuffle(found)  # so that none is always the last when there is not time for all
        rows = []
        for chain in found:
            if late():
                break
            if isinstance(chain, str):
                rows.append(Looked("", "", "", "unknown", "", f"{chain} is not a chain; delete it", problem=True))
                continue
            try:
                rows.append(self.look(chain))
            except Exception as error:
                unexpected(error)
                rows.append(_Walk(chain, step="").looked("unknown", "the log says what went wrong", problem=True))
        return rows

    def look(self, chain: Chain) -> Looked:
        """Take a chain as far as it goes now."""
        known = self.chains.end(chain.id)
        walk = _Walk(chain, since=chain.begun)
        if known is not None:  # a tick died just before it deleted the open chain
            self.chains.forget(chain.id)
            return walk.looked("ended", known.reason, end=known)
        hold = self.holds.get(chain.schedule) or self.holds.get(EVERY)
        if hold is not None:
            return walk.looked("waits", f"on hold until {hold.until}: {hold.reason}")
        try:
            return self._follow(walk)
        except _OverError as over:
            return self._end(walk, over.outcome, str(over))
        except InProgressError as error:
            return walk.looked("waits", str(error))
        except OverBudgetError as error:
            if error.limit in PER_RUN:
                return self._end(walk, "over-budget", str(error))
            return self._wait(walk, str(error))
        except NoPackageError as error:
            return self._wait(walk, str(error))
        except RestError as error:
            # the service's word about the job itself: it will say the same tomorrow
            if error.status == 400:
                return self._end(walk, "refused", str(error))
            return replace(self._wait(walk, str(error)), inside=True)
        except ConfigError as error:  # without its line: the promoted job is not in the file
            return self._end(walk, "impossible", error.message)
        except VertexrigError as error:
            return self._end(walk, "impossible", str(error))

    def _follow(self, walk: _Walk) -> Looked:
        chain = walk.chain
        schedule = self.loaded.project.schedules.get(chain.schedule)
        steps = schedule.steps if schedule is not None else ()
        # A deployment since then may have changed what follows: steps that nobody asked for at that time are not taken.
        if schedule is None or schedule.run != chain.run or tuple(map(name_of, steps)) != chain.steps:
            raise _OverError(
                "changed", f"the steps of {chain.schedule} in the project file are others than when the run began"
            )
        # the chain lies in the bucket, so what it holds is allowed only as far as a request's values are
        refused = caller_overrides.check(self.loaded, chain.run, chain.set, chain.args)
        if refused:
            raise _OverError(
                "changed", f"the project file does not allow the run's values any more: {refused[0].message}"
            )
        # whether or not the project file still has candidates: a run that has begun with them goes on
        ladders = Ladders(self.submitter.storage)
        over = ladders.end(chain.id)
        if over is None and ladders.is_open(chain.id):
            return walk.looked("waits", f"{chain.run} has not ended: its candidates are tried")
        walk.job = over.job if over is not None else self._first(chain)
        if over is not None and not walk.job:
            outcome: Outcome = "skipped" if over.state in ("skipped", "superseded") else "failed"
            raise _OverError(outcome, f"{chain.run}: {over.text}")
        if not walk.job:
            return self._unmade(walk)
        name, evaluation = chain.run, None
        for index, step in enumerate(steps):
            job = self._succeeded(walk, name)
            if job is None:
                return walk.looked("waits", f"{name} has not ended")
            walk.step = name_of(step)
            if isinstance(step, RegisterStep):
                return self._register(walk, index, step, job, evaluation)
            if isinstance(step, EvaluateStep):
                found = self._evaluate(walk, index, step, job, steps[index + 1 :])
                if isinstance(found, Looked):
                    return found
                # what follows is about the model that the job before has trained
                evaluation, walk.job = found, job.name
                continue
            name, made = self._promote(walk, index, step, job)
            if made is not None:
                return made
        if self._succeeded(walk, name) is None:
            return walk.looked("waits", f"{name} has not ended")
        raise _OverError("done", f"{name} has succeeded")

    def _first(self, chain: Chain) -> str:
        """Return the resource name of the run's job, "" if none is recorded."""
        held = self.claims.by_id(chain.id)
        if held is None:
            return ""
        if held.state == "ended":  # by the schedule's policy, after an earlier try
            raise _OverError("skipped", held.ended.get("text", ""))
        # a key whose window is over has another id by now, and keeps the earlier ids' jobs in `before`
        name = held.job.name if held.id == chain.id else held.before.get(chain.id, "")
        if name or held.id != chain.id:
            return name
        found = self.submitter.reconciler.find(chain.id, self.submitter.collection_of(chain.run))
        return found.name if found is not None else ""  # made, and its delivery died before it recorded it

    def _unmade(self, walk: _Walk) -> Looked:
        """Leave a run without a job to the next tick. One that the service refused has no end after that: its delivery has said so."""
        chain = walk.chain

        def refused() -> bool:
            held = self.claims.by_id(chain.id)
            return held is not None and held.id == chain.id and held.state == "released"

        if self._waited(walk) > PATIENCE_S and self.chains.drop(chain.id, refused):
            return walk.looked("waits", "the run was refused; the same request begins its steps again")
        return self._wait(walk, "the run's job is not made yet", problem=False)

    def _succeeded(self, walk: _Walk, name: str) -> RemoteJob | None:
        """Return the job that a chain waits for, once it has succeeded; None until it has ended, and a second one is cancelled."""
        walk.jobs[name] = walk.job
        job = self.vertex.get(walk.job)
        if job is None:
            raise _OverError("failed", f"{name}: the job {walk.job} is gone")
        if not job.ended:
            try:
                self.submitter.reconciler.look(job.labels.get(LABEL, ""), job.collection)
            except VertexrigError:
                pass  # the next look tries again
            return None
        if job.state != SUCCEEDED:
            raise _OverError("failed", f"{name} ended {short(job.state)}: {job.cause}".rstrip(": "))
        # patience with the next step counts from the end of what it follows
        walk.since = str(job.data.get("endTime") or walk.since)
        return job

    def _promote(self, walk: _Walk, index: int, step: PromoteStep, sweep: RemoteJob) -> tuple[str, Looked | None]:
        """Return the promoted job's name, and what the tick says if it was made just now."""
        chain, key = walk.chain, walk.chain.key(index)
        held = self.claims.by_key(key)
        # asked before rendering: promoting again would read the sweep's trials for a job that is there
        if held is not None and held.state == "created":
            walk.job = held.job.name
            return held.run, None
        prepared = self.prepared(chain, step, sweep)
        name = prepared.view.name
        terms = callers.terms(self.loaded, chain.caller)
        made = self.submitter.submit(prepared, key, digest({"chain": chain.id}), terms=terms)
        walk.job = made.name
        if made.duplicate:
            return name, None
        walk.jobs[name] = made.name
        return name, walk.looked("started", f"{name} was started: {made.name.rpartition('/')[2]}")

    def _evaluate(
        self, walk: _Walk, index: int, step: EvaluateStep, job: RemoteJob, following: Sequence[NextStep]
    ) -> Evaluation | Looked:
        """Return what was measured beside the version that is there now: of the last round, or of a new one if that has changed."""
        chain, ran = walk.chain, f"{step.job} (evaluate)"
        register = next((one for one in following if isinstance(one, RegisterStep)), RegisterStep())
        # once the model is on its way into the registry, it is among those that are there
        uploaded = self.claims.by_key(chain.key(index + 1)) if following else None
        settled = uploaded is not None and uploaded.state == "created"
        try:
            champion, challenger = self.registrar.rivals(chain, register, job)
        except UsageError:
            # beside a model that somebody else made of this name: what a try that died has uploaded is registered all the same
            settled = settled or (bool(following) and self.registrar.has_uploaded(chain, register, job))
            if not settled:
                raise
            champion = challenger = ""
        turn, made = 0, ""
        while (held := self.claims.by_key(chain.key(index, turn))) is not None and held.state == "created":
            turn, made = turn + 1, held.job.name
        if made:
            walk.job = made
            measured = self._succeeded(walk, ran)
            if measured is None:
                return walk.looked("waits", f"{ran} has not ended")
            found = self._measured(step, measured)
            if settled or found.champion == champion:
                return found
        prepared = self.evaluating(chain, step, champion, challenger)
        terms = callers.terms(self.loaded, chain.caller)
        new = self.submitter.submit(prepared, chain.key(index, turn), digest({"chain": chain.id}), terms=terms)
        walk.job = walk.jobs[ran] = new.name
        return walk.looked("started", f"{ran} was started: {new.name.rpartition('/')[2]}")

    def _measured(self, step: EvaluateStep, job: RemoteJob) -> Evaluation:
        """Return what a job has measured; its own argument says of which version."""
        summary = self.folder(f"{job.output}/{MODEL_DIR}").read_json(SUMMARY) or {}
        was, now = (one if isinstance(one := summary.get(key), dict) else {} for key in ("champion", "challenger"))
        words = from_data(dict(job.data.get("jobSpec") or {}), kind="CustomJobSpec").pools[0].args
        flag = f"--{step.champion_flag}="
        champion = next((word.removeprefix(flag).rstrip("/") for word in words if word.startswith(flag)), "")
        return Evaluation(champion, was, now, job.display_name)

    def evaluating(self, chain: Chain, step: EvaluateStep, champion: str, challenger: str) -> Prepared:
        """Return the job that measures two models, rendered and checked; UsageError if the checks found an error."""
        loaded = promotion.with_models(self.loaded, chain, step, champion, challenger)
        return self._checked(self.submitter.workspace.overridden(loaded).prepare(step.job))

    def prepared(self, chain: Chain, step: PromoteStep, sweep: RemoteJob) -> Prepared:
        """Return the promoted job, rendered and checked; UsageError if it cannot be made of this sweep, or the checks found an error."""
        loaded, name = promotion.with_job(self.loaded, chain, step, sweep, self.folder)
        return self._checked(self.submitter.workspace.overridden(loaded).prepare(name))

    @staticmethod
    def _checked(found: Prepared) -> Prepared:
        wrong = promotion.errors(found)
        if wrong:
            raise UsageError(f"{found.view.name} would fail: {wrong}")
        return found

    def _register(
        self, walk: _Walk, index: int, step: RegisterStep, job: RemoteJob, evaluation: Evaluation | None
    ) -> Looked:
        chain = walk.chain
        found = self.registrar.register(chain, chain.key(index), step, job, evaluation)
        if found.outcome == "":
            return walk.looked("waits", found.text)
        looked = self._end(walk, found.outcome, found.text, found.model)
        try:
            # once more, now that the end is kept and says which version counts
            self.registrar.clean(display_name(chain, step, job))
        except VertexrigError:
            pass  # the next chain that registers this model does it
        return looked

    def _wait(self, walk: _Walk, why: str, *, problem: bool = True) -> Looked:
        """Leave the step to the next tick, unless it has waited for too long."""
        waited = self._waited(walk)
        if waited > PATIENCE_S:
            return self._end(walk, "given-up", f"after {waited / 86_400:.0f} days: {why}")
        return walk.looked("waits", why, problem=problem)

    def _waited(self, walk: _Walk) -> float:
        try:
            return (self.now() - times.parse(walk.since)).total_seconds()
        except ValueError:
            return 0.0

    def _end(self, walk: _Walk, outcome: Outcome, reason: str, model: str = "") -> Looked:
        kept = self.chains.close(ended(walk.chain, outcome, walk.step, reason, walk.jobs, model))
        return walk.looked("ended", kept.reason, end=kept)
