"""Machines and the GPUs on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from vertexrig.catalog import Catalog, Machine
from vertexrig.checks.model import (
    GKE,
    LOCATIONS,
    PRACTICE,
    RESERVATION_DOC,
    REST,
    SERVER,
    SERVICE_DOC,
    TRAIN_COMPUTE,
    Context,
    Problem,
    Rule,
    join,
)
from vertexrig.errors import meant
from vertexrig.finding import REMOVE, Edit, Severity, write
from vertexrig.spec.document import Document, Pool, has_gpu, machine_path, scheduling_strategy
from vertexrig.text import quoted

_DUPLICATE = (
    "NVIDIA/Megatron-LM issue 661, facebookresearch/ViewDiff issue 24: Duplicate GPU detected (read 2026-11-29)"
)
_SIZED = r"([a-z0-9]+)-([a-z]+)-(\d+)"
_OF_SERIES = r"([a-z0-9-]+)-[0-9]+([a-z]?)"
# Families for every purpose, in the order they are proposed for one that cannot train.
_FAMILIES = ("n2", "n1", "n4", "e2")
_GKE = r"(?:cloud-)?tpu-(v\d+[a-z]*)(?:-lite)?-(?:podslice|slice|device)"
_VERTEX_TPU = {
    "v2": "machineType: cloud-tpu with acceleratorType: TPU_V2 and acceleratorCount: 8",
    "v3": "machineType: cloud-tpu with acceleratorType: TPU_V3 and acceleratorCount: 8",
    "v5": "machineType: ct5lp-hightpu-4t with tpuTopology: 2x2",
    "v5e": "machineType: ct5lp-hightpu-4t with tpuTopology: 2x2",
    "v6e": "machineType: ct6e-standard-4t with tpuTopology: 2x2",
}


def _instead(name: str, catalog: Catalog) -> str:
    """Return the smallest machine type for training that is as large as `name`, of the same family if it has one; or ""."""
    found = re.match(_SIZED, name)
    if found is None:
        return ""
    family, kind, size = found[1], found[2], int(found[3])
    if kind not in ("standard", "highmem", "highcpu"):
        return ""
    for one in dict.fromkeys((family, *_FAMILIES)):
        enough = [row for number, row in _series(f"{one}-{kind}", catalog) if number >= size]
        if enough and not enough[0].tpu:
            return enough[0].name
    return ""


def _unknown(name: str, catalog: Catalog) -> tuple[str, str | tuple[Edit, ...]]:
    """Return the message about a machine type that no list has, and the fix if there is a likely one: an edit, or words."""
    text = f"{quoted(name)} is not on the list of machine types for training."
    gke = re.fullmatch(_GKE, name)
    if gke is not None:
        known = _VERTEX_TPU.get(gke[1])
        choices = ", ".join(name for name in _VERTEX_TPU if name != "v5")  # v5 is GKE's own name of v5e
        asked = f"On Vertex AI, use {known}" if known else f"Vertex AI trains on TPU {choices}, not on {gke[1]}"
        return f"{text} It is a GKE name of a TPU slice. {asked}", f"write {known}" if known else ""
    sizes = _sizes(name, catalog)
    if sizes:
        enough = _instead(name, catalog)
        series = name.rpartition("-")[0]
        return f"{text} {series} has the sizes {', '.join(sizes)}.", write(enough, safe=False)
    best = meant(name, catalog.machines)
    if best:
        return f"{text} Did you mean {best!r}?", write(best)
    families = ", ".join(sorted({row.family for row in catalog.machines.values()}))
    return f"{text} `vertexrig catalog machines` prints the list. Families: {families}.", ""


def _impossible(name: str, catalog: Catalog) -> bool:
    """Whether a name that no list has is surely wrong: another spelling of one, or a size that its series does not come in.

    A family or a series that is not known may be new.
    """
    return name.lower().replace("_", "-") in catalog.machines or bool(_sizes(name, catalog))


def _sizes(name: str, catalog: Catalog) -> list[str]:
    """Return the sizes of the series that `name` seems to be of, by its name and the unit after its number; [] if there is none."""
    found = re.fullmatch(_OF_SERIES, name)
    return [f"{number}{found[2]}" for number, _ in _series(found[1], catalog, found[2])] if found is not None else []


def _series(prefix: str, catalog: Catalog, unit: str = "") -> list[tuple[int, Machine]]:
    """Return the machine types `PREFIX-NUMBER` by number; with a unit, as in a2-highgpu-1g, `PREFIX-NUMBERg`."""
    sized = re.compile(rf"{re.escape(prefix)}-(\d+){unit}")
    found = ((sized.fullmatch(name), row) for name, row in catalog.machines.items())
    return sorted(((int(match[1]), row) for match, row in found if match is not None), key=lambda pair: pair[0])


def _machines(document: Document, context: Context) -> Iterator[tuple[Pool, Machine]]:
    """Yield the running pools whose machine type is one for training, with its row."""
    for pool in document.running:
        row = context.catalog.machines.get(pool.machine_type)
        if row is not None:
            yield pool, row


def _numbers(counts: Iterable[int]) -> str:
    return ", ".join(str(count) for count in counts)


def _taken(machine: Machine, context: Context) -> str:
    """Return the accelerators a machine takes, `NVIDIA_TESLA_T4 (1, 2, 4)`, without those that another rule finds fault with.

    If none is left, those that the region lacks are named, too; then all.
    """
    catalog, region = context.catalog, context.catalog.regions.get(context.region)

    def supported(name: str) -> bool:
        row = catalog.accelerators.get(name)
        return row is None or not row.retired or not _ended(row.retired, context.today)

    def offered(name: str, counts: Iterable[int]) -> bool:
        return region is None or any(
            catalog.regional_name(machine.name, name, count) in region.training for count in counts
        )

    every = machine.accelerators
    current = {name: counts for name, counts in every.items() if supported(name)}
    here = {name: counts for name, counts in current.items() if offered(name, counts)}
    return ", ".join(f"{name} ({_numbers(counts)})" for name, counts in (here or current or every).items())


def _ended(retired: str, today: date) -> bool:
    """Whether an end of support has come: a date, or words where the date is not known."""
    try:
        return date.fromisoformat(retired) <= today
    except ValueError:
        return True


def machine_missing(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        if not pool.makes_machines or pool.machine_type:
            continue
        if not pool.machine and pool.data.get("replicaCount"):
            continue  # machine-and-replicas reports it
        path = machine_path(pool, "machineType")
        if not document.refused_at(path):
            yield Problem(path, f"pool {pool.index} names no machine type", "write machineSpec.machineType")


def machine_unknown(document: Document, context: Context) -> Iterator[Problem]:
    catalog = context.catalog
    for pool in document.running:
        name = pool.machine_type
        if name and name not in catalog.machines and catalog.why_not(name) is None:
            text, fix = _unknown(name, catalog)
            severity = Severity.ERROR if _impossible(name, catalog) else None
            words, edits = (fix, ()) if isinstance(fix, str) else ("", fix)
            yield Problem(machine_path(pool, "machineType"), text, words, severity, edits=edits)


def machine_not_for_training(document: Document, context: Context) -> Iterator[Problem]:
    catalog = context.catalog
    for pool in document.running:
        reason = catalog.why_not(pool.machine_type)
        if reason is None:
            continue
        # The service was seen to refuse some; the others are only missing from the documented list.
        refused = catalog.refuses(pool.machine_type)
        best = _instead(pool.machine_type, catalog)
        yield Problem(
            machine_path(pool, "machineType"),
            f"{pool.machine_type} is not for training: {reason}",
            f"write {best}, for example" if best else "",
            Severity.ERROR if refused else Severity.WARNING,
            edits=write(best),
        )


def accelerator_pair(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.running:
        name, count = pool.accelerator_type, pool.accelerator_count
        row = context.catalog.machines.get(pool.machine_type)
        if bool(name) == bool(count) or (row is not None and row.tpu):
            continue
        missing = "acceleratorType" if count else "acceleratorCount"
        path = machine_path(pool, missing)
        if document.refused_at(path):
            continue
        allowed = row.accelerators if row is not None else {}
        if count:
            text = f"acceleratorCount is {count}, but acceleratorType is not set; give both or neither"
            only = next(iter(allowed)) if len(allowed) == 1 else ""
            fix = "" if only else "write acceleratorType, or remove acceleratorCount"
            edits = write(only, path)
        else:
            text = f"acceleratorType is {name}, but acceleratorCount is not set; give both or neither"
            counts = allowed.get(name, ())
            fix = "" if counts else "write acceleratorCount"
            edits = write(counts[0], path) if counts else ()
        yield Problem(path, text, fix, edits=edits)


def accelerator_missing(document: Document, context: Context) -> Iterator[Problem]:
    for pool, row in _machines(document, context):
        if not row.accelerator_required or pool.accelerator_type or pool.accelerator_count:
            continue
        path = machine_path(pool, "acceleratorType")
        if document.refused_at(path) or document.refused_at(machine_path(pool, "acceleratorCount")):
            continue
        edits: tuple[Edit, ...] = ()
        if len(row.accelerators) == 1:
            name, counts = next(iter(row.accelerators.items()))
            edits = (*write(name, path), *write(counts[0], machine_path(pool, "acceleratorCount")))
        text = f"{row.name} has built-in accelerators, but acceleratorType is not set. Allowed (with counts): {_taken(row, context)}"
        yield Problem(path, text, "" if edits else "write acceleratorType and acceleratorCount", edits=edits)


def accelerator_on_machine(document: Document, context: Context) -> Iterator[Problem]:
    accelerators = context.catalog.accelerators
    for pool, row in _machines(document, context):
        name = pool.accelerator_type
        accelerator = accelerators.get(name)
        if not name or row.tpu or name in row.accelerators:
            continue
        if accelerator is not None and accelerator.obsolete:
            continue  # accelerator-retired reports it
        takes = f"it takes {_taken(row, context)}" if row.accelerators else "it takes no accelerators"
        fix = f"use a machine of {accelerator.series}" if accelerator is not None and accelerator.series else ""
        text = f"{name} is not supported on {row.name}: {takes}"
        yield Problem(machine_path(pool, "acceleratorType"), text, fix)


def accelerator_count(document: Document, context: Context) -> Iterator[Problem]:
    catalog = context.catalog
    for pool, row in _machines(document, context):
        name, count = pool.accelerator_type, pool.accelerator_count
        counts = row.accelerators.get(name)
        if not counts or not count or catalog.count_allowed(row.name, name, count):
            continue
        accelerator = catalog.accelerators.get(name)
        step = accelerator.pod_step if accelerator is not None else None
        allowed = _numbers(counts) + (f", or a multiple of {step} for a pod" if step else "")
        # The page has "32+" for v3 and "32 or a multiple" for v2.
        uncertain = step is not None and name == "TPU_V3" and count > step
        yield Problem(
            machine_path(pool, "acceleratorCount"),
            f"{row.name} cannot have {count} {name}: the allowed counts are {allowed}",
            fix=f"write {_nearest(counts, count)}",
            severity=Severity.WARNING if uncertain else None,
            edits=write(min(counts, key=lambda known: abs(known - count))),
        )


def _nearest(counts: Iterable[int], count: int) -> str:
    """Return the next smaller and the next larger of the allowed counts: `2 or 4 (the nearest allowed counts)`."""
    ends = [
        max((one for one in counts if one < count), default=0),
        min((one for one in counts if one > count), default=0),
    ]
    nearest = [str(one) for one in ends if one]
    return f"{' or '.join(nearest)} (the nearest allowed count{'s' if len(nearest) > 1 else ''})"


def accelerator_retired(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.running:
        row = context.catalog.accelerators.get(pool.accelerator_type)
        if row is None or not row.retired:
            continue
        path = machine_path(pool, "acceleratorType")
        try:
            ended = date.fromisoformat(row.retired)
        except ValueError:  # words instead of a date, where the date is not known
            severity = None if row.obsolete else Severity.WARNING
            yield Problem(path, f"{row.name}: {row.retired}", "choose another accelerator", severity)
            continue
        days = (context.today - ended).days
        if days >= 0:
            text = f"{row.name} reached its end of support on {row.retired}, {days} days ago"
            yield Problem(path, text, "choose another accelerator", Severity.WARNING)
        else:
            text = f"{row.name} reaches its end of support on {row.retired}, in {-days} days"
            yield Problem(path, text, "", Severity.INFO)


def gpu_on_small_machine(document: Document, context: Context) -> Iterator[Problem]:
    small = context.catalog.limits.names("machines.gpu_may_lose_logs")
    for pool in document.running:
        if pool.machine_type in small and pool.accelerator_type:
            text = f"{pool.machine_type} with GPUs may stop returning logs: it has too little CPU"
            yield Problem(machine_path(pool, "machineType"), text, "take a larger machine")


def reservation_needed(document: Document, context: Context) -> Iterator[Problem]:
    needing = context.catalog.limits.names("machines.need_reservation")
    for pool in document.running:
        if pool.machine_type in needing and not pool.reserved:
            text = f"{pool.machine_type} is available only from a shared reservation"
            yield Problem(machine_path(pool, "machineType"), text, "write machineSpec.reservationAffinity")


def _on_demand(document: Document) -> list[Pool]:
    """Return the running pools whose machines are asked for on demand."""
    if scheduling_strategy(document) != "STANDARD" or document.job.get("persistentResourceId"):
        return []
    return [pool for pool in document.running if not pool.reserved]


def not_on_demand(document: Document, context: Context) -> Iterator[Problem]:
    names = context.catalog.limits.names("machines.spot_or_flex_start_only")
    for pool in _on_demand(document):
        if pool.machine_type in names:
            text = (
                f"reports differ on whether {pool.machine_type} is available on demand for training, and Google's "
                "documentation does not say"
            )
            fix = "if no machine comes, write scheduling.strategy: FLEX_START or SPOT"
            yield Problem(machine_path(pool, "machineType"), text, fix)


def scarce_capacity(document: Document, context: Context) -> Iterator[Problem]:
    for pool in _on_demand(document):
        row = context.catalog.accelerators.get(pool.accelerator_type)
        if row is not None and "capacity" in row.note:
            text = f"Google recommends a shared reservation or Spot VMs for {row.name}"
            yield Problem(machine_path(pool, "acceleratorType"), text)


def gpu_rdma(document: Document, context: Context) -> Iterator[Problem]:
    names = context.catalog.limits.names("machines.gpudirect_rdma")
    pools = document.running
    if sum(pool.replica_count for pool in pools) < 2:
        return
    for pool in pools:
        if pool.machine_type in names and not any("set_nccl_env" in word for word in pool.words):
            text = f"{pool.machine_type} talks to other machines by GPUDirect-RDMA once its NCCL environment is set"
            fix = "prefix the command with: source /usr/local/gib/scripts/set_nccl_env.sh"
            yield Problem(machine_path(pool, "machineType"), text, fix)


def gpu_partition(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.running:
        size = pool.machine.get("gpuPartitionSize")
        if not size:
            continue
        path = machine_path(pool, "gpuPartitionSize")
        if not has_gpu(pool, context.catalog):
            yield Problem(path, f"gpuPartitionSize is {size!r}, but the machine has no GPU", edits=REMOVE)
        elif pool.accelerator_count > 1:
            text = f"with gpuPartitionSize, acceleratorCount should be 1; it is {pool.accelerator_count}"
            yield Problem(path, text, "write acceleratorCount: 1")


def small_memory(document: Document, context: Context) -> Iterator[Problem]:
    share = context.catalog.limits.number("replica.gke_memory_fraction")
    smallest = context.catalog.machines.get("n1-standard-4")
    for pool, row in _machines(document, context):
        if smallest and row.memory_gb and smallest.memory_gb and row.memory_gb <= smallest.memory_gb:
            text = f"of the {row.memory_gb:g} GB of {row.name}, the agents of Vertex AI may take up to {share:.0%}"
            yield Problem(machine_path(pool, "machineType"), text)


def gpus_in_one_zone(document: Document, context: Context) -> Iterator[Problem]:
    pools = (pool for pool in document.running if pool.accelerator_type and has_gpu(pool, context.catalog))
    kinds = list(dict.fromkeys(pool.accelerator_type for pool in pools))
    if len(kinds) > 1:
        path = f"{document.job_path}workerPoolSpecs"
        text = f"the pools use different GPUs ({', '.join(kinds)}), and all GPUs of a job must be in one zone"
        yield Problem(path, text, "check that one zone of the region offers all of them")


def processes_asked(line: Sequence[str]) -> int:
    """Return how many processes torchrun or its like is told to start on each replica by a command line, 0 if no number is."""
    given = re.search(r"--nproc[-_]per[-_]node[= ](\d+)", " ".join(line))
    return int(given[1]) if given else 0


def gpu_shared(document: Document, context: Context) -> Iterator[Problem]:
    backends = {one.text for one in context.trainer.torch.backends} if context.trainer is not None else set()
    for pool in document.pools:
        launcher = context.trainer.launcher if context.trainer is not None else ()
        asked, gpus = processes_asked([*launcher, *pool.words]), pool.accelerator_count
        # by gloo, processes can share a GPU
        if pool.makes_machines and has_gpu(pool, context.catalog) and asked > gpus > 0 and backends != {"gloo"}:
            text = f"a replica has {gpus} GPU{'s' if gpus > 1 else ''}, and torchrun starts {asked} processes: nccl refuses two on one GPU"
            fix = f"write --nproc_per_node={gpus}, or acceleratorCount: {asked} if the machine type allows it"
            yield Problem(pool.program_path, text, fix)


RULES = (
    Rule("machine-missing", Severity.ERROR, "Every worker pool names a machine type.", REST, machine_missing),
    Rule("machine-unknown", Severity.WARNING, "Every machine type is on the list for training.",
         join(TRAIN_COMPUTE, GKE), machine_unknown, "safe"),
    Rule("machine-not-for-training", Severity.ERROR, "Every machine type is for training.",
         join(TRAIN_COMPUTE, PRACTICE), machine_not_for_training, "unsafe"),
    Rule("accelerator-pair", Severity.ERROR, "acceleratorType and acceleratorCount are given together or not at all.",
         SERVER, accelerator_pair, "unsafe"),
    Rule("accelerator-missing", Severity.ERROR, "A machine type with built-in accelerators is written with them.",
         TRAIN_COMPUTE, accelerator_missing, "unsafe"),
    Rule("accelerator-on-machine", Severity.ERROR, "The machine type takes the accelerator.",
         join(TRAIN_COMPUTE, SERVER), accelerator_on_machine),
    Rule("accelerator-count", Severity.ERROR, "The machine type takes that many of the accelerator.",
         join(TRAIN_COMPUTE, SERVER), accelerator_count, "unsafe"),
    Rule("accelerator-retired", Severity.ERROR, "No accelerator is past its end of support.",
         join(TRAIN_COMPUTE, REST), accelerator_retired),
    Rule("gpu-on-small-machine", Severity.WARNING, "No GPU is on a machine too small to return logs.",
         TRAIN_COMPUTE, gpu_on_small_machine),
    Rule("gpu-partition", Severity.WARNING, "gpuPartitionSize is set on machines with one GPU.", REST, gpu_partition, "unsafe"),
    Rule("gpu-shared", Severity.WARNING, "torchrun starts no more processes on a replica than it has GPUs.",
         _DUPLICATE, gpu_shared),
    Rule("gpu-one-zone", Severity.INFO, "All pools use the same type of GPU.", LOCATIONS, gpus_in_one_zone),
    Rule("gpu-rdma", Severity.INFO, "Machines with GPUDirect-RDMA set the NCCL environment.", TRAIN_COMPUTE, gpu_rdma),
    Rule("reservation-needed", Severity.WARNING, "A4X machines come from a reservation.",
         join(TRAIN_COMPUTE, RESERVATION_DOC), reservation_needed),
    Rule("not-on-demand", Severity.INFO, "Machines reported as Spot or Flex Start only are requested that way.",
         "Zenn article 13115385303 of 2025-08; GreggHelt2/structure-prompt-adapter, submit_msa_job.sh (read 2026-11-26)", not_on_demand),
    Rule("scarce-capacity", Severity.INFO, "Scarce accelerators come from a reservation or Spot VMs.",
         TRAIN_COMPUTE, scarce_capacity),
    Rule("small-memory", Severity.INFO, "The machine has memory to spare for the agents of Vertex AI.",
         SERVICE_DOC, small_memory),
)  # fmt: skip
