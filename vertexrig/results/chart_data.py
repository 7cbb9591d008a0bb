"""The rows behind the charts of a study. Numbers have six digits: a chart shows no more, and the page stays small."""

from __future__ import annotations

import math
from typing import Any

from vertexrig.results.study import StudyRecord
from vertexrig.spec.parameters import LOG, REVERSE_LOG, Domain, Value
from vertexrig.text import clean, shown

MOST_POINTS = 20_000
"""Points of all learning curves together."""
NOT_SET = -0.12
"""Where the line of a trial without a parameter crosses its axis."""

Rows = list[dict[str, Any]]


def key(study: StudyRecord, name: str) -> int:
    """Return the number of a parameter in the columns."""
    return list(study.parameters).index(name)


def is_choice(study: StudyRecord, name: str) -> bool:
    """Whether its values are names, or few numbers, rather than a range."""
    return study.parameters[name].kind == "CATEGORICAL" or any(
        isinstance(trial.parameters.get(name), str) for trial in study.trials
    )


def trials(study: StudyRecord) -> Rows:
    """Return one row per trial: `id`, `n` (its number in order of time), `state`, `ok` (it counts), `best`, `share` (percent of the trials
    that count down to it), `pI` a parameter, `uI` its position from 0 to 1, `mI` a goal, `bI` the best so far, `v` the position
    of the first goal from 0 to 1.
    """
    rank = {trial.id: number for number, trial in enumerate(study.ranked, 1)}
    winners = {trial.id for trial in study.best}
    positions = {name: _positions(study, name) for name in study.parameters}
    choices = {name for name in study.parameters if is_choice(study, name)}
    so_far: dict[int, float] = {}
    low, high = ends(study)
    rows = []
    for n, trial in enumerate(study.trials, 1):
        ok = trial.id in rank
        row: dict[str, Any] = {
            "id": clean(trial.id),
            "n": n,
            "state": trial.state.lower(),
            "ok": ok,
            "best": trial.id in winners,
            "ended": trial.state in ("SUCCEEDED", "INFEASIBLE"),
        }
        for i, name in enumerate(study.parameters):
            value = trial.parameters.get(name)
            if value is not None:
                row[f"p{i}"] = _shown(value) if name not in choices else clean(str(value))
            row[f"u{i}"] = NOT_SET if value is None else positions[name](value)
        for i, goal in enumerate(study.goals):
            if ok:
                value = study.value(trial, goal)
                # `sign` is bound as a default: the lambda must keep this goal's, not the last one's
                so_far[i] = max(so_far.get(i, value), value, key=lambda own, sign=goal.sign: sign * own)  # type: ignore[misc]
                row[f"m{i}"] = six(value)
            if i in so_far:
                row[f"b{i}"] = six(so_far[i])
        if ok:
            row["share"] = round(100 * rank[trial.id] / len(rank), 2)
            row["v"] = six((study.value(trial) - low) / (high - low) if high > low else 0.5)
        rows.append(row)
    return rows


def axes(study: StudyRecord) -> list[tuple[str, str]]:
    """Column and title of each axis of the parallel coordinates: the parameters, then the first goal."""
    return [*((f"u{i}", clean(name)) for i, name in enumerate(study.parameters)), ("v", clean(study.goals[0].id))]


def ticks(study: StudyRecord) -> Rows:
    """Return the labels along the axes of the parallel coordinates: axis `a`, position `y`, text `label`."""
    if not study.ranked:
        return []
    rows: Rows = []
    for i, name in enumerate(study.parameters):
        rows += [{"a": f"u{i}", "y": position, "label": label} for position, label in _labels(study, name)]
        if any(name not in trial.parameters for trial in study.ranked):
            rows.append({"a": f"u{i}", "y": NOT_SET, "label": "not set"})
    low, high = ends(study)
    if high > low:
        return [
            *rows,
            *({"a": "v", "y": at, "label": shown(low + at * (high - low), 4)} for at in (0, 0.25, 0.5, 0.75, 1)),
        ]
    return [
        *rows,
        {"a": "v", "y": 0, "label": ""},
        {"a": "v", "y": 0.5, "label": shown(low, 4)},
        {"a": "v", "y": 1, "label": ""},
    ]


def curves(study: StudyRecord) -> tuple[Rows, int]:
    """Return one row per point of a learning curve of the first goal, and how many points a trial has at most; 0 for all of them.

    Trials with one point only have no curve. Keys: `id`, `x` (step or seconds), `y`, `best`, `share`, `v` (final value).
    """
    goal = study.goals[0].id
    rank = {trial.id: number for number, trial in enumerate(study.ranked, 1)}
    final = {trial.id: study.value(trial) for trial in study.ranked}
    winners = {trial.id for trial in study.best}
    # hypertune's global_step is optional: where it is not given, all steps are 0 and the time is drawn
    stepped = any(one.step for own in study.courses.values() for one in own.curve)
    points = {
        name: [(one.step if stepped else one.elapsed, one.metrics[goal]) for one in own.curve if goal in one.metrics]
        for name, own in study.courses.items()
    }
    points = {name: own for name, own in points.items() if len(own) > 1}
    most = max(2, MOST_POINTS // max(1, len(points)))
    thinned = any(len(own) > most for own in points.values())
    rows = []
    for name, own in points.items():
        step = (len(own) - 1) / (most - 1) if len(own) > most else 1
        for x, y in (own[round(i * step)] for i in range(min(most, len(own)))):
            row = {"id": clean(name), "x": six(x), "y": six(y), "best": name in winners, "share": 100}
            if name in rank:
                row |= {"share": round(100 * rank[name] / len(rank), 2), "v": six(final[name])}
            rows.append(row)
    return rows, most if thinned else 0


def ends(study: StudyRecord) -> tuple[float, float]:
    """Return the least and the greatest value of the first goal."""
    values = [study.value(trial) for trial in study.ranked]
    return (min(values), max(values)) if values else (0.0, 0.0)


def _domain(study: StudyRecord, name: str) -> Domain:
    """Return the range of a parameter, wide enough for values that are outside the study's own."""
    own = study.parameters[name]
    values = [float(v) for t in study.trials if isinstance(v := t.parameters.get(name), (int, float))]
    if own.kind == "DISCRETE":
        values += [float(value) for value in own.values]
        # listed numbers are drawn as numbers, at their true distances
        return Domain("DOUBLE", "", min(values), max(values))
    low, high = min([own.low, *values]), max([own.high, *values])
    # a trial may have a value outside of the study's range, at or below 0, which has no logarithm
    scale = own.scale if own.scale not in (LOG, REVERSE_LOG) or low > 0 else ""
    return Domain("DOUBLE", scale, low, high)


def _choices(study: StudyRecord, name: str) -> list[str]:
    known = [str(value) for value in study.parameters[name].values]
    return list(dict.fromkeys([*known, *(str(t.parameters[name]) for t in study.trials if name in t.parameters)]))


def _positions(study: StudyRecord, name: str) -> Any:
    """Return a function from a value to its position from 0 to 1."""
    if is_choice(study, name):
        known = _choices(study, name)
        return lambda value: six(known.index(str(value)) / max(1, len(known) - 1))
    domain = _domain(study, name)
    return lambda value: six(domain.to_unit(float(value)))


def _labels(study: StudyRecord, name: str) -> list[tuple[float, str]]:
    if is_choice(study, name):
        known = _choices(study, name)
        # more than twelve labels would overlap
        step = max(1, math.ceil(len(known) / 12))
        return [(six(i / max(1, len(known) - 1)), clean(value)) for i, value in list(enumerate(known))[::step]]
    domain = _domain(study, name)
    if domain.low == domain.high:
        return [(0.0, shown(domain.low, 4)), (1.0, "")]
    dimension = study.parameters[name]
    if dimension.kind == "DISCRETE" and len(dimension.values) <= 8:
        return [(six(domain.to_unit(float(value))), shown(float(value), 4)) for value in sorted(dimension.values)]
    whole = dimension.kind == "INTEGER"
    found: dict[str, float] = {}
    for at in (0, 0.25, 0.5, 0.75, 1):
        value = domain.from_unit(at)
        value = round(value) if whole else value
        found.setdefault(str(value) if whole else shown(float(value), 3), six(domain.to_unit(float(value))))
    return [(position, label) for label, position in found.items()]


def _shown(value: Value) -> Value:
    return six(value) if isinstance(value, float) else value


def six(value: float) -> float:
    """Return a number with six digits."""
    return float(f"{value:.6g}")
