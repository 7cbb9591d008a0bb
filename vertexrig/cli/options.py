"""Options that several verbs share, and what they make of a project."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from vertexrig.checks.workspace import Workspace
from vertexrig.project import config
from vertexrig.text import shown

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A number of seconds; NaN and infinity, which float() takes too, are none."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return number


file_option = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    help="Project file; by default vertexrig.yaml here or in a folder above.",
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the job or sweep, or, with its whole path, any key of the project file.",
)
templates_option = click.option(
    "--templates", type=click.Path(path_type=Path), help="Folder of templates that replace ours file by file."
)
poll_option = click.option(
    "--poll", type=Seconds(0.05, 3600), default=5.0, show_default=True, help="Seconds between questions."
)
resume_option = click.option(
    "--resume",
    default="",
    metavar="RUN",
    help="Go on with an earlier run of NAME, such as 20261121-171500-ab12: write into its output folder.",
)
local_option = click.option(
    "--local", is_flag=True, help="Look at the rehearsals of this machine only, without asking Vertex AI."
)
info_option = click.option("--info", is_flag=True, help="Show findings of severity info, too.")


def format_option(*names: str) -> Callable[[F], F]:
    """`--format`, with the given names; the first is the default."""
    return click.option("--format", "format_", type=click.Choice(names), default=names[0], show_default=True)


def workspace(
    file: Path | None,
    overrides: Sequence[str] = (),
    target: str | None = None,
    templates: Path | None = None,
) -> Workspace:
    """The project that a command's options name."""
    return Workspace(config.load(file, overrides=overrides, target=target), templates=templates)


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as aligned columns; numbers to the right, fractions with six digits."""
    cells = [[shown(cell) for cell in row] for row in rows]
    names = list(headings)
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
    right = [
        bool(cells) and all(row[i].replace(".", "").replace(",", "").isdigit() or not row[i] for row in cells)
        for i in range(len(names))
    ]

    def line(row: list[str]) -> str:
        parts = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return "\n".join([line(names), "  ".join("-" * width for width in widths), *map(line, cells)])


def note(*words: object) -> None:
    """A message to the person, on stderr."""
    print(*words, file=sys.stderr)
