"""How long the service took in recordings to get machines and to give them back, for jobs that are to wait as long here."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from localvertex.runner.options import RunOptions
from vertexrig.catalog import load
from vertexrig.errors import UsageError

QUEUED_S = 0.25
"""For how long a job stays QUEUED, so that a client that looks right after its creation sees that, as on the service."""


def paced(run: RunOptions, pace: str = "none", speed: float | None = None) -> RunOptions:
    """Options of a run with the times of a pace.

    Args:
        pace: `none` waits for nothing, `recorded` takes the medians of public recordings (rows `durations.*` of the catalog's limits).
        speed: Divides the times; None is 1.

    Raises:
        UsageError: A speed without a pace.
    """
    if pace == "none":
        if speed is not None:
            raise UsageError("--speed divides the times of a pace; give --pace recorded with it")
        return run
    factor = 1.0 if speed is None else speed
    start, end = (median(load().limits.numbers(f"durations.{span}")) / factor for span in ("start_gpu_s", "end_s"))
    return replace(run, provision=start, tear_down=end)
