"""What to write in place of a machine type that is not one for training."""

from __future__ import annotations

import re

from vertexrig.catalog import Catalog, Machine
from vertexrig.errors import meant

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


def instead(name: str, catalog: Catalog) -> str:
    """The smallest machine type for training that is as large as `name`, of the same family if it has one; or ""."""
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


def unknown(name: str, catalog: Catalog) -> tuple[str, str]:
    """The message about a machine type that no list has, and the fix if there is a likely one."""
    text = f"{name[:80]!r} is not on the list of machine types for training."
    gke = re.fullmatch(_GKE, name)
    if gke is not None:
        known = _VERTEX_TPU.get(gke[1])
        choices = ", ".join(name for name in _VERTEX_TPU if name != "v5")  # v5 is GKE's own name of v5e
        asked = f"Vertex AI is asked with {known}" if known else f"Vertex AI trains on TPU {choices}, not on {gke[1]}"
        return f"{text} It is a name of GKE's TPU slices: {asked}", f"write {known}" if known else ""
    sizes = _sizes(name, catalog)
    if sizes:
        enough = instead(name, catalog)
        series = name.rpartition("-")[0]
        fix = f"write {enough}, for example" if enough else ""
        return f"{text} {series} has the sizes {', '.join(sizes)}.", fix
    best = meant(name, catalog.machines)
    if best:
        return f"{text} Did you mean {best!r}?", f"write {best}"
    families = ", ".join(sorted({row.family for row in catalog.machines.values()}))
    return f"{text} `vertexrig catalog machines` prints it: {families}.", ""


def impossible(name: str, catalog: Catalog) -> bool:
    """Whether a name that no list has is surely wrong: another spelling of one, or a size that its series does not come in.

    A family or a series that is not known may be new.
    """
    return name.lower().replace("_", "-") in catalog.machines or bool(_sizes(name, catalog))


def _sizes(name: str, catalog: Catalog) -> list[str]:
    """The sizes of the series that `name` seems to be of, by its name and the unit after its number; [] if there is none."""
    found = re.fullmatch(_OF_SERIES, name)
    return [f"{number}{found[2]}" for number, _ in _series(found[1], catalog, found[2])] if found is not None else []


def _series(prefix: str, catalog: Catalog, unit: str = "") -> list[tuple[int, Machine]]:
    """The machine types `PREFIX-NUMBER` by number; with a unit, as in a2-highgpu-1g, `PREFIX-NUMBERg`."""
    sized = re.compile(rf"{re.escape(prefix)}-(\d+){unit}")
    found = ((sized.fullmatch(name), row) for name, row in catalog.machines.items())
    return sorted(((int(match[1]), row) for match, row in found if match is not None), key=lambda pair: pair[0])
