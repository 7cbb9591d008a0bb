"""Findings on the screen, in the format asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from vertexrig.checks import all_rules, output
from vertexrig.checks.output import rows, summary
from vertexrig.cli import streams
from vertexrig.cli.output import say
from vertexrig.finding import Finding

__all__ = ["MARGIN", "findings", "rows", "rules", "summary"]

MARGIN = 8
"""Columns that are not the line itself: its number, a bar, and an ellipsis where it is cut."""


def findings(found: Sequence[Finding], *, sources: Mapping[str, str], info: bool = False, err: bool = True) -> None:
    """Print findings as text on stderr, or as a result on stdout; those of severity info only if asked for."""
    stream = sys.stderr if err else sys.stdout
    columns = streams.width(stream)
    color = streams.wants_color(stream, os.environ)
    fitting = {} if columns is None else {"width": max(20, columns - MARGIN)}
    text = output.text(found, sources, color=color, info=info, **fitting)
    if err:
        streams.tell(text, nl=False)
    else:
        say(text, nl=False)


def rules() -> list[dict[str, str | None]]:
    """Return every rule as JSON has it."""
    return [
        {
            "id": rule.id,
            "severity": rule.severity.value,
            "summary": rule.summary,
            "fix": rule.edits or None,
            "source": rule.source,
            "docs": output.address(rule.id),
        }
        for rule in all_rules()
    ]
