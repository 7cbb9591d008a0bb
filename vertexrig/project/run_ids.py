"""Ids and output folders of runs: each run of a job or sweep writes into its own folder, named by time and a short id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import datetime, timezone

from vertexrig.errors import UsageError

FOLDER = "runs"
GENERATED = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
"""A run id that the tool has made: `20261121-171500-ab12`."""
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""A run id that a person may give: one that the tool has made, or one of their own."""


_OUTPUTS = frozenset({"model", "checkpoints", "logs"})
"""Folders of a job's output, which are beside those of the runs where a job writes into the folder that holds them."""


def is_run_id(name: str) -> bool:
    """Whether a person may give this name to a run."""
    return RUN_ID.fullmatch(name) is not None and name not in _OUTPUTS


def new_run_id(now: datetime | None = None) -> str:
    """Return a new run's id: the time in UTC to the second, and four random hexadecimal digits."""
    when = (now or datetime.now(timezone.utc)).astimezone(timezone.utc)
    # the time first, so that ids sort by age; the random part tells two runs of one second apart
    return f"{when:%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def run_id_of(uri: str) -> str:
    """Return the id of the run whose folder an output URI is, "" if it is not the folder of a run."""
    last = uri.rstrip("/").rpartition("/")[2]
    return last if GENERATED.fullmatch(last) else ""


def output_folder(bucket: str, name: str, run_id: str = "") -> str:
    """Return the output folder of a run of job or sweep `name`; without a run, the folder that holds all of them."""
    base = f"{bucket.rstrip('/')}/{FOLDER}/{name}"
    return f"{base}/{run_id}" if run_id else base


def no_such_run(name: str, run_id: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown run, with the newest known ones."""
    names = sorted({one for one in known if is_run_id(one)}, reverse=True)[:10]
    return UsageError(
        f"{name} has no run {run_id!r}. {'Its runs: ' + ', '.join(names) if names else 'It has none yet'}."
    )
