"""Rungs: one try of a candidate each, and the table of what to do about one (`vertexrig.submit.ladder` does it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, Literal

from vertexrig import times
from vertexrig.cloud.vertex import COLLECTIONS, RemoteJob
from vertexrig.project import candidates, runs
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.states import CANCELLING, EXPIRED, FAILED, PARTIALLY_SUCCEEDED, SUCCEEDED, has_run
from vertexrig.submit.claims import Claim
from vertexrig.submit.scarcity import Scarcity, outcome
from vertexrig.submit.submission import Submitter, price_of
from vertexrig.workspace import Prepared

SEEN = "seen"
"""Key of `Claim.ended`: when the job that is given up was seen ended, RFC 3339."""
WAITED, OVER_BUDGET = "waited", "over-budget"
GOES_ON = (WAITED, OVER_BUDGET, Scarcity.QUOTA.value, Scarcity.STOCKOUT.value, Scarcity.PREEMPTED.value)
"""Why a rung is left for the next one."""


@dataclass(frozen=True)
class CandidateRun:
    """A candidate, rendered and checked, and what makes its job where it is to run."""

    prepared: Prepared
    submitter: Submitter

    @property
    def number(self) -> int:
        """Its number; 1 is the job as it stands."""
        return self.prepared.candidate

    @property
    def changes(self) -> str:
        """What it changes, "" for the job as it stands."""
        own = (self.prepared.first or self.prepared).workspace.loaded.runnable(self.prepared.view.name)
        return candidates.summary(own.candidates[self.number - 2]) if self.number > 1 else ""

    @property
    def collection(self) -> str:
        return COLLECTIONS[self.prepared.document.kind]

    @property
    def wait_s(self) -> float | None:
        """Seconds that its job may wait for machines, None for as long as the service lets it."""
        loaded = self.prepared.workspace.loaded
        text = loaded.runnable(self.prepared.view.name).wait
        return None if text is None else times.meant_seconds(text)

    @cached_property
    def price(self) -> Estimate:
        """What a run of it may cost."""
        return price_of(self.prepared, self.submitter.limits)


@dataclass(frozen=True)
class Rung:
    """One try of a candidate.

    Args:
        place: Its place among all tries, from 0 on; another round of the candidates goes on counting.
        again: How many jobs of this try were preempted before.
        claim: What has become of it, None before its first delivery.
    """

    way: CandidateRun
    place: int
    again: int = 0
    claim: Claim | None = None


@dataclass(frozen=True)
class Try:
    """What became of one try, for people.

    Args:
        changes: What that changes, "" for the job as it stands.
        job: Resource name of its job, "" if none was made.
        reason: Why it was left, "" if it was not.
        text: The same as a sentence.
        waited_s: Seconds its job waited for machines; None if not known.
        usd: What its job has cost, an estimate; None if not known.
    """

    candidate: int
    changes: str
    job: str = ""
    reason: str = ""
    text: str = ""
    waited_s: float | None = None
    usd: float | None = None


@dataclass(frozen=True)
class Move:
    """What to do about a rung.

    Args:
        act: `start` its job, `wait`, `give-up` (say that the job waited too long, and cancel it), `cancel` it once more, `leave` (say
            that the job is over), go on to the `next` rung, or `end` the ladder.
        why: Why: of GOES_ON, or what the end is called.
    """

    act: Literal["start", "wait", "give-up", "cancel", "leave", "next", "end"]
    why: str = ""


def move(claim: Claim | None, job: RemoteJob | None, wait_s: float | None = None) -> Move:
    """Return what to do about a rung; the one table of outcomes.

    Args:
        job: Its recorded job, None if there is none or it is gone.
        wait_s: Seconds that the job may wait for machines.
    """
    if claim is None or claim.state in ("claimed", "released"):
        return Move("start")
    why = claim.ended.get("reason", "")
    if claim.state == "ended":
        return Move("next" if why in GOES_ON else "end", why)
    if SEEN in claim.ended:
        return Move("next", why)
    if job is None:
        return Move("end", "gone")
    if job.state == SUCCEEDED:
        return Move("end", "succeeded")
    if job.state == PARTIALLY_SUCCEEDED:  # to a schedule's steps and to `watch`, too, that is no success
        return Move("end", "failed")
    if job.state == FAILED:
        found = outcome(job)
        return Move("end", "failed") if found is Scarcity.OTHER else Move("leave", found.value)
    if job.ended:
        # a job that has not begun and expires has waited as long as the service lets it
        ours = why or (WAITED if job.state == EXPIRED and not begun(job) else "")
        return Move("leave", ours) if ours else Move("end", "cancelled")
    if begun(job) or job.state == CANCELLING:
        return Move("wait")
    if why:
        return Move("cancel", why)
    # the claim was written when the job was made, and its age is by the service's clock
    return Move("give-up", WAITED) if wait_s is not None and claim.age_s > wait_s else Move("wait")


def ways(prepared: Sequence[Prepared], submitter: Submitter) -> list[CandidateRun]:
    """Return candidates ready to be started.

    Args:
        prepared: The job as it stands, and the others (`Workspace.prepare_all`).
        submitter: Of the job as it stands, whose bucket has the claims and the budget of all.
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
            fence=True,  # several deliveries go on with one ladder
        )
        own.ledger = submitter.ledger
        found.append(CandidateRun(one, own))
    return found


def begun(job: RemoteJob) -> bool:
    """Whether a job has begun to train, now or before."""
    return has_run(job.data)


def course(job: RemoteJob, claim: Claim) -> dict[str, str]:
    """Return how long a job waited, and what it cost, as far as its times and its estimate tell."""
    created, started, ended = (_time(job.data.get(key)) for key in ("createTime", "startTime", "endTime"))
    started = started if begun(job) else None
    found = {}
    got = started or ended
    if created is not None and got is not None:
        found["waited_s"] = f"{(got - created).total_seconds():.0f}"
    price = claim.job.estimate
    # of a price of which a part is unknown the sum would be too low, and of a sweep the trials' own times count
    per_hour = price.get("usd_per_hour") if price.get("complete") and price.get("trials") is None else None
    if started is None:
        found["usd"] = "0"
    elif ended is not None and isinstance(per_hour, (int, float)):
        found["usd"] = f"{per_hour * (ended - started).total_seconds() / 3600:.4f}"
    return found


def _time(value: Any) -> datetime | None:
    try:
        return times.parse(str(value)) if value else None
    except ValueError:
        return None


def asked_at(run_id: str, otherwise: datetime) -> datetime:
    """Return when a run was first asked for, as its name says."""
    if not runs.RUN.fullmatch(run_id):
        return otherwise
    return datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc)


def number(text: str | None) -> float | None:
    """Return a number that a claim holds, None if it holds none."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def line(text: str) -> str:
    """Return the first line of a text, as a claim holds it."""
    return " ".join(text.partition("\n")[0].split())[:500]
