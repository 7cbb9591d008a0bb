"""The rules that hold a PyTorch trainer against its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import Case, context, document, found, must_accept, must_find, names, trainer_of
from job_bases import TRAINER_JOB as JOB
from job_bases import TRAINER_POOL as POOL
from job_bases import changed

from vertexrig.checks import pytorch as rules

POOLS = "workerPoolSpecs"
FIRST, MACHINE = f"{POOLS}[0]", f"{POOLS}[0].machineSpec"
MULTI = {f"{POOLS}[1]": changed(POOL, {"replicaCount": 2})}
GPU = {MACHINE: {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}}

GOOD = """\
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torch.nn.parallel import DistributedDataParallel

def main():
    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo", init_method="env://")
    rank, size = dist.get_rank(), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda" if use_gpu else "cpu")
    data = list(range(10))
    loader = DataLoader(data, sampler=DistributedSampler(data))
    model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
main()
"""
NCCL = GOOD.replace('"nccl" if use_gpu else "gloo"', '"nccl"')
GLOO = GOOD.replace('"nccl" if use_gpu else "gloo"', 'backend="gloo"')
LONE = GOOD.replace('os.environ["WORLD_SIZE"]', 'os.environ.get("WORLD_SIZE", 1)')
GETENV = GOOD.replace('os.environ["WORLD_SIZE"]', 'os.getenv("WORLD_SIZE", "1")')
UNSHARED = GOOD.replace(", DistributedSampler", "").replace(", sampler=DistributedSampler(data)", "")
ALL_SAVE = "import torch\ndef main():\n    torch.save({}, 'model.pt')\nmain()\n"
CUDA = "import torch\ndef main():\n    model = torch.nn.Linear(1, 1).cuda()\nmain()\n"
DEVICE = "import torch\nmodel = torch.nn.Linear(1, 1).to(torch.device('cuda'))\n"

CASES = [
    Case("torch-backend", "job", {}, GPU, MACHINE, NCCL),
    Case("torch-backend", "job", {}, {}, MACHINE, NCCL, GOOD),
    Case("torch-backend", "job", GPU, {}, MACHINE, GLOO),
    Case("torch-world-size", "job", MULTI, MULTI, FIRST, LONE, GOOD),
    Case("torch-world-size", "job", MULTI, {}, FIRST, GETENV),
    Case("torch-sampler", "job", MULTI, MULTI, FIRST, UNSHARED, GOOD),
    Case("torch-sampler", "job", MULTI, {}, FIRST, UNSHARED),
    Case("torch-saving", "job", MULTI, MULTI, FIRST, ALL_SAVE, GOOD),
    Case("torch-saving", "job", MULTI, {}, FIRST, ALL_SAVE),
    Case("torch-cuda", "job", {}, GPU, MACHINE, CUDA),
    Case("torch-cuda", "job", {}, {}, MACHINE, DEVICE, GOOD),
]
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
    """No rule about PyTorch is without a failing and a passing case."""
    assert {case.rule for case in CASES} == {rule.id for rule in rules.RULES}


@pytest.mark.parametrize("changes", [{}, GPU, MULTI, {**GPU, **MULTI}], ids=str)
@pytest.mark.parametrize("package", ["lightning", "accelerate", "transformers", "torch_xla.core"])
def test_frameworks_that_do_it_themselves_are_left_alone(package: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """What Lightning and its like decide while running is not judged."""
    for number, source in enumerate((NCCL, LONE, UNSHARED, ALL_SAVE, CUDA)):
        around = context(trainer_of(tmp_path / str(number), f"import {package}\n{source}"))
        assert found(rules.RULES, document(JOB, changes), around) == {}


@pytest.mark.parametrize("changes", [{}, GPU, MULTI], ids=str)
@pytest.mark.parametrize("source", ["import tensorflow\nx.cuda()\n", "import torch\ndef broken(:\n", GOOD])
def test_what_is_right_or_not_pytorch_gives_nothing(source: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Another framework, a source that cannot be read, and a good trainer give no finding."""
    assert found(rules.RULES, document(JOB, changes), context(trainer_of(tmp_path, source))) == {}


def test_the_example_fits_its_jobs() -> None:
    """The example's own trainer gives nothing on any of its clusters."""
    from tests.tools import REPOSITORY
    from vertexrig.package.source.reader import read

    trainer = read(REPOSITORY / "examples/pytorch-ddp/trainer_pkg", "digits.task")
    for changes in ({}, GPU, MULTI, {**GPU, **MULTI}):
        assert found(rules.RULES, document(JOB, changes), context(trainer)) == {}
