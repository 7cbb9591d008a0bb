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
from vertexrig.errors import did_you_mean

UNDATED = "undated"
_PRICES = {"usd_per_hour", "compute_engine_usd"}


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
            raise document.error(node, f"{table[:80]!r} is not a table of the catalog. {did_you_mean(table, SCHEMA)}")
    known = Known(
        accelerators=frozenset(raw["accelerators"]).union(found.get("accelerators", (None, {}))[1]),
        quotas=frozenset(raw["quotas"]).union(found.get("quotas", (None, {}))[1]),
    )
    for table, (_, rows) in found.items():
        for name, nodes in rows.items():
            given = _row(document, table, name, nodes, raw[table].get(name), known)
            raw[table][name] = _merged(table, name, raw[table].get(name), given)
    return raw


def _row(
    document: Document, table: str, name: str, nodes: tuple[yaml.Node, yaml.Node], base: tables.Raw | None, known: Known
) -> tables.Raw:
    """One row of the overlay, checked, with its source and date.

    Args:
        document: The overlay.
        table: The row's table.
        name: The row's name.
        nodes: The nodes of its name and of its fields.
        base: The shipped row it corrects; None for a new row.
        known: The names it may refer to.
    """
    schema: dict[str, Field] = {**SCHEMA[table], **ALWAYS}
    place = f"{table}.{name[:80]}"
    given: tables.Raw = {}
    for key, (key_node, value_node) in document.mapping(nodes[1], place).items():
        if key not in schema:
            raise document.error(key_node, f"{place} has no key {key[:80]!r}. {did_you_mean(key, schema)}")
        try:
            given[key] = schema[key].read(document, value_node, known)
        except Bad as error:
            raise document.error(error.node, f"{place}.{key}: {error}") from None
    problem = _new_row_lacks(table, name, given) if base is None else _type_changed(table, given, base)
    if given.keys() >= _PRICES:
        problem = "takes usd_per_hour or compute_engine_usd, not both"
    if problem:
        raise document.error(nodes[0], f"{place} {problem}")
    given.setdefault("source", f"your overlay {document.name}")
    given.setdefault("date", UNDATED)
    return given


def _new_row_lacks(table: str, name: str, given: tables.Raw) -> str:
    """Why a row cannot be added; empty if it can."""
    if table in FIXED:
        choices = did_you_mean(name, FIXED[table]())
        return f"does not exist: {table} can be corrected but not added to. {choices}"
    missing = [key for key, field in SCHEMA[table].items() if field.required and key not in given]
    if table == "prices" and not given.keys() & _PRICES:
        missing.append("usd_per_hour (or compute_engine_usd)")
    return f"is new and lacks {', '.join(missing)}" if missing else ""


def _type_changed(table: str, given: tables.Raw, base: tables.Raw) -> str:
    """Why a limit's new value does not fit where the old one is read; empty if it does."""
    if table != "limits" or "value" not in given:
        return ""
    old, new = base["value"], given["value"]
    if type(new) is type(old) or (isinstance(old, float) and type(new) is int):
        return ""
    return f"value must stay of type {type(old).__name__}, as in {old!r}"


def _merged(table: str, name: str, base: tables.Raw | None, given: tables.Raw) -> tables.Raw:
    """The row that results: the base's fields, or the defaults of a new row, under the given ones."""
    if base is None:
        defaults = {key: field.default for key, field in SCHEMA[table].items() if not field.required}
        return {tables.KEYS[table]: name, **defaults, **given}
    row: dict[str, Any] = dict(base)
    if {
        "usd_per_hour",
        "compute_engine_usd",
    } & given.keys():  # one price or the other, never both, and no note on the old one
        for key in (*_PRICES, "note"):
            row.pop(key, None)
    for key, value in given.items():
        merge = isinstance(value, dict) and table != "limits"
        row[key] = {**row.get(key, {}), **value} if merge else value
    return row
