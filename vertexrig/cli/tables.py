"""Tables for a person: at most as wide as the terminal; in a file or a pipe, no cell is cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from vertexrig import variables
from vertexrig.cli import streams
from vertexrig.text import clean, draw, shown

_GAP = 2


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as aligned columns: numbers to the right, fractions with six digits, each text on one line.

    On a terminal, long cells are wrapped to its width. If the headings do not fit, each row becomes a block of lines.
    """
    cells = [[clean(str(variables.shown_result(shown(cell)))).strip() for cell in row] for row in rows]
    names = list(headings)
    width = streams.columns(sys.stdout)
    # Below that rich would fold the headings themselves, one letter to a line.
    if width is not None and cells and width < sum(len(name) + _GAP for name in names):
        return _blocks(names, cells)
    return _columns(names, cells, width)


def _columns(names: Sequence[str], cells: Sequence[Sequence[str]], width: int | None) -> str:
    # here and not at the top: 38 ms, which a verb without a table saves
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for place, name in enumerate(names):
        column = [row[place] for row in cells if row[place]]
        number = bool(column) and all(map(_is_number, column))
        # for the whole column: a column with one text among its numbers is aligned to the left
        justify: Literal["left", "right"] = "right" if number else "left"
        drawn.add_column(Text(name), justify=justify, overflow="fold", min_width=len(name))
    drawn.add_row(*(Rule(characters="-", style="") for _ in names))
    for row in cells:
        drawn.add_row(*map(Text, row))
    color = streams.wants_color(sys.stdout, os.environ)
    # a character of East Asia takes two columns; in a file the table has no greatest width
    longest = sum(max(len(row[place]) for row in [names, *cells]) * 2 + _GAP for place in range(len(names)))
    return draw(drawn, width=width or longest, color=color)


def _blocks(names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return each row as lines of name and value."""
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
