"""Suggestions, random or from Optuna, as a pure function of the seed and the trials so far.

Every suggestion builds the Optuna study again from the trials and takes a sampler seeded for this one trial. So a study
rebuilt after a crash suggests what it would have suggested, and Optuna's storage never has to survive anything
(1,000 trials of 5 parameters cost 0.06 s).
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vertexrig.spec.parameters import LOG, REVERSE_LOG, Domain, Value
from vertexrig.spec.space import Dimension, ParameterValue, Space

if TYPE_CHECKING:
    import optuna

# Optuna's own default for n_startup_trials; without enough trials its model is noise.
RANDOM_FIRST = 10
_WIDEST = 2**31  # beyond this an INTEGER is searched as a real number and rounded; Optuna's arithmetic is in floats


@dataclass(frozen=True)
class Past:
    """A trial as the sampler sees it.

    Args:
        placed: `Space.read` of its parameters.
        running: It has not ended yet.
        values: Values to optimise, in the order of the goals; None for one that is running, infeasible or unsafe.
    """

    placed: dict[str, tuple[Dimension, Value]]
    running: bool
    values: Sequence[float] | None


def subseed(seed: int, *parts: object) -> int:
    """Return a 32-bit seed for one purpose, the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *parts))).encode()).digest()
    # numpy's RandomState takes seeds of 32 bits.
    return int.from_bytes(digest[:4], "big")


def suggest_tpe(space: Space, past: Iterable[Past], signs: Sequence[int], seed: int) -> list[ParameterValue]:
    """Return a Bayesian suggestion (tree-structured Parzen estimator) that also counts trials still running.

    Running trials count as bad ones (constant liar), so parallel trials do not crowd; infeasible and unsafe trials
    count as worse than every other. Until ten trials have ended, suggestions are random.
    """
    past = list(past)
    if sum(not trial.running for trial in past) < RANDOM_FIRST:
        # Also in place of Optuna's own random start, so that Optuna need not be imported yet.
        return suggest_random(space, seed)
    optuna = _optuna()
    sampler = optuna.samplers.TPESampler(
        multivariate=True, group=True, constant_liar=True, n_startup_trials=RANDOM_FIRST, seed=seed
    )
    directions = ["maximize" if sign > 0 else "minimize" for sign in signs]
    study = optuna.create_study(directions=directions, sampler=sampler)
    study.add_trials([_frozen(optuna, trial) for trial in past])
    return _ask(study, space)


def suggest_random(space: Space, seed: int) -> list[ParameterValue]:
    """Return a suggestion drawn evenly on each parameter's scale; every value of a DISCRETE or CATEGORICAL is as likely."""
    rng = random.Random(seed)

    def choose(dimension: Dimension) -> Value:
        if dimension.count is None:
            return dimension.from_unit(rng.random())
        if dimension.kind == "INTEGER" and dimension.count > 1 and dimension.scale in (LOG, REVERSE_LOG):
            # half a step more on both sides, so that the first and last number are not half as likely
            wide = Domain("DOUBLE", dimension.scale, dimension.low - 0.5, dimension.high + 0.5)
            return min(int(dimension.high), max(int(dimension.low), round(wide.from_unit(rng.random()))))
        return dimension.value(rng.randrange(dimension.count))

    return space.assign(choose)


def warm_up() -> None:
    """Import Optuna (0.3 s) during the first trials, which do not need it."""
    if "optuna" not in sys.modules:
        threading.Thread(target=_optuna, daemon=True).start()


def _optuna() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # multivariate, group and constant_liar are marked experimental in Optuna; users can do nothing about it.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning, module="optuna")
    warnings.filterwarnings("ignore", message=r".*(multivariate|group|constant_liar).*experimental.*")
    return optuna


def _frozen(optuna: Any, trial: Past) -> Any:
    # A dimension of one value has nothing to search; `_ask` leaves it out, too.
    searched = [(key, dim, value) for key, (dim, value) in trial.placed.items() if dim.count != 1]
    states = optuna.trial.TrialState
    # PRUNED without values is what TPE ranks below every completed trial.
    state = states.RUNNING if trial.running else states.PRUNED if trial.values is None else states.COMPLETE
    return optuna.trial.create_trial(
        state=state,
        params={key: _encode(dim, value) for key, dim, value in searched},
        distributions={key: _distribution(optuna, dim) for key, dim, _ in searched},
        values=None if trial.running else trial.values,
    )


def _ask(study: optuna.Study, space: Space) -> list[ParameterValue]:
    trial = study.ask()

    def choose(dimension: Dimension) -> Value:
        if dimension.count == 1:
            return dimension.value(0)
        if dimension.kind == "CATEGORICAL":
            return dimension.value(int(trial.suggest_categorical(dimension.key, range(len(dimension.values)))))
        if _real(dimension):
            return dimension.typed(dimension.from_unit(trial.suggest_float(dimension.key, 0.0, 1.0)))
        low, high, log = _whole(dimension)
        return _decode(dimension, trial.suggest_int(dimension.key, low, high, log=log))

    return space.assign(choose)


def _real(dimension: Dimension) -> bool:
    return dimension.count is None or dimension.count > _WIDEST


def _whole(dimension: Dimension) -> tuple[int, int, bool]:
    """Bounds of the whole number that encodes the value, and whether it is searched on a log scale.

    A DISCRETE is searched by rank, in ascending order, so every value is as likely as the next.
    """
    if dimension.kind == "DISCRETE":
        return 0, len(dimension.values) - 1, False
    return int(dimension.low), int(dimension.high), dimension.scale in (LOG, REVERSE_LOG)


def _encode(dimension: Dimension, value: Value) -> float | int:
    if dimension.kind == "CATEGORICAL":
        return dimension.values.index(value)
    if dimension.kind == "DISCRETE":
        return sorted(dimension.values).index(dimension.values[dimension.position(value) or 0])
    if _real(dimension):
        return dimension.to_unit(float(value))
    return _mirror(dimension, int(value))


def _decode(dimension: Dimension, number: int) -> Value:
    if dimension.kind == "DISCRETE":
        return sorted(dimension.values)[number]
    return _mirror(dimension, number)


def _mirror(dimension: Dimension, number: int) -> int:
    # Optuna has no reverse log scale: the mirrored number is searched on its log scale.
    return int(dimension.low) + int(dimension.high) - number if dimension.scale == REVERSE_LOG else number


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    if dimension.kind == "CATEGORICAL":
        return optuna.distributions.CategoricalDistribution(range(len(dimension.values)))
    if _real(dimension):
        return optuna.distributions.FloatDistribution(0.0, 1.0)
    low, high, log = _whole(dimension)
    return optuna.distributions.IntDistribution(low, high, log=log)
