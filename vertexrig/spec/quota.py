"""The quota that a job needs: which metric, and how much of it, against what a new project has by default.

Every replica of every trial that runs at once needs its own share: replicas × accelerators × parallel trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vertexrig.catalog import Catalog, Machine
from vertexrig.spec.document import Document, Pool, machine_path, parallel_trials, scheduling_strategy


@dataclass(frozen=True)
class QuotaNeed:
    """What a job takes of one quota while all its replicas and parallel trials run.

    Args:
        item: What needs it: accelerators, machine families or boot disk types, joined by " and ".
        metric: The full metric name, `aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus`; "" if no source
            names it.
        amount: How much, in `unit`.
        unit: "vCPUs", "GPUs", "TPU cores", "TPU chips" or "GB".
        default: What a new project has in the region; None if that is not documented.
        needed_by: How the amount comes about: `2 replicas × 4 × 2 parallel trials`.
        path: The path in the spec that first needs it.
        preemptible: Whether it is the quota of SPOT and FLEX_START. Only the default for vCPUs is documented.
    """

    item: str
    metric: str
    amount: int
    unit: str
    default: int | None
    needed_by: str
    path: str
    preemptible: bool = False


@dataclass(frozen=True)
class _Part:
    """What one pool needs of one quota: `each` per replica."""

    item: str
    each: int
    unit: str
    pool: Pool
    path: str


def quota_needs(document: Document, catalog: Catalog, region: str = "") -> list[QuotaNeed]:
    """Return how much of each quota a job needs, for all its parallel trials; nothing if it runs on a persistent resource.

    Without a `region` no default is known.
    """
    # the machines are the resource's, and took their quota when it was created
    if document.job.get("persistentResourceId"):
        return []
    how = scheduling_strategy(document)
    preemptible = how in catalog.limits.names("scheduling.preemptible_strategies")
    groups: dict[str, list[_Part]] = {}
    for pool in document.running:
        for part in _parts(pool, catalog):
            row = catalog.quota(part.item)
            # by quota, not by item: several machine families may share one quota
            groups.setdefault(row.key if row else part.item, []).append(part)
    trials = parallel_trials(document)
    found = []
    for parts in groups.values():
        items = list(dict.fromkeys(part.item for part in parts))
        disk = parts[0].unit == "GB"  # disks have no preemptible quota
        of_spot = preemptible and not disk
        default_of = catalog.default_preemptible_quota if of_spot else catalog.default_quota
        found.append(
            QuotaNeed(
                " and ".join(items),
                catalog.quota_metric(items[0], "STANDARD" if disk else how) or "",
                sum(part.each * part.pool.replica_count for part in parts) * trials,
                parts[0].unit,
                default_of(region, items[0]),
                _needed_by(parts, trials),
                parts[0].path,
                of_spot,
            )
        )
    return found


def _needed_by(parts: list[_Part], trials: int) -> str:
    terms = []
    for part in parts:
        count = part.pool.replica_count
        terms.append(f"{count} {'replica' if count == 1 else 'replicas'} × {part.each}")
    text = " + ".join(terms)
    if trials > 1:
        text = f"({text}) × {trials} parallel trials" if len(terms) > 1 else f"{text} × {trials} parallel trials"
    return text


def _parts(pool: Pool, catalog: Catalog) -> Iterator[_Part]:
    if pool.replica_count < 1:
        return
    machine = catalog.machines.get(pool.machine_type)
    accelerator = _accelerator(pool, machine, catalog)
    if accelerator is not None:
        yield accelerator
    if machine is None or (accelerator is not None and accelerator.unit.startswith("TPU")):
        return
    family = catalog.quota(machine.family)
    if family is not None and machine.vcpus and machine.family not in catalog.limits.names("quota.unlimited_cpus"):
        yield _Part(machine.family, machine.vcpus, family.unit, pool, machine_path(pool, "machineType"))
    kind = str(pool.disk.get("bootDiskType") or catalog.default_boot_disk(machine.name))
    size = int(pool.disk.get("bootDiskSizeGb") or catalog.limits.integer("boot_disk.default_gb"))
    row = catalog.quota(kind)
    if row is not None and row.unit == "GB" and size > 0:
        yield _Part(kind, size, row.unit, pool, f"{pool.path}.diskSpec" if pool.disk else pool.path)


def _accelerator(pool: Pool, machine: Machine | None, catalog: Catalog) -> _Part | None:
    if machine is not None and machine.tpu:
        topology = machine.tpu_topologies.get(pool.tpu_topology)
        path = machine_path(pool, "tpuTopology")
        return _Part(machine.tpu, topology.chips, "TPU chips", pool, path) if topology is not None else None
    name = catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count)
    if not name or pool.accelerator_count < 1:
        return None
    row = catalog.accelerators.get(name)
    unit = "TPU cores" if row is not None and row.kind == "tpu" else "GPUs"
    return _Part(name, pool.accelerator_count, unit, pool, machine_path(pool, "acceleratorType"))
