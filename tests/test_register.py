"""What `register` compares, which image serves a model, and what a version's labels and description keep."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vertexrig import catalog
from vertexrig.studies import register


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
        ("us-docker.pkg.dev/p/r/own:1", "tf2-cpu.2-15", "does not say its version"),
    ],
)
def test_the_serving_image_follows_the_training_image(image: str, expected: str, said: str) -> None:
    """The same version of TensorFlow, otherwise the nearest newer, otherwise the newest, with its dates and what to check."""
    found = register.serving(trained(image=image), catalog.load(), "europe-west4", None, date(2026, 11, 21))
    assert found.uri == f"europe-docker.pkg.dev/vertex-ai/prediction/{expected}:latest" and said in found.text
    assert register.serving(trained(), catalog.load(), "us-central1", "own:1", date(2026, 11, 21)).uri == "own:1"


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
        ({}, "nothing says its metric"),
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
