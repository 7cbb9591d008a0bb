"""A study read once, for every report about it: its space, its goals, its trials, when each ran and what it reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.results.trials import TrialResult, instant, trial_result
from vertexrig.spec import reading
from vertexrig.spec.api_names import camel_keys
from vertexrig.spec.objective import Metric, Objective, dominates
from vertexrig.spec.parameters import Value, fill_bounds
from vertexrig.spec.space import Dimension, Space
from vertexrig.spec.trial import Measurement
from vertexrig.times import duration_seconds


@dataclass(frozen=True)
class TrialCourse:
    """When a trial ran, and what it reported on the way.

    Args:
        start: Seconds since 1970; None if it has not started.
        end: Seconds since 1970; None if it has not ended.
        curve: Its measurements, in their order.
    """

    start: float | None
    end: float | None
    curve: tuple[Measurement, ...] = ()


@dataclass(frozen=True)
class StudyRecord:
    """A sweep's job, read: each part when it is first asked for.

    A trial counts only if it succeeded with a finite value of every metric; what is None, nan or infeasible never ranks.

    Args:
        job: The HyperparameterTuningJob.
        spec: Its StudySpec in canonical camelCase.
    """

    job: RemoteJob
    spec: Mapping[str, Any]
    objective: Objective
    space: Space

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics, the safety metrics too."""
        return self.objective.metrics

    @property
    def goals(self) -> tuple[Metric, ...]:
        """What is optimised."""
        return self.objective.goals

    @cached_property
    def parameters(self) -> Mapping[str, Dimension]:
        """The parameters by id, those under conditions too; of several with one id, the first."""
        found: dict[str, Dimension] = {}
        for dimension in self.space.everywhere():
            found.setdefault(dimension.id, dimension)
        return found

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        """Every trial, in the order listed."""
        # its learning curve is most of a trial, and a result has none of it
        rows = ({key: one for key, one in row.items() if key != "measurements"} for row in self._rows)
        return tuple(trial_result(camel_keys(row), self.space) for row in rows)

    @cached_property
    def courses(self) -> Mapping[str, TrialCourse]:
        """When each trial ran, by its id."""
        return {str(row.get("id", "")): course(camel_keys(row)) for row in self._rows}

    @property
    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.job.data.get("trials") or ()

    @cached_property
    def _by_value(self) -> list[tuple[tuple[float, ...], TrialResult]]:
        """Trials that count with their values, more being better, in descending order."""
        found = []
        for trial in self.trials:
            values = self.objective.values(Measurement(0, 0.0, trial.metrics)) if trial.state == "SUCCEEDED" else None
            if values is not None:
                signed = tuple(goal.sign * value for goal, value in zip(self.goals, values, strict=True))
                found.append((signed, trial))
        # stable with reverse, too: of equal trials the first stays first
        return sorted(found, key=lambda row: row[0], reverse=True)

    @property
    def ranked(self) -> tuple[TrialResult, ...]:
        """Trials that count, the best first by the first goal."""
        return tuple(trial for _, trial in self._by_value)

    @cached_property
    def best(self) -> tuple[TrialResult, ...]:
        """The best trial; of several objectives the Pareto set; nothing if no trial counts.

        The goals decide what is better, safety metrics must keep their thresholds, and of equal trials the first counts.
        """
        if len(self.goals) == 1:
            return self.ranked[:1]
        # of two equal trials neither dominates the other, so both are in the front
        found = self._by_value
        return tuple(trial for own, trial in found if not any(dominates(other, own) for other, _ in found))

    def table(self) -> list[dict[str, Any]]:
        """Return one row per trial, the best first, those that do not count last.

        Keys: `trial`, `state`, `parameters` and `metrics` (mappings with every one of the study, None where there is none),
        `seconds`, `note` ("best", or why the trial is infeasible).
        """
        winners, counted = ({trial.id for trial in some} for some in (self.best, self.ranked))
        return [
            {
                "trial": trial.id,
                "state": trial.state,
                "parameters": {name: trial.parameters.get(name) for name in self.parameters},
                "metrics": {metric.id: trial.metrics.get(metric.id) for metric in self.metrics},
                "seconds": trial.seconds,
                "note": "best" if trial.id in winners else trial.reason,
            }
            for trial in [*self.ranked, *(trial for trial in self.trials if trial.id not in counted)]
        ]

    @cached_property
    def conditional(self) -> frozenset[str]:
        """Parameters that some trials do not have."""
        return frozenset(name for name in self.parameters if any(name not in trial.parameters for trial in self.trials))

    @property
    def asked(self) -> int:
        """Trials at most."""
        return _whole(self.job.data.get("maxTrialCount")) or len(self.trials)

    @property
    def parallel(self) -> int:
        """Trials at one time, at most."""
        return _whole(self.job.data.get("parallelTrialCount")) or 1

    def value(self, trial: TrialResult, goal: Metric | None = None) -> float:
        """Return a ranked trial's value of a goal, the first by default."""
        return trial.metrics[(goal or self.goals[0]).id]

    def outside(self) -> dict[str, list[Value]]:
        """Return values of trials that are outside the ranges of the study's own specification, by parameter."""
        found: dict[str, list[Value]] = {}
        for trial in self.trials:
            for name, value in trial.parameters.items():
                own = self.parameters.get(name)
                if own is None or not own.holds(value):
                    found.setdefault(name, []).append(value)
        return found


def read(job: RemoteJob) -> StudyRecord:
    """Return the study of a tuning job.

    Raises:
        UsageError: It is a custom job.
        ConfigError: Its studySpec has no metric or no parameter.
    """
    raw = job.data.get("studySpec") or job.data.get("study_spec")
    if not isinstance(raw, dict):
        raise UsageError("the job has no studySpec; it is not a HyperparameterTuningJob")
    spec = reading.from_data({"studySpec": raw}, kind="HyperparameterTuningJob").study or {}
    fill_bounds(spec)
    return StudyRecord(job, spec, Objective(spec), Space(spec.get("parameters", ())))


def why_no_best(name: str, study: StudyRecord) -> str:
    """Return why a study has no best trial, in one sentence."""
    names = " and ".join(goal.id for goal in study.goals)
    if not study.trials:
        return f"{name} has no trial yet, so there is no best one"
    ended = [trial for trial in study.trials if trial.state in ("SUCCEEDED", "INFEASIBLE")]
    if not ended:
        return f"none of the {len(study.trials)} trials of {name} has ended yet, so there is no best one"
    infeasible = sum(trial.state == "INFEASIBLE" for trial in ended)
    return (
        f"no trial of {name} succeeded with a finite value of {names} within its safety thresholds: of "
        f"{len(ended)} that ended {infeasible} are infeasible; `vertexrig trials` shows their reasons"
    )


def course(row: Mapping[str, Any]) -> TrialCourse:
    """Return when a trial or a custom job ran, and what it reported, from its resource in camelCase."""
    curve = (_reported(one) for one in row.get("measurements") or () if isinstance(one, Mapping))
    return TrialCourse(instant(row.get("startTime")), instant(row.get("endTime")), tuple(filter(None, curve)))


def _reported(row: Mapping[str, Any]) -> Measurement | None:
    metrics = {}
    for own in row.get("metrics") or ():
        try:
            value = float(own.get("value", 0.0))
        except (TypeError, ValueError):
            continue
        if math.isfinite(value):
            metrics[str(own.get("metricId", ""))] = value
    seconds = duration_seconds(row.get("elapsedDuration")) or 0.0
    return Measurement(_whole(row.get("stepCount")), seconds, metrics) if metrics else None


def _whole(value: Any) -> int:
    """Return a whole number that JSON carries as a number or as text, 0 for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0
