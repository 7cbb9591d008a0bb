"""The rules that hold a PyTorch trainer against its cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.packages import trainer_with
from tests.vertexrig.checks.cases import context, document, found
from tests.vertexrig.checks.job_bases import TRAINER_JOB as JOB
from tests.vertexrig.checks.pytorch_cases import ALL_SAVE, CUDA, GOOD, GPU, GUARDED, LONE, MULTI, NCCL, UNSHARED
from vertexrig.checks import pytorch as rules

CLUSTERS: list[dict[str, Any]] = [{}, GPU, MULTI, {**GPU, **MULTI}]


@pytest.mark.parametrize("package", ["lightning", "accelerate", "transformers", "torch_xla.core"])
def test_frameworks_that_do_it_themselves_are_left_alone(package: str) -> None:
    """What Lightning and its like decide while running is not judged."""
    for source in (NCCL, LONE, UNSHARED, ALL_SAVE, CUDA):
        for changes in CLUSTERS:
            around = context(trainer_with(f"import {package}\n{source}"))
            assert found(rules.RULES, document(JOB, changes), around) == {}


@pytest.mark.parametrize("source", ["import tensorflow\nx.cuda()\n", "import torch\ndef broken(:\n", GOOD])
def test_what_is_right_or_not_pytorch_gives_nothing(source: str) -> None:
    """Another framework, a source that cannot be read, and a good trainer give no finding."""
    for changes in CLUSTERS:
        assert found(rules.RULES, document(JOB, changes), context(trainer_with(source))) == {}


def test_processes_that_torchrun_starts_are_counted() -> None:
    """One replica whose command starts two processes by torchrun is judged like two replicas; started alone, it is not."""
    around = context(trainer_with(GUARDED))
    line = ["sh", "-c", 'exec torchrun --standalone --nproc-per-node=2 --no-python "$@"', "torchrun"]
    python = ["python", "-m", "trainer.task"]
    for command, expected in (([*line, *python], {"torch-backend", "torch-saving"}), (python, set())):
        container = {"imageUri": "a.com/b/c", "command": command}
        pool = {"machineSpec": GPU["workerPoolSpecs[0].machineSpec"], "replicaCount": 1, "containerSpec": container}
        job = document(JOB, {"workerPoolSpecs[0]": pool})
        assert set(found(rules.RULES, job, around)) == expected


def test_the_example_fits_its_jobs() -> None:
    """The example's own trainer gives nothing on any of its clusters."""
    from tests.support.tools import REPOSITORY
    from vertexrig.trainer_source.reader import read

    trainer = read(REPOSITORY / "examples/pytorch-ddp/trainer_pkg", "digits.task")
    for changes in CLUSTERS:
        assert found(rules.RULES, document(JOB, changes), context(trainer)) == {}
