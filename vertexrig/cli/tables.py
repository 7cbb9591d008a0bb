"""Tables for the screen: as wide as the terminal at most, whole in a file or a pipe."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from vertexrig.cli import streams
from vertexrig.text import clean, shown

_GAP = 2
_NARROWEST = 6
"""Columns that a cell needs to be read; with less for each, rows are shown one below the other."""


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as aligned columns; numbers to the right, fractions with six digits, a text of many lines in one.

    On a terminal long cells are wrapped to its width, and a row with too many cells for it becomes a block of lines.
    """
    cells = [[clean(shown(cell)).strip() for cell in row] for row in rows]
    names = list(headings)
    width = streams.width(sys.stdout)
    if width is not None and cells and width < len(names) * (_NARROWEST + _GAP):
        return _blocks(names, cells)
    return _columns(names, cells, width)


def _columns(names: Sequence[str], cells: Sequence[Sequence[str]], width: int | None) -> str:
    from rich.console import Console
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for place, name in enumerate(names):
        column = [row[place] for row in cells if row[place]]
        number = bool(cells) and all(map(_is_number, column))
        drawn.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    lines = [Rule(characters="-", style="") for _ in names]
    drawn.add_row(*lines)
    for row in cells:
        drawn.add_row(*map(Text, row))
    color = streams.wants_color(sys.stdout, os.environ)
    longest = sum(max(len(row[place]) for row in [names, *cells]) * 2 + _GAP for place in range(len(names)))
    console = Console(
        file=io.StringIO(), width=width or longest, force_terminal=color, color_system="standard" if color else None,
        highlight=False, legacy_windows=False,
    )  # fmt: skip
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def _blocks(names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Each row as lines of name and value."""
    widest = max(map(len, names))
    blocks = [
        "\n".join(f"{name.ljust(widest)}  {cell}".rstrip() for name, cell in zip(names, row, strict=True))
        for row in cells
    ]
    return "\n\n".join(blocks)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True
