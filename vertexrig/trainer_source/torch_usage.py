"""What a PyTorch trainer does that its cluster must fit: process groups, samplers, saves, devices."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import SourceCall, dotted, full_name, last_name, plain_text
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.trainer_model import Flag, SourcePlace, TorchUse

_SAMPLERS = frozenset(
    {"DistributedSampler", "split_dataset_by_node", "DistributedBatchSampler", "StatefulDistributedSampler"}
)
_RANKS = frozenset(
    """
    rank global_rank local_rank node_rank world_rank get_rank process_index is_main_process is_master is_chief
    is_rank_zero
    """.split()
)
# Calls that are given a rank and let nobody save: what prints, joins the processes, shares data out, chooses a device.
_RANKED = frozenset(
    """
    print debug info warning error init_process_group set_device device DistributedSampler split_dataset_by_node
    DistributedDataParallel DDP
    """.split()
)


_SEVERAL = frozenset(
    """
    DataParallel data_parallel spawn start_processes elastic_launch launch_agent Process Popen ProcessPoolExecutor
    subprocess multiprocessing device_map parallelize_module Pipe notebook_launcher torchrun cuda:1 cuda:{} cuda:
    device_count
    """.split()
)
"""Names that suggest that the program itself uses several GPUs."""
_CAUGHT = frozenset({"ValueError", "RuntimeError", "Exception", "BaseException"})
"""What joining a process group may raise."""


def torch_use(code: Code, runs: Runs, flags: Iterable[Flag]) -> TorchUse:
    """Return what the source says plainly; what only the running program knows is left out."""
    backends, lone, loaders, saved, cuda, workers = [], [], [], [], [], []
    names = {flag.dest: flag.names[0] for flag in flags}
    for call in code.calls:
        name, place = last_name(call.node.func), SourcePlace(call.module.file, call.node.lineno)
        # before the branches below: the same DataLoader may also lack a sampler
        if name == "DataLoader" and (number := _workers(call, code, names)):
            workers.append(SourcePlace(place.file, place.line, number))
        full = full_name(call.node.func, call.module)
        if name == "init_process_group" and (backend := _backend(call, code)):
            backends.append(SourcePlace(place.file, place.line, backend))
        elif full in {"os.environ.get", "os.getenv", "environ.get", "getenv"} and _world_of_one(call.node):
            lone.append(SourcePlace(place.file, place.line, "WORLD_SIZE"))
        elif name == "DataLoader" and not _sampled(call.node):
            loaders.append(SourcePlace(place.file, place.line, "DataLoader"))
        elif full == "torch.save":
            saved.append(SourcePlace(place.file, place.line, full))
        elif _on_cuda(call.node, name):
            cuda.append(SourcePlace(place.file, place.line, ast.unparse(call.node)[:60]))
    words = _words(code)
    joins = [
        call.node
        for call in code.calls
        if last_name(call.node.func) == "init_process_group"
        and runs.reached(call.node, call.module)
        and not runs.caught(call.node, call.module, _CAUGHT)
    ]
    return TorchUse(
        tuple(backends),
        tuple(lone),
        tuple(loaders),
        tuple(workers),
        tuple(saved),
        tuple(cuda),
        samples=bool(words & _SAMPLERS),
        knows_rank=bool(words & _RANKS),
        uses_rank=any(_uses_rank(module.tree) for module in code.modules),
        asks_for_cuda=bool(words & {"is_available", "device_count"}),
        starts_several=bool(words & _SEVERAL),
        joins_alone=bool(joins),
        needs_ranks=not lone and not words & {*_SEVERAL, "world_size"} and any(map(_by_variables, joins)),
    )


def _by_variables(node: ast.Call) -> bool:
    """Whether a call of `init_process_group` takes its rank and the number of processes from environment variables."""
    own = {"init_method", "rank", "world_size", "store", None}
    return len(node.args) <= 1 and not own & {part.arg for part in node.keywords}


def _uses_rank(tree: ast.Module) -> bool:
    """Whether a rank is looked at where it may decide who saves: not where it gets its name, or goes to one of `_RANKED`."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Call) and last_name(node.func) in _RANKED:
            continue
        if isinstance(node, ast.Assign) and _names_rank(node):
            continue
        named = last_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else (plain_text(node) or "").lower()
        if named in _RANKS:
            return True
        left.extend(ast.iter_child_nodes(node))
    return False


def _names_rank(node: ast.Assign) -> bool:
    """Whether an assignment only gives a rank its name: `rank = dist.get_rank()`, also together with others."""
    targets = [part for target in node.targets for part in getattr(target, "elts", [target])]
    decides = (ast.Compare, ast.Not, ast.IfExp, ast.BoolOp)
    return any(last_name(target) in _RANKS for target in targets) and not any(
        isinstance(part, decides) for part in ast.walk(node.value)
    )


def _backend(call: SourceCall, code: Code) -> str:
    texts = code.texts(call.argument(0, "backend"), call.scope, call.module)
    return texts[0].lower() if texts and len(texts) == 1 else ""


def _world_of_one(node: ast.Call) -> bool:
    """Whether a look at the environment takes 1 where WORLD_SIZE is not set."""
    values = [part.value if isinstance(part, ast.Constant) else None for part in node.args]
    return len(values) == 2 and values[0] == "WORLD_SIZE" and values[1] in (1, "1")


def _sampled(node: ast.Call) -> bool:
    """Whether a DataLoader is given what chooses its examples, or may be."""
    return any(word.arg is None or word.arg in {"sampler", "batch_sampler"} for word in node.keywords)


def _workers(call: SourceCall, code: Code, flags: Mapping[str, str]) -> str:
    """Return how many processes a DataLoader starts, as text; "" for none, or where that is not plain."""
    given = call.keywords.get("num_workers")
    if given is None:
        return ""
    values = code.values(given, call.scope, call.module)
    if values is not None:
        numbers = [value for value in values if isinstance(value, int)]
        # 0 loads in the main process, which needs no shared memory
        return str(max(numbers)) if numbers and min(numbers) > 0 else ""
    if any(
        last_name(part.func) in {"cpu_count", "sched_getaffinity"}
        for part in ast.walk(given)
        if isinstance(part, ast.Call)
    ):
        return ast.unparse(given)[:40]
    return flags.get(given.attr, "") if isinstance(given, ast.Attribute) else ""


def watches_memory(code: Code) -> bool:
    """Whether the source names /dev/shm, the shared memory of its machine."""
    return any("/dev/shm" in text for text, _, _ in code.texts_written)


def _on_cuda(node: ast.Call, name: str) -> bool:
    """Whether a call uses CUDA: `x.cuda()`, `x.to("cuda:0")`, `torch.device("cuda")`, `torch.cuda.set_device(0)`."""
    if isinstance(node.func, ast.Attribute) and name == "cuda":
        return True
    if name in {"to", "device"} and node.args:
        return (plain_text(node.args[0]) or "").startswith("cuda")
    return dotted(node.func) == "torch.cuda.set_device"


def _words(code: Code) -> set[str]:
    """Return every name, attribute and short text of the source, in lower case but for names of classes."""
    found = {item.name for module in code.modules for item in module.imports}
    # "rank" as a key or a format counts; a long text is prose, which may hold any word
    found |= {text.lower() for text, _, _ in code.texts_written if len(text) < 40}
    found |= {node.arg for node, _, _ in code.each(ast.arg)}
    return found | {name for name, _ in code.names}
