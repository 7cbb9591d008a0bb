"""What a job or sweep costs: an estimate from the catalog's prices, per hour and for the longest it may run.

On-demand prices of one region; every line carries its date, and a line without a sourced price makes the sums "at
least". A tuning job is billed by the duration of its trials (hyperparameter tuning overview, 2026-08-22).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vertexrig.catalog import Catalog, LineItem, Machine, Price
from vertexrig.spec.document import Document, Pool, job_part, most_trials, parallel_trials, scheduling_strategy
from vertexrig.times import duration_seconds

NO_PRICE = "price unknown"


@dataclass(frozen=True)
class Estimate:
    """The price of one run.

    Args:
        lines: What is paid for per hour by one job, or by one trial of a tuning job.
        usd_per_hour: The sum of the lines that have a price.
        complete: Every line has a price; if not, every sum is a lower bound.
        timeout_s: The longest the job, or each trial, may run, in seconds.
        timeout_written: The job says so itself; otherwise it is the service's default.
        trials: Trials at most; None for a custom job.
        parallel: Trials at one time; 1 for a custom job.
        region: The region the prices are for.
        notes: What else decides the bill.
    """

    lines: tuple[LineItem, ...]
    usd_per_hour: float
    complete: bool
    timeout_s: float
    timeout_written: bool
    trials: int | None
    parallel: int
    region: str
    notes: tuple[str, ...] = ()

    @property
    def unpriced(self) -> tuple[str, ...]:
        """What has no sourced price."""
        return tuple(line.item for line in self.lines if line.usd_per_hour is None)

    @property
    def usd_per_job(self) -> float:
        """One job, or one trial, that runs until its timeout."""
        return self.usd_per_hour * self.timeout_s / 3600

    @property
    def usd_at_most(self) -> float:
        """The whole run: every trial there may be, each until its timeout."""
        return self.usd_per_job * (1 if self.trials is None else self.trials)

    @property
    def rank(self) -> tuple[bool, float]:
        """What sorts the cheapest first; without a price it may be any, and comes last."""
        return not self.complete, self.usd_at_most

    @property
    def wall_s(self) -> float:
        """The longest the whole run takes, in seconds: rounds of parallel trials, each until its timeout."""
        return self.timeout_s * (1 if self.trials is None else math.ceil(self.trials / self.parallel))


def estimate(document: Document, catalog: Catalog) -> Estimate:
    """Return the price of a job or sweep."""
    how = scheduling_strategy(document)
    lines = _merged(line for pool in document.running for line in _pool_lines(pool, how, catalog))
    usd, complete = total(lines)
    timeout = str(job_part(document, "scheduling").get("timeout", "0s"))
    # 0s means no limit of one's own: the service's default applies
    written = max(0.0, duration_seconds(timeout) or 0.0)
    trials = None if document.kind == "CustomJobSpec" else max(0, most_trials(document))
    return Estimate(
        lines=lines,
        usd_per_hour=usd,
        complete=complete,
        timeout_s=written or float(catalog.limits.integer("scheduling.default_timeout_s")),
        timeout_written=written > 0,
        trials=trials,
        parallel=parallel_trials(document),
        region=catalog.limits.text("price.region"),
        notes=tuple(_notes(document)),
    )


def elsewhere(price: Estimate, region: str, factor: float | None) -> Estimate:
    """Return the price of the same run in a region that the catalog's prices are not for.

    `factor` is prices there as a multiple of the catalog's, from the project file; without one there is no sourced price.
    """
    if region == price.region:
        return price
    if factor is None:
        # the price of another region, marked as such, is a better guess than no price
        return replace(price, complete=False, notes=(*price.notes, f"prices are for {price.region}, not for {region}"))
    lines = tuple(
        line if line.usd_per_hour is None else replace(line, usd_per_hour=line.usd_per_hour * factor)
        for line in price.lines
    )
    return replace(price, lines=lines, usd_per_hour=price.usd_per_hour * factor, region=region)


def _pool_lines(pool: Pool, how: str, catalog: Catalog) -> tuple[LineItem, ...]:
    machine = catalog.machines.get(pool.machine_type)
    topology = machine.tpu_topologies.get(pool.tpu_topology) if machine is not None else None
    vms = pool.replica_count * (topology.vms if topology is not None else 1)  # a TPU slice may have several hosts
    if vms < 1:
        return ()
    return hourly(
        catalog,
        pool.machine_type,
        pool.accelerator_type or None,
        pool.accelerator_count,
        pool.disk.get("bootDiskSizeGb"),
        disk_type=pool.disk.get("bootDiskType"),
        replicas=vms,
        strategy=how,
    )


def hourly(
    catalog: Catalog,
    machine_type: str,
    accelerator: str | None = None,
    count: int = 0,
    disk_gb: int | None = None,
    *,
    disk_type: str | None = None,
    replicas: int = 1,
    strategy: str = "STANDARD",
) -> tuple[LineItem, ...]:
    """Return what a worker pool costs per hour: an estimate, line by line (see `total`).

    Args:
        catalog: The catalog.
        machine_type: The machine type.
        accelerator: The accelerator, if any.
        count: Accelerators per VM.
        disk_gb: Boot disk size in GB per VM; the service's default if None.
        disk_type: Boot disk type; the machine's default if None.
        replicas: How many VMs.
        strategy: Scheduling strategy; only on-demand prices are known.
    """
    gigabytes = catalog.limits.integer("boot_disk.default_gb") if disk_gb is None else disk_gb
    lines = [_machine_line(machine_type, catalog.machines.get(machine_type), catalog.prices, replicas)]
    if accelerator and count:
        lines.append(_accelerator_line(accelerator, count * replicas, catalog.prices, machine_type))
    disk = disk_type or catalog.default_boot_disk(machine_type)
    lines.append(_disk_line(disk, gigabytes * replicas, catalog.prices))
    if strategy in catalog.limits.names("scheduling.preemptible_strategies"):
        # Such VMs are not billed at on-demand prices, and the catalog has no source for others.
        why = f"{NO_PRICE}: {strategy} is billed at other rates"
        lines = [replace(one, usd_per_hour=None, basis="", source="", date="", note=why) for one in lines]
    return tuple(lines)


def _machine_line(name: str, machine: Machine | None, prices: Mapping[str, Price], vms: int) -> LineItem:
    """Return what `vms` machines cost: by their own row, or by the rates per vCPU and GB of their family."""
    price = prices.get(name)
    if price is not None and price.kind == "machine":
        return _line(price, name, "machine", vms)
    if machine is None or machine.vcpus is None or machine.memory_gb is None:
        return LineItem(name, "machine", vms, None, "", note=NO_PRICE)
    # the rates of the series (n1-highmem) go before those of the family (n1)
    for prefix in (name.rpartition("-")[0], machine.family):
        vcpu, memory = prices.get(f"{prefix}-vcpu"), prices.get(f"{prefix}-memory-gb")
        if vcpu is not None and memory is not None:
            each = machine.vcpus * vcpu.usd_per_hour + machine.memory_gb * memory.usd_per_hour
            basis = "derived" if "derived" in (vcpu.basis, memory.basis) else "listed"
            note = f"{machine.vcpus} vCPU and {machine.memory_gb:g} GB at the rates of {prefix}"
            return LineItem(name, "machine", vms, each * vms, basis, vcpu.source, vcpu.date, note)
    return LineItem(name, "machine", vms, None, "", note=NO_PRICE)


def _accelerator_line(name: str, count: int, prices: Mapping[str, Price], machine_type: str) -> LineItem:
    """Return what `count` accelerators cost; nothing more if the machine's price holds them."""
    whole = prices.get(machine_type)
    if whole is not None and whole.kind == "machine" and whole.includes_accelerators:
        # 0 and not None: the sum is whole, and the line says where the accelerator's price is.
        return LineItem(name, "accelerator", count, 0.0, "included", whole.source, whole.date, f"in {machine_type}")
    price = prices.get(name)
    if price is None or price.kind != "accelerator":
        return LineItem(name, "accelerator", count, None, "", note=NO_PRICE)
    return _line(price, name, "accelerator", count)


def _disk_line(disk_type: str, gigabytes: float, prices: Mapping[str, Price]) -> LineItem:
    """Return what boot disks of `gigabytes` in all cost."""
    price = prices.get(disk_type)
    if price is None or price.kind != "disk_gb":
        return LineItem(disk_type, "disk_gb", gigabytes, None, "", note=NO_PRICE)
    return _line(price, disk_type, "disk_gb", gigabytes)


def total(lines: Iterable[LineItem]) -> tuple[float, bool]:
    """Return the sum of the lines that have a price, and whether every line had one."""
    known = [line.usd_per_hour for line in lines]
    return sum(usd for usd in known if usd is not None), None not in known


def _line(price: Price, item: str, kind: str, quantity: float) -> LineItem:
    usd = price.usd_per_hour * quantity
    return LineItem(item, kind, quantity, usd, price.basis, price.source, price.date, price.note)


def _merged(lines: Iterable[LineItem]) -> tuple[LineItem, ...]:
    """Return one line per item over all pools: machines, then accelerators, then disks."""
    found: dict[tuple[str, str, str], LineItem] = {}
    for line in lines:
        key = (line.kind, line.item, line.basis)
        before = found.get(key)
        if before is not None:
            both = (before.usd_per_hour, line.usd_per_hour)  # a part without a price leaves the whole without one
            usd = None if None in both else sum(usd for usd in both if usd is not None)
            line = replace(before, quantity=before.quantity + line.quantity, usd_per_hour=usd)
        found[key] = line
    order = ("machine", "accelerator", "disk_gb")
    return tuple(sorted(found.values(), key=lambda line: order.index(line.kind)))


def _notes(document: Document) -> Iterable[str]:
    how = scheduling_strategy(document)
    if how in ("SPOT", "FLEX_START"):
        yield f"{how} is billed as Compute Engine plus a management fee; the catalog has on-demand prices only"
    if document.job.get("persistentResourceId"):
        yield "the job runs on a persistent resource: these are the prices of such machines, not of the job"
    if any(pool.reserved for pool in document.running):
        yield "a reservation is billed as Compute Engine plus a management fee, not by these prices"
