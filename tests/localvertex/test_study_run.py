"""Studies run to their end with real processes as trials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localvertex.jobs.study_engine import StudyEngine
from localvertex.jobs.study_run import StudyRun, TrialOutcome
from vertexrig.errors import PackageError
from vertexrig.spec.trial import Trial

SPEC: dict[str, Any] = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
}
REPORT = """
import json, os, sys, time
x = float(sys.argv[1].partition("=")[2])
number = int(os.environ["CLOUD_ML_TRIAL_ID"])
def report(value, step, tag="accuracy"):
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a") as out:
        out.write(json.dumps({tag: str(value), "global_step": str(step), "timestamp": time.time()}) + "\\n")
"""


@dataclass
class Handle:
    process: subprocess.Popen[bytes]
    metric_file: Path
    custom_job: str


@dataclass
class Processes:
    """Runs every trial as one Python process; notes what was started and how many ran at once."""

    folder: Path
    script: str
    started: list[str] = field(default_factory=list)
    most: int = 0
    handles: dict[str, Handle] = field(default_factory=dict)

    def start(self, trial: Trial, args: list[str]) -> Handle:
        metric_file = self.folder / f"{trial.id}.metrics"
        env = {**os.environ, "CLOUD_ML_TRIAL_ID": trial.id, "CLOUD_ML_HP_METRIC_FILE": str(metric_file)}
        code = REPORT + textwrap.dedent(self.script)
        process = subprocess.Popen([sys.executable, "-S", "-c", code, *args], env=env, stderr=subprocess.DEVNULL)
        self.started.append(trial.id)
        self.handles[trial.id] = Handle(process, metric_file, f"projects/1/locations/r/customJobs/{trial.id}")
        self.most = max(self.most, sum(own.process.poll() is None for own in self.handles.values()))
        return self.handles[trial.id]

    def poll(self, handle: Handle) -> TrialOutcome | None:
        code = handle.process.poll()
        if code is None:
            return None
        return TrialOutcome(code == 0, f"The replica workerpool0-0 exited with a non-zero status of {code}.")

    def known(self, trial: Trial) -> Handle | None:
        return self.handles.get(trial.id)

    def stop(self, handle: Handle) -> None:
        handle.process.terminate()


class Records:
    """Keeps each trial as a JSON file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "trials"
        self.folder.mkdir(exist_ok=True)

    def load(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("*.json"), key=lambda file: int(file.stem))
        return [json.loads(file.read_text()) for file in files]

    def save(self, record: dict[str, Any]) -> None:
        new = self.folder / f"{record['id']}.new"
        new.write_text(json.dumps(record))
        new.replace(self.folder / f"{record['id']}.json")


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Any]:
    """Builds a run over one folder: begun(script, spec, **counts); leaves no process behind."""
    executors: list[Processes] = []

    def begin(script: str, spec: dict[str, Any] = SPEC, **counts: Any) -> StudyRun:
        executors.append(Processes(tmp_path, script))
        store = Records(tmp_path)
        engine = StudyEngine(spec, seed=1, trials=store.load())
        return StudyRun(engine, executors[-1], store.save, **counts)

    yield begin
    for executor in executors:
        for handle in executor.handles.values():
            handle.process.kill()
            handle.process.wait()


def test_a_study_runs_its_trials_side_by_side(begun: Any, tmp_path: Path) -> None:
    """Six trials, two at a time: all succeed, with their measurements, and the store holds what the engine holds."""
    run = begun("report(x / 2, 1); report(x, 2)", max_trial_count=6, parallel_trial_count=2)
    assert run.run(interval=0.01).state == "JOB_STATE_SUCCEEDED"
    trials = list(run.engine.trials.values())
    assert [trial.id for trial in trials] == ["1", "2", "3", "4", "5", "6"]
    for trial in trials:
        assert trial.state.value == "SUCCEEDED" and len(trial.measurements) == 2
        assert trial.final_measurement.metrics["accuracy"] == trial.parameters[0]["value"]
        assert trial.custom_job.endswith(f"customJobs/{trial.id}")
    assert run.executor.most == 2
    assert Records(tmp_path).load() == [trial.record() for trial in trials]


def test_the_first_failing_trial_ends_the_job(begun: Any) -> None:
    """Without maxFailedTrialCount a job whose first trial fails is failed, says why, and stops the other trial."""
    run = begun("sys.exit(3) if number == 1 else time.sleep(60)", max_trial_count=9, parallel_trial_count=2)
    result = run.run(interval=0.01)
    assert result.state == "JOB_STATE_FAILED"
    assert "non-zero status of 3" in result.message and "Trial 1" in result.message
    assert [trial.state.value for trial in run.engine.trials.values()] == ["INFEASIBLE", "INFEASIBLE"]
    assert len(run.executor.started) == 2


def test_later_failures_are_borne(begun: Any) -> None:
    """After a success one failure in three does not end the job; failed trials are infeasible with the job's error."""
    run = begun("sys.exit(1) if number in (2, 5) else report(x, 1)", max_trial_count=6)
    assert run.run(interval=0.01).state == "JOB_STATE_SUCCEEDED"
    assert [trial.state.value for trial in run.engine.trials.values()].count("INFEASIBLE") == 2
    assert "non-zero status of 1" in run.engine.trials["5"].infeasible_reason


def test_failures_of_most_trials_end_the_job_even_after_a_success(begun: Any) -> None:
    """From the third failure on, more than half of those ended are too many."""
    run = begun("report(x, 1) if number == 1 else sys.exit(1)", max_trial_count=9)
    assert run.run(interval=0.01).state == "JOB_STATE_FAILED"
    assert len(run.engine.trials) == 4


@pytest.mark.parametrize(("limit", "state", "made"), [(2, "JOB_STATE_FAILED", 2), (5, "JOB_STATE_SUCCEEDED", 4)])
def test_max_failed_trial_count(begun: Any, limit: int, state: str, made: int) -> None:
    """The job fails at the given number of failed trials, also when the last trial is the one; below it goes on."""
    run = begun("sys.exit(1)", max_trial_count=4, max_failed_trial_count=limit)
    assert run.run(interval=0.01).state == state
    assert len(run.engine.trials) == made


def test_a_trial_that_cannot_start_is_a_failed_one(begun: Any) -> None:
    """An executor's error becomes the trial's reason, and the job ends instead of trying for ever."""
    run = begun("", max_trial_count=3)

    def refuse(trial: Trial, args: list[str]) -> Handle:
        raise PackageError("the package does not build")

    run.executor.start = refuse
    assert run.run(interval=0.01).state == "JOB_STATE_FAILED"
    assert run.engine.trials["1"].infeasible_reason == "the package does not build"


def test_a_trial_without_its_metric_is_explained_and_not_a_failure(begun: Any) -> None:
    """Exit 0 under another tag: infeasible, the reason names the tag seen, and the job succeeds."""
    run = begun("report(x, 1, 'val_accuracy')", max_trial_count=2)
    assert run.run(interval=0.01).state == "JOB_STATE_SUCCEEDED"
    assert "'val_accuracy'" in run.engine.trials["1"].infeasible_reason


def test_a_trial_that_diverged_does_not_rank_by_its_past(begun: Any) -> None:
    """A last report of nan makes it infeasible; with BEST_MEASUREMENT the best value counts."""
    script = "report(0.9, 1); report(float('nan') if x > 0.5 else 0.5, 2)"
    run = begun(script, max_trial_count=8)
    assert run.run(interval=0.01).state == "JOB_STATE_SUCCEEDED"
    reasons = [trial.infeasible_reason for trial in run.engine.trials.values()]
    assert set(reasons) == {"", "Invalid objective value: nan"}


def test_a_study_whose_trials_all_diverged_fails(begun: Any) -> None:
    """All trials run, each is infeasible with its value, and the job fails with the last one's."""
    run = begun("report(float('inf'), 1)", max_trial_count=3)
    result = run.run(interval=0.01)
    assert result.state == "JOB_STATE_FAILED" and len(run.engine.trials) == 3
    assert result.message == "All 3 trials are infeasible. The last: Invalid objective value: inf"


def test_a_diverged_trial_counts_by_its_best_measurement_if_asked(begun: Any) -> None:
    """BEST_MEASUREMENT looks at the values before."""
    spec = {**SPEC, "measurementSelectionType": "BEST_MEASUREMENT"}
    trial = run_one(begun("report(0.9, 1); report(float('nan'), 2)", spec, max_trial_count=1))
    assert trial.final_measurement is not None and trial.final_measurement.metrics == {"accuracy": 0.9}


def run_one(run: StudyRun) -> Trial:
    assert run.run(interval=0.01).state == "JOB_STATE_SUCCEEDED"
    return run.engine.trials["1"]


def test_a_hopeless_trial_is_stopped_early_and_keeps_its_measurement(begun: Any) -> None:
    """The median rule ends the fifth trial while it runs; it is SUCCEEDED with what it had, and not a failure."""
    script = """
    for step in range(1, 4):
        report(0.1 if number == 5 else 0.8, step)
    if number == 5:
        time.sleep(60)
    """
    run = begun(script, {**SPEC, "medianAutomatedStoppingSpec": {}}, max_trial_count=5)
    assert run.run(interval=0.01).state == "JOB_STATE_SUCCEEDED"
    stopped = run.engine.trials["5"]
    assert stopped.state.value == "SUCCEEDED" and stopped.final_measurement.metrics == {"accuracy": 0.1}
    assert run.executor.handles["5"].process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("asap", [True, False])
def test_should_stop_asap_interrupts_running_trials(begun: Any, asap: bool) -> None:
    """When the study is done a running trial is stopped, with what it reported; without the flag it may end."""
    spec = {**SPEC, "studyStoppingConfig": {"maxNumTrialsNoProgress": 1, "shouldStopAsap": asap}}
    script = """
    other = os.environ["CLOUD_ML_HP_METRIC_FILE"].replace(f"{number}.metrics", "2.metrics")
    while number != 2 and not os.path.exists(other):
        time.sleep(0.01)
    report(0.9 if number == 1 else 0.5, 1)
    if number == 2:
        until = time.time() + (60 if sys.argv[2:] else 1)
        while time.time() < until:
            time.sleep(0.05)
        report(0.6, 2)
    else:
        time.sleep(0.2)
    """
    run = begun(script.replace("sys.argv[2:]", str(asap)), spec, max_trial_count=9, parallel_trial_count=2)
    result = run.run(interval=0.01)
    assert result.state == "JOB_STATE_SUCCEEDED" and "maxNumTrialsNoProgress" in result.message
    assert len(run.executor.started) == 3
    second = run.engine.trials["2"]
    assert (second.state.value, second.final_measurement.metrics["accuracy"]) == ("SUCCEEDED", 0.5 if asap else 0.6)


def test_the_last_of_max_num_trials_is_not_interrupted(begun: Any) -> None:
    """ShouldStopAsap counts trials that have ended, not those being run."""
    spec = {**SPEC, "studyStoppingConfig": {"maxNumTrials": 2, "shouldStopAsap": True}}
    run = begun("time.sleep(0.2); report(x, 1)", spec, max_trial_count=9, parallel_trial_count=3)
    assert "maxNumTrials" in run.run(interval=0.01).message
    assert [trial.state.value for trial in run.engine.trials.values()] == ["SUCCEEDED", "SUCCEEDED"]


def test_cancel_stops_everything(begun: Any, tmp_path: Path) -> None:
    """Running trials are terminated and infeasible, whatever they had reported; none is started any more."""
    run = begun("report(x, 1); time.sleep(60)", max_trial_count=9, parallel_trial_count=3)

    def cancel() -> None:
        while not all((tmp_path / f"{i}.metrics").exists() for i in (1, 2, 3)):
            time.sleep(0.01)
        run.cancel()

    threading.Thread(target=cancel, daemon=True).start()
    assert run.run(interval=0.01).state == "JOB_STATE_CANCELLED"
    assert {trial.state.value for trial in run.engine.trials.values()} == {"INFEASIBLE"}
    assert len(run.executor.started) == 3
    assert all(handle.process.poll() is not None for handle in run.executor.handles.values())


def test_notify_brings_the_next_look_at_once(begun: Any) -> None:
    """With an interval of an hour a study of four trials ends, given a word when each has ended."""
    run = begun("report(x, 1)", max_trial_count=4)

    def word() -> None:
        while run.result is None:
            if all(handle.process.poll() is not None for handle in list(run.executor.handles.values())):
                run.notify()
            time.sleep(0.01)

    watcher = threading.Thread(target=word, daemon=True)
    watcher.start()
    assert run.run(interval=3600).state == "JOB_STATE_SUCCEEDED"
    watcher.join(10)


def test_a_failing_study_that_is_taken_up_starts_no_job(begun: Any) -> None:
    """A trial that has no job yet as its study fails ends without one, and the study keeps the reason it had."""
    first = begun("time.sleep(60)", max_trial_count=2, parallel_trial_count=2)
    first.step()
    first.executor.handles.pop("2").process.kill()
    failing: list[str] = []
    again = begun("", failing="why it fails", on_failing=failing.append, max_trial_count=2, parallel_trial_count=2)
    again.executor.handles = first.executor.handles
    first.executor.handles["1"].process.kill()
    again.executor.start = lambda trial, args: first.executor.handles[
        trial.id
    ]  # as the jobs' own executor takes one up
    result = again.run(interval=0.01)
    assert (result.state, result.message, failing) == ("JOB_STATE_FAILED", "why it fails", [])
    assert again.engine.trials["2"].state.value == "INFEASIBLE"


@pytest.mark.parametrize("kept", [True, False], ids=["failing", "stopped early"])
def test_a_crash_while_trials_are_stopped(begun: Any, kept: bool) -> None:
    """A study that was failing is failed in its next life, and makes no trial; one stopped early keeps its last report."""
    script = """
    import signal
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    report(0.1 if number == 5 else 0.8, 1)
    report(0.1 if number == 5 else 0.8, 2)
    if number == 1 and FAIL:
        folder = os.path.dirname(os.environ["CLOUD_ML_HP_METRIC_FILE"])
        while not all(os.path.exists(os.path.join(folder, f"{other}.metrics")) for other in (2, 3, 4)):
            time.sleep(0.01)  # they would otherwise end at once, before they know the signal
        sys.exit(3)
    if FAIL or number == 5:
        while not stopped:
            time.sleep(0.01)
        report(0.7, 3)  # not in the handler: the signal may arrive within a report
        time.sleep(60)
    """.replace("FAIL", str(kept))
    failing: list[str] = []
    spec = {**SPEC, **({} if kept else {"medianAutomatedStoppingSpec": {}})}
    counts = {"max_trial_count": 9 if kept else 5, "parallel_trial_count": 4 if kept else 1}
    run = begun(script, spec, on_failing=failing.append, **counts)
    stopping: list[str] = []
    while not stopping:
        run.step()
        stopping = [own.id for own in run.engine.trials.values() if own.state.value == "STOPPING"]
        time.sleep(0.01)
    files = [run.executor.handles[trial].metric_file for trial in stopping]
    while not all('"3"' in file.read_text() for file in files if file.exists() and not kept):
        time.sleep(0.01)
    for handle in run.executor.handles.values():
        handle.process.kill()
    assert bool(failing) is kept

    again = begun(script, spec, failing="".join(failing), **counts)
    again.executor.handles = run.executor.handles
    result = again.run(interval=0.01)
    trials = again.engine.trials
    assert result.state == ("JOB_STATE_FAILED" if kept else "JOB_STATE_SUCCEEDED") and not again.executor.started
    if kept:
        assert "1 of 1 ended trials failed" in result.message and len(trials) == 4
    else:
        assert trials["5"].final_measurement.metrics == {"accuracy": 0.7}
