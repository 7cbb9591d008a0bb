"""One failing and one passing job per rule on a PyTorch trainer, and the trainers of these cases."""

from __future__ import annotations

from tests.vertexrig.checks.cases import Case
from tests.vertexrig.checks.job_bases import TRAINER_POOL as POOL
from tests.vertexrig.checks.job_bases import changed

POOLS = "workerPoolSpecs"
FIRST, MACHINE = f"{POOLS}[0]", f"{POOLS}[0].machineSpec"
MULTI = {f"{POOLS}[1]": changed(POOL, {"replicaCount": 2})}
GPU = {MACHINE: {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}}
FOUR = {MACHINE: {"machineType": "n1-standard-16", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 4}}

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
SPAWNS = GOOD.replace("    if rank == 0", "    torch.multiprocessing.spawn(print)\n    if rank == 0")
NCCL = GOOD.replace('"nccl" if use_gpu else "gloo"', '"nccl"')
GLOO = GOOD.replace('"nccl" if use_gpu else "gloo"', 'backend="gloo"')
LONE = GOOD.replace('os.environ["WORLD_SIZE"]', 'os.environ.get("WORLD_SIZE", 1)')
GETENV = GOOD.replace('os.environ["WORLD_SIZE"]', 'os.getenv("WORLD_SIZE", "1")')
UNSHARED = GOOD.replace(", DistributedSampler", "").replace(", sampler=DistributedSampler(data)", "")
ALL_SAVE = "import torch\ndef main():\n    torch.save({}, 'model.pt')\nmain()\n"
PRINTED = GOOD.replace("    if rank == 0:\n        torch.save", '    print(f"process {rank}")\n    torch.save')
GUARDED = """\
import os, torch, torch.distributed as dist
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
torch.save({}, os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/") + "/m.pt")
"""
CUDA = "import torch\ndef main():\n    model = torch.nn.Linear(1, 1).cuda()\nmain()\n"
DEVICE = "import torch\nmodel = torch.nn.Linear(1, 1).to(torch.device('cuda'))\n"

CASES = [
    Case("torch-backend", "job", {}, GPU, MACHINE, NCCL),
    Case("torch-backend", "job", {}, {}, MACHINE, NCCL, GOOD),
    Case("torch-backend", "job", {**GPU, **MULTI}, GPU, MACHINE, GLOO),
    Case("torch-backend", "job", {**GPU, **MULTI}, GPU, MACHINE, GUARDED),
    Case("torch-backend", "job", MULTI, {}, MACHINE, GUARDED.replace("gloo", "nccl")),
    Case("torch-saving", "job", MULTI, {}, FIRST, GUARDED),
    Case("torch-world-size", "job", MULTI, MULTI, FIRST, LONE, GOOD),
    Case("torch-world-size", "job", MULTI, {}, FIRST, GETENV),
    Case("torch-sampler", "job", MULTI, MULTI, FIRST, UNSHARED, GOOD),
    Case("torch-sampler", "job", MULTI, {}, FIRST, UNSHARED),
    Case("torch-saving", "job", MULTI, MULTI, FIRST, ALL_SAVE, GOOD),
    Case("torch-saving", "job", MULTI, {}, FIRST, ALL_SAVE),
    Case("torch-saving", "job", MULTI, MULTI, FIRST, PRINTED, GOOD),
    Case("torch-idle-gpus", "job", FOUR, GPU, f"{MACHINE}.acceleratorCount", GOOD),
    Case("torch-idle-gpus", "job", FOUR, FOUR, f"{MACHINE}.acceleratorCount", GOOD, SPAWNS),
    Case("torch-cuda", "job", {}, GPU, MACHINE, CUDA),
    Case("torch-cuda", "job", {}, {}, MACHINE, DEVICE, GOOD),
]
