"""Estimates time and cost of a job or sweep as a distribution: many sweeps are simulated with observed durations.

A study keeps `parallelTrialCount` places busy; a place that becomes free gets the next trial at once. A draw takes, for
each place, the start-up of its first trial, then trials and the pauses between them, and the tear-down of the last. The
time between two trials is not billed ("the amount you're charged is based on the duration of the trials").
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vertexrig.catalog import Catalog
from vertexrig.errors import UsageError
from vertexrig.spec.document import Document, scheduling_strategy
from vertexrig.spec.estimate import Estimate
from vertexrig.times import length

SIMULATIONS = 10_000
"""Draws with NumPy, for up to `FULL_TRIALS` trials; beyond, fewer, so that the time stays the same."""
FULL_TRIALS = 200
MOST_RESTARTS = 20
"""Most preemptions of one trial that are simulated."""
PLAIN_STEPS = 60_000
"""Trials drawn without NumPy, over all draws of one parallelism."""


@dataclass(frozen=True)
class Durations:
    """The durations that a simulation draws from; each is a list of observed seconds.

    Args:
        trial: How long a trial, or a job, trains.
        start: From creation to the first line of the trainer.
        between: From the end of a trial to the start of the next at its place.
        end: From the end of the training to the end of the job.
        notes: Where each is from, with its number.
        preempted_s: Mean seconds until a running trial, or job, is preempted and starts over; None if it never is.
    """

    trial: tuple[float, ...]
    start: tuple[float, ...] = (0.0,)
    between: tuple[float, ...] = (0.0,)
    end: tuple[float, ...] = (0.0,)
    notes: tuple[str, ...] = ()
    preempted_s: float | None = None


@dataclass(frozen=True)
class Learned:
    """Return durations of ended jobs in seconds; a list is empty if the jobs do not have that time.

    Args:
        source: What they were read from.
        trial: Trials, or custom jobs, that succeeded.
        start: From creation to the start.
        between: From the end of a trial to the start of the next.
        end: From the end of the last trial to the end of the study.
    """

    source: str
    trial: tuple[float, ...]
    start: tuple[float, ...] = ()
    between: tuple[float, ...] = ()
    end: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outlook:
    """The middle and the ninetieth percentile at one parallelism.

    Args:
        parallel: Trials at one time.
        wall_p50: Seconds from creation to the end; half of the draws take less.
        wall_p90: Nine of ten draws take less.
        usd_p50: US dollars; None where no line has a sourced price.
        usd_p90: The same for nine of ten.
    """

    parallel: int
    wall_p50: float
    wall_p90: float
    usd_p50: float | None
    usd_p90: float | None


@dataclass(frozen=True)
class SimulatedRun:
    """An estimate of a run's time and money.

    Args:
        trials: Trials of the sweep; None for a custom job.
        rows: One for each parallelism.
        simulations: Draws for each row.
        complete: Every line has a price; if not, the dollars are a lower bound.
        notes: What it assumes.
    """

    trials: int | None
    rows: tuple[Outlook, ...]
    simulations: int
    complete: bool
    notes: tuple[str, ...] = field(default_factory=tuple)


def durations(
    document: Document,
    catalog: Catalog,
    trial: Sequence[float],
    learned: Learned | None,
    *,
    preempted_s: float | None = None,
) -> Durations:
    """Return the durations to draw from: those of the user's own jobs if there are any, else recordings of the service.

    Args:
        document: The job.
        catalog: It holds the recordings.
        trial: Lengths that the user gave, in seconds; empty if they come from `learned`.
        learned: Of the user's own jobs.
        preempted_s: On Spot, mean seconds until a preemption, from the user: no source gives it.

    Raises:
        UsageError: A time until a preemption was given, and the job is not on Spot.
    """
    study = document.study is not None
    persistent = bool(document.job.get("persistentResourceId"))
    own = learned or Learned("", ())
    notes: list[str] = []
    what = "a trial" if study else "the job"
    lengths = tuple(trial) or own.trial
    given = "as given" if trial else f"from {own.source}, n = {len(own.trial)}"
    notes.append(f"{what} trains for {_range(lengths)} ({given})")

    def drawn(name: str, mine: Sequence[float], key: str) -> tuple[float, ...]:
        if persistent:
            return (0.0,)
        seen = tuple(mine) or catalog.limits.numbers(key)
        where = f"from {own.source}, n = {len(seen)}" if mine else catalog.limits[key].note
        notes.append(f"{name}: {_range(seen)} ({where})")
        return seen

    start = drawn("start-up", own.start, _start_key(document))
    between = drawn("between two trials", own.between, "durations.between_trials_s") if study else (0.0,)
    # lengths of finished jobs run to their end, so they include the tear-down already
    end = (0.0,) if own.trial and not trial and not study else drawn("tear-down", own.end, "durations.end_s")
    if persistent:
        notes.append("the machines of a persistent resource are there already: no start-up, no tear-down")
    notes += _spot(document, preempted_s, max(lengths))
    return Durations(lengths, start, between, end, tuple(notes), preempted_s)


def _spot(document: Document, preempted_s: float | None, longest: float) -> list[str]:
    """Return the assumptions about preemptions."""
    strategy = scheduling_strategy(document) or "STANDARD"
    if preempted_s is None:
        left_out = "Spot: preemptions are left out, since no source gives their rate; --preempted-every takes one"
        return [left_out] if strategy == "SPOT" else []
    if strategy != "SPOT":
        raise UsageError(f"--preempted-every is for jobs with the strategy SPOT; this one has {strategy}")
    notes = [
        f"Spot: preempted after {length(preempted_s)} on average (as given), then started up again and run from its beginning; the "
        "time that was lost is billed, the start-up is not"
    ]
    if longest > preempted_s:
        few = f"a trial of {length(longest)} is preempted more often than not: save and resume, or it may never end"
        notes.append(f"{few}; at most {MOST_RESTARTS} preemptions of one trial are simulated")
    return notes


def simulate(price: Estimate, drawn: Durations, *, parallel: Sequence[int] = (), seed: int = 0) -> SimulatedRun:
    """Return the time and the money of a run.

    Args:
        price: Its prices, its number of trials and its parallelism.
        drawn: What to draw from.
        parallel: Parallelisms to compare; by default half of the run's own, the run's own, and twice that.
        seed: What the draws start from; the same seed gives the same numbers.
    """
    trials = 1 if price.trials is None else price.trials
    own, longest = price.parallel, max(drawn.trial)
    if longest > price.timeout_s:
        stopped = f"the timeout stops it after {length(price.timeout_s)}"
        # The service stops a trial at its timeout, and it costs no more than until then.
        cut = tuple(min(one, price.timeout_s) for one in drawn.trial)
        drawn = replace(drawn, trial=cut, notes=(*drawn.notes, stopped))
    wanted = sorted({min(trials, one) for one in (parallel or (1, max(1, own // 2), own, own * 2)) if one > 0})
    if price.trials is None or trials == 0:
        wanted = [1]
    draw, many, how = choose_engine(trials)
    priced = any(line.usd_per_hour is not None for line in price.lines)
    # A sweep is billed by its trials' durations; a custom job until its end.
    billed_end = price.trials is None
    rows = []
    for one in wanted:
        walls, billed = draw(trials, one, drawn, many, seed, billed_end)
        usd = price.usd_per_hour / 3600
        rows.append(
            Outlook(
                one,
                _percentile(walls, 0.5),
                _percentile(walls, 0.9),
                _percentile(billed, 0.5) * usd if priced else None,
                _percentile(billed, 0.9) * usd if priced else None,
            )
        )
    notes = [*drawn.notes, f"{many:,} {'runs' if price.trials is None else 'sweeps'} simulated{how}"]
    if price.trials is not None:
        notes.append("every trial runs to its end, and the time between trials is not billed")
    return SimulatedRun(price.trials, tuple(rows), many, price.complete, (*notes, *price.notes))


def data(found: SimulatedRun) -> dict[str, Any]:
    """Return an estimate as plain values for JSON."""
    return {
        "estimate": True,
        "trials": found.trials,
        "simulations": found.simulations,
        "complete": found.complete,
        "rows": [vars(row) for row in found.rows],
        "notes": list(found.notes),
    }


_Draw = Callable[[int, int, Durations, int, int, bool], tuple[list[float], list[float]]]


def choose_engine(trials: int) -> tuple[_Draw, int, str]:
    """Return how to draw, how often, and a remark."""
    many = SIMULATIONS if trials <= FULL_TRIALS else max(500, SIMULATIONS * FULL_TRIALS // trials)
    try:
        import numpy  # noqa: F401 - it is loaded again where it is used
    except ModuleNotFoundError:
        fewer = max(100, min(many, PLAIN_STEPS // max(1, trials)))
        return draw_plainly, fewer, " (NumPy is not installed; with it there would be more)" if fewer < many else ""
    return draw_with_numpy, many, ""


def draw_with_numpy(
    trials: int, parallel: int, drawn: Durations, many: int, seed: int, billed_end: bool
) -> tuple[list[float], list[float]]:
    import numpy as np

    rng = np.random.default_rng(seed)
    pick: Mapping[str, Any] = {
        name: np.asarray(getattr(drawn, name), dtype=float) for name in ("trial", "start", "between", "end")
    }
    rows = np.arange(many)
    free = rng.choice(pick["start"], size=(many, max(1, parallel)))
    billed, last = np.zeros(many), np.zeros(many)
    for _ in range(trials):
        at = free.argmin(axis=1)  # the next trial goes to the place that is free first, in each draw its own
        length = rng.choice(pick["trial"], size=many)
        taken, paid = _with_preemptions(length, pick["start"], drawn.preempted_s, rng)
        end = free[rows, at] + taken
        billed += paid
        last = np.maximum(last, end)
        free[rows, at] = end + rng.choice(pick["between"], size=many)
    # a custom job is billed to its end, tear-down included; of a study the trials alone are
    closing = rng.choice(pick["end"], size=many) if trials else np.zeros(many)
    return (last + closing).tolist(), (billed + closing if billed_end else billed).tolist()


def _with_preemptions(length: Any, start: Any, mean: float | None, rng: Any) -> tuple[Any, Any]:
    """Return the total and the billed seconds of trials, including attempts that were preempted."""
    if mean is None:
        return length, length
    import numpy as np

    taken, paid, open_ = length.copy(), length.copy(), np.arange(length.size)
    for _ in range(MOST_RESTARTS):
        # preemptions without memory: how long a trial has run does not change when the next one comes
        lost = rng.exponential(mean, size=open_.size)
        hit = lost < length[open_]
        open_, lost = open_[hit], lost[hit]
        taken[open_] += lost + rng.choice(start, size=open_.size)
        paid[open_] += lost
        if not open_.size:
            break
    return taken, paid


def draw_plainly(
    trials: int, parallel: int, drawn: Durations, many: int, seed: int, billed_end: bool
) -> tuple[list[float], list[float]]:
    rng = random.Random(seed)
    walls, bills = [], []
    for _ in range(many):
        free = [rng.choice(drawn.start) for _ in range(max(1, parallel))]
        heapq.heapify(free)
        billed = last = 0.0
        for _ in range(trials):
            length = rng.choice(drawn.trial)
            again, lost = _lost(length, drawn, rng)
            # the heap's first place is the one that is free first
            end = free[0] + length + again + lost
            billed += length + lost
            last = max(last, end)
            heapq.heapreplace(free, end + rng.choice(drawn.between))
        closing = rng.choice(drawn.end) if trials else 0.0
        walls.append(last + closing)
        bills.append(billed + closing if billed_end else billed)
    return walls, bills


def _lost(length: float, drawn: Durations, rng: random.Random) -> tuple[float, float]:
    """Return seconds of further start-ups, and of preempted attempts, of one trial."""
    again = lost = 0.0
    for _ in range(MOST_RESTARTS if drawn.preempted_s else 0):
        ran = rng.expovariate(1 / drawn.preempted_s) if drawn.preempted_s else length
        if ran >= length:
            break
        again, lost = again + rng.choice(drawn.start), lost + ran
    return again, lost


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _start_key(document: Document) -> str:
    pools = document.running
    if any(pool.accelerator_count for pool in pools):
        return "durations.start_gpu_s"
    if any(pool.container is not None for pool in pools):
        return "durations.start_container_s"
    return "durations.start_cpu_s"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return length(low) if low == high else f"{length(low)} to {length(high)}"
