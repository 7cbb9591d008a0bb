"""Budgets: what a run may cost, what a day's runs may, and how many jobs may live at one time; of all runs, of one caller's and of
one schedule's.

The sums of a day are kept as one small object per claim, written before the job is made; see `Ledger` for why they hold
under concurrency.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from vertexrig import times
from vertexrig.catalog import LineItem
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Item, Storage
from vertexrig.cloud.vertex import LIVE_FILTER, RESOURCES, Vertex
from vertexrig.errors import VertexrigError
from vertexrig.project.triggered import Budget, RunLimits
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import LIVE
from vertexrig.submit.claims import LEASE_S, Claim

FOLDER = "days"
GRANTED = b"granted"
"""Content of the row of a granted run; before that the row is empty, which a listing shows by its size."""
PER_RUN = ("usd_per_run", "trials_per_run")
"""Limits of one run: waiting does not help."""
SETTLE_S = 10.0
"""Seconds a run waits for others that ask for the same room."""
# The numbers are in the object's name (`_row`), so that one listing gives the sums without reading an object.
_ENTRY = re.compile(
    rf"{FOLDER}/(?P<day>[0-9-]{{10}})/(?P<claim>[a-z0-9-]{{1,63}})\.(?P<cents>[0-9]{{1,12}})\.(?P<trials>[0-9]{{1,9}})"
    r"(?P<shares>(?:\.[a-z]+-[a-z0-9_-]{1,63})*)"
)


class OverBudgetError(VertexrigError):
    """A run that the budget does not allow; the message shows the arithmetic.

    Args:
        limit: The key of the budget.
        message: The sum, term by term, and the limit.
        path: Where the project file has it.
    """

    exit_code = 1
    code = "budget"

    def __init__(self, limit: str, message: str, estimate: Estimate, path: str = "trigger.budget") -> None:
        self.limit, self.estimate, self.path = limit, estimate, path
        super().__init__(f"{message} ({path}.{limit})")


@dataclass(frozen=True)
class Share:
    """RunLimits that hold for some of the runs.

    Args:
        kind: `caller` or `schedule`; their jobs have the label `vertexrig_KIND`. "" for the limits of all runs.
        value: Which one, as the label has it.
        path: Where the project file has the limits.
        begun: Claims of runs that live besides those with a job that does, such as one whose next step is to come.
    """

    kind: str
    value: str
    limits: RunLimits
    path: str
    begun: Callable[[], Collection[str]] = tuple

    @property
    def tag(self) -> str:
        """How a row of the ledger names it."""
        return f"{self.kind}-{self.value}"

    @property
    def labels(self) -> dict[str, str]:
        """The label of its jobs."""
        return {f"vertexrig_{self.kind}": self.value} if self.kind else {}

    @property
    def needed(self) -> bool:
        """Whether there is a limit that depends on other runs."""
        limits = self.limits
        return not (limits.usd_per_day is None and limits.trials_per_day is None and limits.live_jobs is None)


@dataclass(frozen=True)
class Terms:
    """On what terms a run is started.

    Args:
        shares: Further limits that it must keep, beside the budget of all runs.
        labels: Labels of its job, over those of the project file.
        before_create: Called with the claim just before each attempt to make the job; if it raises, no job is made.
        most: What counts in the day's budget until the job is there, if that may cost more than the job itself.
        most_trials: Likewise the trials, if there may be more than those of `most`.
        final_reason: Returns why an error that left the job unmade is final for this request (`Claim.ended`); None if it may be repeated.
    """

    shares: Sequence[Share] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    before_create: Callable[[Claim], None] = lambda _: None
    most: Estimate | None = None
    most_trials: int = 0
    final_reason: Callable[[Exception], Mapping[str, str] | None] = lambda _: None

    @property
    def own_labels(self) -> dict[str, str]:
        """All labels that its job gets by them."""
        found = dict(self.labels)
        for share in self.shares:
            found |= share.labels
        return found


@dataclass(frozen=True)
class BudgetEntry:
    """What one run put into a day's ledger.

    Args:
        name: Its object.
        usd: Estimated US dollars, to the cent, rounded up.
        granted: The run was let through; otherwise it still asks.
        created: When this generation was written, RFC 3339 by the service's clock.
        generation: Of its object; it orders entries written at the same instant.
        shares: Tags of the shares that it counts for.
    """

    name: str
    claim: str
    usd: float
    trials: int
    granted: bool
    created: str
    generation: int
    shares: frozenset[str] = frozenset()

    @property
    def day(self) -> str:
        """The day (UTC) whose sums it is part of."""
        return self.name.rpartition("/")[0].rpartition("/")[2]

    @property
    def order(self) -> tuple[str, int, str]:
        """By which the rows of a day are sorted."""
        return self.created, self.generation, self.claim


def trials_of(estimate: Estimate) -> int:
    """Return trials of a run; a custom job is one."""
    return 1 if estimate.trials is None else estimate.trials


def arithmetic(estimate: Estimate) -> str:
    """Return a run's price and its arithmetic in one line."""
    trials = "" if estimate.trials is None else f"{estimate.trials} trials × "
    hours = f"{estimate.timeout_s / 3600:g} h" + ("" if estimate.timeout_written else " (default timeout)")
    items = " + ".join(map(_item, estimate.lines))
    price = f"${estimate.usd_at_most:.2f}"
    total = f"{price} at most" if estimate.complete else f"at least {price}"
    return f"{total} = {trials}{hours} × ${estimate.usd_per_hour:,.4f}/h ({items})"


def _item(line: LineItem) -> str:
    if line.kind == "disk_gb":
        what = f"{line.quantity:,g} GB {line.item}"
    else:
        what = line.item if line.quantity == 1 else f"{line.quantity:g} × {line.item}"
    return f"{what} price unknown" if line.usd_per_hour is None else f"{what} ${line.usd_per_hour:,.4f}/h"


def estimate_data(price: Estimate) -> dict[str, Any]:
    """Return an estimate as plain data: US dollars, rounded to cents, with the arithmetic."""
    return {
        "usd_at_most": round(price.usd_at_most, 2),
        "usd_per_hour": round(price.usd_per_hour, 4),
        "complete": price.complete,
        "timeout_s": price.timeout_s,
        "trials": price.trials,
        "arithmetic": arithmetic(price),
    }


def check_run(limits: RunLimits, estimate: Estimate, path: str = "trigger.budget") -> None:
    """Compare one run with the limits that need no ledger; OverBudgetError if it is over one, or has no price for one in dollars."""
    trials = trials_of(estimate)
    if limits.trials_per_run is not None and trials > limits.trials_per_run:
        message = f"{trials} trials, and {limits.trials_per_run} are allowed per run"
        raise OverBudgetError("trials_per_run", message, estimate, path)
    in_dollars = [name for name in ("usd_per_run", "usd_per_day") if getattr(limits, name) is not None]
    # part of the price is unknown, so any comparison would be too low
    if in_dollars and not estimate.complete:
        missing, fix = ", ".join(estimate.unpriced), "add one to the catalog"
        if not missing:
            missing = f"this region (the catalog's prices are for {estimate.region})"
            fix = "set trigger.budget.price_factor to the prices there as a multiple of the catalog's"
        message = f"the price of {missing} is unknown, so the run cannot be compared with a budget in dollars: {fix}"
        raise OverBudgetError(in_dollars[0], message, estimate, path)
    if limits.usd_per_run is not None and estimate.usd_at_most > limits.usd_per_run:
        limit = f"more than ${limits.usd_per_run:.2f} per run"
        raise OverBudgetError("usd_per_run", f"{arithmetic(estimate)}: {limit}", estimate, path)


class Ledger:
    """The day's runs, and the jobs that live.

    A run writes its row, lists all rows, and only then grants its own, by a write that fails if the row is gone. Of two
    runs one lists after the other's row is there (a listing of Cloud Storage is strongly consistent), and it counts that
    row whether it is granted or not, so both cannot pass on room for one. A row that is older than the lease and not
    granted belongs to a run that died: the next process that lists it deletes it, so that its holder cannot grant it any more.

    Its name also has the shares that the run belongs to (`Share`): their limits are held in the same step, over the rows of each.

    A granted row counts for its day whatever became of the run. For `live_jobs` it counts until its job is listed, and
    without one for the time of the lease, in which the job must have been started. A holder that is frozen for longer
    than that just before its create call can therefore put the number of live jobs above the limit, by one for each
    delivery that is frozen there at the same time; nothing further is let through until the number is below it again.

    Args:
        vertices: The jobs, of each region that they may be in.
        lease_s: For how long a row that is not granted counts, and a run without a visible job as a live one.
        clock: Seconds, from any start.
    """

    def __init__(
        self,
        storage: Storage,
        vertices: Sequence[Vertex],
        budget: Budget,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = times.now,
    ) -> None:
        self.storage, self.vertices, self.lease_s = storage, vertices, lease_s
        self.all_runs = Share("", "", budget, "trigger.budget")
        self.clock, self.sleep, self.now = clock, sleep, now
        # our clock's, of the service's, by which rows are dated; None while not known
        self._ahead: timedelta | None = None

    def reserve(self, claim_id: str, estimate: Estimate, shares: Sequence[Share] = (), trials: int = 0) -> float | None:
        """Put a run into the day's ledger and grant it, if there is room; return what is used of the day's limits then (`_check`).

        Args:
            shares: Further limits that it must keep, beside the budget of all runs.
            trials: How many it may have, if that is more than those of the estimate.

        Raises:
            OverBudgetError: There is no room; `take_out` deletes the row.
            RestError: Other runs keep the last room busy, or a service failed.
        """
        bounds = [share for share in (self.all_runs, *shares) if share.needed]
        if not bounds:
            return None
        day = self.now().date().isoformat()
        tags = "".join(f".{share.tag}" for share in shares)
        trials = max(trials, trials_of(estimate))
        name = _row(day, claim_id, _cents(estimate), trials, tags)
        until, pause = self.clock() + SETTLE_S, 0.05
        while True:
            # again with each turn: another run may have deleted the row as too old; if it is there, nothing is written
            written = self.storage.write(name, b"", generation=0)
            rows = self.tidied(written)
            mine = next((row for row in rows if row.name == name), None)
            if mine is not None and mine.granted:  # by an earlier delivery of the same request, which died or gave up
                # Written again: it counts as young, and who gave it up does not take it out. It is never asked for anew by an
                # ungranted one: the job of the earlier delivery may be there.
                written = self.storage.write(name, GRANTED, generation=mine.generation)
                if written is None:
                    continue
                if all(share.limits.live_jobs is None for share in bounds):
                    return None
                rows = self.tidied(written)
                mine = next((row for row in rows if row.name == name), None)
                if mine is None:
                    continue
                # rows written later count this one
                before = [row for row in rows if row.claim != claim_id and (row.granted or row.order < mine.order)]
                return self._check(claim_id, before, estimate, trials, day, bounds)
            if mine is not None and written is None and self._ahead is None:
                # by an earlier delivery: written again, since only a row of ours tells the service's time
                self.tidied(self.storage.write(name, b"", generation=mine.generation))
                continue
            # also a row of ours from before midnight is ours
            others = [row for row in rows if row.claim != claim_id]
            # Rows written after ours and not granted yet give way: without them we may fit, so wait for their end.
            later = [row for row in others if mine is not None and not row.granted and row.order > mine.order]
            # Others that still ask are counted first: with room for all of them there is nothing to settle.
            try:
                used = self._check(claim_id, others, estimate, trials, day, bounds)
            except OverBudgetError:  # and if it fits without the later ones, wait for their end
                self._check(claim_id, [row for row in others if row not in later], estimate, trials, day, bounds)
            else:
                if mine is not None and self.storage.write(name, GRANTED, generation=mine.generation) is not None:
                    return used
            # Both wait for each other's end only when the room is short; 503 lets the caller's retry ask again.
            if self.clock() + pause > until:
                raise RestError(
                    "other runs are reserving the rest of the budget; try again in 5 s", status=503, retry_after=5.0
                )
            self.sleep(pause)
            pause = min(pause * 1.6, 1.0)

    def settle(self, claim_id: str, estimate: Estimate, shares: Sequence[Share] = ()) -> None:
        """Count what the job of a run costs in place of what was reserved; if that fails, the larger sum stays."""
        with suppress(RestError):
            there = self.objects_of(claim_id, shares)
            if there and (read := _ENTRY.fullmatch(there[0].name)) is not None:
                name = _row(read["day"], claim_id, _cents(estimate), trials_of(estimate), read["shares"])
                if all(row.name != name for row in there):
                    self.storage.write(name, GRANTED, generation=0)
                    self.take_out(there)

    def objects_of(self, claim_id: str, shares: Sequence[Share] = ()) -> list[Item]:
        """Return the rows of a run, for `take_out`."""
        if not any(share.needed for share in (self.all_runs, *shares)):
            return []
        day = self.now().date()
        days = (day, day - timedelta(days=1))  # it may have been midnight in between
        return [item for one in days for item in self.storage.list(f"{FOLDER}/{one.isoformat()}/{claim_id}.")]

    def take_out(self, rows: Sequence[Item]) -> None:
        """Delete the rows of a run whose job was certainly not made, but those that were written again since they were listed."""
        for item in rows:
            self.storage.delete(item.name, item.generation)

    def entries(self, day: str) -> list[BudgetEntry]:
        """Return the ledger of a day (UTC, YYYY-MM-DD)."""
        return [
            BudgetEntry(
                item.name,
                match["claim"],
                int(match["cents"]) / 100,
                int(match["trials"]),
                item.size > 0,
                item.created,
                item.generation,
                frozenset(match["shares"].split(".")[1:]),
            )
            for item in self.storage.list(f"{FOLDER}/{day}/")
            if (match := _ENTRY.fullmatch(item.name))
        ]

    def tidied(self, written: int | None = None) -> list[BudgetEntry]:
        """Delete the rows of runs that died before they were granted, and return the rest, which count; learn the service's time.

        They are the day's, and for the time of the lease around midnight those of both days, so that of two runs that
        ask on either side of it one sees the other.

        Args:
            written: The generation of a row that was written just now, which tells the service's time.
        """
        near = (self.now() + timedelta(seconds=sign * self.lease_s) for sign in (-1, 1))
        days = sorted({one.date().isoformat() for one in (self.now(), *near)})
        listed, rows = [row for day in days for row in self.entries(day)], []
        for row in listed if written is not None else ():
            if row.generation == written:
                with suppress(ValueError):
                    self._ahead = self.now() - times.parse(row.created)
        for row in listed:
            if row.granted or self._young(row):
                rows.append(row)
            elif not self.storage.delete(row.name, row.generation):
                rows.append(row)  # granted just now, or deleted by another run; the next listing tells
        return rows

    def _service_time(self) -> datetime:
        return self.now() - (self._ahead or timedelta())

    def _young(self, row: BudgetEntry) -> bool:
        try:
            created = times.parse(row.created)
        except ValueError:  # a listing without times: it counts, rather than being deleted while its holder is at work
            return True
        return created > self._service_time() - timedelta(seconds=self.lease_s)

    def _check(
        self, claim_id: str, rows: list[BudgetEntry], estimate: Estimate, trials: int, day: str, bounds: Sequence[Share]
    ) -> float | None:
        """Return the largest part of a limit of the day that is used with the run, None without such a limit; OverBudgetError if it is over one."""
        parts, usd = list[float](), estimate.usd_at_most
        for share in bounds:
            limits, own = share.limits, [row for row in rows if not share.kind or share.tag in row.shares]
            others = [row for row in own if row.day == day]
            spent, tried = sum(entry.usd for entry in others), sum(entry.trials for entry in others)
            about = f"for {len(others)} run{'' if len(others) == 1 else 's'} on {day} (UTC)"
            if limits.usd_per_day is not None and spent + usd > limits.usd_per_day:
                message = (
                    f"${spent:.2f} {about} + ${usd:.2f} for this run = ${spent + usd:.2f}: more than ${limits.usd_per_day:.2f} per day. "
                    f"This run: {arithmetic(estimate)}"
                )
                raise OverBudgetError("usd_per_day", message, estimate, share.path)
            if limits.trials_per_day is not None and tried + trials > limits.trials_per_day:
                message = f"{tried} trials {about} + {trials} for this run = {tried + trials}: more than {limits.trials_per_day} per day"
                raise OverBudgetError("trials_per_day", message, estimate, share.path)
            days = ((spent + usd, limits.usd_per_day), (tried + trials, limits.trials_per_day))
            parts += [used / most for used, most in days if most]
            if limits.live_jobs is not None:
                live, waiting = self._live(claim_id, own, share)
                if live + waiting + 1 > limits.live_jobs:
                    soon = f" + {waiting} about to start" if waiting else ""
                    message = f"{live} live jobs{soon} + this one: more than {limits.live_jobs}"
                    raise OverBudgetError("live_jobs", message, estimate, share.path)
        return max(parts, default=None)

    def _live(self, claim_id: str, others: list[BudgetEntry], share: Share) -> tuple[int, int]:
        """Our jobs that live, and runs so young that their jobs may not be listed yet."""
        since = self._service_time() - timedelta(seconds=self.lease_s)
        young = {entry.claim for entry in others if self._young(entry)}
        # Recent jobs are listed before live ones: a job that appears in between is then counted as about to start.
        after = f'create_time>"{times.rfc3339(since - timedelta(minutes=5), 0)}"'
        recent = self._listed(after, share) if young else {}
        live = {claim for claim, states in self._listed(LIVE_FILTER, share).items() if states & set(LIVE)}
        live |= {claim for claim, states in recent.items() if states & set(LIVE)}
        live |= set(share.begun()) - {claim_id}  # an earlier try of this run may have begun its steps
        # a young run whose job has ended already is in `recent` alone: it neither lives nor is about to start
        return len(live), len(young - live - set(recent))

    def _listed(self, filter: str, share: Share) -> dict[str, set[str]]:
        """Return the states of our jobs, by claim, so that the jobs of a sweep's trials count as the one run they are."""
        found: dict[str, set[str]] = {}
        own = "".join(f' AND labels.{key}="{value}"' for key, value in share.labels.items())
        for vertex, collection in product(self.vertices, RESOURCES):
            for job in vertex.list(collection, filter=f"labels.{CLAIM_LABEL}:*{own} AND {filter}"):
                found.setdefault(str(job.labels.get(CLAIM_LABEL)), set()).add(job.state)
        return found


def _row(day: str, claim_id: str, cents: int, trials: int, tags: str) -> str:
    """Return the object of a run in a day's ledger, which `_ENTRY` reads."""
    return f"{FOLDER}/{day}/{claim_id}.{cents}.{trials}{tags}"


def _cents(estimate: Estimate) -> int:
    # rounded up: no run may be let through for a fraction of a cent less than it costs
    return -int(-estimate.usd_at_most * 100 // 1)
