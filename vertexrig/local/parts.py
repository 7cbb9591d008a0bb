"""The parts beside training: Cloud Logging, which takes the output of jobs, and Cloud Scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timezone
from pathlib import Path

from starlette.routing import BaseRoute

from vertexrig.local import logs
from vertexrig.local.runner.lines import Line
from vertexrig.local.scheduler.api import routes
from vertexrig.local.scheduler.engine import SchedulerEngine
from vertexrig.local.scheduler.store import JobStore


class LogSink:
    """Hands lines of jobs to the log store (`vertexrig.local.jobs.manager.Sink`).

    Args:
        store: The log store.
    """

    def __init__(self, store: logs.LogStore) -> None:
        self.store = store

    def write(self, job: str, lines: Iterable[Line]) -> None:
        """Keep lines of the job of this resource name."""
        number = job.rpartition("/")[2]
        self.store.append_all(
            logs.LogLine(
                number,
                line.task,
                line.severity,
                line.text if line.payload is None else line.payload,
                datetime.fromtimestamp(line.time, timezone.utc),
            )
            for line in lines
        )


class Extras:
    """Logging and Scheduler of one local Vertex.

    Args:
        root: Its folder.
        project: The project that log entries belong to.
        at_least_twice: Have the scheduler deliver duplicates on purpose.
    """

    def __init__(self, root: Path, project: str, *, at_least_twice: bool = False) -> None:
        self.logs = logs.LogStore(root, project)
        self.sink = LogSink(self.logs)
        self._jobs = JobStore(root)
        self.engine = SchedulerEngine(self._jobs, at_least_twice=at_least_twice)

    def routes(self, logging_prefix: str, scheduler_prefix: str) -> list[BaseRoute]:
        """Their routes, under a prefix each."""
        return [*logs.routes(self.logs, logging_prefix), *routes(self.engine, scheduler_prefix)]

    def running(self) -> AbstractAsyncContextManager[None]:
        """Schedules fire while this is entered."""
        return self.engine.running()

    def close(self) -> None:
        """Close files."""
        self.logs.close()
        self._jobs.close()
