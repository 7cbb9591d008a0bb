"""Which parameters decide a study's result, by Optuna's PED-ANOVA, with the uncertainty of a bootstrap.

Source of the method: Watanabe, Bansal, Hutter, "PED-ANOVA" (IJCAI 2023), as `optuna.importance` has it. It says how much
a parameter alone decides whether a trial is among the best tenth; the values of all parameters sum to 1. Each resample
draws as many trials as there are, with replacement; the range holds the middle 80 % of the resamples.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vertexrig.results.study import StudyRecord
from vertexrig.spec.parameters import LOG, Value
from vertexrig.spec.space import Dimension

LEAST_TRIALS = 10
FEW_VALUES = 12
"""A DISCRETE or INTEGER with no more values than this is compared by value, not by density."""
RESAMPLES, RESAMPLED_TRIALS = 40, 10_000
"""Resamples, and trials over all of them (1,000 trials get 10 resamples)."""


@dataclass(frozen=True)
class Weight:
    """The importance of one parameter.

    Args:
        share: From 0 to 1; over all parameters they sum to 1.
        low: The tenth percentile of the resamples.
        high: Their ninetieth.
    """

    parameter: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Importance:
    """The importance of a study's parameters for its first goal.

    Args:
        weights: The most important first; empty if there is nothing to rank.
        left_out: Parameters that are not ranked, with the reason.
        why_not: Why nothing is ranked, "" if something is.
        resamples: How many resamples the ranges are from.
    """

    weights: tuple[Weight, ...]
    left_out: Mapping[str, str]
    why_not: str = ""
    resamples: int = 0


def importance(study: StudyRecord) -> Importance:
    """Return the importance of each parameter that every trial has, and that has more than one value.

    Needs Optuna. The same trials give the same numbers.
    """
    counted = study.ranked
    left_out = {
        name: "only some trials have it"
        for name in study.parameters
        if any(name not in trial.parameters for trial in counted)
    }
    names = [name for name in study.parameters if name not in left_out]
    columns = {name: [trial.parameters[name] for trial in counted] for name in names}
    left_out |= {name: "every trial has the same value" for name, own in columns.items() if len(set(own)) < 2}
    names = [name for name in names if name not in left_out]
    values = [study.value(trial) for trial in counted]
    why = _why_not(len(counted), names, values)
    if why:
        return Importance((), left_out, why)
    coded = {name: _coded(study.parameters[name], columns[name]) for name in names}
    direction: Literal["maximize", "minimize"] = "maximize" if study.goals[0].sign > 0 else "minimize"
    frozen = _frozen(coded, values)
    whole = _shares(names, frozen, direction)
    # a separate, seeded generator: the same study gives the same page, and no other random numbers change
    rng = random.Random(0)
    # Each resample costs as much as the study itself: large studies get fewer.
    many = max(10, min(RESAMPLES, RESAMPLED_TRIALS // len(values)))
    drawn = [_shares(names, rng.choices(frozen, k=len(frozen)), direction) for _ in range(many)]
    weights = []
    for name in names:
        ordered = sorted(one[name] for one in drawn)  # a tenth of them is cut off on each side
        weights.append(Weight(name, whole[name], ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]))
    return Importance(tuple(sorted(weights, key=lambda one: -one.share)), left_out, resamples=many)


def _why_not(trials: int, names: Sequence[str], values: Sequence[float]) -> str:
    if trials < LEAST_TRIALS:
        return f"{trials} of the trials count; importance is estimated from {LEAST_TRIALS} on"
    if len(set(values)) < 2:
        return "every trial reported the same value"
    if len(names) < 2:
        return "fewer than two parameters vary in all trials, so there is nothing to rank"
    return ""


@dataclass(frozen=True)
class _Column:
    """A parameter as Optuna takes it: the distribution's bounds or number of choices, and each trial's value on it."""

    choices: int
    values: Sequence[float]


def _coded(dimension: Dimension, column: Sequence[Value]) -> _Column:
    """Return choices where a parameter has names or few values, else numbers on a scale from 0 to 1, log where the study's is."""
    numbers = [value for value in column if isinstance(value, (int, float))]
    few = dimension.kind in ("DISCRETE", "INTEGER") and len(set(column)) <= FEW_VALUES
    if dimension.kind == "CATEGORICAL" or len(numbers) < len(column) or few:
        # Texts, so that 1 and "1" of a categorical parameter can be sorted with the others.
        known = sorted(set(map(str, column)))
        return _Column(len(known), [known.index(str(value)) for value in column])
    placed = [math.log(value) if dimension.scale == LOG and min(numbers) > 0 else value for value in numbers]
    low, high = min(placed), max(placed)
    # `high` is above `low`: a parameter with one value was left out before.
    return _Column(0, [(value - low) / (high - low) for value in placed])


def _frozen(coded: Mapping[str, _Column], values: Sequence[float]) -> list[Any]:
    """Return the trials as Optuna keeps them."""
    import optuna

    distributions: dict[str, Any] = {
        name: optuna.distributions.CategoricalDistribution(range(own.choices))
        if own.choices
        else optuna.distributions.FloatDistribution(0.0, 1.0)
        for name, own in coded.items()
    }
    return [
        optuna.trial.create_trial(
            params={name: own.values[row] for name, own in coded.items()}, distributions=distributions, value=value
        )
        for row, value in enumerate(values)
    ]


def _shares(
    names: Sequence[str], frozen: Sequence[Any], direction: Literal["maximize", "minimize"]
) -> dict[str, float]:
    import optuna

    # Optuna writes a line for each study that is created, here one for each resample
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        # Optuna marks PED-ANOVA as experimental since 3.6 (not in 5.0), and then warns of it at each call.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(direction=direction)
        study.add_trials(frozen)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(found.get(name, 0.0)) for name in names}
