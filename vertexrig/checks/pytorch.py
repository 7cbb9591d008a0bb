"""PyTorch trainers against their cluster: backends, shares of the data, who saves, GPUs that are not there.

Trainers that leave these to Lightning, Accelerate, DeepSpeed, Horovod, Ray or Transformers are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vertexrig.checks._arguments import trainer_pools
from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.checks.sources import DISTRIBUTED, PRACTICE, join
from vertexrig.finding import Severity
from vertexrig.package.source.model import SourcePlace, TorchUse
from vertexrig.spec.document import Document, Pool
from vertexrig.spec.pools import has_gpu, placeholder

_TORCH = "PyTorch 2.13.0, run and read 2026-11-21"
_RANKS = "vertex-ai-samples, multi-node DDP notebook, which reads WORLD_SIZE with 1 as default (read 2026-11-21)"
# Packages that choose devices, share out the data and let one process save by themselves.
_FRAMEWORKS = frozenset(
    {"accelerate", "composer", "deepspeed", "fairscale", "horovod", "ignite", "lightning", "pytorch_lightning", "ray",
     "torch_xla", "transformers"}
)  # fmt: skip


def _subject(document: Document, context: Context) -> tuple[TorchUse, list[Pool], bool] | None:
    """What the trainer does, the pools that run it, and whether their machines are known to have GPUs.

    None for a trainer that is not known, not readable, or not plain PyTorch.
    """
    trainer = context.trainer
    if trainer is None or trainer.problems:
        return None
    packages = {item.module.split(".")[0] for item in trainer.imports}
    pools = [pool for pool in trainer_pools(document, trainer) if not placeholder(pool)]
    if "torch" not in packages or packages & _FRAMEWORKS or not pools:
        return None
    return trainer.torch, pools, any(has_gpu(pool, context.catalog) for pool in pools)


def _where(places: Sequence[SourcePlace]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{places[0].file}:{places[0].line}{more}"


def _replicas(pools: Sequence[Pool]) -> int:
    return sum(pool.replica_count for pool in pools if pool.index in (0, 1))


def backend(document: Document, context: Context) -> Iterator[Problem]:
    """NCCL joins GPUs, gloo CPUs."""
    subject = _subject(document, context)
    if subject is None or not subject[0].backends:
        return
    use, pools, gpus = subject
    names = {place.text for place in use.backends}
    path = f"{pools[0].path}.machineSpec"
    if names == {"nccl"} and not gpus:
        message = f"the trainer joins its processes by nccl ({_where(use.backends)}), which needs a GPU in each; the machines have none"
        yield Problem(path, message, 'use "gloo" where torch.cuda.is_available() is false, or machines with GPUs')
    elif names == {"gloo"} and gpus:
        message = f"the trainer joins its processes by gloo ({_where(use.backends)}), which moves each gradient through the CPU"
        yield Problem(path, message, 'use "nccl" where torch.cuda.is_available()', Severity.WARNING)


def world_size(document: Document, context: Context) -> Iterator[Problem]:
    """A trainer on several replicas does not take a missing WORLD_SIZE for 1."""
    subject = _subject(document, context)
    if subject is None or _replicas(subject[1]) < 2 or not subject[0].lone_worlds:
        return
    where, count = _where(subject[0].lone_worlds), _replicas(subject[1])
    message = f"WORLD_SIZE is read with 1 as default ({where}): where it is not set, {count} replicas train {count} models, and the job succeeds"
    yield Problem(subject[1][0].path, message, 'read os.environ["WORLD_SIZE"] on jobs of several replicas')


def sampler(document: Document, context: Context) -> Iterator[Problem]:
    """Replicas that train one model share the examples out."""
    subject = _subject(document, context)
    if subject is None or _replicas(subject[1]) < 2:
        return
    use, pools, _ = subject
    if use.loaders and not use.samples and (use.backends or use.knows_rank):
        message = f"no DataLoader has a sampler ({_where(use.loaders)}): each of {_replicas(pools)} replicas trains on all examples"
        yield Problem(
            pools[0].path, message, "give the training DataLoader a DistributedSampler, and call its set_epoch"
        )


def saving(document: Document, context: Context) -> Iterator[Problem]:
    """Of several replicas, one writes the model."""
    subject = _subject(document, context)
    if subject is None or _replicas(subject[1]) < 2 or not subject[0].saves or subject[0].knows_rank:
        return
    message = f"torch.save ({_where(subject[0].saves)}) runs in each of {_replicas(subject[1])} replicas, and the source names no rank: they write the same file"
    yield Problem(subject[1][0].path, message, "save where torch.distributed.get_rank() is 0")


def cuda(document: Document, context: Context) -> Iterator[Problem]:
    """A trainer that needs a GPU gets one."""
    subject = _subject(document, context)
    if subject is None or subject[2] or not subject[0].cuda or subject[0].asks_for_cuda:
        return
    message = f"the trainer uses a GPU without asking for one ({subject[0].cuda[0].text}, {_where(subject[0].cuda)}), and the machines have none"
    fix = "choose the device by torch.cuda.is_available(), or add an accelerator"
    yield Problem(f"{subject[1][0].path}.machineSpec", message, fix)


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
RULES: tuple[Rule, ...] = (
    Rule("torch-backend", _E, "PyTorch's processes are joined by nccl on GPUs and by gloo on CPUs.", _TORCH, backend),
    Rule("torch-world-size", _I, "A PyTorch trainer on several replicas does not take a missing WORLD_SIZE for 1.",
         _RANKS, world_size),
    Rule("torch-sampler", _W, "PyTorch replicas that train one model share the examples out.",
         join(_TORCH, PRACTICE), sampler),
    Rule("torch-saving", _W, "Of several PyTorch replicas, one writes the model.", join(DISTRIBUTED, PRACTICE), saving),
    Rule("torch-cuda", _E, "A PyTorch trainer that needs a GPU gets one.", _TORCH, cuda),
)  # fmt: skip
