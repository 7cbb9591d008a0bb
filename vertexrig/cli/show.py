"""The findings of `render` and `submit` on stderr, and how wide the lines of source in them may be."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from vertexrig.checks import formats
from vertexrig.cli import streams
from vertexrig.finding import Finding


def findings(found: Sequence[Finding], *, texts: Mapping[str, str], info: bool) -> None:
    """Print findings as text on stderr; those of severity info only if asked for."""
    color = streams.wants_color(sys.stderr, os.environ)
    text = formats.text(found, texts, color=color, info=info, width=source_width(sys.stderr))
    streams.tell(text, nl=False)


def source_width(stream: TextIO) -> int:
    """Return how many characters of a line of source to show on a terminal, in a file or in a pipe."""
    columns = streams.columns(stream)
    # 8 columns are not the line itself: its number, a bar, and an ellipsis if it is cut
    return formats.WIDTH if columns is None else max(20, columns - 8)
