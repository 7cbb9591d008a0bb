"""Tuning jobs: trials as custom jobs, in a server that is killed, and in this process without one."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from localvertex import server
from localvertex.http import ApiError
from localvertex.jobs import studies
from localvertex.jobs.manager import Watcher
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.study_engine import StudyEngine
from localvertex.runner import Line, RunOptions
from tests.support.jobkit import Api, job, pool, run_study, with_trainer

REPORT = """
import time
rate = float(next(arg for arg in args if arg.startswith('--rate=')).partition('=')[2])
with open(args[0] + '/' + os.environ['CLOUD_ML_TRIAL_ID'], 'a') as file:
    file.write('run\\n')
time.sleep(0.3)
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:
    file.write(json.dumps({'timestamp': time.time(), 'accuracy': str(1 - rate), 'global_step': '1'}) + '\\n')
with open(args[0] + '/' + os.environ['CLOUD_ML_TRIAL_ID'], 'a') as file:
    file.write('end\\n')
"""
STUDY: dict[str, Any] = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
    "algorithm": "RANDOM_SEARCH",
}


def tuning(code: str, *args: str, trials: int, parallel: int, **fields: Any) -> dict[str, Any]:
    """A HyperparameterTuningJob."""
    counts = {"maxTrialCount": trials, "parallelTrialCount": parallel}
    return {"displayName": "sweep", "studySpec": STUDY, "trialJobSpec": job(pool(code, *args)), **counts, **fields}


@pytest.mark.whole
def test_a_study_survives_kills_of_the_server(tmp_path: Path) -> None:
    """A study of 6 trials whose server is killed with -9 twice ends with 6 trials, no finished one rerun, no orphan."""
    with_trainer(tmp_path)
    runs = tmp_path / "gs/runs"
    runs.mkdir()
    here = server.up(Settings(tmp_path, slots=3), 0)
    body = tuning(REPORT, "gs://runs", trials=6, parallel=3)
    name = Api(here.url).call("POST", "hyperparameterTuningJobs", json=body).json()["name"]
    moment = random.Random(7)
    seen: dict[str, dict[str, Any]] = {}
    for kill in range(2):
        api = Api(here.url)
        wanted = 2 * (kill + 1)
        until = time.monotonic() + 60
        while len([t for t in api.get(name).get("trials", []) if t["state"] == "SUCCEEDED"]) < wanted:
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(moment.uniform(0, 0.3))
        ended = {trial["id"]: trial for trial in api.get(name)["trials"] if trial["state"] == "SUCCEEDED"}
        assert {key: ended[key] for key in seen} == seen
        seen = ended
        processes = psutil.Process(here.pid).children(recursive=True)
        os.kill(here.pid, signal.SIGKILL)
        assert psutil.wait_procs(processes, timeout=30)[1] == []
        finished = {path.name: path.read_text() for path in runs.iterdir() if path.name in seen}
        here = server.up(Settings(tmp_path, slots=3), 0)
        assert {key: (runs / key).read_text() for key in finished} == finished
    try:
        done = Api(here.url).wait(name)
        assert done["state"] == "JOB_STATE_SUCCEEDED" and len(done["trials"]) == 6
        assert {trial["state"] for trial in done["trials"]} == {"SUCCEEDED"}
        assert not [trial for trial in done["trials"] if trial.keys() & {"customJob", "measurements"}]
        assert {trial["id"]: trial for trial in done["trials"] if trial["id"] in seen} == seen
        assert len(list(runs.iterdir())) == 6
    finally:
        server.down(tmp_path)


def test_a_study_in_this_process(tmp_path: Path) -> None:
    """Without a server a study runs, makes the trials of its seed, tells them and their lines, and leaves only its jobs' folders.

    A final measurement without a global step shows step 1.
    """
    with_trainer(tmp_path)
    settings = Settings(tmp_path, slots=2, options=RunOptions(grace=0.5), seed=3)
    code = "print('rate', args[-1])\n" + REPORT.replace("args[0]", repr(str(tmp_path))).replace("'1'", "'0'")
    lines: list[tuple[str, Line]] = []
    records: list[dict[str, Any]] = []
    watcher = Watcher(trial=records.append, line=lambda name, line: lines.append((name, line)))
    done = run_study(tuning(code, trials=2, parallel=1), settings, watcher)
    assert done["state"] == "JOB_STATE_SUCCEEDED" and [trial["id"] for trial in done["trials"]] == ["1", "2"]
    engine = StudyEngine(STUDY, seed=3)
    assert [trial["parameters"] for trial in done["trials"]] == [engine.suggest("1"), engine.suggest("2")]
    spoken = {name for name, line in lines if line.text.startswith("rate --rate=")}
    assert spoken == {trial["customJob"] for trial in done["trials"]}
    assert [record["state"] for record in records if record["id"] == "2"][-1] == "SUCCEEDED"
    assert all("name" not in trial and trial["customJob"] for trial in done["trials"])
    assert all(set(trial["finalMeasurement"]) == {"stepCount", "metrics"} for trial in done["trials"])
    assert [trial["finalMeasurement"]["stepCount"] for trial in done["trials"]] == ["1", "1"]
    assert list((tmp_path / "rehearsals").iterdir()) == []


def test_a_study_whose_trials_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failing trials are infeasible with the replica's error, and fail the study as maxFailedTrialCount says.

    The engine that accepts a study also runs it.
    """
    with_trainer(tmp_path)
    built = []

    class Counted(StudyEngine):
        def __init__(self, *args: Any, **fields: Any) -> None:
            built.append(self)
            super().__init__(*args, **fields)

    monkeypatch.setattr(studies, "StudyEngine", Counted)
    settings = Settings(tmp_path, slots=2, options=RunOptions(grace=0.5))
    done = run_study(tuning("1 / 0", trials=5, parallel=1, maxFailedTrialCount=2), settings)
    assert done["state"] == "JOB_STATE_FAILED" and len(done["trials"]) == 2 and len(built) == 1
    assert all("ZeroDivisionError" in trial["infeasibleReason"] for trial in done["trials"])
    with pytest.raises(ApiError, match="max_trial_count"):
        run_study(tuning("pass", trials=0, parallel=1), settings)


def test_what_a_watcher_raises_ends_the_rehearsal(tmp_path: Path) -> None:
    """It comes out where the study is followed, and the trials that run are stopped."""
    with_trainer(tmp_path)

    def line(_: str, line: Line) -> None:
        raise BrokenPipeError

    settings = Settings(tmp_path, slots=2, options=RunOptions(grace=0.5))
    with pytest.raises(BrokenPipeError):
        run_study(tuning("import time; time.sleep(600)", trials=2, parallel=2), settings, Watcher(line=line))


def nested(depth: int) -> dict[str, Any]:
    """A study whose parameters are conditional on one another, `depth` deep."""
    spec: dict[str, Any] = {"parameterId": "p0", "categoricalValueSpec": {"values": ["a", "b"]}}
    for index in range(1, depth):
        child = {"parentCategoricalValues": {"values": ["a"]}, "parameterSpec": spec}
        spec = {**spec, "parameterId": f"p{index}", "conditionalParameterSpecs": [child]}
    return {**STUDY, "parameters": [spec]}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    settings = Settings(tmp_path_factory.mktemp("refusals"), slots=1, options=RunOptions(grace=0.1))
    with server.running(settings) as here:
        yield Api(here.url)


def test_bounds_that_leave_nothing_to_tune_are_refused(api: Api) -> None:
    """Equal, swapped and absent bounds are refused in the service's words, which name the value spec below the tuning job."""
    ranges: list[dict[str, Any]] = [{"minValue": "30", "maxValue": "30"}, {"minValue": "2", "maxValue": "1"}, {}]
    space = [{"parameterId": f"p{index}", "integerValueSpec": one} for index, one in enumerate(ranges)]
    body = tuning("pass", trials=1, parallel=1, studySpec={**STUDY, "parameters": space})
    error = api.call("POST", "hyperparameterTuningJobs", json=body).json()["error"]
    assert api.call("GET", "hyperparameterTuningJobs").json() == {}
    said = "Hyperparameter `min_value` should be strictly less than `max_value`."
    fields = [f"hyperparameter_tuning_job.study_spec.parameters[{index}].integer_value_spec" for index in range(3)]
    listed = "".join(f"\t{i}.Field: {field}; Message: {said}" for i, field in enumerate(fields, 1))
    assert error["message"] == f"List of found errors:{listed}\t"
    assert [(one["field"], one["description"]) for one in error["details"][0]["fieldViolations"]] == [
        (field, said) for field in fields
    ]


@pytest.mark.parametrize(
    ("depth", "says"),
    [
        (49, ""),  # HyperparameterTuningJob, StudySpec, and two messages for each level
        (60, "more than 100 messages deep"),
        (120, "nested too deeply"),
        (300, "nested too deeply"),
    ],
)
def test_conditions_nested_too_deep_are_a_bad_request(api: Api, depth: int, says: str) -> None:
    """As many levels of conditions as protobuf reads are accepted, more are a 400."""
    body = tuning("pass", trials=1, parallel=1, studySpec=nested(depth))
    answer = api.call("POST", "hyperparameterTuningJobs", json=body)
    assert answer.status_code == (400 if says else 200) and says in answer.text


def test_a_trial_is_requested_until_its_job_runs(tmp_path: Path) -> None:
    """A trial whose job waits is shown without a start and a job; once that runs it is active."""
    store, study = ResourceStore(tmp_path), "projects/1/locations/l/hyperparameterTuningJobs/1"
    store.add("hyperparameterTuningJobs", "p", study, {"state": "JOB_STATE_RUNNING"})
    for id_, state in (("1", "JOB_STATE_RUNNING"), ("2", "JOB_STATE_QUEUED")):
        store.add("customJobs", "p", f"job-{id_}", {"state": state})
        store.adopt(study, id_, f"job-{id_}")
        record = {"id": id_, "state": "ACTIVE", "startTime": "2026-11-20T12:00:00Z", "customJob": f"job-{id_}"}
        store.save_trial(study, record)
    stored = store.get(study)
    assert stored is not None
    first, second = studies.with_trials(store, stored)["trials"]
    assert first["state"] == "ACTIVE" and first["customJob"] == "job-1"
    assert second == {"id": "2", "state": "REQUESTED"}
