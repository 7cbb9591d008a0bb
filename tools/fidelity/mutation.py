"""`python -m tools.fidelity.mutation`, or `make fidelity MUTATE=1`: break the local Vertex on purpose, and see which rows notice."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from multiprocessing import get_context
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import click

from tools.fidelity.breakages import BREAKAGES, CONTROL, Breakage
from tools.fidelity.command import starting
from tools.fidelity.judge import SAME
from tools.fidelity.manifest import Manifest, ManifestRow, load
from tools.fidelity.tries import conform
from vertexrig import cli, files
from vertexrig.cli import streams
from vertexrig.errors import FindingsError

if TYPE_CHECKING:
    from tools.fidelity.target import Target

LEAST = 95.0
"""Per cent of the breakages that rows have to notice."""


def rows_of(held: Manifest, scripts: Sequence[str]) -> tuple[ManifestRow, ...]:
    """Return the rows that look at scripts."""
    return tuple(row for row in held.rows if row.run in scripts)


@contextmanager
def broken(one: Breakage) -> Iterator[None]:
    """Break the server for as long as this lasts."""
    module, _, path = one.where.partition(":")
    holder, _, name = path.rpartition(".")
    owner: Any = attrgetter(holder)(import_module(module)) if holder else import_module(module)
    right = getattr(owner, name)
    made = one.change(right)
    with patch.object(owner, name, functools.wraps(right)(made) if callable(right) and callable(made) else made):
        yield


def same(held: Manifest, rows: Sequence[ManifestRow], target: Target) -> set[str]:
    """Return the ids of the rows that are the same now."""
    return {one.row.id for one in conform(held, rows, target).verdicts if one.result == SAME}


def noticed(held: Manifest, breakages: Sequence[Breakage], target: Target) -> dict[str, list[str]]:
    """Return by breakage, and by the control, the rows that notice it: the same twice without it, and not the same with it."""
    scripts = sorted({name for one in breakages for name in one.scripts})
    whole = rows_of(held, scripts)
    still = same(held, whole, target) & same(held, whole, target)
    found = {}
    for one in (*breakages, replace(CONTROL, scripts=tuple(scripts))):
        rows = [row for row in rows_of(held, one.scripts) if row.id in still]
        with broken(one):
            now = same(held, rows, target)
        found[one.name] = [row.id for row in rows if row.id not in now]
        streams.note(f"{one.name}: {', '.join(found[one.name][:3]) or 'not noticed'}")
    return found


def _part(start: int, every: int) -> dict[str, list[str]]:
    """Try every n-th breakage, on a server of this process."""
    with starting() as target:
        return noticed(load(), BREAKAGES[start::every], target)


@click.command("mutation")
@click.option("--jobs", type=click.IntRange(min=1), default=5, show_default=True, help="Servers to break side by side.")
@click.option("--accept", is_flag=True, help="Write the result into fidelity/mutation.json, for the page.")
def command(jobs: int, accept: bool) -> None:
    """Break the local Vertex on purpose, one way after the other, and count what the rows notice."""
    held, found, false = load(), dict[str, list[str]](), set[str]()
    # Processes, since a breakage is of a whole one; spawned, since a server has threads.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for part in pool.map(_part, range(jobs), [jobs] * jobs):
            false |= set(part.pop(CONTROL.name))
            found |= part
    if false:
        raise FindingsError(
            f"rows notice what breaks nothing: {', '.join(sorted(false))}; make their scripts repeatable"
        )
    missed = [name for name, rows in found.items() if not rows]
    percent = 100 * (len(found) - len(missed)) / len(found)
    streams.note(f"{len(found) - len(missed)} of {len(found)} breakages noticed ({percent:.1f} %)")
    if accept:
        kept = {"tried": len(found), "missed": missed}
        files.write_text(held.folder / "mutation.json", json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    if percent < LEAST:
        raise FindingsError(f"under {LEAST} % of the breakages are noticed; not noticed: {'; '.join(missed)}")


if __name__ == "__main__":
    import sys

    sys.exit(cli.run(command=command, name="python -m tools.fidelity.mutation"))
