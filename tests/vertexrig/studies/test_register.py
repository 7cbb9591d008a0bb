"""What `register` compares, which image serves a model, and what a version's labels and description keep."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clouds_in_memory import Clock, MemoryStorage
from tests.support.memory_models import MemoryFolder
from vertexrig import catalog
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.studies import register
from vertexrig.studies import trained as what_was_trained


def trained(**more: Any) -> register.Trained:
    return register.Trained(
        **{"uri": "gs://b/m", "metric": "accuracy", "value": 0.9, "goal": "MAXIMIZE", "job": "j", **more}
    )


@pytest.mark.parametrize(
    ("image", "expected", "said"),
    [
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest", "tf2-cpu.2-14", "support ended 2026-01-14"),
        ("us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-15.py310:latest", "tf2-cpu.2-15", "available until 2027-01-14"),
        (
            "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-12.py310:latest",
            "tf2-cpu.2-14",
            "the model was saved by 2.12",
        ),
        (
            "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
            "tf2-cpu.2-15",
            "the model was saved by 2.17",
        ),
        (
            "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest",
            "sklearn-cpu.1-6",
            "available until 2027-10-14",
        ),
        ("us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest", "pytorch-cpu.2-4", "PyTorch 2.4"),
        ("us-docker.pkg.dev/vertex-ai/training/xgboost-cpu.2-1:latest", "xgboost-cpu.2-1", "XGBoost 2.1"),
        (
            "us-central1-docker.pkg.dev/my-project/vertexrig/trainer-cpu:1",
            "sklearn-cpu.1-6",
            "in the training image is not known",
        ),
    ],
)
def test_the_serving_image_follows_the_training_image(image: str, expected: str, said: str, tmp_path: Path) -> None:
    """The same framework and version, otherwise the nearest newer, otherwise the newest, with its dates and what to check."""
    (tmp_path / "vertexrig.yaml").write_text("project: my-project\ntrainer: {build: {framework: sklearn}}\n")
    made = register.made_with(config.load(tmp_path / "vertexrig.yaml"), catalog.load(), image)
    served = register.Servable(*made)
    found = register.serving(served, "europe-docker.pkg.dev", None, date(2026, 11, 21))
    assert found.uri == f"europe-docker.pkg.dev/vertex-ai/prediction/{expected}:latest" and said in found.text
    assert register.serving(served, "europe-docker.pkg.dev", "own:1", date(2026, 11, 21)).uri == "own:1"


@pytest.mark.parametrize(
    ("made", "there", "served"),
    [
        (("sklearn", "1.6"), ["model.joblib"], ("sklearn", "1.6", "")),
        (("xgboost", "2.1"), ["model.joblib", "summary.json"], ("xgboost", "2.1", "")),
        (("", ""), ["model.bst"], ("xgboost", "", "")),
        (("sklearn", "1.6"), ["saved_model.pb"], ("tf", "", "")),
        (("tf", "2.15"), ["", "export/", "export/1/saved_model.pb", "export/1/variables/"], ("tf", "2.15", "export/1")),
        (("tf", "2.15"), ["saved_model.pb", "old/saved_model.pb"], ("tf", "2.15", "")),
        (("tf", "2.15"), ["1/saved_model.pb", "2/saved_model.pb"], "has several models: 1/saved_model.pb, 2/saved_model.pb"),
        (("pytorch", "2.4"), ["", "model.pt"], r"no model.mar is in .*/m/, which has model.pt. .* for PyTorch load .* a custom image"),
        (("", ""), ["weights"], "no saved_model.pb or model.mar or model.joblib or model.bst is in"),
        (("tf", "2.15"), ["", "model/"], "nothing is in gs://my-bucket/m/"),
    ],
)  # fmt: skip
def test_what_the_trainer_saved_decides_who_can_serve_it(
    made: tuple[str, str], there: list[str], served: tuple[str, str, str] | str
) -> None:
    """The file that an image of Google's takes names its framework, in the model's folder or in one below it; without one the line says what
    to save, and proposes no image that could not load what is there.
    """
    folder = MemoryFolder(MemoryStorage(Clock()), "gs://my-bucket/m")
    folder.whole.objects.update({f"m/{name}": (b"", 1, 0.0) for name in there})
    if isinstance(served, tuple):
        assert register.must_be_there(folder, made, None) == register.Servable(*served)
        return
    with pytest.raises(UsageError, match=served) as refused:
        register.must_be_there(folder, made, None)
    assert "pkg.dev" not in str(refused.value)


@pytest.mark.parametrize(
    ("goal", "there", "least", "better", "said"),
    [
        ("MAXIMIZE", None, 0.5, True, "there is no such model yet"),
        ("MAXIMIZE", 0.8, 0.05, True, "0.9 against 0.8 of version 3: better by 0.1"),
        ("MAXIMIZE", 0.8, 0.2, False, "at least 0.2 is asked for"),
        ("MAXIMIZE", 0.9, 0.0, False, "equal; any gain is enough"),
        ("MINIMIZE", 0.8, 0.0, False, "worse by 0.1"),
        ("MINIMIZE", 1.5, 0.0, True, "better by 0.6"),
    ],
)
def test_a_model_has_to_beat_the_one_that_is_there(
    goal: str, there: float | None, least: float, better: bool, said: str
) -> None:
    """By the same metric, in the direction of its goal, by the least gain."""
    labels = {"metric": "accuracy", "metric_value": register.number_label(there or 0)}
    present = None if there is None else {"versionId": "3", "labels": labels}
    found = register.compare(trained(goal=goal), present, least)
    assert found.better is better and said in found.text


def test_what_cannot_be_compared_is_not_better() -> None:
    """A version without labels, or with another metric, keeps its place unless --force is given."""
    for labels, said in (
        ({}, "that one names no metric"),
        ({"metric": "f1", "metric_value": "0_5"}, "its metric is f1"),
    ):
        found = register.compare(trained(), {"versionId": "1", "labels": labels}, 0)
        assert not found.better and said in found.text and "--force" in found.text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_version_s_own_description_goes_before_labels_that_versions_may_share(value: float) -> None:
    """What register writes into the description is read back exactly."""
    body = register.model_body(trained(value=value), "m", "image", "champion", {})
    assert register.measured({**body, "labels": {"metric": "f1", "metric_value": "0_5"}}) == ("accuracy", value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_as_a_label(value: float) -> None:
    """Every finite number is a label's value of at most 63 characters that the API takes, and the same number again."""
    text = register.number_label(value)
    assert register.label_number(text) == value and len(text) <= 63 and set(text) <= set("0123456789_-e")
    assert register.label(text) == text


@pytest.mark.parametrize(("text", "label"), [("-Data/Set", "data-set"), ("-0_5", "-0_5"), ("Übung 2", "bung-2")])
def test_any_text_is_a_label(text: str, label: str) -> None:
    """Whatever a flag or a name holds, its label is one that the API takes; only a number keeps a dash in front."""
    assert register.label(text) == label


@pytest.mark.parametrize(
    ("trial", "args", "found"),
    [
        ("2", ["--epochs=9", "--lr=0.5", "--units=8"], {"accuracy": 0.8}),
        ("2", ["--epochs=9", "--lr=0.4", "--units=8"], {}),
        ("1", ["--lr=0.5", "--units=8"], {}),
        ("7", ["--lr=0.5", "--units=8"], {}),
        ("", ["--lr=0.5", "--units=8"], {}),
    ],
)
def test_a_promoted_job_has_the_metric_of_its_own_trial(trial: str, args: list[str], found: dict[str, float]) -> None:
    """What the trial reported that the label names counts for a job with all of its parameters, and for no other."""
    rows = [
        {"id": number, "state": "SUCCEEDED", "parameters": [{"parameterId": "lr", "value": lr}, {"parameterId": "units", "value": 8}],
         "finalMeasurement": {"metrics": [{"metricId": "accuracy", "value": value}]}}
        for number, lr, value in (("1", 0.1, 0.6), ("2", 0.5, 0.8))
    ]  # fmt: skip
    parameters = [{"parameterId": name, "doubleValueSpec": {"minValue": 0, "maxValue": 9}} for name in ("lr", "units")]
    study = {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}], "parameters": parameters}
    tuned = RemoteJob({"name": "projects/1/locations/r/hyperparameterTuningJobs/1", "studySpec": study, "trials": rows})
    pool = {"pythonPackageSpec": {"args": args, "pythonModule": "train"}}
    job = RemoteJob({"labels": {"trial": trial} if trial else {}, "jobSpec": {"workerPoolSpecs": [pool]}})
    assert what_was_trained.of_promoted(job, tuned) == found
