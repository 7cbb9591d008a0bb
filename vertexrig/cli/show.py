"""Findings on the screen, in the format asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from vertexrig import __version__
from vertexrig.finding import Finding, Severity


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
    info: bool = False,
) -> None:
    """Print findings as text, JSON or SARIF; as text, those of severity info only if asked for."""
    from vertexrig.checks import output

    stream = sys.stdout if to_stdout else sys.stderr
    if format_ == "json":
        text = output.as_json(found)
    elif format_ == "sarif":
        from vertexrig.checks import all_rules

        text = output.sarif(found, all_rules(), version=__version__)
    else:
        shown = [finding for finding in found if info or finding.severity is not Severity.INFO]
        text = output.text(_folded(shown), sources, color=output.wants_color(stream, os.environ))
        hidden = len(found) - len(shown)
        if hidden:
            text = f"{text.rstrip()}\n" if shown else ""
            text += f"{hidden} more of severity info: --info shows {'them' if hidden > 1 else 'it'}"
    if text:
        click.echo(text, file=stream)


def _folded(found: Sequence[Finding]) -> list[Finding]:
    """Findings with the same words about the same line as one, with all their paths."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.file, finding.line, finding.id, finding.message), []).append(finding)
    return [
        replace(group[0], path=", ".join(dict.fromkeys(one.path for one in group if one.path)))
        for group in groups.values()
    ]


def summary(found: Sequence[Finding]) -> str:
    """How many errors and warnings there are, in words."""
    from vertexrig.checks import output

    return output.summary(found)
