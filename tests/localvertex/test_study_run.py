"""Studies run to their end with trials that are calls of this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localvertex.jobs.study_engine import StudyEngine
from localvertex.jobs.study_run import Handle, StudyRun, TrialOutcome
from vertexrig.errors import PackageError
from vertexrig.spec.trial import Trial

SPEC: dict[str, Any] = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
}
Report = Callable[..., None]
Trainer = Callable[[int, float, Report], int | None]
"""Gets the trial's number and value, and reports; returns the exit code, None for a trial that runs until it is stopped."""
STOPPED = -15


@dataclass
class Calls:
    """Runs every trial as a call of its trainer; notes what was started, what was stopped, and how many ran at once.

    Args:
        folder: Of the metric files.
        trainer: See `Trainer`.
        looks: How often a trial is looked at until it ends.
        stopping: Called with a trial that is stopped; the trial then ends, unless this is given.
    """

    folder: Path
    trainer: Trainer
    looks: int = 1
    stopping: Callable[[str], None] | None = None
    started: list[str] = field(default_factory=list)
    codes: dict[str, int | None] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    most: int = 0

    def start(self, trial: Trial, args: list[str]) -> Handle:
        self.started.append(trial.id)
        self.codes[trial.id] = self.trainer(int(trial.id), float(args[0].partition("=")[2]), self.reporter(trial.id))
        self.most = max(self.most, len(self.codes.keys() - self.ended))
        return self.handle(trial.id)

    restart = start

    def handle(self, trial: str) -> Handle:
        return Handle(f"projects/1/locations/r/customJobs/{trial}", self.folder / f"{trial}.metrics")

    def reporter(self, trial: str) -> Report:
        def report(value: float, step: int, tag: str = "accuracy") -> None:
            with self.handle(trial).metric_file.open("a") as out:
                out.write(json.dumps({tag: str(value), "global_step": str(step), "timestamp": time.time()}) + "\n")

        return report

    def poll(self, handle: Handle) -> TrialOutcome | None:
        trial = handle.custom_job.rpartition("/")[2]
        self.looked[trial] = self.looked.get(trial, 0) + 1
        code = self.codes[trial]
        if code is None or self.looked[trial] < self.looks:
            return None
        self.ended.add(trial)
        return TrialOutcome(code == 0, f"The replica workerpool0-0 exited with a non-zero status of {code}.")

    def known(self, trial: Trial) -> Handle | None:
        return self.handle(trial.id) if trial.id in self.codes else None

    def stop(self, handle: Handle) -> None:
        trial = handle.custom_job.rpartition("/")[2]
        if self.stopping is not None:
            self.stopping(trial)
        else:
            self.codes[trial] = STOPPED


class Begun:
    """Begins runs over one folder and its records, as the lives of one study."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.records = folder, dict[str, dict[str, Any]]()

    def __call__(self, trainer: Trainer, spec: dict[str, Any] = SPEC, looks: int = 1, **counts: Any) -> Any:
        engine = StudyEngine(spec, seed=1, trials=list(self.records.values()))
        return StudyRun(engine, Calls(self.folder, trainer, looks), self.save, **counts)

    def save(self, record: dict[str, Any]) -> None:
        self.records[record["id"]] = json.loads(json.dumps(record))


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    return Begun(tmp_path)


def reports(number: int, x: float, report: Report) -> int:
    """Report the trial's value."""
    report(x, 1)
    return 0


def waits(number: int, x: float, report: Report) -> None:
    """Report the trial's value, and run until it is stopped."""
    report(x, 1)


def fails(number: int, x: float, report: Report) -> int:
    """Fail with status 1."""
    return 1


def test_a_study_runs_its_trials_side_by_side(begun: Begun) -> None:
    """Six trials, two at a time: all succeed, with their measurements, and the store holds what the engine holds."""

    def twice(number: int, x: float, report: Report) -> int:
        report(x / 2, 1)
        report(x, 2)
        return 0

    run = begun(twice, looks=3, max_trial_count=6, parallel_trial_count=2)
    assert run.run(interval=0.0).state == "JOB_STATE_SUCCEEDED"
    trials = list(run.engine.trials.values())
    assert [trial.id for trial in trials] == ["1", "2", "3", "4", "5", "6"]
    for trial in trials:
        assert trial.state.value == "SUCCEEDED" and len(trial.measurements) == 2
        assert trial.final_measurement.metrics["accuracy"] == trial.parameters[0]["value"]
        assert trial.custom_job.endswith(f"customJobs/{trial.id}")
    assert run.executor.most == 2
    assert list(begun.records.values()) == [trial.record() for trial in trials]


def test_the_first_failing_trial_ends_the_job(begun: Begun) -> None:
    """Without maxFailedTrialCount a job whose first trial fails is failed, says why, and stops the other trial."""
    run = begun(lambda number, x, report: 3 if number == 1 else None, max_trial_count=9, parallel_trial_count=2)
    result = run.run(interval=0.0)
    assert result.state == "JOB_STATE_FAILED"
    assert "non-zero status of 3" in result.message and "Trial 1" in result.message
    assert [trial.state.value for trial in run.engine.trials.values()] == ["INFEASIBLE", "INFEASIBLE"]
    assert run.executor.codes == {"1": 3, "2": STOPPED}


def test_later_failures_are_borne(begun: Begun) -> None:
    """After a success one failure in three does not end the job; failed trials are infeasible with the job's error."""
    run = begun(lambda number, x, report: int(number in (2, 5)) or reports(number, x, report), max_trial_count=6)
    assert run.run(interval=0.0).state == "JOB_STATE_SUCCEEDED"
    assert [trial.state.value for trial in run.engine.trials.values()].count("INFEASIBLE") == 2
    assert "non-zero status of 1" in run.engine.trials["5"].infeasible_reason


def test_failures_of_most_trials_end_the_job_even_after_a_success(begun: Begun) -> None:
    """From the third failure on, more than half of those ended are too many."""
    run = begun(lambda number, x, report: int(number > 1) or reports(number, x, report), max_trial_count=9)
    assert run.run(interval=0.0).state == "JOB_STATE_FAILED"
    assert len(run.engine.trials) == 4


@pytest.mark.parametrize(("limit", "state", "made"), [(2, "JOB_STATE_FAILED", 2), (5, "JOB_STATE_SUCCEEDED", 4)])
def test_max_failed_trial_count(begun: Begun, limit: int, state: str, made: int) -> None:
    """The job fails at the given number of failed trials, also when the last trial is the one; below it goes on."""
    run = begun(fails, max_trial_count=4, max_failed_trial_count=limit)
    assert run.run(interval=0.0).state == state
    assert len(run.engine.trials) == made


def test_a_trial_that_cannot_start_is_a_failed_one(begun: Begun) -> None:
    """An executor's error becomes the trial's reason, and the job ends instead of trying for ever."""

    def refuse(number: int, x: float, report: Report) -> int:
        raise PackageError("the package does not build")

    run = begun(refuse, max_trial_count=3)
    assert run.run(interval=0.0).state == "JOB_STATE_FAILED"
    assert run.engine.trials["1"].infeasible_reason == "the package does not build"


def test_a_trial_without_its_metric_is_explained_and_not_a_failure(begun: Begun) -> None:
    """Exit 0 under another tag: infeasible, the reason names the tag seen, and the job succeeds."""
    run = begun(lambda number, x, report: report(x, 1, "val_accuracy") or 0, max_trial_count=2)
    assert run.run(interval=0.0).state == "JOB_STATE_SUCCEEDED"
    assert "'val_accuracy'" in run.engine.trials["1"].infeasible_reason


def diverges(number: int, x: float, report: Report) -> int:
    """Report 0.9, and nan after it where the value is above a half."""
    report(0.9, 1)
    report(float("nan") if x > 0.5 else 0.5, 2)
    return 0


def test_a_trial_that_diverged_does_not_rank_by_its_past(begun: Begun) -> None:
    """A last report of nan makes a trial infeasible, and others keep their last value."""
    run = begun(diverges, max_trial_count=8)
    assert run.run(interval=0.0).state == "JOB_STATE_SUCCEEDED"
    reasons = {trial.infeasible_reason for trial in run.engine.trials.values()}
    assert reasons == {"", "Invalid objective value: nan"}


def test_a_study_whose_trials_all_diverged_fails(begun: Begun) -> None:
    """All trials run, each is infeasible with its value, and the job fails with the last one's."""
    run = begun(lambda number, x, report: report(float("inf"), 1) or 0, max_trial_count=3)
    result = run.run(interval=0.0)
    assert result.state == "JOB_STATE_FAILED" and len(run.engine.trials) == 3
    assert result.message == "All 3 trials are infeasible. The last: Invalid objective value: inf"


def test_a_diverged_trial_counts_by_its_best_measurement_if_asked(begun: Begun) -> None:
    """BEST_MEASUREMENT looks at the values before."""
    run = begun(diverges, {**SPEC, "measurementSelectionType": "BEST_MEASUREMENT"}, max_trial_count=8)
    assert run.run(interval=0.0).state == "JOB_STATE_SUCCEEDED"
    assert {trial.final_measurement.metrics["accuracy"] for trial in run.engine.trials.values()} == {0.9}


def test_a_hopeless_trial_is_stopped_early_and_keeps_its_measurement(begun: Begun) -> None:
    """The median rule ends the fifth trial while it runs; it is SUCCEEDED with what it had, and not a failure."""

    def trainer(number: int, x: float, report: Report) -> int | None:
        for step in range(1, 4):
            report(0.1 if number == 5 else 0.8, step)
        return None if number == 5 else 0

    run = begun(trainer, {**SPEC, "medianAutomatedStoppingSpec": {}}, max_trial_count=5)
    assert run.run(interval=0.0).state == "JOB_STATE_SUCCEEDED"
    stopped = run.engine.trials["5"]
    assert stopped.state.value == "SUCCEEDED" and stopped.final_measurement.metrics == {"accuracy": 0.1}
    assert run.executor.codes["5"] == STOPPED


@pytest.mark.parametrize("asap", [True, False])
def test_should_stop_asap_interrupts_running_trials(begun: Begun, asap: bool) -> None:
    """When the study is done a running trial is stopped, with what it reported; without the flag it may end."""
    spec = {**SPEC, "studyStoppingConfig": {"maxNumTrialsNoProgress": 1, "shouldStopAsap": asap}}

    def trainer(number: int, x: float, report: Report) -> int | None:
        report(0.9 if number == 1 else 0.5, 1)
        return None if number == 2 else 0

    run = begun(trainer, spec, max_trial_count=9, parallel_trial_count=2)
    for _ in range(9):
        run.step()
    if not asap:
        run.executor.reporter("2")(0.6, 2)
        run.executor.codes["2"] = 0
    result = run.run(interval=0.0)
    assert result.state == "JOB_STATE_SUCCEEDED" and "maxNumTrialsNoProgress" in result.message
    assert run.executor.codes == {"1": 0, "2": STOPPED if asap else 0, "3": 0}
    second = run.engine.trials["2"]
    assert (second.state.value, second.final_measurement.metrics["accuracy"]) == ("SUCCEEDED", 0.5 if asap else 0.6)


def test_the_last_of_max_num_trials_is_not_interrupted(begun: Begun) -> None:
    """ShouldStopAsap counts trials that have ended, not those being run."""
    spec = {**SPEC, "studyStoppingConfig": {"maxNumTrials": 2, "shouldStopAsap": True}}
    run = begun(reports, spec, looks=3, max_trial_count=9, parallel_trial_count=3)
    assert "maxNumTrials" in run.run(interval=0.0).message
    assert run.executor.codes == {"1": 0, "2": 0}


def test_cancel_stops_everything(begun: Begun) -> None:
    """Running trials are terminated and infeasible, whatever they had reported; none is started any more."""
    run = begun(waits, max_trial_count=9, parallel_trial_count=3)
    run.step()
    run.cancel()
    assert run.run(interval=0.0).state == "JOB_STATE_CANCELLED"
    assert {trial.state.value for trial in run.engine.trials.values()} == {"INFEASIBLE"}
    assert run.executor.codes == dict.fromkeys("123", STOPPED)


def test_notify_brings_the_next_look_at_once(begun: Begun) -> None:
    """With an interval of an hour a study of four trials ends, given words from another thread."""
    run = begun(reports, max_trial_count=4)

    def word() -> None:
        while run.result is None:
            run.notify()
            time.sleep(0.01)

    watcher = threading.Thread(target=word, daemon=True)
    watcher.start()
    assert run.run(interval=3600).state == "JOB_STATE_SUCCEEDED"
    watcher.join(10)


def test_a_failing_study_that_is_taken_up_starts_no_job(begun: Begun) -> None:
    """A trial that has no job yet as its study fails ends without one, and the study keeps the reason it had."""
    first = begun(waits, max_trial_count=2, parallel_trial_count=2)
    first.step()
    failing: list[str] = []
    again = begun(fails, failing="why it fails", on_failing=failing.append, max_trial_count=2, parallel_trial_count=2)
    again.executor.codes["1"] = STOPPED  # its job ended with the process before; trial 2 had none yet
    again.executor.start = lambda trial, args: again.executor.handle(trial.id)  # as the jobs' own executor takes one up
    result = again.run(interval=0.0)
    assert (result.state, result.message, failing) == ("JOB_STATE_FAILED", "why it fails", [])
    assert again.engine.trials["2"].state.value == "INFEASIBLE" and again.executor.codes == {"1": STOPPED}


@pytest.mark.parametrize("kept", [True, False], ids=["failing", "stopped early"])
def test_a_crash_while_trials_are_stopped(begun: Begun, kept: bool) -> None:
    """A study that was failing is failed in its next life, and makes no trial; one stopped early keeps its last report."""

    def trainer(number: int, x: float, report: Report) -> int | None:
        for step in (1, 2):
            report(0.1 if number == 5 else 0.8, step)
        if number == 1 and kept:
            return 3
        return None if kept or number == 5 else 0

    failing: list[str] = []
    spec = {**SPEC, **({} if kept else {"medianAutomatedStoppingSpec": {}})}
    counts = {"max_trial_count": 9 if kept else 5, "parallel_trial_count": 4 if kept else 1}
    run = begun(trainer, spec, on_failing=failing.append, **counts)
    run.executor.stopping = lambda trial: run.executor.reporter(trial)(0.7, 3)  # and runs on until the crash
    while not any(own.state.value == "STOPPING" for own in run.engine.trials.values()):
        run.step()
    assert bool(failing) is kept

    again = begun(trainer, spec, failing="".join(failing), **counts)
    again.executor.codes = dict.fromkeys(run.executor.codes, -9)
    result = again.run(interval=0.0)
    trials = again.engine.trials
    assert result.state == ("JOB_STATE_FAILED" if kept else "JOB_STATE_SUCCEEDED") and not again.executor.started
    if kept:
        assert "1 of 1 ended trials failed" in result.message and len(trials) == 4
    else:
        assert trials["5"].final_measurement.metrics == {"accuracy": 0.7}
