"""What Vertex AI training offers, as dated, sourced data: machines, accelerators, regions, images, prices, limits.

In: a name, such as that of a machine type. Out: its row (`rows`), and answers to questions asked of the tables (`Catalog`).
Raw rows are plain dictionaries, one per line of `data/TABLE.json`; `overlay` lays a user's own over them before they are typed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from vertexrig.catalog import rows
from vertexrig.catalog.rows import (
    Accelerator,
    Image,
    Limit,
    Limits,
    LineItem,
    Machine,
    Price,
    Quota,
    Region,
    Source,
    TpuSlice,
)
from vertexrig.errors import UsageError, did_you_mean

__all__ = ["Catalog", "Image", "LineItem", "Machine", "Price", "load"]

_FRAMEWORKS = {"tensorflow": "tf", "torch": "pytorch", "scikit-learn": "sklearn"}
_SHORT_NAME = r"([A-Za-z-]+)-([0-9]+(?:\.[0-9]+)*)"
Raw = dict[str, Any]
Tables = dict[str, dict[str, Raw]]
"""Table name to row name to raw row."""

KEYS: Mapping[str, str] = MappingProxyType(
    {
        "machines": "name",
        "accelerators": "name",
        "regions": "name",
        "images": "name",
        "prices": "item",
        "quotas": "key",
        "limits": "key",
        "sources": "key",
    }
)
"""The tables whose rows have a name, and the field that holds it."""

_DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def read(table: str) -> list[Raw]:
    """Return the raw rows of one data file, in its order."""
    with open(os.path.join(_DATA, f"{table}.json"), encoding="utf-8") as file:
        rows: list[Raw] = json.load(file)
    return rows


def by_name(table: str) -> dict[str, Raw]:
    """Return the raw rows of a named table, by name, in its order."""
    key = KEYS[table]
    return {row[key]: row for row in read(table)}


class Catalog:
    """Every table, each read and typed when it is first asked for.

    Args:
        raw: A function from a table's name to its raw rows by name; the shipped tables if left out.
    """

    def __init__(self, raw: Callable[[str], dict[str, Raw]] = by_name) -> None:
        self._raw = raw

    @cached_property
    def _titles(self) -> Mapping[str, str]:
        return {key: f"{key}: {row['title']}" for key, row in self._raw("sources").items()}

    def _cited(self, row: Raw) -> Raw:
        """Return a row with the text that people see in place of the keys of its sources."""
        source: str = row["source"]
        keys = source.split()
        # a text that is not made of known keys (an overlay's own) is left as it is
        whole = all(key in self._titles for key in keys)
        return {**row, "source": "; ".join(self._titles[key] for key in keys)} if whole else row

    @cached_property
    def machines(self) -> Mapping[str, Machine]:
        """Machine types for training, by name."""
        return {name: rows.machine(row) for name, row in self._raw("machines").items()}

    @cached_property
    def _others(self) -> list[Raw]:
        return read("other_machines")

    @cached_property
    def other_machines(self) -> Mapping[str, str]:
        """Known Compute Engine types that are not for training, and why."""
        # an overlay may add a machine that the shipped list excludes
        return {name: row["reason"] for row in self._others for name in row["names"] if name not in self.machines}

    @cached_property
    def other_families(self) -> Mapping[str, str]:
        """Whole families of machines that are not for training, and why."""
        return {row["family"]: row["reason"] for row in self._others if row.get("whole_family")}

    @cached_property
    def accelerators(self) -> Mapping[str, Accelerator]:
        """GPUs and TPUs, by name."""
        carriers: dict[str, list[str]] = {}
        for machine in self.machines.values():
            # Machines of TPU v5e and later are the TPU: the job names a topology and no accelerator.
            for name in (machine.tpu,) if machine.tpu else machine.accelerators:
                carriers.setdefault(name, []).append(machine.name)
        found = {}
        for name, row in self._raw("accelerators").items():
            quota, machines = self.quota(name), tuple(carriers.get(name, ()))
            drawn = {"quota": quota.metric if quota else None, "quota_key": quota.key if quota else None}
            found[name] = Accelerator(**{**row, **drawn, "machines": machines})
        return found

    @cached_property
    def regions(self) -> Mapping[str, Region]:
        """Regions, by name."""
        return {name: rows.region(row) for name, row in self._raw("regions").items()}

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """Prebuilt images, newest first within a framework."""
        return tuple(Image(**row) for row in self._raw("images").values())

    @cached_property
    def prices(self) -> Mapping[str, Price]:
        """Prices, by item."""
        factor = self.limits.number("price.factor")
        return {item: rows.price(self._cited(row), factor) for item, row in self._raw("prices").items()}

    @cached_property
    def quotas(self) -> Mapping[str, Quota]:
        """Quotas, by key."""
        return {
            key: Quota(**{**row, "applies_to": tuple(row["applies_to"])}) for key, row in self._raw("quotas").items()
        }

    @cached_property
    def limits(self) -> Limits:
        """Limits and defaults, by key."""
        return Limits({key: Limit(**row) for key, row in self._raw("limits").items()})

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """The documents behind the rows, by key."""
        return {key: Source(**{**row, "urls": tuple(row["urls"])}) for key, row in self._raw("sources").items()}

    # ---- machines and accelerators

    def count_allowed(self, machine_type: str, accelerator: str, count: int) -> bool:
        """Whether one VM of this type takes that many; a v2 or v3 TPU pod may have any multiple of its step."""
        machine = self.machines.get(machine_type)
        counts = machine.accelerators.get(accelerator, ()) if machine else ()
        if count in counts:
            return True
        step = self.accelerators[accelerator].pod_step if accelerator in self.accelerators else None
        return bool(counts and step and count >= step and count % step == 0)

    def why_not(self, machine_type: str) -> str | None:
        """Return why a known Compute Engine machine type is not for training; None if it is, or is not known."""
        if machine_type in self.machines:
            return None
        return self.other_machines.get(machine_type) or self.other_families.get(machine_type.partition("-")[0])

    def refuses(self, machine_type: str) -> bool:
        """Whether the service was seen to refuse the machine type, or its family."""
        family = machine_type.partition("-")[0]
        return any(
            row.get("refused")
            and (machine_type in row["names"] or (row.get("whole_family") and row["family"] == family))
            for row in self._others
        )

    def regional_name(self, machine_type: str, accelerator: str | None = None, count: int = 0) -> str | None:
        """Return the name under which regions list an accelerator: `TPU_V2_POD` for 32 cores, `TPU_V5E` for ct5lp; None without one."""
        machine = self.machines.get(machine_type)
        if machine is not None and machine.tpu:
            return machine.tpu
        row = self.accelerators.get(accelerator or "")
        if row is not None and row.pod_step and count >= row.pod_step:
            return row.pod_name
        return accelerator or None

    def regions_with(self, regional_name: str) -> tuple[str, ...]:
        """Return the regions that offer an accelerator for training, by the name `regional_name` gives, sorted."""
        return tuple(sorted(name for name, row in self.regions.items() if regional_name in row.training))

    @cached_property
    def _compute_engine(self) -> Mapping[str, frozenset[str]]:
        groups = read("machine_regions")
        return {name: frozenset(group["regions"]) for group in groups for name in group["machines"]}

    def compute_engine_regions(self, machine_type: str) -> frozenset[str] | None:
        """Return where Compute Engine has a machine type (2026-08-20), None if that is not known: a hint, since training may offer it in fewer."""
        return self._compute_engine.get(machine_type)

    def default_boot_disk(self, machine_type: str) -> str:
        """Return the boot disk type a machine gets when none is written."""
        special = self.limits.table("boot_disk.default_type_of_machine")
        return special.get(machine_type, self.limits.text("boot_disk.default_type"))

    # ---- quotas

    def quota(self, item: str) -> Quota | None:
        """Return the quota an accelerator, a machine family (`n1`) or a boot disk type draws; None if there is none."""
        return self._quota_of.get(item)

    @cached_property
    def _quota_of(self) -> Mapping[str, Quota]:
        return {item: row for row in self.quotas.values() for item in row.applies_to}

    def quota_metric(self, item: str, strategy: str = "STANDARD") -> str | None:
        """Return the full name of the quota metric that an item of `quota` draws, such as
        `aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus`; None if no source names it. SPOT and FLEX_START draw the
        preemptible metric.
        """
        row = self.quota(item)
        if row is None:
            return None
        # SPOT and FLEX_START draw quotas of their own.
        preemptible = strategy in self.limits.names("scheduling.preemptible_strategies")
        name = row.preemptible_metric if preemptible else row.metric
        return None if name is None else self.limits.text("quota.prefix") + name

    def default_quota(self, region: str, item: str) -> int | None:
        """Return the quota a new project has in a region for `item` (as in `quota`); None if not available or not known."""
        row, place = self.quota(item), self.regions.get(region)
        return None if row is None or place is None else place.quotas.get(row.key)

    def default_preemptible_quota(self, region: str, item: str) -> int | None:
        """Return what a new project has of the quota of SPOT and FLEX_START in a region; None where it is not known."""
        row = self.quota(item)
        known = row is not None and row.preemptible_metric == "preemptible_cpus" and region in self.regions
        return self.limits.integer("quota.preemptible_cpus_default") if known else None

    # ---- images

    @cached_property
    def _image_of(self) -> Mapping[str, Image]:
        return {row.repository_path: row for row in self.images}

    def image(self, uri: str) -> Image | None:
        """Return the prebuilt image of a URI on any of the three hosts, compared exactly."""
        # The same image is on three hosts, and a URI of another host with that path is someone else's.
        host, _, path = uri.partition("/")
        return self._image_of.get(path) if host in self.limits.names("images.hosts") else None

    def is_reduction_server(self, uri: str) -> bool:
        """Whether a URI is Google's Reduction Server image on any of the three hosts."""
        host, _, path = uri.partition("/")
        return host in self.limits.names("images.hosts") and path in self.limits.names("reduction_server.images")

    def find_image(self, framework: str, version: str, kind: str, python: str | None = None) -> Image | None:
        """Return the prebuilt image of a framework.

        Args:
            framework: `tf` or `tensorflow`, `pytorch`, `sklearn`, `xgboost`, `ray`.
            version: `2.17`; a longer version must fit exactly.
            kind: "cpu", "gpu" or "tpu".
            python: Its Python version, if it matters; otherwise the newest is taken.
        """
        wanted = _FRAMEWORKS.get(framework.lower(), framework.lower())
        for row in self.images:
            # some images are one for both: cpu_or_gpu
            if row.framework != wanted or kind not in row.kind.split("_or_"):
                continue
            # `2.17` names 2.17 and 2.17.1; of several rows the first is the newest.
            if version in (row.version, ".".join(row.version.split(".")[:2])) and python in (None, row.python):
                return row
        return None

    def newest_image(self, framework: str, kind: str) -> Image | None:
        """Return the newest prebuilt image of a framework (`tf`, `pytorch`, …) for cpu, gpu or tpu; None if there is none."""
        # the table lists the newest first
        return next((row for row in self.images if row.framework == framework and kind in row.kind.split("_or_")), None)

    def find_short(self, short_name: str, kind: str) -> Image | None:
        """Return the prebuilt image of a short name as the project file has it, `tf-2.17`, for one kind."""
        found = re.fullmatch(_SHORT_NAME, short_name)
        return self.find_image(found[1], found[2], kind) if found else None

    def short_names(self) -> tuple[str, ...]:
        """Return every short name `find_short` knows, in the order of the table."""
        return tuple(dict.fromkeys(row.short_name for row in self.images))

    def host_for_region(self, region: str) -> str:
        """Return the image host nearest to a region; the first host for a region of an unknown area."""
        areas = self.limits.table("images.host_of_area")
        return areas.get(region.partition("-")[0], self.limits.names("images.hosts")[0])

    # ---- tables

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table as plain values, ready for JSON; UsageError if there is none of that name."""
        if table not in KEYS:
            raise UsageError(f"{table!r} is not a table of the catalog. {did_you_mean(table, KEYS)}")
        found = getattr(self, table)
        plain = [_plain(row) for row in (found.values() if isinstance(found, Mapping) else found)]
        return plain if table == "sources" else [self._cited(row) for row in plain]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        if isinstance(value, rows.Row):  # source, date and note are the last columns
            names = [*names[3:], *names[:3]]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, TpuSlice):
        return value._asdict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@cache
def load() -> Catalog:
    """Return the shipped catalog; `vertexrig.catalog.overlay` has the same with a user's rows over it."""
    return Catalog()
