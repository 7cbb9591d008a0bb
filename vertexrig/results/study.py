"""A study read once, for every report about it: its space, its goals, its trials, when each ran and what it reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.results import trials
from vertexrig.results.trials import TrialResult, instant
from vertexrig.spec.api_names import camel_keys
from vertexrig.spec.objective import Metric, Objective
from vertexrig.spec.parameters import Value
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
    """A sweep's job, read.

    Args:
        job: The HyperparameterTuningJob.
        metrics: All metrics, the safety metrics too.
        parameters: The parameters by id, those under conditions too; of several with one id, the first.
        trials: Every trial, in the order listed.
        ranked: Trials that count, the best first.
        best: The best one; with several goals, the Pareto set.
        courses: When each ran, by trial id.
    """

    job: RemoteJob
    metrics: tuple[Metric, ...]
    goals: tuple[Metric, ...]
    parameters: Mapping[str, Dimension]
    trials: tuple[TrialResult, ...]
    ranked: tuple[TrialResult, ...]
    best: tuple[TrialResult, ...]
    courses: Mapping[str, TrialCourse]

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
    spec = trials.study_spec(job.data)
    objective = Objective(spec)
    parameters: dict[str, Dimension] = {}
    for dimension in Space(spec.get("parameters", ())).everywhere():
        parameters.setdefault(dimension.id, dimension)
    return StudyRecord(
        job=job,
        metrics=objective.metrics,
        goals=objective.goals,
        parameters=parameters,
        trials=trials.results(job.data),
        ranked=trials.ranked(job.data),
        best=trials.best(job.data),
        courses={str(row.get("id", "")): course(camel_keys(row)) for row in job.data.get("trials") or ()},
    )


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
