"""The rules that hold a TensorFlow trainer's distribution strategies against its cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.packages import trainer_with
from tests.vertexrig.checks.cases import context, document, found
from tests.vertexrig.checks.job_bases import TRAINER_IMAGE as IMAGE
from tests.vertexrig.checks.job_bases import TRAINER_JOB as JOB
from tests.vertexrig.checks.job_bases import TRAINER_POOL as POOL
from tests.vertexrig.checks.strategy_cases import (
    ARGS,
    EVERY,
    FLAG,
    KERAS_3,
    MIRRORED,
    MULTI,
    NEW_TPU,
    ONE_GPU,
    PLAIN,
    POOLS,
    PYTHON,
    REDUCTION,
    SERVER,
    SERVERS,
    TPU,
    TWO_GPUS,
)
from vertexrig import spec
from vertexrig.checks import strategy as rules

CLUSTERS: list[dict[str, Any]] = [{}, TWO_GPUS, ONE_GPU, TPU, NEW_TPU, MULTI, SERVERS, REDUCTION]


@pytest.mark.parametrize(
    "source", [EVERY, "import torch\n", "import sklearn\n", "import jax\nimport tensorflow as tf\n", "def broken(:\n"]
)
def test_a_trainer_that_fits_or_cannot_be_judged_gives_nothing(source: str) -> None:
    """One that chooses while running and has what each cluster needs; one that is no plain TensorFlow program, or cannot be read."""
    for changes in CLUSTERS:
        assert found(rules.RULES, document(JOB, changes), context(trainer_with(source))) == {}


def test_an_unknown_image_makes_keras_3_a_warning() -> None:
    """A custom image may hold an older TensorFlow: no error is claimed."""
    changes = {**MULTI, f"{PYTHON}.executorImageUri": "europe-docker.pkg.dev/p/r/own:1"}
    around = context(trainer_with(KERAS_3))
    ((severity, _, message),) = found(rules.RULES, document(JOB, changes), around)["keras-3-workers"]
    assert severity == "warning" and "trainer/task.py:3" in message


def test_without_the_source_a_strategy_argument_is_a_warning() -> None:
    """The flag of an unknown trainer may mean something else."""
    changes = {**MULTI, ARGS: ["--strategy=mirrored"]}
    ((severity, path, _),) = found(rules.RULES, document(JOB, changes))["strategy-argument"]
    assert (severity, path) == ("warning", f"{ARGS}[0]")


@pytest.mark.parametrize("pools", [[], [{}], [{}, {}, {}, {}, {}], [{}, POOL], [{"replicaCount": 3}], [POOL] * 6])
def test_odd_clusters_make_no_rule_fail(pools: list[Any]) -> None:
    """Empty, skipped and too many pools end without an exception."""
    for source in (PLAIN, SERVER, FLAG, KERAS_3):
        found(rules.RULES, spec.from_data({POOLS: pools}), context(trainer_with(source)))


def test_keras_3_begins_with_tensorflow_2_16() -> None:
    """The first image with Keras 3 is an error, and the message names its TensorFlow and what the trainer has."""
    image = IMAGE.replace("2-17", "2-16")
    changes = {**MULTI, f"{PYTHON}.executorImageUri": image, f"{POOLS}[1].pythonPackageSpec.executorImageUri": image}
    around = context(trainer_with(KERAS_3))
    ((severity, _, message),) = found(rules.RULES, document(JOB, changes), around)["keras-3-workers"]
    assert severity == "error" and "TensorFlow 2.16" in message


def test_messages_name_the_strategies_there_are() -> None:
    """A finding says what the trainer has instead."""
    for source, words in ((MIRRORED, "MirroredStrategy"), (PLAIN, "no tf.distribute strategy")):
        around = context(trainer_with(source))
        assert words in found(rules.RULES, document(JOB, MULTI), around)["strategy-replicas"][0][2]
