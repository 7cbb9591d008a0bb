"""Hourly estimates from the catalog's prices: line items, each with its basis and date, or without a price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from vertexrig.catalog import Catalog, LineItem, Machine, Price

NO_PRICE = "no sourced price"


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
    """What a worker pool costs per hour: an estimate, line by line (see `total`).

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
    lines = [machine_line(machine_type, catalog.machines.get(machine_type), catalog.prices, replicas)]
    if accelerator and count:
        lines.append(accelerator_line(accelerator, count * replicas, catalog.prices, machine_type))
    disk = disk_type or catalog.default_boot_disk(machine_type)
    lines.append(disk_line(disk, gigabytes * replicas, catalog.prices))
    if strategy in catalog.limits.names("scheduling.preemptible_strategies"):
        why = f"no sourced price: {strategy} is billed at other rates"
        # Such VMs are not billed at on-demand prices, and the catalog has no source for others.
        lines = [unpriced(line, why) for line in lines]
    return tuple(lines)


def machine_line(name: str, machine: Machine | None, prices: Mapping[str, Price], vms: int) -> LineItem:
    """What `vms` machines cost: by their own row, or by the rates per vCPU and GB of their family.

    Args:
        name: The machine type.
        machine: Its row; None if the catalog does not know it.
        prices: The price table.
        vms: How many VMs.
    """
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


def accelerator_line(name: str, count: int, prices: Mapping[str, Price], machine_type: str) -> LineItem:
    """What `count` accelerators cost; nothing more if the machine's price holds them."""
    whole = prices.get(machine_type)
    if whole is not None and whole.kind == "machine" and whole.includes_accelerators:
        # 0 and not None: the sum is whole, and the line says where the accelerator's price is.
        return LineItem(name, "accelerator", count, 0.0, "included", whole.source, whole.date, f"in {machine_type}")
    price = prices.get(name)
    if price is None or price.kind != "accelerator":
        return LineItem(name, "accelerator", count, None, "", note=NO_PRICE)
    return _line(price, name, "accelerator", count)


def disk_line(disk_type: str, gigabytes: float, prices: Mapping[str, Price]) -> LineItem:
    """What boot disks of `gigabytes` in all cost."""
    price = prices.get(disk_type)
    if price is None or price.kind != "disk_gb":
        return LineItem(disk_type, "disk_gb", gigabytes, None, "", note=NO_PRICE)
    return _line(price, disk_type, "disk_gb", gigabytes)


def unpriced(line: LineItem, why: str) -> LineItem:
    """The same line without its price, for a way of scheduling that is billed at other rates."""
    return replace(line, usd_per_hour=None, basis="", source="", date="", note=why)


def total(lines: Iterable[LineItem]) -> tuple[float, bool]:
    """The sum of the lines that have a price, and whether every line had one."""
    known = [line.usd_per_hour for line in lines]
    return sum(usd for usd in known if usd is not None), None not in known


def _line(price: Price, item: str, kind: str, quantity: float) -> LineItem:
    usd = price.usd_per_hour * quantity
    return LineItem(item, kind, quantity, usd, price.basis, price.source, price.date, price.note)
