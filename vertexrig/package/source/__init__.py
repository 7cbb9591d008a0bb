"""A trainer's source, read without importing it: flags, metrics, strategies, environment.

The values are in `model`; `read` finds them in the source, `cache` keeps them for sources that have not changed.
"""

from __future__ import annotations

from pathlib import Path

from vertexrig.package.source.model import (
    DEFAULT_METRIC,
    DYNAMIC,
    Flag,
    Import,
    ReportedMetric,
    SourcePlace,
    SourceProblem,
    Strategy,
    TrainerSource,
)

__all__ = [
    "DEFAULT_METRIC",
    "DYNAMIC",
    "Flag",
    "Import",
    "ReportedMetric",
    "SourcePlace",
    "SourceProblem",
    "Strategy",
    "TrainerSource",
    "read",
]


def read(source: Path | str, module: str | None = None) -> TrainerSource:
    """Reads a trainer's source: see `vertexrig.package.source.reader.read`, which is loaded when it is first needed."""
    from vertexrig.package.source.reader import read as read_source

    return read_source(source, module)
