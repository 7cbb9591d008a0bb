"""The default search of studies against random search, on five functions with twelve seeds each."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from localvertex.jobs.study_engine import StudyEngine
from vertexrig.spec.trial import Measurement

SEEDS, TRIALS = range(12), 30


def double(name: str, low: float, high: float, scale: str = "UNIT_LINEAR_SCALE") -> dict[str, Any]:
    return {"parameterId": name, "doubleValueSpec": {"minValue": low, "maxValue": high}, "scaleType": scale}


def sphere(x: float, y: float) -> float:
    return x * x + y * y


def rosenbrock(x: float, y: float) -> float:
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def branin(x: float, y: float) -> float:
    valley = y - 5.1 * x * x / (4 * math.pi**2) + 5 * x / math.pi - 6
    return valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def ackley(x: float, y: float) -> float:
    hills = math.exp((math.cos(2 * math.pi * x) + math.cos(2 * math.pi * y)) / 2)
    return 20 + math.e - 20 * math.exp(-0.2 * math.sqrt((x * x + y * y) / 2)) - hills


def training(rate: float, units: int, optimizer: str) -> float:
    """What a loss looks like: best at a rate of 0.01, with many units, and better with one of two optimizers."""
    return (math.log10(rate) + 2) ** 2 + (1 - units / 256) ** 2 + (0.3 if optimizer == "sgd" else 0)


SQUARE = [double("x", -5, 5), double("y", -5, 5)]
FUNCTIONS: dict[str, tuple[Callable[..., float], list[dict[str, Any]]]] = {
    "sphere": (sphere, SQUARE),
    "rosenbrock": (rosenbrock, [double("x", -2, 2), double("y", -1, 3)]),
    "branin": (branin, [double("x", -5, 10), double("y", 0, 15)]),
    "ackley": (ackley, SQUARE),
    "training": (
        training,
        [
            double("rate", 1e-5, 1, "UNIT_LOG_SCALE"),
            {"parameterId": "units", "integerValueSpec": {"minValue": 16, "maxValue": 256}, "scaleType": "UNIT_LINEAR_SCALE"},
            {"parameterId": "optimizer", "categoricalValueSpec": {"values": ["sgd", "adam"]}},
        ],
    ),
}  # fmt: skip


def best(function: Callable[..., float], parameters: list[dict[str, Any]], seed: int, **more: str) -> float:
    """The lowest value that a study of 30 trials finds."""
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": parameters, **more}
    engine, found = StudyEngine(spec, seed=seed), math.inf
    for trial in map(str, range(1, TRIALS + 1)):
        values = {one["parameterId"]: one["value"] for one in engine.suggest(trial)}
        loss = function(**values)
        engine.complete(trial, Measurement(1, 0.1, {"loss": loss}))
        found = min(found, loss)
    return found


@pytest.mark.whole
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_default_search_is_never_worse_than_random_search(name: str) -> None:
    """Over twelve seeds the median of the best values after 30 trials is no higher than that of RANDOM_SEARCH."""
    function, parameters = FUNCTIONS[name]
    default = median(best(function, parameters, seed) for seed in SEEDS)
    random = median(best(function, parameters, seed, algorithm="RANDOM_SEARCH") for seed in SEEDS)
    assert default <= random, f"{name}: {default:.4g} with the default search, {random:.4g} at random"
