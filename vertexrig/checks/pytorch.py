"""PyTorch trainers against their cluster: backends, shares of the data, who saves, missing GPUs, shared memory.

Trainers that leave these to Lightning, Accelerate, DeepSpeed, Horovod, Ray or Transformers are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps

from vertexrig.checks._arguments import passed, trainer_pools
from vertexrig.checks.hardware import processes_asked
from vertexrig.checks.model import DISTRIBUTED, PRACTICE, REST, Context, Problem, Rule, join
from vertexrig.checks.trainer import of_trainer
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool, has_gpu
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.trainer_model import SourcePlace, TorchUse, TrainerSource

_TORCH = "PyTorch 2.13.0, run and read 2026-11-21"
_RANKS = "vertex-ai-samples, multi-node DDP notebook, which reads WORLD_SIZE with 1 as default (read 2026-11-21)"
_WORKERS = (
    "PyTorch 2.13.0 with 8 MiB of /dev/shm, run 2026-11-22; reports from GPU jobs: python-aiplatform issue 3434, "
    "kubeflow/pipelines issue 9147, cloudml-samples issue 451 (read 2026-11-22)"
)
# Packages that choose devices, share out the data and let one process save by themselves.
_FRAMEWORKS = frozenset(
    "accelerate composer deepspeed fairscale horovod ignite lightning pytorch_lightning ray torch_xla transformers".split()
)


def _plain(
    check: Callable[[TorchUse, list[Pool], bool], Iterable[Problem]],
) -> Callable[[Document, Context], Iterator[Problem]]:
    """Return a rule on what a trainer does with plain PyTorch, the pools that run it, and whether their machines have GPUs.

    Nothing is found for a trainer that is not known, not readable, or leaves these to a framework.
    """

    @wraps(check)
    def rule(document: Document, context: Context) -> Iterator[Problem]:
        trainer = context.trainer
        if trainer is None or trainer.problems:
            return
        packages = {item.module.split(".")[0] for item in trainer.imports}
        pools = [pool for pool in trainer_pools(document, trainer) if pool.makes_machines]
        if "torch" in packages and not packages & _FRAMEWORKS and pools:
            yield from check(trainer.torch, pools, any(has_gpu(pool, context.catalog) for pool in pools))

    return rule


def _where(locations: Sequence[SourcePlace]) -> str:
    more = f" and {len(locations) - 1} more" if len(locations) > 1 else ""
    return f"{locations[0].where}{more}"


def _training(pools: Sequence[Pool]) -> list[Pool]:
    # pools 2 and 3 do not train: Reduction Server and evaluator
    return [pool for pool in pools if pool.index in (0, 1)]


def _replicas(pools: Sequence[Pool]) -> int:
    return sum(pool.replica_count for pool in _training(pools))


def _processes(pools: Sequence[Pool]) -> tuple[int, str]:
    """Return how many processes train, and the same in words: a launcher such as torchrun starts one for each GPU of a replica."""
    count = sum(pool.replica_count * _launched(pool) for pool in _training(pools))
    return count, f"{count} {'replicas' if count == _replicas(pools) else 'processes'}"


def _launched(pool: Pool) -> int:
    if not started_program.launched(pool.words):
        return 1
    return processes_asked(pool.words) or max(pool.accelerator_count, 1)


@_plain
def backend(use: TorchUse, pools: list[Pool], gpus: bool) -> Iterator[Problem]:
    names = {location.text for location in use.backends}
    path, several = f"{pools[0].path}.machineSpec", _processes(pools)[0] > 1 or use.starts_several
    if not several and not use.joins_alone:
        return  # what joins processes is behind a condition that one process does not meet
    if names == {"nccl"} and not gpus:
        message = f"the trainer uses the nccl backend ({_where(use.backends)}), which needs a GPU for each process; the machines have none"
        yield Problem(path, message, 'use "gloo" where torch.cuda.is_available() is false, or machines with GPUs')
    elif names == {"gloo"} and gpus and several:
        message = (
            f"the trainer uses the gloo backend ({_where(use.backends)}), which moves each gradient through the CPU"
        )
        yield Problem(path, message, 'use "nccl" where torch.cuda.is_available()', Severity.WARNING)


@_plain
def world_size(use: TorchUse, pools: list[Pool], gpus: bool) -> Iterator[Problem]:
    count = _replicas(pools)
    if count > 1 and use.lone_worlds:
        where = _where(use.lone_worlds)
        message = f"WORLD_SIZE is read with 1 as default ({where}): where it is not set, {count} replicas train {count} models, and the job succeeds"
        yield Problem(pools[0].path, message, 'read os.environ["WORLD_SIZE"] on jobs of several replicas')


@_plain
def sampler(use: TorchUse, pools: list[Pool], gpus: bool) -> Iterator[Problem]:
    # Without a process group or a rank each replica trains a model of its own, on purpose or by another rule's finding.
    if _processes(pools)[0] > 1 and use.loaders and not use.samples and (use.backends or use.knows_rank):
        message = f"no DataLoader has a sampler ({_where(use.loaders)}): each of {_processes(pools)[1]} trains on all examples"
        fix = "give the training DataLoader a DistributedSampler, and call its set_epoch"
        yield Problem(pools[0].path, message, fix)


@_plain
def saving(use: TorchUse, pools: list[Pool], gpus: bool) -> Iterator[Problem]:
    if _processes(pools)[0] > 1 and use.saves and not use.uses_rank:
        message = f"torch.save ({_where(use.saves)}) runs in each of {_processes(pools)[1]}, and nothing depends on a rank: they write the same file"
        yield Problem(pools[0].path, message, "save where torch.distributed.get_rank() is 0")


@_plain
def cuda(use: TorchUse, pools: list[Pool], gpus: bool) -> Iterator[Problem]:
    if use.cuda and not gpus and not use.asks_for_cuda:
        message = f"the trainer uses a GPU without checking torch.cuda.is_available() ({use.cuda[0].text}, {_where(use.cuda)}), and the machines have none"
        fix = "choose the device by torch.cuda.is_available(), or add an accelerator"
        yield Problem(f"{pools[0].path}.machineSpec", message, fix)


@_plain
def idle_gpus(use: TorchUse, pools: list[Pool], gpus: bool) -> Iterator[Problem]:
    if not gpus or use.starts_several:
        return
    for pool in pools:
        if pool.accelerator_count > 1 and not started_program.launched(pool.words):
            idle = (pool.accelerator_count - 1) * max(pool.replica_count, 1)
            message = (
                f"{pool.accelerator_count} GPUs, and the trainer is one process on one of them: {idle} would be idle"
            )
            fix = "start a process for each with torchrun (topology torchrun), or write acceleratorCount: 1"
            yield Problem(f"{pool.path}.machineSpec.acceleratorCount", message, fix)


@of_trainer
def loader_memory(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if trainer.problems or trainer.watches_memory:
        return
    for location in trainer.torch.workers:
        number = _number(location.text, pools[0], trainer)
        if number:
            message = (
                f"{location.where}: {number} worker processes hand their batches over in /dev/shm; its size in a "
                "training container is documented nowhere, no field of the job sets it, and a worker that finds it full dies"
            )
            fix = "print shutil.disk_usage('/dev/shm') at the start; with little, use fewer workers or num_workers=0"
            yield Problem(pools[0].program_path, message, fix)
            return


def _number(text: str, pool: Pool, trainer: TrainerSource) -> str:
    """Return the number of workers for a message, "" for none or one that is not known."""
    if not text.startswith("-"):
        return text
    flag = trainer.flag(text)
    given = next((item.value for item in passed(pool, trainer) if item.flag is not None and item.flag == flag), None)
    value = given if given is not None else str(flag.default if flag is not None else "")
    return value if value.isdecimal() and int(value) > 0 else ""


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
RULES: tuple[Rule, ...] = (
    Rule("torch-backend", _E, "PyTorch's processes are joined by nccl on GPUs and by gloo on CPUs.", _TORCH, backend),
    Rule("torch-world-size", _I, "A PyTorch trainer on several replicas does not default WORLD_SIZE to 1.",
         _RANKS, world_size),
    Rule("torch-sampler", _W, "PyTorch replicas that train one model split the examples between them.",
         join(_TORCH, PRACTICE), sampler),
    Rule("torch-saving", _W, "Of several PyTorch replicas, one writes the model.", join(DISTRIBUTED, PRACTICE), saving),
    Rule("torch-idle-gpus", _W, "A PyTorch trainer on a machine with several GPUs has a process for each.",
         _TORCH, idle_gpus),
    Rule("torch-cuda", _E, "A PyTorch trainer that needs a GPU gets one.", _TORCH, cuda),
    Rule("loader-shared-memory", _I, "Worker processes of a DataLoader fit into the container's shared memory.",
         join(_WORKERS, REST), loader_memory),
)  # fmt: skip
