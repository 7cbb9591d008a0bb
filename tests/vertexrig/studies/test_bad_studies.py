"""Studies that are poor or odd, and each verb that goes on from them: a result or one clear sentence, and nothing half-written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import made_studies
from tests.support.tools import typed
from vertexrig.results.history import History, Record

PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-bucket # ours
trainer: {path: none, image: tf-2.17, package_uris: ["gs://my-bucket/packages/trainer.tar.gz"]}
jobs:
  cpu: &cpu {machine_type: n1-standard-4, timeout: 600s} # small

  other: *cpu
sweeps:
  tune: # the first
    job: cpu
    max_trial_count: 8
    parallel_trial_count: 2
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters:
        learning_rate: {double_value_spec: {min_value: 0.0001, max_value: 0.1}, scale_type: UNIT_LOG_SCALE}
        batch_size: {discrete_value_spec: {values: [16, 32, 64, 128]}}
        units: {integer_value_spec: {min_value: 8, max_value: 256}}
        optimizer: {categorical_value_spec: {values: [adam, sgd]}}
"""
Job = dict[str, Any]


def made(trials: int = 12) -> Job:
    return {**made_studies.tuning_job(trials, points=2), "displayName": "tune"}


def not_begun() -> Job:
    return {**made(0), "state": "JOB_STATE_PENDING", "trials": [], "maxTrialCount": 8}


def infeasible() -> Job:
    job = made(5)
    for trial in job["trials"]:
        trial |= {"state": "INFEASIBLE", "infeasibleReason": "out of memory"}
        trial.pop("finalMeasurement")
    return job


def measured(value: Any) -> Job:
    """Every trial succeeded, and reported this in place of its metric."""
    job = made(5)
    for trial in job["trials"]:
        metrics = [] if value is None else [{"metricId": "accuracy", "value": value}]
        trial["finalMeasurement"] = {"stepCount": "1", "metrics": metrics}
        trial["measurements"] = []
    return job


def outside() -> Job:
    """The project's ranges were narrowed after the study ran, and one of its values is outside even its own."""
    job = made(12)
    job["studySpec"]["parameters"][2]["integerValueSpec"]["maxValue"] = 4096
    for trial in job["trials"]:
        trial["parameters"] = [
            {**own, "value": 5000} if own["parameterId"] == "units" and trial["id"] == "3" else own
            for own in trial["parameters"]
        ]
    return job


def odd() -> Job:
    text = json.dumps(made(12)).replace('"learning_rate"', json.dumps("lr: [\"'#${X}\n é"))
    job: Job = json.loads(text)
    return {**job, "displayName": "tune"}


FINE: dict[str, str] = {}
NONE = "of 5 trials none counts"
STUDIES: dict[str, tuple[Callable[[], Job], dict[str, str]]] = {
    "has not begun": (not_begun, {
        "best": "tune has no trial yet", "follow-up": "tune has no trials yet: its state is PENDING",
        "promote": "tune has no trials yet: its state is PENDING", "register": "tune has no trials yet",
    }),
    "still runs": (lambda: {**made_studies.tuning_job(12, running=3), "displayName": "tune"}, {
        "follow-up": "tune has not ended: its state is RUNNING", "promote": "tune has not ended", "register": "tune has not ended",
    }),
    "one trial": (lambda: made(1), {"follow-up": "of 1 trials 1 counts; at least 3 are needed"}),
    "all infeasible": (infeasible, {
        "best": "of 5 that ended 5 are infeasible", "follow-up": f"{NONE} (5 infeasible)", "promote": f"{NONE} (5 infeasible)",
        "register": f"{NONE} (5 infeasible)",
    }),
    "NaN": (lambda: measured("NaN"), {
        "best": "with a finite value of accuracy", "follow-up": f"{NONE} (5 without a finite value of accuracy",
        "promote": f"{NONE} (5 without", "register": f"{NONE} (5 without",
    }),
    "no metric": (lambda: measured(None), {
        "best": "with a finite value of accuracy", "follow-up": f"{NONE} (5 without", "promote": f"{NONE} (5 without",
        "register": f"{NONE} (5 without",
    }),
    "conditional parameters": (made, FINE),
    "values outside the ranges": (outside, FINE),
    "odd names": (odd, FINE),
}  # fmt: skip
VERBS = {
    "trials": (), "best": (), "report": (), "follow-up": ("--as", "next"), "promote": ("--as", "next"),
    "register": ("--dry-run",),
}  # fmt: skip


@pytest.fixture(scope="module", params=STUDIES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A project with the record of one study, whose rehearsal seems to run, and what is odd about it."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "vertexrig.yaml").write_text(PROJECT)
    with History(folder / ".vertexrig").running(Record("tune", STUDIES[request.param][0]())):
        yield folder, request.param


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_gives_a_result_or_one_sentence(place: tuple[Path, str], verb: str, monkeypatch: Any) -> None:
    """Exit code 0 with a result, or 2 with the sentence of its row; a refused verb leaves the project file as it is, and one
    that writes leaves every line.
    """
    folder, study = place
    for name in ("VERTEXRIG_AIPLATFORM", "STORAGE_EMULATOR_HOST"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing is there
    monkeypatch.chdir(folder)
    expected = STUDIES[study][1].get(verb)
    done = typed(verb, "tune", "--local", *VERBS[verb], "--format=json")
    code, said = done.exit_code, done.stderr
    text = (folder / "vertexrig.yaml").read_text()
    (folder / "vertexrig.yaml").write_text(PROJECT)
    assert sorted(os.listdir(folder)) == [".vertexrig", "vertexrig.yaml"]
    if expected is not None:
        assert code == 2 and expected in said and said.count("error:") == 1 and text == PROJECT
        return
    if verb == "register":  # what is left to refuse is the storage, which does not answer
        assert code == 3 and said.count("error:") == 1 and text == PROJECT
        return
    assert code == 0, said
    assert done.document
    if verb in ("follow-up", "promote"):
        rest = iter(text.splitlines())
        assert text != PROJECT and all(line in rest for line in PROJECT.splitlines())
