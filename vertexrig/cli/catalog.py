"""`vertexrig catalog`: print tables of machines, accelerators, regions, images, prices and more."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vertexrig.catalog import load
from vertexrig.cli import options, tables
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.workspace import Workspace

# table -> the columns its text form shows; JSON has them all
COLUMNS = {
    "machines": ("name", "family", "vcpus", "memory_gb", "accelerators", "tpu_topologies", "date"),
    "accelerators": ("name", "kind", "max_per_vm", "retired", "flex_start", "quota", "date"),
    "regions": ("name", "location", "gcloud", "training", "date"),
    "images": ("short_name", "kind", "python", "repository_path", "end_of_support", "end_of_availability"),
    "prices": ("item", "kind", "usd_per_hour", "basis", "date"),
    "quotas": ("key", "metric", "date"),
    "limits": ("key", "value", "date"),
    "sources": ("key", "title", "date"),
}


@click.command("catalog")
@click.argument("table", type=click.Choice(list(COLUMNS)), metavar="TABLE")
@click.argument("pattern", required=False)
@options.file_option
@options.format_option("text", "json")
def command(table: str, pattern: str | None, file: Path | None, format_: str) -> None:
    """Print a TABLE of the catalog, each row with its date; with PATTERN only rows that contain it.

    Tables: machines, accelerators, regions, images, prices, quotas, limits, sources. Rows of the project's own catalog file are
    included. `--format json` prints all columns, with the source of each row.
    """
    loaded = options.project_if_any(file)
    catalog = Workspace(loaded).catalog if loaded is not None else load()
    rows = catalog.rows(table)
    if pattern:
        # in the row's JSON, so that keys and nested values are searched, too
        rows = [row for row in rows if pattern.casefold() in json.dumps(row).casefold()]
        if not rows:
            raise UsageError(f"no row of {table} contains {pattern!r}")
    columns = COLUMNS[table]
    cells = ([_cell(row.get(column)) for column in columns] for row in rows)
    result(format_, {table: rows}, lambda: tables.table(columns, cells))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_counts(item)}".strip() for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return str(value)


def _counts(value: object) -> str:
    return "/".join(str(item) for item in value) if isinstance(value, (list, tuple)) else ""
