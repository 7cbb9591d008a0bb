"""A user's overlay: a YAML file that adds rows to the catalog or corrects them, read strictly.

    machines:
      n1-standard-8: {memory_gb: 31, source: measured on a VM}
    prices:
      n1-standard-8: {usd_per_hour: 0.41}
    regions:
      us-central1: {quotas: {l4: 8}}

A row that exists is corrected field by field; mappings in it (`quotas`, `accelerators`, `tpu_topologies`) are corrected
key by key, lists are replaced. A new row must have every field of its table in `rows` that has no default.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vertexrig import files
from vertexrig.catalog import KEYS, Catalog, Raw, Tables, by_name, load
from vertexrig.catalog.rows import TABLES, Row
from vertexrig.errors import ConfigError, Errors, did_you_mean
from vertexrig.schema import typed
from vertexrig.text import kind_of, quoted

UNDATED = "undated"
_PRICES = {"usd_per_hour", "compute_engine_usd"}
Names = Mapping[str, frozenset[str]]
"""The names that rows may refer to, by table: those shipped and those of the overlay."""


def catalog_with(overlay: Path | None) -> Catalog:
    """Return the shipped catalog, with a user's overlay over it if there is one; ConfigError as of `lay_over`."""
    return load() if overlay is None else Catalog(lay_over(overlay).__getitem__)


def lay_over(file: Path) -> Tables:
    """Return the shipped raw tables with a user's file over them; a ConfigError names the file, the line and the nearest valid key."""
    # Read anew and not shared with `load()`: rows are changed in place below.
    raw = {table: by_name(table) for table in KEYS}
    reading = typed.read(files.read_text(file, lambda message: ConfigError(message, file=str(file))), str(file))
    root = typed.Place((), typed.Origins(str(file), reading.lines))
    found = {} if reading.data is None else _mapping(_dates_as_text(reading.data), root)
    errors = Errors()
    for table, rows in found.items():
        with errors:
            if table not in TABLES:
                raise root.at(table).error(f"the catalog has no table of this name. {did_you_mean(table, TABLES)}")
            _mapping(rows, root.at(table))
    errors.raise_all()
    # rows of the overlay may refer to each other, whatever their order
    names = {table: frozenset(raw[table]).union(found.get(table, ())) for table in ("accelerators", "quotas")}
    for table, rows in found.items():
        for name, row in rows.items():
            with errors:
                given = _row(table, name, row, root.at(table).at(name), raw[table].get(name), names)
                given.setdefault("source", f"your overlay {file}")
                # Not the shipped row's date, which is when its source said the value that is replaced here.
                given.setdefault("date", UNDATED)
                raw[table][name] = _merged(table, name, raw[table].get(name), given)
    errors.raise_all()
    return raw


def _mapping(value: Any, place: typed.Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(f"{quoted(value)} is {kind_of(value)}; a mapping belongs here")
    return value


def _dates_as_text(value: Any) -> Any:
    """Return plain data with its dates, which YAML reads without quotes, as the text they were written as."""
    if isinstance(value, dict):
        return {key: _dates_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(item) for item in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


def _row(table: str, name: str, row: Any, place: typed.Place, base: Raw | None, names: Names) -> Raw:
    """Return one row of the overlay as plain data, once it is known to fit. `base` is the shipped row that it corrects, None for a new one;
    `names` are those that it may refer to.
    """
    cls, given = TABLES[table], _mapping(row, place)
    for key, value in typed.field_values(cls, given, place).items():
        _check_names(cls, key, value, place.at(key), names)
    problem = _new_row_lacks(table, name, given) if base is None else _type_changed(table, given, base)
    if table == "prices" and given.get("compute_engine_usd", 0) is None:
        problem = "compute_engine_usd is null; a number belongs here"
    if given.keys() >= _PRICES:
        problem = "give usd_per_hour or compute_engine_usd, not both"
    if problem:
        raise place.error(problem)
    return dict(given)


def _check_names(cls: type[Row], key: str, value: Any, place: typed.Place, names: Names) -> None:
    """Refuse a name in a field, or in the keys of a mapping, that is no row of the table it refers to."""
    table = next(field.metadata.get("names") for field in dataclasses.fields(cls) if field.name == key)
    if table is None:
        return
    for name in (value,) if isinstance(value, str) else value:
        if name not in names[table]:
            inner = place.at(name) if isinstance(value, Mapping) else place
            raise inner.error(f"{quoted(name)} is not known. {did_you_mean(name, names[table])}")


def _new_row_lacks(table: str, name: str, given: Raw) -> str:
    """Return why a row cannot be added; empty if it can."""
    if table == "limits":  # code reads them by key
        choices = did_you_mean(name, by_name(table))
        return f"there is no such row, and {table} can be corrected but not added to. {choices}"
    missing = typed.lacking(TABLES[table], given)
    if table == "prices" and not given.keys() & _PRICES:
        missing.append("usd_per_hour (or compute_engine_usd)")
    return f"the row is new and lacks {', '.join(missing)}" if missing else ""


def _type_changed(table: str, given: Raw, base: Raw) -> str:
    """Return why a limit's new value does not fit where the old one is read; empty if it does."""
    if table != "limits" or "value" not in given:
        return ""
    old, new = base["value"], given["value"]
    numbers = any(isinstance(item, (int, float)) for item in _inner(old))
    # True and False are ints to isinstance.
    if numbers and not all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in _inner(new)):
        return "value may hold numbers only"
    if not numbers and not all(isinstance(item, str) and item.strip() for item in _inner(new)):
        return "value may hold texts only"
    # YAML reads 31 as a whole number where the shipped value is 31.5.
    if type(new) is type(old) or (isinstance(old, float) and type(new) is int):
        return ""
    return f"value must stay of type {type(old).__name__}, as in {old!r}"


def _inner(value: object) -> list[object]:
    """Return what a list or a mapping holds; nothing of another value."""
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _merged(table: str, name: str, base: Raw | None, given: Raw) -> Raw:
    """Return the row that results: the given fields over those of the shipped row."""
    if base is None:
        return {KEYS[table]: name, **given}
    row: dict[str, Any] = dict(base)
    if _PRICES & given.keys():  # one price or the other, never both, and no note on the old one
        for key in (*_PRICES, "note"):
            row.pop(key, None)
    for key, value in given.items():
        # a limit's mapping is one value, which is replaced as a whole
        merge = isinstance(value, dict) and table != "limits"
        row[key] = {**row.get(key, {}), **value} if merge else value
    return row
