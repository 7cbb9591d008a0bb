"""Where a job keeps its files on this machine, and the texts of its spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def job_folder(root: Path, job_id: str) -> Path:
    """Return where a job keeps its logs, its replicas' working directories and metric files."""
    return root / "jobs" / job_id


def metric_file(root: Path, job_id: str, replica: str = "workerpool0-0") -> Path:
    """Return the file cloudml-hypertune of a replica writes (CLOUD_ML_HP_METRIC_FILE)."""
    return job_folder(root, job_id) / replica / "output.metrics"


def texts(value: Any) -> Iterator[str]:
    """Yield every text inside a value."""
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        yield from texts(item)
