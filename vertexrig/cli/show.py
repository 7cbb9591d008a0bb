"""Findings on the screen, in the format asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from vertexrig import __version__
from vertexrig.finding import Finding


def project_sources(file: Path) -> dict[str, str]:
    """The project file's text by its name, so that findings can show its lines; empty if it cannot be read."""
    try:
        return {str(file): file.read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError):
        return {}


def findings(
    found: Sequence[Finding],
    *,
    sources: Mapping[str, str],
    format_: str = "text",
    to_stdout: bool = False,
    files: int = 0,
) -> None:
    """Print findings as text, JSON or SARIF."""
    from vertexrig.checks import output

    stream = sys.stdout if to_stdout else sys.stderr
    if format_ == "json":
        text = output.as_json(found)
    elif format_ == "sarif":
        from vertexrig.checks import all_rules

        text = output.sarif(found, all_rules(), version=__version__)
    else:
        text = output.text(found, sources, files=files, color=output.wants_color(stream, os.environ))
    if text:
        click.echo(text, file=stream)


def summary(found: Sequence[Finding]) -> str:
    """How many errors and warnings there are, in words."""
    from vertexrig.checks import output

    return output.summary(found)
