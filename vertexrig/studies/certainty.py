"""How sure it is that the best trial is the best: its lead over the next, and how much equal trials differ."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from vertexrig.results.study import StudyRecord
from vertexrig.results.trials import TrialResult
from vertexrig.text import shown

SIGMAS = 2.0
"""A lead over the next trial counts as noise below this many standard deviations of the difference of two trials."""


@dataclass(frozen=True)
class Certainty:
    """How far the best trial of a study with one goal is ahead.

    Args:
        next_trial: The best trial with other parameters, "" if there is none.
        lead: How much better the best is than that one, in the metric's unit.
        noise: Standard deviation among trials with equal parameters; None if no two trials have the same parameters.
        repeats: Trials beyond the first of equal parameters, over all groups: the degrees of freedom of `noise`.
        same: Trials with the best one's parameters, itself included.
    """

    metric: str
    best: str
    next_trial: str
    lead: float | None
    noise: float | None
    repeats: int
    same: int
    trials: int

    @property
    def within_noise(self) -> bool | None:
        """Whether chance alone makes such a lead; None if the noise is not known."""
        if self.lead is None or self.noise is None:
            return None
        # the difference of two independent trials varies sqrt(2) times as much as one of them
        return self.lead < SIGMAS * math.sqrt(2) * self.noise

    def text(self) -> str:
        """In one or two sentences."""
        if self.lead is None:
            return "No other combination of parameters has a result to compare it with."
        ahead = f"Trial {self.best} is {shown(self.lead, 3)} better in {self.metric} than the next best, trial {self.next_trial}."
        if self.noise is None:
            return f"{ahead} No combination of parameters was tried twice, so the variation between trials with the same parameters is unknown."
        times = "1 repeat" if self.repeats == 1 else f"{self.repeats} repeats"
        vary = f"Trials with equal parameters vary by a standard deviation of {shown(self.noise, 3)} ({times})"
        verdict = "chance alone could explain" if self.within_noise else "chance alone does not explain"
        return f"{ahead} {vary}: {verdict} a difference of {shown(self.lead, 3)}."


def certainty(study: StudyRecord) -> Certainty | None:
    """Return how sure the best trial of a study is; None with several goals, or if no trial counts."""
    if len(study.goals) != 1 or not study.ranked:
        return None
    best = study.ranked[0]
    # a repeat of the best parameters is not a rival: the next best has to be another combination
    other = next((trial for trial in study.ranked if _combination(trial) != _combination(best)), None)
    groups: dict[tuple[tuple[str, object], ...], list[float]] = defaultdict(list)
    for trial in study.ranked:
        groups[_combination(trial)].append(study.value(trial))
    # the pooled variance: each group varies around its own mean, and all by the same noise
    freedom = sum(len(values) - 1 for values in groups.values())
    squares = sum((value - fmean(values)) ** 2 for values in groups.values() for value in values)
    return Certainty(
        metric=study.goals[0].id,
        best=best.id,
        next_trial=other.id if other is not None else "",
        lead=abs(study.value(best) - study.value(other)) if other is not None else None,
        noise=math.sqrt(squares / freedom) if freedom else None,
        repeats=freedom,
        same=len(groups[_combination(best)]),
        trials=len(study.ranked),
    )


def _combination(trial: TrialResult) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(trial.parameters.items()))
