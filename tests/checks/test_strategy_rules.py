"""The rules that hold a TensorFlow trainer's distribution strategies against its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import Case, context, document, found, must_accept, must_find, names, trainer_of
from job_bases import TRAINER_IMAGE as IMAGE
from job_bases import TRAINER_JOB as JOB
from job_bases import TRAINER_POOL as POOL
from job_bases import changed

from vertexrig import spec
from vertexrig.checks import strategy as rules

WORKERS = changed(POOL, {"replicaCount": 2})
POOLS = "workerPoolSpecs"
ARGS = f"{POOLS}[0].pythonPackageSpec.args"
MACHINE = f"{POOLS}[0].machineSpec"
TWO_GPUS = {MACHINE: {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}}
ONE_GPU = {f"{MACHINE}.acceleratorType": "NVIDIA_TESLA_T4", f"{MACHINE}.acceleratorCount": 1}
TPU = {MACHINE: {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 8}}
NEW_TPU = {MACHINE: {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}}
MULTI = {f"{POOLS}[1]": WORKERS}
SERVERS = {**MULTI, f"{POOLS}[2]": POOL}
REDUCTION = {
    **MULTI,
    f"{POOLS}[2]": {
        "machineSpec": {"machineType": "n1-highcpu-16"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"},
    },
}


def makes(*strategies: str, keras: str = "import tf_keras") -> str:
    made = "\n".join(f"    strategy = tf.distribute.{name}()" for name in strategies)
    return f"import argparse\nimport tensorflow as tf\n{keras}\ndef main():\n    pass\n{made}\nmain()\n"


PLAIN, MIRRORED, WORKER = makes(), makes("MirroredStrategy"), makes("MultiWorkerMirroredStrategy")
SERVER, ON_TPU = makes("ParameterServerStrategy"), makes("TPUStrategy")
EVERY = makes("MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy")
FLAG = EVERY.replace(
    "    pass", '    p = argparse.ArgumentParser()\n    p.add_argument("--distribute", default="auto")'
)
FLAG = FLAG.replace("\nmain()", "\n    p.parse_args()\nmain()")
KERAS_3 = makes("MultiWorkerMirroredStrategy", keras="import keras")
TF_KERAS = makes("MultiWorkerMirroredStrategy", keras="model = tf.keras.Sequential()")
LEGACY = makes(
    "MultiWorkerMirroredStrategy", keras='import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"; tf.keras.Sequential()'
)
PYTHON = f"{POOLS}[0].pythonPackageSpec"
OLD_IMAGE = IMAGE.replace("2-17", "2-15")

CASES = [
    Case("strategy-replicas", "job", MULTI, MULTI, f"{POOLS}[1]", MIRRORED, EVERY),
    Case("strategy-replicas", "job", MULTI, {}, f"{POOLS}[1]", PLAIN),
    Case("strategy-replicas", "job", MULTI, MULTI, f"{POOLS}[1]", MIRRORED, "import horovod.tensorflow\n" + MIRRORED),
    Case("strategy-servers", "job", SERVERS, SERVERS, f"{POOLS}[2]", WORKER, SERVER),
    Case("strategy-servers", "job", SERVERS, REDUCTION, f"{POOLS}[2]", WORKER),
    Case("strategy-server-pools", "job", {}, SERVERS, POOLS, SERVER),
    Case("strategy-server-pools", "job", MULTI, MULTI, POOLS, SERVER, EVERY),
    Case("strategy-worker-pools", "job", {}, MULTI, POOLS, WORKER),
    Case("strategy-tpu", "job", TPU, TPU, MACHINE, MIRRORED, EVERY),
    Case("strategy-tpu", "job", NEW_TPU, NEW_TPU, MACHINE, PLAIN, ON_TPU),
    Case("strategy-tpu", "job", {}, TPU, MACHINE, ON_TPU),
    Case("idle-gpus", "job", TWO_GPUS, TWO_GPUS, f"{MACHINE}.acceleratorCount", PLAIN, MIRRORED),
    Case("idle-gpus", "job", TWO_GPUS, ONE_GPU, f"{MACHINE}.acceleratorCount", makes("OneDeviceStrategy")),
    Case("strategy-argument", "job", {**MULTI, ARGS: ["--distribute=mirrored"]},
         {**MULTI, ARGS: ["--distribute=multi_worker"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {ARGS: ["--distribute", "MultiWorkerMirroredStrategy"]},
         {ARGS: ["--distribute", "auto"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {**MULTI, ARGS: ["--distribute=parameter-server"]},
         {**SERVERS, ARGS: ["--distribute=parameter-server"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {ARGS: ["--distribute=tpu"]}, {**TPU, ARGS: ["--distribute=tpu"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {**TPU, ARGS: ["--distribute=mirrored"]}, {**TPU}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {**TWO_GPUS, ARGS: ["--distribute=cpu"]}, {ARGS: ["--distribute=cpu"]},
         f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", MULTI, {}, ARGS, FLAG.replace("auto", "mirrored")),
    Case("keras-3-workers", "job", MULTI, {}, PYTHON, KERAS_3),
    Case("keras-3-workers", "job", MULTI, MULTI, PYTHON, TF_KERAS, LEGACY),
    Case("keras-3-workers", "job", MULTI, {**MULTI, f"{PYTHON}.executorImageUri": OLD_IMAGE,
                                    f"{POOLS}[1].pythonPackageSpec.executorImageUri": OLD_IMAGE}, PYTHON, KERAS_3),
    Case("keras-3-workers", "job", MULTI,
         {**MULTI, f"{PYTHON}.env": [{"name": "TF_USE_LEGACY_KERAS", "value": "1"}],
          f"{POOLS}[1].pythonPackageSpec.env": [{"name": "TF_USE_LEGACY_KERAS", "value": "1"}]}, PYTHON, TF_KERAS),
]  # fmt: skip
IDS = names(CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_finds(case: Case, tmp_path: Path) -> None:
    """The rule finds the mistake, once, where it is."""
    must_find(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_accepts(case: Case, tmp_path: Path) -> None:
    """The rule has nothing to say about the cluster, or the trainer, beside it that is right."""
    must_accept(case, tmp_path)


def test_every_rule_has_cases() -> None:
    """No rule about strategies is without a failing and a passing case."""
    assert {case.rule for case in CASES} == {rule.id for rule in rules.RULES}


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
