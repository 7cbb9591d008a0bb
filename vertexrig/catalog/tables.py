"""Reads the catalog's data files and turns their raw rows into typed ones.

Raw rows are plain dictionaries, one per line of `data/TABLE.json`. An overlay changes raw rows before they are typed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from vertexrig.catalog.rows import Accelerator, Image, Limit, Machine, Price, Quota, Region, Source, TpuSlice

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
    """The raw rows of one data file, in its order."""
    with open(os.path.join(_DATA, f"{table}.json"), encoding="utf-8") as file:
        rows: list[Raw] = json.load(file)
    return rows


def by_name(table: str) -> dict[str, Raw]:
    """The raw rows of a named table, by name, in its order."""
    key = KEYS[table]
    return {row[key]: row for row in read(table)}


def citer(sources: Iterable[Raw]) -> Callable[[str], str]:
    """A function from the source keys of a raw row to the text shown to people.

    A text that is not made of known keys (an overlay's own) is left as it is.
    """
    titles = {row["key"]: f"{row['key']}: {row['title']}" for row in sources}
    known: dict[str, str] = {}

    def cite(source: str) -> str:
        if source not in known:
            keys = source.split()
            whole = all(key in titles for key in keys)
            known[source] = "; ".join(titles[key] for key in keys) if whole else source
        return known[source]

    return cite


def source(row: Raw) -> Source:
    """A row of `sources`."""
    return Source(row["key"], row["title"], tuple(row["urls"]), row["date"])


def machine(row: Raw, cite: Callable[[str], str]) -> Machine:
    """A row of `machines`."""
    return Machine(
        row["name"],
        row["family"],
        row["vcpus"],
        row["memory_gb"],
        MappingProxyType({name: tuple(counts) for name, counts in row.get("accelerators", {}).items()}),
        row.get("accelerator_required", False),
        row.get("tpu", ""),
        MappingProxyType({name: TpuSlice(*size) for name, size in row.get("tpu_topologies", {}).items()}),
        cite(row["source"]),
        row["date"],
        row.get("note", ""),
    )


def accelerator(row: Raw, cite: Callable[[str], str], machines: tuple[str, ...], quota: Quota | None) -> Accelerator:
    """A row of `accelerators`, with the machines that carry it and the quota it draws."""
    return Accelerator(
        name=row["name"],
        kind=row["kind"],
        machines=machines,
        max_per_vm=row["max_per_vm"],
        retired=row["retired"],
        api_enum=row["api_enum"],
        gcloud_enum=row["gcloud_enum"],
        flex_start=row["flex_start"],
        quota=quota.metric if quota else None,
        quota_key=quota.key if quota else None,
        pod_step=row.get("pod_step"),
        pod_name=row.get("pod_name", ""),
        source=cite(row["source"]),
        date=row["date"],
        note=row.get("note", ""),
    )


def region(row: Raw, cite: Callable[[str], str]) -> Region:
    """A row of `regions`."""
    return Region(
        row["name"],
        row["location"],
        row["gcloud"],
        frozenset(row["training"]),
        frozenset(row["not_for_training"]),
        MappingProxyType(row["quotas"]),
        cite(row["source"]),
        row["date"],
        row.get("note", ""),
    )


def image(row: Raw, cite: Callable[[str], str]) -> Image:
    """A row of `images`."""
    return Image(
        row["name"],
        row["framework"],
        row["version"],
        row["python"],
        row["kind"],
        row["cuda"],
        row["repository_path"],
        row["end_of_support"],
        row["end_of_availability"],
        row["hypertune"],
        cite(row["source"]),
        row["date"],
        row.get("note", ""),
    )


def price(row: Raw, cite: Callable[[str], str], factor: float) -> Price:
    """A row of `prices`; a Compute Engine price becomes an estimate by `factor`."""
    listed: float | None = row.get("usd_per_hour")
    compute_engine: float | None = None if listed is not None else row["compute_engine_usd"]
    return Price(
        row["item"],
        row["kind"],
        listed if listed is not None else round(row["compute_engine_usd"] * factor, 9),
        "listed" if listed is not None else "derived",
        compute_engine,
        row.get("includes_accelerators", False),
        cite(row["source"]),
        row["date"],
        row.get("note", ""),
    )


def quota(row: Raw, cite: Callable[[str], str]) -> Quota:
    """A row of `quotas`."""
    return Quota(
        row["key"],
        row["unit"],
        tuple(row["applies_to"]),
        row["metric"],
        row["preemptible_metric"],
        cite(row["source"]),
        row["date"],
        row.get("note", ""),
    )


def limit(row: Raw, cite: Callable[[str], str]) -> Limit:
    """A row of `limits`."""
    return Limit(row["key"], row["value"], cite(row["source"]), row["date"], row.get("note", ""))
