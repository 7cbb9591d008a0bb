"""Findings on the screen, in the format asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from vertexrig import __version__, files
from vertexrig.checks import all_rules, output
from vertexrig.checks.output import rows, summary
from vertexrig.cli import streams
from vertexrig.cli.output import say
from vertexrig.errors import UsageError
from vertexrig.finding import Finding

__all__ = ["findings", "project_sources", "rows", "rules", "sarif", "summary"]

_MARGIN = 8
"""Columns beside a line of the file: its number, a bar, and an ellipsis where it is cut."""


def project_sources(file: Path) -> dict[str, str]:
    """The project file's text by its name, so that findings can show its lines; empty if it cannot be read."""
    try:
        return {str(file): files.read_text(file)}
    except UsageError:
        return {}


def findings(found: Sequence[Finding], *, sources: Mapping[str, str], info: bool = False, err: bool = True) -> None:
    """Print findings as text on stderr, or as a result on stdout; those of severity info only if asked for."""
    stream = sys.stderr if err else sys.stdout
    columns = streams.width(stream)
    color = streams.wants_color(stream, os.environ)
    fitting = {} if columns is None else {"width": max(20, columns - _MARGIN)}
    text = output.text(found, sources, color=color, info=info, **fitting)
    if err:
        click.echo(text, file=stream, nl=False, color=color)
    else:
        say(text, nl=False)


def rules() -> list[dict[str, str]]:
    """Every rule as JSON has it."""
    return [
        {
            "id": rule.id,
            "severity": rule.severity.value,
            "summary": rule.summary,
            "source": rule.source,
            "docs": output.address(rule.id),
        }
        for rule in all_rules()
    ]


def sarif(found: Sequence[Finding]) -> str:
    """Findings as SARIF 2.1.0."""
    return output.sarif(found, all_rules(), version=__version__)
