"""The rules that hold a TensorFlow trainer's distribution strategies against its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import trainer_of
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


@pytest.mark.parametrize("changes", [{}, TWO_GPUS, ONE_GPU, TPU, NEW_TPU, MULTI, SERVERS, REDUCTION], ids=str)
def test_a_trainer_with_every_strategy_fits_every_cluster(changes: dict[str, Any], tmp_path: Path) -> None:
    """A trainer that chooses while running and has what the cluster needs gives nothing."""
    assert found(rules.RULES, document(JOB, changes), context(trainer_of(tmp_path, EVERY))) == {}


@pytest.mark.parametrize("changes", [{}, TWO_GPUS, TPU, MULTI, SERVERS], ids=str)
@pytest.mark.parametrize(
    "source", ["import torch\n", "import sklearn\n", "import jax\nimport tensorflow as tf\n", "def broken(:\n"]
)
def test_other_frameworks_are_left_alone(source: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """What is no plain TensorFlow program, or cannot be read, is not judged."""
    assert found(rules.RULES, document(JOB, changes), context(trainer_of(tmp_path, source))) == {}


def test_an_unknown_image_makes_keras_3_a_warning(tmp_path: Path) -> None:
    """A custom image may hold an older TensorFlow: no error is claimed."""
    changes = {**MULTI, f"{PYTHON}.executorImageUri": "europe-docker.pkg.dev/p/r/own:1"}
    around = context(trainer_of(tmp_path, KERAS_3))
    ((severity, _, message),) = found(rules.RULES, document(JOB, changes), around)["keras-3-workers"]
    assert severity == "warning" and "trainer/task.py:3" in message


def test_without_the_source_a_strategy_argument_is_a_warning() -> None:
    """The flag of an unknown trainer may mean something else."""
    changes = {**MULTI, ARGS: ["--strategy=mirrored"]}
    ((severity, path, _),) = found(rules.RULES, document(JOB, changes))["strategy-argument"]
    assert (severity, path) == ("warning", f"{ARGS}[0]")


@pytest.mark.parametrize("pools", [[], [{}], [{}, {}, {}, {}, {}], [{}, POOL], [{"replicaCount": 3}], [POOL] * 6])
def test_odd_clusters_make_no_rule_fail(pools: list[Any], tmp_path: Path) -> None:
    """Empty, skipped and too many pools end without an exception."""
    for source in (PLAIN, SERVER, FLAG, KERAS_3):
        found(rules.RULES, spec.from_data({POOLS: pools}), context(trainer_of(tmp_path, source)))


def test_keras_3_begins_with_tensorflow_2_16(tmp_path: Path) -> None:
    """The first image with Keras 3 is an error, and the message names its TensorFlow and what the trainer has."""
    image = IMAGE.replace("2-17", "2-16")
    changes = {**MULTI, f"{PYTHON}.executorImageUri": image, f"{POOLS}[1].pythonPackageSpec.executorImageUri": image}
    around = context(trainer_of(tmp_path, KERAS_3))
    ((severity, _, message),) = found(rules.RULES, document(JOB, changes), around)["keras-3-workers"]
    assert severity == "error" and "TensorFlow 2.16" in message


def test_messages_name_the_strategies_there_are(tmp_path: Path) -> None:
    """A finding says what the trainer has instead."""
    for number, (source, words) in enumerate([(MIRRORED, "MirroredStrategy"), (PLAIN, "no tf.distribute strategy")]):
        around = context(trainer_of(tmp_path / str(number), source))
        assert words in found(rules.RULES, document(JOB, MULTI), around)["strategy-replicas"][0][2]
