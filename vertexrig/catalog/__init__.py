"""What Vertex AI training offers, as dated, sourced data: machines, accelerators, regions, images, prices, limits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from vertexrig.catalog.catalog import Catalog
from vertexrig.catalog.costs import total
from vertexrig.catalog.rows import Accelerator, Image, Limit, LineItem, Machine, Price, Quota, Region, Source, TpuSlice

__all__ = [
    "Accelerator",
    "Catalog",
    "Image",
    "Limit",
    "LineItem",
    "Machine",
    "Price",
    "Quota",
    "Region",
    "Source",
    "TpuSlice",
    "load",
    "total",
]


@cache
def _shipped() -> Catalog:
    return Catalog()


def load(overlay: Path | None = None) -> Catalog:
    """The catalog, with a user's overlay laid over the shipped tables.

    Args:
        overlay: A YAML file that adds or corrects rows (its tables and keys are those of `catalog/data`). Without one, the result is cached.

    Raises:
        ConfigError: The overlay cannot be read, or holds an unknown table, row, key or type.
    """
    if overlay is None:
        return _shipped()
    # Imported here: it needs PyYAML, which the shipped tables do without.
    from vertexrig.catalog.overlay import lay_over

    return Catalog(lay_over(overlay).__getitem__)
