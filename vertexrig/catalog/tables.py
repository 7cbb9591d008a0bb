"""Reads the catalog's data files; `vertexrig.catalog.rows` makes typed rows of what is read.

Raw rows are plain dictionaries, one per line of `data/TABLE.json`. An overlay changes raw rows before they are typed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

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
