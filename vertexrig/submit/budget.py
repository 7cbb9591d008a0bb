"""Budgets: what a run may cost, what a day's runs may, and how many jobs may live at one time.

The sums of a day are kept as one small object per claim, written before the job is made. Writing first and then listing
makes the sum hold under concurrency: of any set of runs let through, the last one saw all the others (a listing of Cloud
Storage is strongly consistent).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from vertexrig import times
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import KINDS, Vertex
from vertexrig.errors import VertexrigError
from vertexrig.explain.estimate import Estimate
from vertexrig.project.model import Budget
from vertexrig.spec.states import LIVE
from vertexrig.submit.claims import LABEL, LEASE_S

FOLDER = "vertexrig/days"
_ENTRY = re.compile(r"(?P<claim>[a-z0-9-]{1,63})\.(?P<cents>[0-9]{1,12})\.(?P<trials>[0-9]{1,9})")
_LIVE_FILTER = " OR ".join(f'state="{state}"' for state in LIVE)


class OverBudgetError(VertexrigError):
    """A run that the budget does not allow; the message shows the arithmetic.

    Args:
        limit: The key of `trigger.budget`.
        message: The sum, term by term, and the limit.
    """

    exit_code = 1
    code = "budget"

    def __init__(self, limit: str, message: str) -> None:
        self.limit = limit
        super().__init__(f"{message} (trigger.budget.{limit})")


@dataclass(frozen=True)
class BudgetEntry:
    """What one run put into a day's ledger.

    Args:
        claim: The claim's id.
        usd: Estimated US dollars, to the cent, rounded up.
        trials: Trials.
        created: When, RFC 3339 by the service's clock.
        generation: Of its object; it orders entries written at the same instant.
    """

    claim: str
    usd: float
    trials: int
    created: str
    generation: int


def trials_of(estimate: Estimate) -> int:
    """Trials of a run; a custom job is one."""
    return 1 if estimate.trials is None else estimate.trials


def arithmetic(estimate: Estimate) -> str:
    """How the price of a run comes about, in one line."""
    trials = "" if estimate.trials is None else f"{estimate.trials} trials × "
    hours = f"{estimate.timeout_s / 3600:g} h" + (
        "" if estimate.timeout_written else " (the service's default timeout)"
    )
    items = " + ".join(
        f"{line.quantity:g} × {line.item}" + (f" ${line.usd_per_hour:.4g}/h" if line.usd_per_hour is not None else "")
        for line in estimate.lines
    )
    least = "" if estimate.complete else "at least "
    return f"{least}{trials}{hours} × ${estimate.usd_per_hour:.4g}/h [{items}] = ${estimate.usd_at_most:.2f}"


def check_run(budget: Budget, estimate: Estimate) -> None:
    """Hold one run against the limits that need no ledger.

    Raises:
        OverBudgetError: It is over one, or has no sourced price to hold against one in dollars.
    """
    trials = trials_of(estimate)
    if budget.trials_per_run is not None and trials > budget.trials_per_run:
        raise OverBudgetError("trials_per_run", f"{trials} trials, and {budget.trials_per_run} are allowed per run")
    in_dollars = [name for name in ("usd_per_run", "usd_per_day") if getattr(budget, name) is not None]
    if in_dollars and not estimate.complete:
        missing = ", ".join(estimate.unpriced)
        message = f"{missing} has no sourced price, so the run cannot be held against a budget in dollars: add one to the catalog"
        raise OverBudgetError(in_dollars[0], message)
    if budget.usd_per_run is not None and estimate.usd_at_most > budget.usd_per_run:
        limit = f"more than ${budget.usd_per_run:.2f} per run"
        raise OverBudgetError("usd_per_run", f"{arithmetic(estimate)}: {limit}")


class Ledger:
    """The day's runs, and the jobs that live.

    Args:
        storage: The bucket.
        vertex: The jobs.
        budget: The limits.
        lease_s: For how long a run without a visible job counts as a live one.
    """

    def __init__(self, storage: Storage, vertex: Vertex, budget: Budget, *, lease_s: float = LEASE_S) -> None:
        self.storage, self.vertex, self.budget, self.lease_s = storage, vertex, budget, lease_s

    @property
    def needed(self) -> bool:
        """Whether there is a limit that depends on other runs."""
        budget = self.budget
        return not (budget.usd_per_day is None and budget.trials_per_day is None and budget.live_jobs is None)

    def reserve(self, claim: str, estimate: Estimate) -> None:
        """Put a run into the day's ledger, if there is room.

        Raises:
            OverBudgetError: There is none; `cancel` takes it out again.
            RestError: Cloud Storage or Vertex AI failed.
        """
        if not self.needed:
            return
        day = times.now().date().isoformat()
        cents = -int(-estimate.usd_at_most * 100 // 1)
        name = f"{FOLDER}/{day}/{claim}.{cents}.{trials_of(estimate)}"
        self.storage.write(name, b"", generation=0)
        entries = sorted(self.entries(day), key=lambda entry: (entry.created, entry.generation, entry.claim))
        place = next((at for at, entry in enumerate(entries) if entry.claim == claim), len(entries))
        self._check(entries[:place], estimate, day)

    def cancel(self, claim: str) -> None:
        """Take a run whose job was certainly not made out of the ledger."""
        if self.needed:
            day = times.now().date()
            for one in (day, day - timedelta(days=1)):  # it may have been midnight in between
                for item in list(self.storage.list(f"{FOLDER}/{one.isoformat()}/{claim}.")):
                    self.storage.delete(item.name)

    def entries(self, day: str) -> Iterable[BudgetEntry]:
        """The ledger of a day (UTC, YYYY-MM-DD)."""
        for item in self.storage.list(f"{FOLDER}/{day}/"):
            match = _ENTRY.fullmatch(item.name.rsplit("/", 1)[-1])
            if match:
                usd = int(match["cents"]) / 100
                yield BudgetEntry(match["claim"], usd, int(match["trials"]), item.created, item.generation)

    def _check(self, before: list[BudgetEntry], estimate: Estimate, day: str) -> None:
        budget, trials, usd = self.budget, trials_of(estimate), estimate.usd_at_most
        spent, tried = sum(entry.usd for entry in before), sum(entry.trials for entry in before)
        if budget.usd_per_day is not None and spent + usd > budget.usd_per_day:
            message = f"${spent:.2f} of {_runs(before)} on {day} (UTC) + {arithmetic(estimate)} = ${spent + usd:.2f}: more than "
            raise OverBudgetError("usd_per_day", f"{message}${budget.usd_per_day:.2f} per day")
        if budget.trials_per_day is not None and tried + trials > budget.trials_per_day:
            message = f"{tried} trials of {_runs(before)} on {day} (UTC) + {trials} = {tried + trials}: more than "
            raise OverBudgetError("trials_per_day", f"{message}{budget.trials_per_day} per day")
        if budget.live_jobs is not None:
            live, waiting = self._live(before)
            if live + waiting + 1 > budget.live_jobs:
                soon = f" + {waiting} about to start" if waiting else ""
                message = f"{live} live jobs{soon} + this one: more than {budget.live_jobs}"
                raise OverBudgetError("live_jobs", message)

    def _live(self, before: list[BudgetEntry]) -> tuple[int, int]:
        """Our jobs that live, and runs let through so lately that their jobs may not be listed yet."""
        # by claim, so that the jobs of a sweep's trials, which carry its labels, count as the one run they are
        live = {
            job.labels.get(LABEL)
            for kind in KINDS
            for job in self.vertex.list(kind, filter=f"labels.{LABEL}:* AND ({_LIVE_FILTER})")
        }
        since = times.now() - timedelta(seconds=self.lease_s)
        young = [entry for entry in before if _moment(entry.created) > since]
        if not young:
            return len(live), 0
        recent = f'labels.{LABEL}:* AND create_time>"{times.rfc3339(since - timedelta(minutes=5), 0)}"'
        listed = {job.labels.get(LABEL) for kind in KINDS for job in self.vertex.list(kind, filter=recent)}
        return len(live), sum(entry.claim not in listed for entry in young)


def _runs(entries: list[BudgetEntry]) -> str:
    return f"{len(entries)} run" + ("" if len(entries) == 1 else "s")


def _moment(text: str) -> datetime:
    try:
        return times.parse(text)
    except ValueError:
        return times.now()
