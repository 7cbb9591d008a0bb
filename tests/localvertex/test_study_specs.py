"""The study engine over random valid StudySpecs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import optuna  # noqa: F401 - hypothesis looks at numpy, which a thread of the engine would still be importing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localvertex.jobs.study_engine import StudyEngine, StudyExhausted
from vertexrig.spec.space import Space
from vertexrig.spec.trial import Measurement

SCALES = ["", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"]


@st.composite
def _body(draw: st.DrawFn, continuous: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from(["integer", "categorical", "discrete"] + ["double"] * continuous))
    scale = draw(st.sampled_from(SCALES))
    positive = scale.endswith("LOG_SCALE")
    if kind == "categorical":
        return {
            "categoricalValueSpec": {"values": draw(st.lists(st.text(max_size=4), min_size=1, max_size=3, unique=True))}
        }
    if kind == "discrete":
        numbers = st.integers(1 if positive else -20, 40).map(lambda n: n / 4)
        body: dict[str, Any] = {
            "discreteValueSpec": {"values": sorted(draw(st.lists(numbers, min_size=1, max_size=4, unique=True)))}
        }
    elif kind == "integer":
        low = draw(
            st.integers(1 if positive else -(2**52), 2**52) if continuous else st.integers(1 if positive else -3, 5)
        )
        width = draw(st.integers(0, 4) | st.integers(0, 2**52)) if continuous else draw(st.integers(0, 4))
        body = {"integerValueSpec": {"minValue": low, "maxValue": low + width}}
    else:
        low = draw(st.floats(1e-9 if positive else -1e300, 1e6))
        high = draw(st.floats(low, 1e300))
        body = {"doubleValueSpec": {"minValue": low, "maxValue": high}}
    return {**body, "scaleType": scale} if scale else body


def _some_values(draw: st.DrawFn, body: dict[str, Any]) -> tuple[str, list[Any]] | None:
    if "categoricalValueSpec" in body:
        name, values = "parentCategoricalValues", body["categoricalValueSpec"]["values"]
    elif "discreteValueSpec" in body:
        name, values = "parentDiscreteValues", body["discreteValueSpec"]["values"]
    elif "integerValueSpec" in body:
        low, high = body["integerValueSpec"]["minValue"], body["integerValueSpec"]["maxValue"]
        name, values = "parentIntValues", [low, high] if high > low else [low]
    else:
        return None
    return name, draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))


@st.composite
def parameters(draw: st.DrawFn, continuous: bool = True, prefix: str = "p", depth: int = 0) -> list[dict[str, Any]]:
    """One to three parameters, some with conditional children down to two levels."""
    found = []
    for i in range(draw(st.integers(1, 3 if depth == 0 else 2))):
        name = f"{prefix}{i}"
        body = {"parameterId": name, **draw(_body(continuous))}
        chosen = _some_values(draw, body) if depth < 2 and draw(st.booleans()) else None
        if chosen:
            inner = draw(parameters(continuous=continuous, prefix=f"{name}_", depth=depth + 1))
            body["conditionalParameterSpecs"] = [
                {chosen[0]: {"values": chosen[1]}, "parameterSpec": spec} for spec in inner
            ]
        found.append(body)
    return found


@st.composite
def study_specs(draw: st.DrawFn) -> dict[str, Any]:
    """A StudySpec with one or two goals and any algorithm that its parameters allow."""
    algorithm = draw(st.sampled_from(["", "ALGORITHM_UNSPECIFIED", "RANDOM_SEARCH", "GRID_SEARCH"]))
    specs = draw(parameters(continuous=algorithm != "GRID_SEARCH"))
    goals = draw(st.lists(st.sampled_from(["MAXIMIZE", "MINIMIZE"]), min_size=1, max_size=2))
    spec = {"metrics": [{"metricId": f"m{i}", "goal": goal} for i, goal in enumerate(goals)], "parameters": specs}
    return {**spec, "algorithm": algorithm} if algorithm else spec


def combination(rows: list[dict[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """A combination as something that can stand in a set."""
    return tuple((row["parameterId"], row["value"]) for row in rows)


def _values(spec: dict[str, Any]) -> list[Any]:
    if "integerValueSpec" in spec:
        return list(range(spec["integerValueSpec"]["minValue"], spec["integerValueSpec"]["maxValue"] + 1))
    return list((spec.get("categoricalValueSpec") or spec["discreteValueSpec"])["values"])


def size_by_hand(specs: list[dict[str, Any]]) -> int:
    """How many combinations there are, by plain recursion over every value."""
    total = 1
    for spec in specs:
        here = 0
        for value in _values(spec):
            active = [
                child["parameterSpec"]
                for child in spec.get("conditionalParameterSpecs", [])
                if any(value in child[key]["values"] for key in child if key.startswith("parent"))
            ]
            here += size_by_hand(active)
        total *= here
    return total


@settings(max_examples=40)
@given(parameters(continuous=False))
def test_grid_enumerates_exactly_the_product(specs: list[dict]) -> None:
    """As many combinations as counted by hand, no two alike, each in the space, and reading one gives it back."""
    grid = Space(specs)
    assert grid.size == size_by_hand(specs)
    found = {combination(grid.combination(i)) for i in range(min(grid.size, 300))}
    assert len(found) == min(grid.size, 300)
    for i in itertools.islice(range(grid.size), 50):
        row = grid.combination(i)
        placed = grid.read(row)
        assert placed is not None
        assert [value for _, value in placed.values()] == [entry["value"] for entry in row]


@settings(max_examples=25)
@given(study_specs(), st.integers(0, 2**40))
def test_every_suggestion_lies_in_the_space(spec: dict, seed: int) -> None:
    """Each suggested value is finite, of the right type and in bounds, and just the active parameters are there."""
    engine = StudyEngine(spec, seed=seed)
    for i in range(1, 5):
        if engine.done():
            break
        rows = engine.suggest(str(i))
        placed = engine.space.read(rows)
        assert placed is not None
        for dimension, value in placed.values():
            kind = {"INTEGER": int, "CATEGORICAL": str}.get(dimension.kind, float)
            assert type(value) is kind
            assert isinstance(value, str) or math.isfinite(value)
        assert len(engine.space.command_line(rows)) == len(rows)


def play(engine: StudyEngine, first: int, last: int) -> list[Any]:
    """Make trials `first` to `last`; every third stays running, every fifth is infeasible, the rest get a value."""
    made = []
    for i in range(first, last + 1):
        try:
            made.append(combination(engine.suggest(str(i))))
        except StudyExhausted:
            break
        if i % 5 == 0:
            engine.complete(str(i), infeasible="died")
        elif i % 3:
            value = float(len(str(made[-1])) % 7)
            engine.complete(str(i), Measurement(1, 1.0, {goal.id: value for goal in engine.objective.goals}))
    return made


@settings(max_examples=25)
@given(study_specs(), st.integers(0, 2**40), st.integers(0, 14))
def test_same_seed_same_trials_however_often_it_is_rebuilt(spec: dict, seed: int, prefix: int) -> None:
    """A study goes on after a rebuild as it would have without, running and infeasible trials included."""
    whole = play(StudyEngine(spec, seed=seed), 1, 14)
    first = StudyEngine(spec, seed=seed)
    begun = play(first, 1, prefix)
    again = StudyEngine(spec, seed=seed, trials=[trial.record() for trial in first.trials.values()])
    assert [trial.record() for trial in again.trials.values()] == [trial.record() for trial in first.trials.values()]
    assert begun + play(again, prefix + 1, 14) == whole


def _rarely_new() -> dict[str, object]:
    """A study of 20,001 combinations, two of which are drawn three times out of four."""
    wide = {"parameterId": "c", "integerValueSpec": {"minValue": 0, "maxValue": 19998}}
    parameter: dict[str, object] = wide
    for name in ("b", "a"):
        conditional = [{"parentIntValues": {"values": [0]}, "parameterSpec": parameter}]
        bounds = {"minValue": 0, "maxValue": 1}
        parameter = {"parameterId": name, "integerValueSpec": bounds, "conditionalParameterSpecs": conditional}
    return {"metrics": [{"metricId": "m", "goal": "MAXIMIZE"}], "parameters": [parameter]}


@settings(max_examples=25)
@example(_rarely_new(), 1)
@given(study_specs(), st.integers(0, 2**40))
def test_no_combination_is_made_twice_while_there_are_others(spec: dict, seed: int) -> None:
    """Trials differ until a finite space is used up; a grid then ends and says so."""
    engine = StudyEngine(spec, seed=seed)
    made = play(engine, 1, 14)
    size = engine.space.size
    if size is not None:  # a DOUBLE may have so few floats at one end of its scale that two draws meet
        assert len(set(made)) == min(size, 14)
    if spec.get("algorithm") == "GRID_SEARCH" and size is not None and size <= 14:
        assert len(made) == size
        assert "exhausted" in (engine.done() or "")
