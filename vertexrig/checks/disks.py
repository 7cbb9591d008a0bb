"""Boot disks."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import REST, TRAIN_COMPUTE, Context, Problem, Rule, join
from vertexrig.errors import meant
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document


def disk_type(document: Document, context: Context) -> Iterator[Problem]:
    types = context.catalog.limits.names("boot_disk.types")
    for pool in document.pools:
        kind = pool.disk.get("bootDiskType")
        if kind and kind not in types:
            best = meant(kind, types)
            # another type of Compute Engine, such as pd-balanced, is no misspelling of the nearest one
            guess = f"Did you mean {best!r}?" if best else f"Choices: {', '.join(types)}."
            text = f"{kind!r} is not a type of boot disk. {guess}"
            yield Problem(f"{pool.path}.diskSpec.bootDiskType", text, edits=write(best))


def disk_size(document: Document, context: Context) -> Iterator[Problem]:
    limits = context.catalog.limits
    least, most = limits.integer("boot_disk.min_gb"), limits.integer("boot_disk.max_gb")
    for pool in document.pools:
        size = pool.disk.get("bootDiskSizeGb")
        if size and not least <= size <= most:
            text = f"a boot disk has {least} to {most:,} GB, not {size:,}"
            yield Problem(f"{pool.path}.diskSpec.bootDiskSizeGb", text, edits=write(least if size < least else most))


def disk_of_machine(document: Document, context: Context) -> Iterator[Problem]:
    catalog = context.catalog
    unclear = catalog.limits.names("machines.set_hyperdisk")
    special = catalog.limits.table("boot_disk.default_type_of_machine")
    for pool in document.running:
        row = catalog.machines.get(pool.machine_type)
        kind = pool.disk.get("bootDiskType")
        if row is None or kind == "hyperdisk-balanced":
            continue
        path = f"{pool.path}.diskSpec.bootDiskType"
        if row.family in unclear:
            text = f"Compute Engine gives {row.family.upper()} machines Hyperdisk only; "
            text += f"{kind} may be refused" if kind else "what training takes by default is not documented"
            severity = None if kind else Severity.INFO
            yield Problem(path, text, "", severity, edits=write("hyperdisk-balanced", path))
        elif kind and row.name in special:
            text = f"{row.name} requires a boot disk of type {special[row.name]}, and {kind} is written"
            fix = f"write {special[row.name]}, or leave it out"
            yield Problem(path, text, fix, Severity.ERROR, edits=write(special[row.name]))


_REQUIRED = "public file, index id 65754704070: how Vertex AI refused a job with a3-ultragpu-8g, 2026"
RULES = (
    Rule("disk-type", Severity.ERROR, "A boot disk's type is one of three.", join(TRAIN_COMPUTE, REST), disk_type, "safe"),
    Rule("disk-size", Severity.ERROR, "A boot disk has 100 to 64,000 GB.", TRAIN_COMPUTE, disk_size, "unsafe"),
    Rule("disk-machine", Severity.WARNING, "The boot disk's type suits the machine.",
         join(TRAIN_COMPUTE, _REQUIRED), disk_of_machine, "unsafe"),
)  # fmt: skip
