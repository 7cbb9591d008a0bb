"""How a local Vertex behaves: its folder, its room for processes, its faults."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from localvertex.runner.options import RunOptions
from vertexrig.errors import UsageError
from vertexrig.spec.document import Document, scheduling_strategy
from vertexrig.times import duration_seconds, meant_seconds

FAULT_KINDS = ("stockout", "quota", "denied", "preempt")
FAULT_FORM = "KIND[:PATTERN]...[:TIMES][:DURATION][:after=DURATION][:wait]"
_OF = {"preempt": "after", "stockout": "waits"}
PENDING_FOR_S, QUEUED_FOR_S = 0.16, 0.25
"""For how long a server leaves a new job PENDING, and then QUEUED, so that clients that look right after its creation see what they
see on the service: a job's startTime was 0.161 s after its createTime (recorded 2026-04-07), and is set when the job is queued."""
_LENGTH = re.compile(r"[0-9]+m|[0-9]+h|[0-9]+(\.[0-9]+)?s")


@dataclass
class Fault:
    """What makes jobs fail as the cloud does.

    Args:
        kind: `stockout` (the job is accepted, waits and fails), `quota` (creating it is refused, or its pipeline fails),
            `denied` (the caller may not create it) or `preempt` (the machines of a running Spot job are taken away).
        patterns: Of accelerators, machine types and regions, such as `NVIDIA_L4`, `a2-*`, `europe-*`; each has to fit.
        times: How often it does so, -1 for always.
        lasts: Seconds from `since` until it is over, None for no end.
        after: For `preempt`: seconds that the job has run.
        waits: For `stockout`: a job stays PENDING until it is over, in place of failing.
        since: When it began, by the monotonic clock.
    """

    kind: str
    patterns: tuple[str, ...] = ()
    times: int = -1
    lasts: float | None = None
    after: float = 0.0
    waits: bool = False
    since: float = field(default_factory=time.monotonic)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From `stockout`, `stockout:NVIDIA_L4:2`, `stockout:us-central1:g2-*:30m:wait`, `preempt:g2-*:after=20s` and the like.

        Raises:
            UsageError: It is none of these.
        """
        kind, *parts = text.split(":")
        meant = [_meant(part) for part in parts]
        found = dict(meant)
        patterns = tuple(value for key, value in meant if key == "patterns")
        # Each key but the patterns stands once; `after` and `wait` are of one kind only.
        once = len(meant) == len(found) + max(len(patterns) - 1, 0)
        if (
            kind not in FAULT_KINDS
            or not once
            or not set(found) <= {"patterns", "times", "lasts", _OF.get(kind, "times")}
        ):
            raise UsageError(
                f"fault {text!r} is not {FAULT_FORM} with KIND one of {', '.join(FAULT_KINDS)}, each part but PATTERN once, a DURATION "
                "such as 90s, 30m or 2h, `after` of preempt and `wait` of stockout only"
            )
        found["patterns"] = patterns
        return cls(kind, **found)

    @property
    def on(self) -> bool:
        """Whether it is not over."""
        return self.lasts is None or time.monotonic() < self.since + self.lasts

    def applies_to(self, spec: Mapping[str, Any], region: str) -> tuple[str, ...]:
        """Return what of a job the fault fits: its accelerators and machines, and the region if every pattern fits it, or there is no pattern.

        A fault that fits counts down `times`.
        """
        found = self._fits(spec, region)
        # -1 stays -1: it is for all jobs.
        self.times -= bool(found) and self.times > 0
        return found

    def _fits(self, spec: Mapping[str, Any], region: str) -> tuple[str, ...]:
        if self.times == 0 or not self.on:
            return ()
        document = Document("CustomJobSpec", dict(spec))
        if self.kind == "preempt" and scheduling_strategy(document) != "SPOT":
            return ()
        names = [name for pool in document.pools for name in (pool.accelerator_type, pool.machine_type) if name]
        each = [
            [name for name in [*names, region] if fnmatchcase(name, pattern)] for pattern in self.patterns or ("*",)
        ]
        if not all(each):
            return ()
        everywhere = (region,) if all(region in found for found in each) else ()
        return (*(name for name in names if any(name in found for found in each)), *everywhere)


def _meant(part: str) -> tuple[str, Any]:
    """Return the field of a fault that a part of its text is about, and its value; "" for a part of no meaning."""
    key, _, value = part.rpartition("=")
    if part == "wait":
        return "waits", True
    if part.isdecimal():
        return "times", int(part)
    if _LENGTH.fullmatch(value) and key in ("", "after"):
        return key or "lasts", duration_seconds(value) or float(meant_seconds(value) or 0)
    # No machine, accelerator or region begins with a digit.
    return ("", part) if key or part[:1].isdecimal() else ("patterns", part or "*")


def default_slots() -> int:
    """Return how many replicas run at a time by default: one per core, and at least 4."""
    return max(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Settings:
    """A local Vertex.

    Args:
        root: Its folder; an absolute path where jobs run.
        slots: Replicas that run at a time; a job that needs more runs alone.
        checks: Refuse jobs with findings of severity error, as the service would.
        options: How jobs run; the manager fills in what differs from job to job.
        faults: The stock-outs, refusals and preemptions; changed at run time.
        seed: Seed of studies.
        at_least_twice: Schedules deliver duplicates on purpose.
        discrete: How discrete values reach a trainer: `retry`, `decimal` or `whole`; see `StudyRun`.
        allow_hosts: Patterns of hosts that the front passes on, besides package registries.
        public_buckets: Buckets that are read from Google, without credentials.
        hosts: Host names that the server answers to beside those of loopback.
        pending_for: Seconds for which a new study, or a new job of no study and no pipeline, stays PENDING before it is QUEUED; 0 except
            on a server of `local up`.
        queued_for: Seconds for which it then stays QUEUED at least; 0 except on a server of `local up`.
    """

    root: Path
    slots: int = field(default_factory=default_slots)
    checks: bool = True
    options: RunOptions = field(default_factory=RunOptions)
    faults: list[Fault] = field(default_factory=list)
    seed: int = 0
    at_least_twice: bool = False
    discrete: str = "retry"
    allow_hosts: tuple[str, ...] = ()
    public_buckets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    pending_for: float = 0.0
    queued_for: float = 0.0

    def fault_for(self, kind: str, spec: Mapping[str, Any], region: str) -> tuple[Fault, tuple[str, ...]] | None:
        """Return a fault of a kind that a job has now, and what of the job it fits; None if there is none."""
        found = ((fault, fault.applies_to(spec, region)) for fault in self.faults if fault.kind == kind)
        return next(((fault, fits) for fault, fits in found if fits), None)
