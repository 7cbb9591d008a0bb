"""Steps: what follows a run whose job has succeeded, each once, but for measurements that are repeated. A step's claim says whether it has its job or its version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import ConfigError, UsageError, VertexrigError
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import EvaluateStep, NextStep, PromoteStep, RegisterStep, name_of
from vertexrig.runs import approval, promotion
from vertexrig.runs.engine import Engine, Moved
from vertexrig.runs.policy import PATIENCE_S
from vertexrig.runs.registration import Evaluation, Registered, Registrar, display_name
from vertexrig.runs.run import FAILING, Run
from vertexrig.spec import from_data
from vertexrig.spec.labels import CLAIM_LABEL, DATA_LABEL
from vertexrig.spec.states import SUCCEEDED, short
from vertexrig.studies.register import MODEL_DIR, SUMMARY
from vertexrig.submit.budget import PER_RUN, OverBudgetError, Terms
from vertexrig.submit.claims import InProgressError, digest
from vertexrig.submit.reconcile import call_off
from vertexrig.submit.submission import Submitted
from vertexrig.submit.uploaded import NoPackageError
from vertexrig.workspace import Prepared


class _RunEndsError(VertexrigError):
    """The run ends here."""

    def __init__(self, outcome: str, reason: str) -> None:
        self.outcome = outcome
        super().__init__(reason)


@dataclass
class Steps:
    """Takes the steps of runs; `folder` opens a gs:// folder."""

    engine: Engine
    registrar: Registrar
    folder: Callable[[str], Storage]

    @property
    def loaded(self) -> Loaded:
        return self.engine.submitter.workspace.loaded

    def take(self, run: Run, job: RemoteJob | None) -> Moved | Run:
        """Take the next step of a run (`_next_index`), as far as it goes now; see `_take`."""
        moved = self._take(run, job)
        if run.reason == FAILING and isinstance(moved, Moved) and moved.state == "waiting" and not moved.problem:
            self.engine.runs.save(replace(run, reason=""))  # its patience counts anew from the next failure
        return moved

    def _take(self, run: Run, job: RemoteJob | None) -> Moved | Run:
        """Take the next step of a run, if the job before it has succeeded; `job` is that job where it was listed just now."""
        at, engine = self.engine.now(), self.engine
        reported = run  # at the step whose error is told: the next one, while its job was not made
        try:
            steps, name, current = self._steps(run), self._name(run), run.job or run.attempts[-1].job
            job = self._succeeded(run, name, current, job)
            if job is None:
                if run.stopped:
                    call_off(engine.submitter.vertex, current)
                return self._waits(run, f"{name} has not ended", current)
            if run.phase != "step":
                jobs = {**run.jobs, run.name: current}
                return self._goes_on(run, phase="step", step=-1, job=current, jobs=jobs, since=_end_of(job, at))
            index = _next_index(run, steps)
            if index == len(steps):
                raise _RunEndsError("done", f"{name} has succeeded")
            step, reported = steps[index], replace(run, step=index)
            if run.stopped and not isinstance(step, RegisterStep):
                return self._stopped(run, index)
            if isinstance(step, PromoteStep):
                return self._promote(run, index, step, job)
            if isinstance(step, EvaluateStep):
                return self._evaluate(run, index, step, job, steps[index + 1 :], at)
            return self._register(run, index, step, job)
        except _RunEndsError as end:
            return engine.close(run, end.outcome, str(end))
        except InProgressError as error:
            return self._waits(run, str(error))
        except (OverBudgetError, NoPackageError) as error:
            if isinstance(error, OverBudgetError) and error.limit in PER_RUN:
                return engine.close(reported, "over-budget", str(error))
            return self._patient(run, reported, str(error), at)
        except RestError as error:
            # the service's message about the job itself is the same tomorrow
            if error.status == 400:
                return engine.close(reported, "refused", str(error))
            moved = self._patient(run, reported, str(error), at)
            return replace(moved, inside=True) if isinstance(moved, Moved) and moved.state != "ended" else moved
        except ConfigError as error:  # without its line: the promoted job is not in the file
            return engine.close(reported, "impossible", error.message)
        except VertexrigError as error:
            return engine.close(reported, "impossible", str(error))

    def _steps(self, run: Run) -> Sequence[NextStep]:
        return self.loaded.project.schedules[str(run.body["then"])].steps

    def _name(self, run: Run) -> str:
        """Return what the job that a run waits for is called."""
        return next((name for name, job in reversed(list(run.jobs.items())) if job == run.job), run.name)

    def _succeeded(self, run: Run, name: str, current: str, job: RemoteJob | None) -> RemoteJob | None:
        """Return the job that a run waits for, once it has succeeded; None until it has ended."""
        if job is None or job.name != current:
            job = self.engine.submitter.vertex.get(current)
        if job is None:
            raise _RunEndsError("failed", f"{name}: the job {current} is gone")
        if not job.ended:
            try:
                self.engine.submitter.reconciler.look(job.labels.get(CLAIM_LABEL, ""), job.collection)
            except VertexrigError:
                pass  # the next tick repeats it
            return None
        if job.state != SUCCEEDED:
            raise _RunEndsError("failed", f"{name} ended {short(job.state)}: {job.cause}".rstrip(": "))
        return job

    def _promote(self, run: Run, index: int, step: PromoteStep, sweep: RemoteJob) -> Moved | Run:
        key = run.step_key(index)
        claim = self.engine.submitter.claims.by_key(key)
        # read before rendering: promoting again would read the sweep's trials for a job that is there
        if claim is not None and claim.state == "created":
            return self._saved(run, index, claim.run, claim.job.name)
        prepared = self.prepared(run, step, sweep)
        made = self.engine.submitter.submit(prepared, key, digest({"run": run.id}), terms=self._terms(run, sweep))
        return self._made(run, index, prepared.view.name, made)

    def _terms(self, run: Run, before: RemoteJob) -> Terms:
        """Return the terms of a step's job: it has the label with the data of the job before it."""
        terms, data = self.engine.terms(run), before.labels.get(DATA_LABEL)
        return replace(terms, labels={**terms.labels, DATA_LABEL: data}) if data else terms

    def _made(self, run: Run, index: int, name: str, made: Submitted, **more: Any) -> Moved | Run:
        saved = self._saved(run, index, name, made.name, **more)
        if isinstance(saved, Moved) or (made.duplicate and not more):
            return saved
        return Moved(saved, "started", made.name, f"{name} was started: {made.name.rpartition('/')[2]}", made=made)

    def _saved(self, run: Run, index: int, name: str, job: str, **more: Any) -> Moved | Run:
        jobs = {key: value for key, value in run.jobs.items() if key != name} | {name: job}
        since = times.rfc3339(self.engine.now(), 0)
        return self._goes_on(run, step=index, job=job, jobs=jobs, since=since, **more)

    def _evaluate(
        self, run: Run, index: int, step: EvaluateStep, job: RemoteJob, following: Sequence[NextStep], at: datetime
    ) -> Moved | Run:
        """Measure the model and the version that is registered now; again if that version has changed since.

        Args:
            job: The trained job; once a measurement was started, the job that measures.
        """
        name = f"{step.job} (evaluate)"
        register = next((one for one in following if isinstance(one, RegisterStep)), RegisterStep())
        measuring = run.step == index and run.round > 0
        trained = self._trained(run, name) if measuring else job
        # `register` is what may follow; once its model is on its way into the registry, it is among those that are there
        uploaded = self.engine.submitter.claims.by_key(run.step_key(index + 1)) if following else None
        settled = uploaded is not None and uploaded.state == "created"
        try:
            champion, challenger = self.registrar.rivals(run, register, trained)
        except UsageError:
            # somebody else made a model of this name: what an earlier attempt uploaded is registered all the same
            settled = settled or (bool(following) and self.registrar.has_uploaded(run, register, trained))
            if not settled:
                raise
            champion = challenger = ""
        if measuring:
            found = self._measured(step, job)
            if settled or found.champion == champion:
                if not following:
                    raise _RunEndsError("done", f"{name} has succeeded")
                since = _end_of(job, at)
                return self._goes_on(run, step=index + 1, measured=asdict(found), job=trained.name, since=since)
        prepared = self.evaluating(run, step, champion, challenger)
        made = self.engine.submitter.submit(
            prepared, run.step_key(index, run.round), digest({"run": run.id}), terms=self._terms(run, trained)
        )
        return self._made(run, index, name, made, round=run.round + 1)

    def _trained(self, run: Run, measuring: str) -> RemoteJob:
        """Return the job whose model is measured."""
        before = [job for name, job in run.jobs.items() if name != measuring][-1]
        found = self.engine.submitter.vertex.get(before)
        if found is None:
            raise _RunEndsError("failed", f"the job {before} is gone")
        return found

    def _measured(self, step: EvaluateStep, job: RemoteJob) -> Evaluation:
        """Return what a job has measured; its own argument says of which version."""
        summary = self.folder(f"{job.output}/{MODEL_DIR}").read_json(SUMMARY) or {}
        was, now = (one if isinstance(one := summary.get(key), dict) else {} for key in ("champion", "challenger"))
        words = from_data(dict(job.data.get("jobSpec") or {}), kind="CustomJobSpec").pools[0].args
        flag = f"--{step.champion_flag}="
        champion = next((word.removeprefix(flag).rstrip("/") for word in words if word.startswith(flag)), "")
        return Evaluation(champion, was, now, job.display_name)

    def evaluating(self, run: Run, step: EvaluateStep, champion: str, challenger: str) -> Prepared:
        """Return the job that measures two models, rendered and checked; UsageError if the checks found an error."""
        loaded = promotion.with_models(self.loaded, run, step, champion, challenger)
        return _checked(self.engine.submitter.workspace.overridden(loaded).prepare(step.job))

    def prepared(self, run: Run, step: PromoteStep, sweep: RemoteJob) -> Prepared:
        """Return the promoted job, rendered and checked; UsageError if it cannot be made of this sweep, or the checks found an error."""
        loaded, name = promotion.with_job(self.loaded, run, step, sweep, self.folder)
        return _checked(self.engine.submitter.workspace.overridden(loaded).prepare(name))

    def _register(self, run: Run, index: int, step: RegisterStep, job: RemoteJob) -> Moved | Run:
        if run.approval:
            return self._approved(run)
        evaluation = Evaluation(**run.measured) if run.measured else None
        found = self.registrar.register(run, run.step_key(index), step, job, evaluation)
        if found.outcome == "again":  # another version is registered by now, and is measured next
            measured = next(at for at, one in enumerate(self._steps(run)) if isinstance(one, EvaluateStep))
            name = f"{self._steps(run)[measured].job} (evaluate)"  # type: ignore[union-attr]
            return self._goes_on(run, step=measured, job=run.jobs[name], measured={})
        if found.outcome == "":
            return self._waits(replace(run, step=index), found.text)
        if found.model and step.ml_metadata:
            found = self.registrar.record(run, found, job)
        if found.outcome == "approval":
            return self._ask(replace(run, step=index), step, job, found)
        moved = self.engine.close(replace(run, step=index), found.outcome, found.text, model=found.model)
        try:
            # once more, now that the end is kept and says which version counts
            self.registrar.clean(display_name(run, step, job))
        except VertexrigError:
            pass  # the next run that registers this model does it
        return moved

    def _ask(self, run: Run, step: RegisterStep, job: RemoteJob, found: Registered) -> Moved | Run:
        """Keep what a person has to approve, and the version that it was compared with."""
        asked = {"model": found.model, "display": display_name(run, step, job), "alias": step.alias, "text": found.text}
        asked["champion"] = found.champion
        since = times.rfc3339(self.engine.now(), 0)
        kept = self.engine.runs.save(replace(run, approval=asked, reason="approval", since=since))
        return kept or self._waits(run, "another tick is at it")

    def _approved(self, run: Run) -> Moved | Run:
        """Give the version the aliases once it is approved, and end the run once that is decided."""
        asked, text = run.approval, approval.text_of(run)
        if "decision" not in asked:
            return replace(self._waits(run, text), problem=True)
        outcome, model = "rejected", str(asked.get("model", ""))
        if asked["decision"] == "approved":
            try:
                approval.check_champion(self.registrar.models, run)
                self.registrar.give_aliases(run, model, str(asked.get("alias", "")))
                outcome = "registered"
            except approval.DecidedError as error:
                outcome, text = "refused", f"{text}, but {error}"
        return self.engine.close(run, outcome, text, model=model)

    def _goes_on(self, run: Run, **changes: Any) -> Moved | Run:
        """Write a run whose step was taken: what failed before does not count any more."""
        kept = self.engine.runs.save(replace(run, **{"reason": "", "text": "", **changes}))
        return kept or self._waits(run, "another tick is at it")

    def _stopped(self, run: Run, index: int) -> Moved | Run:
        """End a run that a caller has cancelled before a step; if the step's job is there after all, follow that."""
        key, why = run.step_key(index, run.round), f"it was cancelled before {run.steps[index]}"
        name, ended = f"{run.name} ({run.steps[index]})", {"reason": "CANCELLED", "text": why}
        claim = self.engine.submitter.end(key, digest({"run": run.id}), run.name, ended)
        if claim.job.name:
            # after a measurement the same step follows, in the next round
            measured = isinstance(self._steps(run)[index], EvaluateStep)
            return self._saved(run, index, name, claim.job.name, round=run.round + measured)
        raise _RunEndsError("failed", why)

    def _waits(self, run: Run, text: str, job: str = "") -> Moved:
        return Moved(run, "waiting", job or run.job, " ".join(text.split())[:1000])

    def _patient(self, run: Run, reported: Run, why: str, at: datetime) -> Moved | Run:
        """Leave a step to the next tick, unless it has failed for PATIENCE_S; what waits for approval is never given up.

        Args:
            run: As it is stored.
            reported: The same at the step that failed.
        """
        began = times.nanoseconds(run.since) if run.reason == FAILING else None
        if began is not None and at.timestamp() - began / 1e9 > PATIENCE_S:
            days = (at.timestamp() - began / 1e9) / 86_400
            return self.engine.close(reported, "given-up", f"after {days:.0f} days: {why}")
        if began is None and run.phase == "step" and not run.approval:
            kept = self.engine.runs.save(replace(run, reason=FAILING, since=times.rfc3339(at, 0)))
            reported = replace(reported, generation=kept.generation if kept is not None else run.generation)
        return replace(self._waits(reported, why), problem=True)


def _next_index(run: Run, steps: Sequence[NextStep]) -> int:
    """Return the step to take now that the job is done which the run waits for.

    After the run's own job it is the first one, and after a promoted job the next one. A step `evaluate` is taken again, to read what
    its job has measured, and so is `register`, until the version is there.
    """
    again = run.step >= 0 and isinstance(steps[run.step], (EvaluateStep, RegisterStep))
    return run.step if again else run.step + 1


def _checked(found: Prepared) -> Prepared:
    wrong = promotion.errors(found)
    if wrong:
        raise UsageError(f"{found.view.name} would fail: {wrong}")
    return found


def _end_of(job: RemoteJob, at: datetime) -> str:
    """Return when a job ended: from then on the next step could have been taken."""
    end = str(job.data.get("endTime") or "")
    return end if times.nanoseconds(end) is not None else times.rfc3339(at, 0)


def problem(loaded: Loaded, run: Run) -> str:
    """Return why the steps of a run are not those of the project file any more, "" if they are."""
    then = str(run.body["then"])
    if not run.steps:
        return ""
    schedule = loaded.project.schedules.get(then)
    if schedule is None or schedule.run != run.name or tuple(map(name_of, schedule.steps)) != run.steps:
        return f"the steps of {then} in the project file are others than when the run began"
    return ""
