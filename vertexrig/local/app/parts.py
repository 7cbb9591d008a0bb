"""The parts that stand beside training: Logging and Scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from starlette.routing import BaseRoute

from vertexrig.local.jobs.manager import Sink
from vertexrig.local.runner import Line


class _Nowhere:
    def write(self, job: str, lines: Iterable[Line]) -> None:
        """Lines are in the job's own log files already."""


class Extras:
    """Logging and Scheduler of one local Vertex.

    Args:
        root: Its folder.
    """

    def __init__(self, root: Path) -> None:
        self.sink: Sink = _Nowhere()

    def routes(self, logging: str, scheduler: str) -> list[BaseRoute]:
        """Their routes, under a prefix each."""
        return []

    def start(self) -> None:
        """Begin to fire schedules."""

    def stop(self) -> None:
        """Fire no more."""

    def close(self) -> None:
        """Close files."""
