"""How discrete values reach a trainer, and what a job with Reduction Servers runs in their place."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs import studies
from localvertex.jobs.manager import Watcher
from localvertex.jobs.resources import CUSTOM_JOBS, TUNING_JOBS
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.study_engine import StudyEngine
from localvertex.jobs.study_run import Handle, StudyRun, TrialOutcome
from localvertex.runner import Line, RunOptions, keras2
from localvertex.runner.packages import Interpreter
from tests.support.jobkit import Api, job, output, pool, run_job, run_study, with_trainer
from vertexrig.spec.states import SUCCEEDED
from vertexrig.spec.trial import Trial

OPTIONS = RunOptions(grace=0.5, warm=False)
REPORT = (
    "print('GOT', args[-1], flush=True)\n{first}\n"
    "open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'a').write(json.dumps({{'accuracy': '1', 'global_step': '1', 'timestamp': 1}}))\n{then}"
)
STRICT = REPORT.format(first="int(args[-1].partition('=')[2])", then="")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_trainer(tmp_path_factory.mktemp("discrete"))


def study(code: str, trials: int) -> dict[str, Any]:
    units = {"parameterId": "units", "discreteValueSpec": {"values": [8, 16.5, 32][: trials if trials < 3 else 3]}}
    return {
        "studySpec": {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}], "algorithm": "GRID_SEARCH", "parameters": [units]},
        "maxTrialCount": trials, "parallelTrialCount": 1, "maxFailedTrialCount": 9, "displayName": "study",
        "trialJobSpec": job(pool(code)),
    }  # fmt: skip


def go(root: Path, code: str, trials: int = 1, discrete: str = "retry") -> tuple[list[str], list[str], dict[str, Any]]:
    """What trainers got, what the study's user can read at its end, and the study."""
    lines: list[tuple[str, str]] = []
    watcher = Watcher(line=lambda name, line: lines.append((name, line.text)))
    done = run_study(study(code, trials), Settings(root, options=OPTIONS, discrete=discrete), watcher)
    notes = [text for name, text in lines if name == done["name"]]
    return [text[4:] for _, text in lines if text.startswith("GOT ")], notes, done


@pytest.mark.whole
def test_whole_numbers_after_an_end_at_the_start(root: Path) -> None:
    """A trainer that cannot read 8.0 is run with 8, the trials after it begin with whole numbers, and one line says so; a trial is
    one trial, with one job.
    """
    got, notes, done = go(root, STRICT.replace("\nint(", "\n(float if '.5' in args[-1] else int)("), trials=3)
    assert got == ["--units=8.0", "--units=8", "--units=16.5", "--units=32"]
    assert len(notes) == 1 and "Vertex AI may send" in notes[0]
    assert [trial["state"] for trial in done["trials"]] == ["SUCCEEDED"] * 3
    assert len({trial["customJob"] for trial in done["trials"]}) == 3


class Scheduled:
    """Runs trials that refuse arguments with an ending, each until `end` is called; notes what they get.

    With `metric` they report before they end so.
    """

    def __init__(self, folder: Path, refuses: str = ".0", *, metric: bool = False) -> None:
        self.refuses, self.metric = refuses, metric
        self.folder, self.args, self.ended, self.got = folder, dict[str, str](), set[str](), list[str]()

    def start(self, trial: Trial, args: list[str]) -> Handle:
        self.args[trial.id] = args[-1]
        self.got.append(args[-1])
        self.ended.discard(trial.id)
        return Handle(trial.id, self.folder / f"{trial.id}.metrics")

    restart = start

    def known(self, trial: Trial) -> Handle | None:
        return None

    def end(self, trial: str) -> None:
        self.ended.add(trial)
        if self.metric or not self.args[trial].endswith(self.refuses):
            report = {"accuracy": "1", "global_step": "1", "timestamp": 1}
            (self.folder / f"{trial}.metrics").write_text(json.dumps(report))

    def poll(self, handle: Handle) -> TrialOutcome | None:
        refused = self.args[handle.custom_job].endswith(self.refuses)
        return TrialOutcome(not refused, "", early=refused) if handle.custom_job in self.ended else None

    def stop(self, handle: Handle) -> None:
        self.ended.add(handle.custom_job)


def test_every_order_of_ends_tries_each_trial_with_whole_numbers(tmp_path: Path) -> None:
    """Three trials side by side, all started with 8.0, succeed with 8 in whatever order their first and second runs end."""
    units = {"parameterId": "units", "discreteValueSpec": {"values": [8, 16, 32]}}
    metrics = [{"metricId": "accuracy", "goal": "MAXIMIZE"}]
    spec = {"metrics": metrics, "algorithm": "GRID_SEARCH", "parameters": [units]}
    for number, order in enumerate(sorted(set(permutations("112233")))):
        folder = tmp_path / str(number)
        folder.mkdir()
        executor = Scheduled(folder)
        run = StudyRun(StudyEngine(spec), executor, lambda _: None, max_trial_count=3, parallel_trial_count=3)
        run.step()
        for trial in order:
            executor.end(trial)
            run.step()
        assert [trial.state.value for trial in run.engine.trials.values()] == ["SUCCEEDED"] * 3, order
        assert run.step() and run.result is not None and run.result.state == SUCCEEDED


def test_both_jobs_of_a_trial_are_the_trials(tmp_path: Path) -> None:
    """A trial that was run again has had two jobs; neither is among those that `local run` and the console list."""
    with_trainer(tmp_path)
    with server.running(Settings(tmp_path, options=OPTIONS)) as here:
        api = Api(here.url)
        api.wait(
            api.call("POST", "hyperparameterTuningJobs", json={**study(STRICT, 1), "maxFailedTrialCount": 1}).json()[
                "name"
            ]
        )
        assert len(api.call("GET", "customJobs").json()["customJobs"]) == 2
        assert [one["kind"] for one in api.call("GET", "/local/v1/made?after=0").json()["made"]] == [TUNING_JOBS]
        listed = api.call("GET", "/console/v1/jobs").json()
        assert [one["trials"] for one in listed["jobs"]] == [{"ended": 1, "asked": 1}] and listed["counts"][
            CUSTOM_JOBS
        ] == 0


@pytest.mark.parametrize(
    ("refuses", "metric", "discrete", "expected", "state"),
    [
        (".0", False, "decimal", ["--units=8.0"], "INFEASIBLE"),
        (".0", False, "whole", ["--units=8"], "SUCCEEDED"),
        ("never", False, "retry", ["--units=8.0"], "SUCCEEDED"),
        ("", False, "retry", ["--units=8.0", "--units=8"], "INFEASIBLE"),
        (".0", True, "retry", ["--units=8.0"], "INFEASIBLE"),
    ],
    ids=["decimal", "whole", "both-read", "another-cause", "after-a-metric"],
)
def test_when_a_trial_is_run_again(
    tmp_path: Path, refuses: str, metric: bool, discrete: str, expected: list[str], state: str
) -> None:
    """Once, before any metric, and not where one form is chosen; nothing is said where whole numbers did not help."""
    executor = Scheduled(tmp_path, refuses, metric=metric)
    engine = StudyEngine(study("", 1)["studySpec"])
    run = StudyRun(engine, executor, lambda _: None, max_trial_count=1, max_failed_trial_count=9, discrete=discrete)
    while not run.step():
        executor.end("1")
    assert (executor.got, run.engine.trials["1"].state.value, run.note) == (expected, state, "")


@pytest.mark.parametrize(
    ("seconds", "code", "status", "early"),
    [(119, 3, 1, True), (121, 3, 1, False), (121, 3, 2, True), (1, 13, 1, False), (None, 3, 1, False)],
    ids=["soon", "late", "argparse", "not-its-own", "never-ran"],
)
def test_what_is_an_end_at_the_start(tmp_path: Path, seconds: int | None, code: int, status: int, early: bool) -> None:
    """A trainer that ends by itself within two minutes, or with argparse's status 2 however long its imports took."""
    begun = {} if seconds is None else {"startTime": "2026-11-20T12:00:00Z"}
    ended = f"2026-11-20T12:0{(seconds or 0) // 60}:{(seconds or 0) % 60:02}Z"
    error = {"code": code, "message": f"The replica workerpool0-0 exited with a non-zero status of {status}. "}
    store = ResourceStore(tmp_path)
    store.add(CUSTOM_JOBS, "p", "j", {"state": "JOB_STATE_FAILED", "endTime": ended, "error": error, **begun})
    executor = studies.JobExecutor(SimpleNamespace(store=store), None)  # type: ignore[arg-type]
    outcome = executor.poll(Handle("j", tmp_path))
    assert outcome is not None and (outcome.ok, outcome.early) == (False, early)


def test_reduction_servers_are_replaced(root: Path) -> None:
    """A job whose third pool is Google's Reduction Server runs to its end, and the log says what the servers are here."""
    servers = {
        "machineSpec": {"machineType": "n1-highcpu-16"}, "replicaCount": 2,
        "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"},
    }  # fmt: skip
    seen, lines = root / "gs/reduction", list[Line]()
    seen.mkdir(parents=True)
    wait = "import time\nwhile not os.path.exists(args[0] + '/go'): time.sleep(0.01)"

    def line(one: Line) -> None:
        lines.append(one)
        if sum(own.text.startswith("This is a stand-in") for own in lines) == 2:
            (seen / "go").touch()

    spec = job(pool(wait, "gs://reduction"), pool("pass", replicas=1), servers)
    result = run_job(spec, root=root, on_line=line, options=replace(OPTIONS, engine="none"))
    assert result.succeeded, result.error
    assert len(output(lines, "workerpool2-1")) == 1
    assert any("replaces the Reduction Server" in text for text in result.differences)


@pytest.mark.parametrize(
    ("image", "here", "keras", "settings", "words"),
    [
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310:latest", "2.21.0", "2.21.0", True, "tf-keras 2.21.0"),
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310:latest", "2.21.0", "", False, "not installed"),
        (
            "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310:latest",
            "2.21.0",
            "2.20.0",
            False,
            "another TensorFlow",
        ),
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310:latest", "2.15.0", "", False, ""),
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest", "2.21.0", "2.21.0", False, ""),
        ("gcr.io/my-project/mine:1", "2.21.0", "2.21.0", False, ""),
    ],
)
def test_keras_2_for_older_images(image: str, here: str, keras: str, settings: bool, words: str) -> None:
    """TF_USE_LEGACY_KERAS=1 for images below TensorFlow 2.16, where tf-keras fits the newer TensorFlow here; a sentence if not."""
    installed = {"tensorflow": here, **({"tf_keras": keras} if keras else {})}
    found, sentence = keras2.of_image(Interpreter("python", (), True, True, installed=installed), image)
    assert found == ({"TF_USE_LEGACY_KERAS": "1"} if settings else {})
    assert words in sentence and bool(words) == bool(sentence)


def test_the_tensorflow_of_a_dockerfile(tmp_path: Path) -> None:
    """A custom image has the TensorFlow of what it is built from, and the sentence says which one ran in its place."""
    (tmp_path / "Dockerfile").write_text("FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-5\nWORKDIR /\n")
    base = Interpreter("python", (), True, True, installed={"tensorflow": "2.21.0", "tf_keras": "2.21.0"})
    found, sentence = keras2.of_folder(base, "gcr.io/my-project/mine:1", tmp_path)
    assert found == {"TF_USE_LEGACY_KERAS": "1"}
    assert sentence.startswith("tensorflow 2.21.0 instead of the 2.5 of tf2-gpu.2-5; tf-keras 2.21.0")
