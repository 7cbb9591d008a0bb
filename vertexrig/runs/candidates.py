"""Candidates of a run: each rendered, with what makes its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from vertexrig import times
from vertexrig.cloud.vertex import COLLECTIONS, RemoteJob
from vertexrig.project import candidates
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.states import has_run
from vertexrig.submit.submission import Submitter, price_of
from vertexrig.workspace import Prepared


@dataclass(frozen=True)
class CandidateRun:
    """A candidate, rendered and checked, and the submitter of its region."""

    prepared: Prepared
    submitter: Submitter

    @property
    def number(self) -> int:
        """Its number; 1 is the job as the project file has it."""
        return self.prepared.candidate

    @property
    def changes(self) -> str:
        """What it changes, "" for the first one."""
        own = (self.prepared.first or self.prepared).workspace.loaded.runnable(self.prepared.view.name)
        return candidates.summary(own.candidates[self.number - 2]) if self.number > 1 else ""

    @property
    def collection(self) -> str:
        return COLLECTIONS[self.prepared.document.kind]

    @cached_property
    def price(self) -> Estimate:
        """What a run of it may cost."""
        return price_of(self.prepared, self.submitter.limits)


def candidates_of(prepared: Sequence[Prepared], submitter: Submitter) -> list[CandidateRun]:
    """Return candidates in the order in which they are attempted.

    Args:
        prepared: The job as the project file has it, and the others (`Workspace.prepare_candidates`).
        submitter: Of the first, whose bucket has the claims and the budget of all.
    """
    found = []
    for one in prepared:
        region, vertex = one.workspace.loaded.project.region, submitter.vertex
        own = Submitter(
            one.workspace,
            vertex if region == vertex.region else vertex.in_region(region),
            submitter.storage,
            claims=submitter.claims,
            limits=submitter.limits,
            fence=submitter.fence or len(prepared) > 1,  # several processes continue one run
        )
        own.ledger, own.reconciler = submitter.ledger, submitter.reconciler  # of all regions
        own.lineage = submitter.lineage
        found.append(CandidateRun(one, own))
    first = prepared[0]
    if first.workspace.loaded.runnable(first.view.name).prefer == "price":
        found.sort(key=lambda one: one.price.rank)
    return found


def time_and_cost(job: RemoteJob, estimate: Mapping[str, Any]) -> dict[str, float]:
    """Return how long a job waited (`waited_s`) and what it cost (`usd`), as far as its times and its estimate tell."""
    created, started, ended = (_time(job.data.get(key)) for key in ("createTime", "startTime", "endTime"))
    started = started if has_run(job.data) else None
    found: dict[str, float] = {}
    got = started or ended
    if created is not None and got is not None:
        found["waited_s"] = round((got - created).total_seconds())
    # a price of which a part is unknown would be too low, and of a sweep the trials' own times count
    per_hour = estimate.get("usd_per_hour") if estimate.get("complete") and estimate.get("trials") is None else None
    if started is None:
        found["usd"] = 0.0
    elif ended is not None and isinstance(per_hour, (int, float)):
        found["usd"] = round(per_hour * (ended - started).total_seconds() / 3600, 4)
    return found


def _time(value: Any) -> datetime | None:
    try:
        return times.parse(str(value)) if value else None
    except ValueError:
        return None


def first_line(text: str) -> str:
    """Return the first line of a text, shortened."""
    return " ".join(text.partition("\n")[0].split())[:500]
