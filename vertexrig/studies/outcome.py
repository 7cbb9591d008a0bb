"""A finished study with the trials that count, the best first."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import StatisticsError, correlation, fmean, pstdev
from typing import Any

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.results.study import StudyRecord, read
from vertexrig.results.trials import TrialResult
from vertexrig.spec import states
from vertexrig.spec.space import Dimension

SHARE = 0.2
FEWEST = 3
"""The best trials are this part of those that count, and at least this many."""
PROMOTED_FROM, TRIAL = "promoted_from", "trial"
"""Labels of a promoted job: the sweep and the trial."""
FOLLOWS = "follows"
"""Label of a sweep that follows another: that one's name."""


@dataclass(frozen=True)
class Outcome:
    """A study that has ended.

    Args:
        name: What the user calls it.
        counted: The trials that count, the best first; with several objectives the Pareto set first.
    """

    name: str
    study: StudyRecord
    counted: tuple[TrialResult, ...]

    @property
    def best(self) -> TrialResult:
        return self.counted[0]

    @property
    def top(self) -> tuple[TrialResult, ...]:
        """The best trials: a fifth and at least three, and the whole Pareto set."""
        share = max(FEWEST, math.ceil(SHARE * len(self.counted)))
        return self.counted[: max(len(self.study.best), share)]

    def reached(self, trial: TrialResult) -> str:
        """Return a trial's metrics in words: `accuracy 0.9312`."""
        return ", ".join(f"{metric.id} {trial.metrics[metric.id]:.4g}" for metric in self.study.goals)

    @property
    def seconds(self) -> float | None:
        """Mean length of a trial that counts; None where the service gave no times."""
        known = [trial.seconds for trial in self.counted if trial.seconds]
        return sum(known) / len(known) if known else None

    def importance(self) -> dict[str, float]:
        """Return how much each parameter changed the first metric, from 0 to 1: of numbers Spearman's rank correlation without its
        sign, of texts the correlation ratio of the ranks.
        """
        return {dimension.id: self._importance(dimension) for dimension in self.study.space.dimensions}

    def _importance(self, dimension: Dimension) -> float:
        metric = self.study.goals[0].id
        rows = [trial for trial in self.counted if trial.parameters.get(dimension.id) is not None]
        if len(rows) <= FEWEST:
            return 0.0
        results = _ranks([trial.metrics[metric] for trial in rows])
        values = [trial.parameters[dimension.id] for trial in rows]
        if dimension.kind == "CATEGORICAL":
            groups = [
                [rank for rank, value in zip(results, values, strict=True) if value == one] for one in set(values)
            ]
            means = [fmean(group) for group in groups for _ in group]
            return pstdev(means) / (pstdev(results) or 1.0)
        with suppress(StatisticsError):  # one of the two never changes
            return abs(correlation(_ranks([float(value) for value in values]), results))
        return 0.0


def outcome(name: str, job: Mapping[str, Any], *, least: int = FEWEST) -> Outcome:
    """Return a study that has ended, with at least `least` trials that count.

    Raises:
        UsageError: It describes something else, has not begun, still runs, or too few trials count; the message says which.
    """
    study = read(RemoteJob(job))
    # a description without a state is a person's own file: it is read as ended
    state = str(job.get("state", states.SUCCEEDED))
    if not study.trials:
        raise UsageError(f"{name} has no trials yet: its state is {states.short(state)}")
    if state not in states.ENDED:
        raise UsageError(
            f"{name} has not ended: its state is {states.short(state)}; follow it with: vertexrig watch {name}"
        )
    front = {trial.id for trial in study.best}
    counted = sorted(study.ranked, key=lambda trial: trial.id not in front)  # stable: the ranks stay within both
    if len(counted) < least:
        raise UsageError(_too_few(name, study, least))
    return Outcome(name, study, tuple(counted))


def _too_few(name: str, study: StudyRecord, least: int) -> str:
    listed, counted = study.trials, len(study.ranked)
    infeasible = sum(trial.state == "INFEASIBLE" for trial in listed)
    metrics = " and ".join(goal.id for goal in study.goals)
    without = sum(trial.state == "SUCCEEDED" for trial in listed) - counted
    why = [f"{infeasible} infeasible"] if infeasible else []
    why += [f"{without} without a finite value of {metrics}, or outside a safety threshold"] if without else []
    reasons = f" ({', '.join(why)})" if why else ""
    have = "none counts" if not counted else f"{counted} {'counts' if counted == 1 else 'count'}"
    needed = f"at least {least} are needed" if least > 1 else "at least one is needed"
    return f"{name}: of {len(listed)} trials {have}{reasons}; {needed}"


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value) - 1) / 2 for value in values]


def chosen(outcome: Outcome, trial: str | None) -> TrialResult:
    """Return the trial to promote: the best one, or the one named; UsageError if it does not count."""
    if trial is None:
        return outcome.best
    found = next((one for one in outcome.counted if one.id == trial), None)
    if found is None:
        ids = [one.id for one in outcome.counted]
        raise UsageError(f"{outcome.name} has no trial {trial!r} that counts. {did_you_mean(trial, ids)}")
    return found


def trial_folder(job: Mapping[str, Any], trial: str) -> str:
    """gs:// URI of a trial's output folder, "" if the study has none."""
    spec = job.get("trialJobSpec") or {}
    base = str((spec.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")).rstrip("/")
    return f"{base}/{trial}" if base else ""


def roles_with_args(job: Mapping[str, Any]) -> list[str]:
    """Return the pools of a job of the project file that have arguments of their own, which the job's do not reach."""
    roles = ("worker", "ps", "evaluator")
    return [role for role in roles if isinstance(job.get(role), Mapping) and job[role].get("args") is not None]
