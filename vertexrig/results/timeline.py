"""How parallel a study really was, and what starting its trials cost."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vertexrig.results.study import StudyRecord
from vertexrig.results.trials import instant

_ROUNDED_S = 1.0
"""How much later than the trial an end in whole seconds can be."""


@dataclass(frozen=True)
class Span:
    """A trial that ran.

    Args:
        start: Seconds since the study was created (or since its first trial started).
        end: The same; for a trial that runs, the latest moment that is known.
        slot: Its slot, counted from 0: there are as many slots as trials ran at one time.
        gap: Seconds since the trial before it in that slot ended; None for the first.
        running: Whether it has not ended.
    """

    trial: str
    start: float
    end: float
    slot: int
    gap: float | None
    running: bool


@dataclass(frozen=True)
class Timeline:
    """When the trials of a study ran.

    Args:
        spans: By start.
        wait: Seconds from the study's creation to its first trial; None if one of them is not known.
        wall: Seconds from the start of the first trial to the end of the last.
        busy: Seconds of all trials.
        most: Trials at one time at most.
        gap: Median seconds between the end of a trial and the start of the next in its slot; None without any.
    """

    spans: tuple[Span, ...]
    wait: float | None
    wall: float
    busy: float
    most: int
    gap: float | None

    @property
    def mean_parallel(self) -> float:
        """Trials at one time on average."""
        return self.busy / self.wall if self.wall > 0 else float(bool(self.spans))

    @property
    def idle(self) -> float:
        """Seconds that slots waited between two trials."""
        return sum(span.gap or 0.0 for span in self.spans)


def timeline(study: StudyRecord, now: float | None = None) -> Timeline:
    """Return when the trials of a study ran.

    Args:
        now: Seconds since 1970, where trials that run are cut off; by default the latest time that the study names.
    """
    ran = sorted(
        ((own.start, own.end, name) for name, own in study.courses.items() if own.start is not None),
        key=lambda row: (row[0], row[2]),
    )
    if not ran:
        return Timeline((), None, 0.0, 0.0, 0, None)
    known = [moment for start, end, _ in ran for moment in (start, end) if moment is not None]
    latest = max([*known, *([now] if now is not None else [])])
    # clocks of the service and of a trial may differ: a study is not created after its first trial
    created = instant(study.job.data.get("createTime"))
    zero = created if created is not None and created <= ran[0][0] else ran[0][0]
    # An end before its start is made equal to it: the two times can be of different clocks.
    spans = _placed(
        [
            (start - zero, (latest if end is None else max(start, end)) - zero, name, end is None)
            for start, end, name in ran
        ],
        study.parallel,
    )
    gaps = [span.gap for span in spans if span.gap is not None]
    return Timeline(
        spans=spans,
        wait=ran[0][0] - created if created is not None and created <= ran[0][0] else None,
        wall=max(span.end for span in spans) - spans[0].start,
        busy=sum(span.end - span.start for span in spans),
        most=max(span.slot for span in spans) + 1,
        gap=statistics.median(gaps) if gaps else None,
    )


def running(spans: Sequence[Span]) -> list[tuple[float, int]]:
    """Return how many trials ran from each moment on: (seconds, trials)."""
    changes: dict[float, int] = {}
    for span in spans:
        changes[span.start] = changes.get(span.start, 0) + 1
        # one sum per moment: a trial that starts in the second in which another ends does not count as two
        changes[span.end] = changes.get(span.end, 0) - 1
    found, many = [], 0
    for moment, change in sorted(changes.items()):
        many += change
        found.append((moment, many))
    return found


def _placed(rows: Sequence[tuple[float, float, str, bool]], most: int | None = None) -> tuple[Span, ...]:
    """Return each trial in the slot that has been free for longest, or in a new one.

    Args:
        rows: Start, end, name of each trial, and whether it runs; by start.
        most: Trials that may run at one time. The service gives ends in whole seconds, so a trial can start in the second before
            the end of the one whose slot it takes: the end is then cut to that start.
    """
    free: list[tuple[float, int]] = []
    last: dict[int, int] = {}
    spans: list[Span] = []
    slots = 0
    for start, end, name, still in rows:
        if slots == most and start < free[0][0] < start + _ROUNDED_S:
            cut = last[free[0][1]]
            if not spans[cut].running:
                spans[cut] = replace(spans[cut], end=start)
                heapq.heapreplace(free, (start, free[0][1]))
        # which slot a trial really took, the service does not show
        if free and free[0][0] <= start:
            before, slot = heapq.heappop(free)
            gap: float | None = start - before
        else:
            slot, gap, slots = slots, None, slots + 1
        last[slot] = len(spans)
        spans.append(Span(name, start, end, slot, gap, still))
        heapq.heappush(free, (end, slot))
    return tuple(spans)
