"""The metric file of a trial, read while the trainer writes it.

cloudml-hypertune 0.1.0.dev6 rewrites the whole file at every report, with its last 100 entries, one JSON object per
line with keys in order: `{"accuracy": "0.91", "checkpoint_path": "", "global_step": "3", "timestamp": 1.69e9,
"trial": "1"}`. Other writers append, leave keys out, or write numbers; all of that is read.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vertexrig.errors import did_you_mean, nearest
from vertexrig.spec.trial import Measurement

TAIL_BYTES = 1 << 20  # 100 entries take some 15 KB; more than this is not read
_OTHER_KEYS = {"timestamp", "trial", "global_step", "checkpoint_path"}
_DEFAULT_TAG = "training/hptuning/metric"  # what cloudml-hypertune writes for an empty tag
# Seconds that a report's time may lie before the start or ahead of this clock and still be believed.
_CLOCK_SLACK = 5.0
_MTIME_GRAIN = 100_000_000  # ns: a file may be rewritten within one tick of its clock, at the same size
# A trainer may report under thousands of tags; messages name a few.
_MOST_TAGS = 20
# Reports that are remembered to see one again; far more than a file of 100 entries can bring back.
_MOST_SEEN = 20_000


DIVERGED = "Invalid objective value: "
"""How the reason begins for which a trial is infeasible whose last report was nan or infinite."""


class MetricFile:
    """Reads one trial's metric file again and again, giving each report once.

    Args:
        path: The file named by CLOUD_ML_HP_METRIC_FILE; it need not exist yet.
        metric_ids: The study's metricIds.
        started: When the trial started, seconds since 1970; elapsed times count from it.
        after: Reports no later than this many seconds are known already (a study taken up again after a crash).
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        metric_ids: Sequence[str],
        *,
        started: float,
        after: float = -1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.metric_ids, self.started, self.after, self.clock = path, metric_ids, started, after, clock
        self._stamp: tuple[int, int, int] | None = None
        self._lines: list[bytes] = []
        self._seen: dict[int, None] = {}
        self._tags: dict[str, None] = {}
        self._problem = ""
        self._junk = 0
        self._not_finite: dict[str, str] = {}

    def read(self) -> list[Measurement]:
        """Return the measurements reported since the last call, in the order of the file; never raises for its content.

        A line being written is left for the next call. Values that are not finite numbers give no measurement; see
        `diverged`.
        """
        lines = self._new_lines()
        return [found for line in lines for found in self._measurements(line)]

    @property
    def diverged(self) -> str:
        """The latest value of a metric, if it was nan or infinite; "" otherwise."""
        return next(filter(None, self._not_finite.values()), "")

    def explain(self) -> str:
        """Return why there is no measurement, and what to do, for a trial that ended without one."""
        wanted = " and ".join(repr(name) for name in self.metric_ids)
        if self._problem:
            return f"The metric file cannot be read ({self._problem}), so no measurement of {wanted} arrived."
        if self.diverged:
            return f"{DIVERGED}{self.diverged}"  # a note of 2026-03-25 (index id 53917530959)
        seen = [tag for tag in self._tags if tag not in self.metric_ids]
        if self._tags and not seen:
            missing = [name for name in self.metric_ids if name not in self._tags]
            return f"No usable value of {', '.join(map(repr, missing or self.metric_ids))} was reported."
        if seen:
            shown = ", ".join(map(repr, seen))
            unnamed = (
                f" {_DEFAULT_TAG!r} is what cloudml-hypertune writes for an empty tag." if _DEFAULT_TAG in seen else ""
            )
            near = nearest(self.metric_ids[0], seen)
            hint = f" {did_you_mean(self.metric_ids[0], seen)}" if near else ""
            return (
                f"The trainer reported under the tag {shown}, but the study's metricId is {wanted}.{hint}{unnamed} "
                "The hyperparameter_metric_tag must equal the metricId."
            )
        if self._junk or self._lines:
            return f"The metric file holds {self._junk or len(self._lines)} lines, none of which is a report as cloudml-hypertune writes it."
        return (
            f"The trainer wrote no metric file, so no measurement of {wanted} arrived. Report it with cloudml-hypertune: "
            f"HyperTune().report_hyperparameter_tuning_metric({self.metric_ids[0]!r}, value, step)."
        )

    def _new_lines(self) -> list[bytes]:
        lines = self._file_lines()
        if lines is None:
            return []
        overlap, whole = _overlap(self._lines, lines)
        if whole:
            return []  # caught in the middle of a rewrite: nothing but lines already known
        self._lines = lines
        return lines[overlap:]

    def _file_lines(self) -> list[bytes] | None:
        """Return all complete lines of the file's tail; None if nothing changed or it cannot be read."""
        try:
            # Unbuffered: one read() is then one system call, between the two looks at the file.
            with self.path.open("rb", buffering=0) as file:
                about = os.fstat(file.fileno())
                stamp, size = _stamp(about), about.st_size
                # A file of the last instant is read again even if it looks the same.
                if stamp == self._stamp and abs(time.time_ns() - about.st_mtime_ns) > _MTIME_GRAIN:
                    return None
                file.seek(max(0, size - TAIL_BYTES))
                data = file.read(TAIL_BYTES)
                if _stamp(os.fstat(file.fileno())) != stamp:
                    return None  # rewritten meanwhile: the next call sees it whole
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problem = error.strerror or type(error).__name__
            return None
        self._stamp, self._problem = stamp, ""
        lines = data.split(b"\n")
        if size > TAIL_BYTES:
            # The first is cut off at its beginning.
            lines = lines[1:] or [b""]
        last = lines.pop()
        if last.strip() and _entry(last) is not None:  # a writer that leaves out the last newline
            lines.append(last)
        return [line for line in lines if line.strip()]

    def _measurements(self, line: bytes) -> list[Measurement]:
        entry = _entry(line)
        if entry is None:
            self._junk += 1
            return []
        for tag in entry:
            if tag not in _OTHER_KEYS and len(self._tags) < _MOST_TAGS:
                self._tags[tag[:200]] = None
        elapsed = self._elapsed(entry.get("timestamp"), line)
        if elapsed is None:
            return []
        metrics = {}
        for name in self.metric_ids:
            if name in entry:
                value = _number(entry[name])
                # A later finite value takes the mark away: only the latest one decides.
                self._not_finite[name] = "" if math.isfinite(value) else str(entry[name])[:40]
                if math.isfinite(value):
                    metrics[name] = value
        return [Measurement(_step(entry.get("global_step")), elapsed, metrics)] if metrics else []

    def _known(self, line: bytes) -> bool:
        """Whether this very line came before. A report with its time is never made twice, so this also holds when a
        read fell between two rewrites and the lines do not line up.
        """
        key = hash(line)
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return False

    def _elapsed(self, timestamp: Any, line: bytes) -> float | None:
        """Return seconds since the start, by the entry's own time if that can be; None for a report already known."""
        now, when = self.clock(), _number(timestamp)
        # Other times are of another clock or in another unit; the report then gets the time of its reading.
        if self.started - _CLOCK_SLACK <= when <= now + _CLOCK_SLACK:
            elapsed = round(max(0.0, when - self.started), 6)
            return None if elapsed <= self.after or self._known(line) else elapsed
        return round(max(0.0, now - self.started), 6)


def last_values(path: Path) -> dict[str, float]:
    """Return the last finite value under each of the first 20 tags of a metric file, by tag; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")
    except OSError:
        return {}
    found: dict[str, float] = {}
    for entry in filter(None, map(_entry, lines)):
        values = {tag: _number(value) for tag, value in entry.items() if tag not in _OTHER_KEYS}
        found |= {tag: value for tag, value in values.items() if math.isfinite(value)}
    return dict(list(found.items())[:_MOST_TAGS])


def _stamp(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_ino, about.st_mtime_ns, about.st_size


def _entry(line: bytes) -> Mapping[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _number(value: Any) -> float:
    """`value` as a float; nan if it is not a number."""
    try:
        return float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _step(value: Any) -> int:
    number = _number(value)
    return int(number) if 0 <= number < 2**63 else 0


def _overlap(known: Sequence[bytes], lines: Sequence[bytes]) -> tuple[int, bool]:
    """Return how many of `lines`' first items are the last of `known`; and whether `lines` lies within `known` altogether.

    The window of 100 entries slides, so new entries are those after the longest such overlap.
    """
    size = len(lines)
    if any(known[start : start + size] == lines for start in range(len(known) - size + 1)):
        return size, True
    return next(n for n in range(min(len(known), size), -1, -1) if known[len(known) - n :] == lines[:n]), False
