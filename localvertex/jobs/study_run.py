"""Runs a study: keeps trials going side by side, reads their metrics, stops and ends them.

How a trial is executed is the caller's (`Executor`), and so is where its record is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from localvertex.jobs.metrics import DIVERGED, MetricFile
from localvertex.jobs.study_engine import StudyEngine, StudyExhausted
from vertexrig.errors import VertexrigError
from vertexrig.spec import states
from vertexrig.spec.trial import Trial, TrialState
from vertexrig.times import seconds_since_1970

CANCELLED = "The tuning job was cancelled."
WHOLE_NUMBERS = (
    "The trainer ended at its start with discrete values such as 128.0, and was run with 128 instead. Vertex AI may send the "
    "first form, and every trial then fails: read such flags with int(float(text))."
)


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial's job ended.

    Args:
        ok: It succeeded.
        message: Its error, in the service's words, if it did not.
        early: Its trainer ended by itself, with an exit code other than 0, soon after its start.
    """

    ok: bool
    message: str = ""
    early: bool = False


@dataclass(frozen=True)
class Handle:
    """A started trial.

    Args:
        custom_job: Resource name of its CustomJob.
        metric_file: What the trial's CLOUD_ML_HP_METRIC_FILE names on this machine.
    """

    custom_job: str
    metric_file: Path


class Executor(Protocol):
    """Runs trials. All calls come from the thread that calls `StudyRun.step`; none may wait for a trial to end."""

    def start(self, trial: Trial, args: list[str]) -> Handle:
        """Start the trial's job, with `args` after the job's own arguments.

        Called again, after a crash of this process, for a trial that was ACTIVE: take up its job if it is still
        known (by `trial.custom_job` or the trial's id), otherwise start it again with the same arguments.

        Raises:
            VertexrigError: It cannot be started; the trial is INFEASIBLE with this message and counts as failed.
        """

    def known(self, trial: Trial) -> Handle | None:
        """Return the job that was started for a trial by a process before this one, None if there is none."""

    def restart(self, trial: Trial, args: list[str]) -> Handle:
        """Start the trial's job again with other arguments; the one before has ended.

        Raises:
            VertexrigError: As for `start`.
        """

    def poll(self, handle: Handle) -> TrialOutcome | None:
        """Return how the job ended, None while it has not. Output and metric file are complete once it has."""

    def stop(self, handle: Handle) -> None:
        """Begin to stop the job (terminate, then kill); `poll` tells when it is over. May be called twice."""


@dataclass(frozen=True)
class StudyResult:
    """How the tuning job ended.

    Args:
        state: JOB_STATE_SUCCEEDED, JOB_STATE_FAILED or JOB_STATE_CANCELLED.
        message: Why it ended, in one sentence.
    """

    state: str
    message: str


@dataclass(eq=False)
class StudyRun:
    """One run of a tuning job.

    Args:
        engine: Built from the records that were saved before.
        executor: Runs trials.
        save: Keeps a trial's record (`Trial.record`) in place of the one of the same id, durable on return. Called before a
            trial starts, and at every change.
        max_trial_count: Trials in all.
        parallel_trial_count: Trials at a time; 0 is 1.
        max_failed_trial_count: Failed trials that fail the job. 0: the first trial to end fails the job if it failed,
            and afterwards more than half of those ended, from the third failure on (the service decides "by an
            internal ratio"; this one is ours). A trial whose job ended well without a metric is not a failed one.
        failing: Why the study is to end as failed, as `on_failing` was told before a crash; "" if it is not.
        on_failing: Keeps why the study fails, durable on return; it is called before the trials that still run are stopped.
        discrete: How DISCRETE values that are whole numbers reach the trainer: `decimal` ("128.0"), `whole` ("128"), or `retry`:
            as "128.0", and where the trainer then ends at its start, once more as "128".

    Attributes:
        whole: DISCRETE values are written as whole numbers; with `retry`, once a trainer has run with these alone.
    """

    engine: StudyEngine
    executor: Executor
    save: Callable[[dict[str, Any]], None]
    max_trial_count: int
    parallel_trial_count: int = 1
    max_failed_trial_count: int = 0
    failing: str = ""
    on_failing: Callable[[str], None] = lambda message: None
    discrete: str = "retry"

    def __post_init__(self) -> None:
        self.whole = self.discrete == "whole"
        # Trials whose last start was with whole numbers, and those of them for which it was the second one; there is no third.
        self._begun_whole: set[str] = set()
        self._tried_whole: set[str] = set()
        self.result: StudyResult | None = None
        # The highest and not their number, in case a trial is missing; the service numbers trials from 1.
        self._last = max(map(int, self.engine.trials), default=0)
        # Counted and not looked for at the end of every trial, of which a study may have thousands.
        self._ended = sum(trial.state.ended for trial in self.engine.trials.values())
        self._failed = sum(trial.state.ended and trial.failed for trial in self.engine.trials.values())
        self._running: dict[str, tuple[Handle, MetricFile]] = {}
        self._ending = StudyResult(states.FAILED, self.failing) if self.failing else None
        # Set by other threads; the thread of `step` alone changes trials, so these need no lock.
        self._cancel = threading.Event()
        self._wake = threading.Event()
        # In the first step and not here: taking trials up starts jobs, which is for the thread that runs the study.
        self._resumed = False

    def run(self, *, interval: float = 0.02, closing: Callable[[], bool] = lambda: False) -> StudyResult | None:
        """Run to the end, or until the server closes.

        Args:
            interval: Seconds between two looks; `notify` makes the next one come at once.
            closing: Whether to stop early; another run goes on from the store.

        Returns:
            How the job ended; None if it was stopped early.
        """
        while not self.step():
            self._wake.wait(interval)
            self._wake.clear()
            if closing():
                return None
        return self.result

    def notify(self) -> None:
        """Have the next look come at once, because a trial has changed; may be called from any thread."""
        self._wake.set()

    def cancel(self) -> None:
        """Cancel the job: running trials are stopped, no more are made; may be called from any thread."""
        self._cancel.set()
        self._wake.set()

    def step(self) -> bool:
        """Look at every running trial and start those that are due, without waiting; True once the job is over."""
        if self.result is not None:
            return True
        if not self._resumed:
            self._resume()
        # A copy: `_look` takes a trial out that has ended.
        for trial_id in list(self._running):
            self._look(trial_id)
        # Not of a study that fails already: its reason would be lost. One that is only waiting for its last trials
        # can be cancelled.
        if self._cancel.is_set() and (self._ending is None or self._ending.state != states.FAILED):
            self._end(StudyResult(states.CANCELLED, CANCELLED), stop=True)
        # Also after the last trial was made: shouldStopAsap then stops those that still run.
        if self._running and (self._ending is None or self._ending.state == states.SUCCEEDED):
            reason = self.engine.interrupted()
            if reason:
                self._end(StudyResult(states.SUCCEEDED, reason), stop=True)
        # the places of trials that have just ended are filled in the same step, so that none stays empty
        while self._ending is None and len(self._running) < max(1, self.parallel_trial_count):
            self._start_next()
        if self._ending is not None and not self._running:
            self.result = self._judged(self._ending)
        return self.result is not None

    def _judged(self, ending: StudyResult) -> StudyResult:
        """Return an ending; a failure where all trials reported nan or infinite values (index id 53917530959, 2026-03-25)."""
        reasons = [trial.infeasible_reason for trial in self.engine.trials.values() if trial.state.ended]
        diverged = bool(reasons) and all(reason.startswith(DIVERGED) for reason in reasons)
        if ending.state != states.SUCCEEDED or not diverged:
            return ending
        return StudyResult(states.FAILED, f"All {len(reasons)} trials are infeasible. The last: {reasons[-1]}")

    def _resume(self) -> None:
        """Take up trials that were running when the process before this one died."""
        self._resumed = True
        for trial in list(self.engine.trials.values()):
            if trial.state is TrialState.STOPPING:  # its job was asked to end before the crash, and has ended with it
                handle = self.executor.known(trial)
                file = self._metric_file(trial, handle) if handle is not None else None
                trial.add(file.read() if file is not None else ())
                self._finish(trial, TrialOutcome(True), file)
            elif trial.state is TrialState.ACTIVE and self._ending is not None and self.executor.known(trial) is None:
                # The study fails: a job would be made only to be cancelled.
                trial.move(TrialState.STOPPING, at=self.engine.clock())
                self._finish(trial, TrialOutcome(True))
            elif trial.state is TrialState.ACTIVE:
                self._start(trial)
        if self._ending is None:
            self._check_failures()
        else:
            self._end(self._ending, stop=True)

    def _start_next(self) -> None:
        trials = self.engine.trials
        if len(trials) >= self.max_trial_count:
            self._end(StudyResult(states.SUCCEEDED, f"All {len(trials)} trials are made."))
            return
        reason = self.engine.done()
        if reason is None:
            trial_id = str(self._last + 1)
            try:
                self.engine.suggest(trial_id)
            except StudyExhausted as error:
                reason = str(error)
            else:
                self._last += 1
                trial = trials[trial_id]
                self.save(trial.record())
                self._start(trial)
                return
        self._end(StudyResult(states.SUCCEEDED, reason))

    @property
    def note(self) -> str:
        """What its user should know at the end, "" if nothing."""
        return WHOLE_NUMBERS if self.whole and self.discrete == "retry" else ""

    def _start(self, trial: Trial, *, again: bool = False) -> None:
        whole = self.whole or again
        args = self.engine.space.command_line(trial.parameters, whole=whole)
        if whole:
            self._begun_whole.add(trial.id)
        try:
            handle = self.executor.restart(trial, args) if again else self.executor.start(trial, args)
        except VertexrigError as error:
            # It counts as a failed trial: else a study whose job cannot start would try all its trials in vain.
            self._finish(trial, TrialOutcome(False, str(error)))
            self._check_failures()
            return
        trial.custom_job = handle.custom_job
        self._running[trial.id] = (handle, self._metric_file(trial, handle))
        self.save(trial.record())

    def _metric_file(self, trial: Trial, handle: Handle) -> MetricFile:
        # After a crash the metric file still has the reports that are in the record.
        known = max((own.elapsed for own in trial.measurements), default=-1.0)
        metric_ids = [metric.id for metric in self.engine.objective.metrics]
        started = seconds_since_1970(trial.start_time)
        return MetricFile(handle.metric_file, metric_ids, started=started, after=known, clock=self.engine.clock)

    def _look(self, trial_id: str) -> None:
        handle, file = self._running[trial_id]
        trial = self.engine.trials[trial_id]
        outcome = self.executor.poll(handle)  # before the file: what it holds after the end is complete
        changed = trial.add(file.read())
        if trial_id in self._tried_whole and (trial.measurements or (outcome is not None and outcome.ok)):
            # It ran with whole numbers where it had failed at its start, so all later trials start with them.
            self.whole = True
        if outcome is not None:
            del self._running[trial_id]
            if outcome.early and self._may_be_discrete(trial):
                self._tried_whole.add(trial_id)
                self._start(trial, again=True)
                return
            self._finish(trial, outcome, file)
            self._check_failures()
        elif changed:
            # Asked when a measurement has arrived, because the rules compare trials at its step.
            if trial.state is TrialState.ACTIVE and self.engine.should_stop(trial_id):
                self._stop(trial_id)
            self.save(trial.record())

    def _may_be_discrete(self, trial: Trial) -> bool:
        """Whether a trial that ended at its start, before any metric, may have done so because of the form of its values."""
        # One that the end of the study stops is STOPPING; where all trials are made, the last ones still have their second try.
        if self.discrete != "retry" or trial.measurements or trial.state is not TrialState.ACTIVE:
            return False
        # A second start makes sense only where the command lines differ. What counts is how this trial was started: by now
        # another one may have shown that whole numbers work.
        lines = (self.engine.space.command_line(trial.parameters, whole=whole) for whole in (False, True))
        return trial.id not in self._begun_whole and len({tuple(line) for line in lines}) > 1

    def _finish(self, trial: Trial, outcome: TrialOutcome, file: MetricFile | None = None) -> None:
        stopped = trial.state is TrialState.STOPPING
        infeasible = ""
        if stopped and self._cancel.is_set():
            infeasible = CANCELLED
        # A trial that was stopped ends with an exit code other than 0, which does not count as a failure.
        elif not outcome.ok and not stopped:
            infeasible, trial.failed = outcome.message or "The trial's job failed.", True
        elif self.engine.objective.final(trial.measurements) is None:
            infeasible = self._unmeasured(stopped, file)
        elif file is not None and file.diverged and not self.engine.objective.best_of:
            infeasible = file.explain()  # it must not rank by the values from before it diverged
        self.engine.complete(trial.id, infeasible=infeasible)
        self._ended, self._failed = self._ended + 1, self._failed + trial.failed
        self.save(trial.record())

    def _unmeasured(self, stopped: bool, file: MetricFile | None) -> str:
        """Return why a trial has no measurement, in words for its user."""
        if stopped and self._ending is not None:
            end = "failed" if self._ending.state == states.FAILED else "was over"
            return f"The trial was stopped before its first measurement, because the study {end}."
        if stopped:
            return "The trial was stopped before its first measurement."
        return file.explain() if file else ""

    def _stop(self, trial_id: str) -> None:
        trial = self.engine.trials[trial_id]
        if trial.state is TrialState.ACTIVE:
            trial.move(TrialState.STOPPING, at=self.engine.clock())
            self.executor.stop(self._running[trial_id][0])

    def _end(self, result: StudyResult, *, stop: bool = False) -> None:
        self._ending = result
        if stop:
            for trial_id in self._running:
                if self.engine.trials[trial_id].state is TrialState.ACTIVE:
                    self._stop(trial_id)
                    self.save(self.engine.trials[trial_id].record())

    def _check_failures(self) -> None:
        ended, failed = self._ended, self._failed
        # Trials that a cancellation stops must not turn the study into a failed one; one that fails has its reason.
        if not failed or self._cancel.is_set() or (self._ending is not None and self._ending.state == states.FAILED):
            return
        if self.max_failed_trial_count:
            broken = failed >= self.max_failed_trial_count
            rule = f"maxFailedTrialCount is {self.max_failed_trial_count}"
        else:
            # One failure among few is borne: a bad combination of values may be all that is wrong.
            broken = failed == ended or (failed >= 3 and failed > ended / 2)
            rule = "maxFailedTrialCount is not set"
        if broken:
            own = [trial for trial in self.engine.trials.values() if trial.state.ended and trial.failed]
            last = max(own, key=lambda trial: trial.end_time)
            message = f"{failed} of {ended} ended trials failed ({rule}). Trial {last.id}: {last.infeasible_reason}"
            self.on_failing(message)
            self._end(StudyResult(states.FAILED, message), stop=True)
