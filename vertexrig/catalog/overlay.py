"""A user's overlay: a YAML file that adds rows to the catalog or corrects them, read strictly.

    machines:
      n1-standard-8: {memory_gb: 31, source: measured on a VM}
    prices:
      n1-standard-8: {usd_per_hour: 0.41}
    regions:
      us-central1: {quotas: {l4: 8}}

A row that exists is corrected field by field; mappings in it (`quotas`, `accelerators`, `tpu_topologies`) are corrected
key by key, lists are replaced. A new row must have every field marked required below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from vertexrig.catalog import tables
from vertexrig.catalog.schema import ALWAYS, FIXED, SCHEMA, Bad, Field, Known
from vertexrig.catalog.yaml_nodes import Document, read_document
from vertexrig.errors import ConfigError, did_you_mean

UNDATED = "undated"


def lay_over(file: Path) -> tables.Tables:
    """The shipped raw tables with a user's file laid over them.

    Args:
        file: The overlay.

    Raises:
        ConfigError: The file cannot be read or breaks a rule; the message names file, line and the nearest valid key.
    """
    raw = {table: tables.by_name(table) for table in tables.KEYS}
    document = read_document(file)
    if document.root is None:
        return raw
    found = {
        table: (table_node, document.mapping(rows_node, f"table {table!r}"))
        for table, (table_node, rows_node) in document.mapping(document.root, "an overlay").items()
    }
    for table, (node, _) in found.items():
        if table not in SCHEMA:
            raise document.error(node, f"{table!r} is not a table of the catalog. {did_you_mean(table, SCHEMA)}")
    known = Known(
        accelerators=frozenset(raw["accelerators"]).union(found.get("accelerators", (None, {}))[1]),
        quotas=frozenset(raw["quotas"]).union(found.get("quotas", (None, {}))[1]),
    )
    for table, (_, rows) in found.items():
        for name, (name_node, row_node) in rows.items():
            given = _row(document, table, name, name_node, row_node, raw[table].get(name), known)
            raw[table][name] = _merged(table, name, raw[table].get(name), given)
    return raw


def _row(
    document: Document,
    table: str,
    name: str,
    name_node: yaml.Node,
    row_node: yaml.Node,
    base: tables.Raw | None,
    known: Known,
) -> tables.Raw:
    """One row of the overlay, checked: its fields, and `source` and `date`."""
    schema: dict[str, Field] = {**SCHEMA[table], **ALWAYS}
    place = f"{table}.{name}"
    given: tables.Raw = {}
    for key, (key_node, value_node) in document.mapping(row_node, place).items():
        if key not in schema:
            raise document.error(key_node, f"{place} has no key {key!r}. {did_you_mean(key, schema)}")
        try:
            given[key] = schema[key].read(document, value_node, known)
        except Bad as error:
            raise document.error(error.node, f"{place}.{key}: {error}") from None
    if base is None:
        if table in FIXED:
            raise document.error(
                name_node,
                f"{name!r} is not one of the {table}, which can only be corrected. {did_you_mean(name, FIXED[table]())}",
            )
        missing = [key for key, field in SCHEMA[table].items() if field.required and key not in given]
        if missing:
            raise document.error(name_node, f"{place} is new and lacks {', '.join(missing)}")
        if table == "prices" and not {"usd_per_hour", "compute_engine_usd"} & given.keys():
            raise document.error(name_node, f"{place} is new and lacks usd_per_hour (or compute_engine_usd)")
    elif table == "limits" and "value" in given and type(given["value"]) is not type(base["value"]):
        was = type(base["value"]).__name__
        raise document.error(name_node, f"{place}.value must stay of type {was}, as in {base['value']!r}")
    given.setdefault("source", f"your overlay {document.name}")
    given.setdefault("date", UNDATED)
    return given


def _merged(table: str, name: str, base: tables.Raw | None, given: tables.Raw) -> tables.Raw:
    """The row that results: the base's fields, or the defaults of a new row, under the given ones."""
    if base is None:
        defaults = {key: field.default for key, field in SCHEMA[table].items() if not field.required}
        return {tables.KEYS[table]: name, **defaults, **given}
    row: dict[str, Any] = {**base, "note": ""}
    if {"usd_per_hour", "compute_engine_usd"} & given.keys():  # one price or the other, never both
        row.pop("usd_per_hour", None)
        row.pop("compute_engine_usd", None)
    for key, value in given.items():
        merge = isinstance(value, dict) and table != "limits"
        row[key] = {**row.get(key, {}), **value} if merge else value
    return row


__all__ = ["ConfigError", "lay_over"]
