"""What a study optimises: its metrics, the final measurement of a trial, and which trial is better."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vertexrig.errors import ConfigError
from vertexrig.spec.trial import Measurement

_SMALLER_IS_BETTER = re.compile(r"loss|error|mae|mse|rmse|mape|perplexity|(^|_)(nll|wer|cer|fid)($|_)", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """One MetricSpec.

    Args:
        id: The metricId.
        sign: 1 to maximise, -1 to minimise ("Goal Type will default to maximize").
        threshold: The safety threshold of a safety metric; None for an objective.
    """

    id: str
    sign: int
    threshold: float | None = None

    def safe(self, value: float) -> bool:
        """Whether a value is on the good side of the threshold."""
        return self.threshold is None or self.sign * value >= self.sign * self.threshold


class Objective:
    """The metrics of a study.

    Args:
        spec: The StudySpec, canonical camelCase.

    Raises:
        ConfigError: There is no metric, or one without an id, or only safety metrics.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.metrics = tuple(_metric(row, i) for i, row in enumerate(spec.get("metrics", ())))
        self.goals = tuple(metric for metric in self.metrics if metric.threshold is None)
        if not self.goals:
            kind = "only safety metrics" if self.metrics else "no metric"
            raise ConfigError(f"studySpec.metrics has {kind}; a study needs at least one to optimise")
        ids = [metric.id for metric in self.metrics]
        if len(set(ids)) < len(ids):
            raise ConfigError(f"studySpec.metrics: metricId {max(ids, key=ids.count)!r} is used twice")
        self.best_of = spec.get("measurementSelectionType") == "BEST_MEASUREMENT"

    @property
    def single(self) -> Metric | None:
        """The one metric to optimise, None if there are several."""
        return self.goals[0] if len(self.goals) == 1 else None

    def final(self, measurements: Sequence[Measurement]) -> Measurement | None:
        """Return the final measurement, None if a metric to optimise was never reported.

        LAST_MEASUREMENT takes the last one reported (by elapsed time, so a trainer that was restarted, or reports its
        final value without a step, counts with that). BEST_MEASUREMENT takes the best value of a single
        objective; with several it means the last, since none is best. A metric that the chosen measurement lacks
        comes from the latest one that has it.
        """
        by_time = sorted(measurements, key=lambda own: (own.elapsed, own.step))
        latest = {name: value for own in by_time for name, value in own.metrics.items()}
        if any(goal.id not in latest for goal in self.goals):
            return None
        chosen = by_time[-1]
        goal = self.single
        if self.best_of and goal:
            chosen = max(
                (own for own in by_time if goal.id in own.metrics), key=lambda m: goal.sign * m.metrics[goal.id]
            )
        return Measurement(chosen.step, chosen.elapsed, {**latest, **chosen.metrics})

    def values(self, final: Measurement | None) -> list[float] | None:
        """Return the values to optimise, None if one is missing or a safety threshold is broken."""
        if final is None or any(goal.id not in final.metrics for goal in self.goals):
            return None
        if not all(metric.safe(final.metrics[metric.id]) for metric in self.metrics if metric.id in final.metrics):
            return None
        return [final.metrics[goal.id] for goal in self.goals]


def likely_goal(metric: str) -> str:
    """Return MINIMIZE or MAXIMIZE, as a metric's name suggests."""
    return "MINIMIZE" if _SMALLER_IS_BETTER.search(metric) else "MAXIMIZE"


def likeliest(metrics: Iterable[str]) -> str | None:
    """Return the metric to compare by: one of the validation data, and one where more is better, before others."""
    return min(
        metrics,
        key=lambda name: ("val" not in name and "test" not in name, likely_goal(name) == "MINIMIZE", name),
        default=None,
    )


def _metric(row: Mapping[str, Any], index: int) -> Metric:
    name = str(row.get("metricId", ""))
    if not name:
        raise ConfigError(f"studySpec.metrics[{index}].metricId is missing; it is the tag the trainer reports under")
    safety = row.get("safetyConfig")
    # protobuf's JSON leaves a threshold of 0 out
    threshold = None if safety is None else float(safety.get("safetyThreshold", 0.0))
    return Metric(name, -1 if row.get("goal") == "MINIMIZE" else 1, threshold)


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a trial is as good as another in every goal and better in one; of each value more is better."""
    return all(a >= b for a, b in zip(one, other, strict=True)) and list(one) != list(other)
