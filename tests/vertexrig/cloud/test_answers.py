"""Answers of a service that have another shape than the API's: one sentence and exit code 3, never a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import made_studies
from tests.support.tools import typed
from tests.support.web import answering
from tests.vertexrig.studies.test_bad_studies import PROJECT
from vertexrig.cloud.vertex import Vertex, misshapen

GONE = object()
VERBS = (
    ("trials", "tune"),
    ("best", "tune"),
    ("report", "tune"),
    ("jobs",),
    ("follow-up", "tune", "--as", "next", "--dry-run"),
)


class _Answers:
    """Lists and gets one tuning job or none, and no custom job."""

    job: Any = None

    def answer(self, method: str, path: str, data: bytes) -> tuple[int, Any]:
        kind = path.partition("?")[0].rpartition("/")[2]
        if self.job and self.job["name"].endswith(f"/{kind}"):
            return 200, self.job
        return 200, {kind: [self.job] if self.job and kind == "hyperparameterTuningJobs" else []}


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with answering(_Answers().answer) as url:
        yield url


def changed(job: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The job with another value at a path, or without it."""
    made = copy.deepcopy(job)
    at: Any = made
    for key in path[:-1]:
        at = at[key]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


# where in the job -> what is there -> what the message has to name
WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("trials",), {"1": {}}, "trials is a mapping, {'1': {}}, where a list belongs"),
    (("trials",), "none", "trials is text, 'none', where a list belongs"),
    (("trials", 1), "2", "trials[1] is text, '2', where a mapping belongs"),
    (("trials", 0, "parameters"), {"learning_rate": 0.1}, "trials[0].parameters is a mapping"),
    (("trials", 0, "parameters", 0, "value"), [0.1], "trials[0].parameters[0].value is a list, [0.1], where text or a number belongs"),
    (("trials", 0, "finalMeasurement"), [], "trials[0].finalMeasurement is a list, [], where a mapping belongs"),
    (("trials", 0, "finalMeasurement", "metrics", 0, "value"), "high", "metrics[0].value is text, 'high', where a number belongs"),
    (("trials", 0, "state"), [], "trials[0].state is a list"),
    (("studySpec",), "tune", "studySpec is text, 'tune', where a mapping belongs"),
    (("maxTrialCount",), "many", "maxTrialCount is text, 'many', where a whole number belongs"),
    (("maxTrialCount",), 1e999, "maxTrialCount is a number, inf, where a whole number belongs"),
    (("labels",), {"team": ["a"]}, "labels.team is a list, ['a'], where text or a number belongs"),
    (("trialJobSpec", "workerPoolSpecs", 0), None, "trialJobSpec.workerPoolSpecs[0] is nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "named"), WRONG, ids=[".".join(map(str, row[0])) for row in WRONG])
def test_a_wrong_shape_is_named(path: tuple[Any, ...], value: Any, named: str) -> None:
    """The field, what is there and what belongs there are named."""
    assert named in str(
        misshapen("HyperparameterTuningJob", changed(made_studies.tuning_job(2, points=1), path, value))
    )


def test_every_verb_names_a_wrong_shape(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb that reads the job ends with 3 and names the job and the field."""
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", service)
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    job = {**made_studies.tuning_job(2, points=1), "displayName": "tune"}
    path, value, named = WRONG[0]
    _Answers.job = changed(job, path, value)
    for words in VERBS:
        done = typed(*words, cwd=tmp_path)
        assert done.exit_code == 3 and named in done.stderr and job["name"] in done.stderr, (words, done)


def test_what_the_schema_lacks_passes(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields and enum values of a newer service, fields without a value, and numbers as text are read."""
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", service)
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    job = {**made_studies.tuning_job(2, points=1), "displayName": "tune", "newField": [{"a": 1}], "labels": None}
    job |= {"maxTrialCount": "2", "state": "JOB_STATE_NEW"}
    job["studySpec"] |= {"newSpec": {"x": []}}
    job["trials"][0]["finalMeasurement"]["metrics"][0]["value"] = "Infinity"
    _Answers.job = job
    done = typed("trials", "tune", "--format=json", cwd=tmp_path)
    assert done.exit_code == 0 and len(done.document["trials"]) == 2, done.stderr


def test_a_study_without_parameters_is_one_sentence(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON of the API leaves out empty lists: a study without parameters is refused by its name."""
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", service)
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    job = {**made_studies.tuning_job(1, points=1), "displayName": "tune"}
    _Answers.job = changed(job, ("studySpec", "parameters"), GONE)
    done = typed("trials", "tune", cwd=tmp_path)
    assert done.exit_code == 2 and "studySpec.parameters is empty" in done.stderr


def test_the_log_of_a_rehearsal_is_named(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`logs` of what was only rehearsed names the files that have it; the error of the service stays."""
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", service)
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    job = {**made_studies.tuning_job(1, points=1), "displayName": "tune"}
    made_studies.keep(tmp_path, job, name="rehearsed")
    _Answers.job = None
    done = typed("logs", "rehearsed", "--print-command", cwd=tmp_path)
    assert done.exit_code == 2 and "there is no job 'rehearsed'" in done.stderr
    assert "printed is in .vertexrig/jobs" in done.stderr
    assert "printed is in" not in typed("logs", "nothing", "--print-command", cwd=tmp_path).stderr


def test_the_messages_of_the_api_are_their_own_shape() -> None:
    """A study as the service describes it has nothing that is refused; something else than a mapping is."""
    assert misshapen("HyperparameterTuningJob", made_studies.tuning_job(12, running=2)) is None
    assert misshapen("CustomJob", ["x"]) == "the answer is a list, ['x'], where a mapping belongs"


def test_the_page_of_a_job_is_where_the_job_is() -> None:
    """A job of a local Vertex has its page in that server's console, every other in Google's."""
    name = "projects/352495983800/locations/us-central1/customJobs/42"
    local = Vertex("my-project", "us-central1", url="http://127.0.0.1:8642/vertex/")
    assert local.console(name) == f"http://127.0.0.1:8642/#/jobs/{name}" and local.console("models/1") == ""
    for url in ("http://127.0.0.1:9", "https://us-central1-aiplatform.example.com/vertex"):
        assert (
            Vertex("my-project", "us-central1", url=url).console(name).startswith("https://console.cloud.google.com/")
        )
