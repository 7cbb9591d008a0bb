"""How a local Vertex behaves: its folder, its room for processes, its faults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vertexrig.errors import UsageError
from vertexrig.local.runner.options import RunOptions
from vertexrig.spec.document import Document

FAULT_KINDS = ("stockout", "quota")


@dataclass
class Fault:
    """A rule that makes jobs fail as the cloud does.

    Args:
        kind: `stockout` (the job is accepted, waits and fails) or `quota` (creating it is refused, or its pipeline fails).
        pattern: Of the accelerator or machine type, or of the region, such as `NVIDIA_L4`, `a2-*`, `europe-*`.
        times: How many jobs it makes fail, -1 for all.
    """

    kind: str
    pattern: str = "*"
    times: int = -1

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From `stockout`, `stockout:NVIDIA_L4` or `quota:a2-*:2`.

        Raises:
            UsageError: It is none of these.
        """
        kind, _, rest = text.partition(":")
        pattern, _, times = rest.partition(":")
        if kind not in FAULT_KINDS or not (times == "" or times.isdecimal()):
            raise UsageError(f"fault {text!r} is not KIND[:PATTERN[:TIMES]] with KIND one of {', '.join(FAULT_KINDS)}")
        return cls(kind, pattern or "*", int(times) if times else -1)

    def applies_to(self, job: Mapping[str, Any], region: str) -> tuple[str, ...]:
        """Return what of a job the rule fits: machines, accelerators, the region; it counts down `times`."""
        pools = Document("CustomJobSpec", dict(job)).pools
        names = [name for pool in pools for name in (pool.accelerator_type, pool.machine_type) if name]
        found = tuple(name for name in [*names, region] if fnmatchcase(name, self.pattern))
        if not found or self.times == 0:
            return ()
        # -1 stays -1: it is for all jobs.
        self.times -= self.times > 0
        return found


@dataclass(frozen=True)
class Settings:
    """A local Vertex.

    Args:
        root: Its folder.
        slots: Replicas that run at a time; a job that needs more runs alone.
        checks: Refuse jobs with findings of severity error, as the service would.
        run: How jobs run; job id, project, region and trial are filled in.
        faults: Rules for stockouts and quota errors; changed at run time.
        seed: Seed of studies.
        at_least_twice: Schedules deliver duplicates on purpose.
        discrete: How discrete values reach a trainer: `retry`, `decimal` or `whole`; see `StudyRun`.
        allow_hosts: Patterns of hosts that the front passes on, besides package registries.
    """

    root: Path
    slots: int = field(default_factory=lambda: max(4, os.cpu_count() or 1))
    checks: bool = True
    run: RunOptions = field(default_factory=RunOptions)
    faults: list[Fault] = field(default_factory=list)
    seed: int = 0
    at_least_twice: bool = False
    discrete: str = "retry"
    allow_hosts: tuple[str, ...] = ()

    def fault(self, kind: str, job: Mapping[str, Any], region: str) -> tuple[str, ...]:
        """Return what a fault of a kind fits of a job; nothing if none does."""
        return next(
            (found for fault in self.faults if fault.kind == kind and (found := fault.applies_to(job, region))), ()
        )
