"""What a finished study says: its best trials, a table of all, and the ranges for a follow-up study.

Pure functions on a HyperparameterTuningJob as a dict: REST's camelCase, or the SDK's `to_dict()` with snake_case keys
and numbers for enums. A trial counts only if it succeeded with a finite value of every metric; what is None, nan or
infeasible never ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vertexrig import spec as specs
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.spec.names import camel_keys
from vertexrig.spec.objective import Objective
from vertexrig.spec.space import Dimension, Space, Value
from vertexrig.spec.trial import Measurement
from vertexrig.times import seconds_since_1970

# Trial.State in google-cloud-aiplatform 2.7.0, read 2026-11-20
_STATES = ("STATE_UNSPECIFIED", "REQUESTED", "ACTIVE", "STOPPING", "SUCCEEDED", "INFEASIBLE")


@dataclass(frozen=True)
class TrialResult:
    """One trial of a study.

    Args:
        id: Its id, "1", "2", …
        state: Trial.State, by name.
        parameters: Values by parameterId: int, float or str as the study's types say.
        metrics: Finite values of the final measurement by metricId.
        seconds: From start to end; None if it has not ended.
        reason: Why it is infeasible.
        custom_job: Resource name of its CustomJob.
    """

    id: str
    state: str
    parameters: dict[str, Value]
    metrics: dict[str, float]
    seconds: float | None = None
    reason: str = ""
    custom_job: str = ""


def study_spec(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job's StudySpec in canonical camelCase."""
    raw = job.get("studySpec") or job.get("study_spec")
    if not isinstance(raw, dict):
        raise UsageError("the job has no studySpec; it is not a HyperparameterTuningJob")
    return specs.from_data({"studySpec": raw}, kind="HyperparameterTuningJob").study or {}


def results(job: Mapping[str, Any]) -> tuple[TrialResult, ...]:
    """Every trial of the job, in the order listed."""
    space = Space(study_spec(job).get("parameters", ()))
    return tuple(_result(camel_keys(row), space) for row in job.get("trials") or ())


def best(job: Mapping[str, Any]) -> tuple[TrialResult, ...]:
    """The best trial; of several objectives the Pareto set; nothing if no trial counts.

    The goals decide what is better, safety metrics must keep their thresholds, and of equal trials the first counts.
    """
    ranked = _ranked(job)
    if not ranked or len(ranked[0][0]) == 1:
        return tuple(trial for _, trial in ranked[:1])
    front = [(value, trial) for value, trial in ranked if not any(_dominates(other, value) for other, _ in ranked)]
    return tuple(trial for _, trial in front)


def table(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per trial, the best first, those that do not count last.

    Keys: `trial`, `state`, `parameters` and `metrics` (mappings with every one of the study, None where there is none),
    `seconds`, `note` ("best", or why the trial is infeasible).
    """
    spec = study_spec(job)
    parameters = list(dict.fromkeys(dimension.id for dimension in Space(spec["parameters"]).everywhere()))
    metrics = [metric.id for metric in Objective(spec).metrics]
    winners = {trial.id for trial in best(job)}
    ranked = [trial for _, trial in _ranked(job)]
    counted = {trial.id for trial in ranked}
    rest = [trial for trial in results(job) if trial.id not in counted]
    return [
        {
            "trial": trial.id,
            "state": trial.state,
            "parameters": {name: trial.parameters.get(name) for name in parameters},
            "metrics": {name: trial.metrics.get(name) for name in metrics},
            "seconds": trial.seconds,
            "note": "best" if trial.id in winners else trial.reason,
        }
        for trial in [*ranked, *rest]
    ]


def columns(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Headings and cells of rows of trials: each parameter and metric is a column.

    One whose name is taken keeps a column of its own: `parameters.state`, `metrics.seconds`.
    """
    flat = [[cell for name, value in row.items() for cell in _cells(name, value)] for row in rows]
    names = [name for _, name, _ in flat[0]] if flat else []
    headings = [
        f"{group}.{name}" if group and names.count(name) > 1 else name for group, name, _ in (flat[0] if flat else ())
    ]
    return headings, [[value for _, _, value in row] for row in flat]


def _cells(name: str, value: Any) -> list[tuple[str, str, Any]]:
    """Group, name and value of each column that a key of a row makes."""
    return [(name, key, one) for key, one in value.items()] if isinstance(value, Mapping) else [("", name, value)]


def follow_up_grid(
    job: Mapping[str, Any],
    *,
    points: int | Mapping[str, int] = 3,
    width: float = 0.25,
    trial: str = "",
) -> dict[str, Any]:
    """A grid of combinations around the best trial: `{"studySpec": …, "maxTrialCount": …}` to put into a new job.

    Each DOUBLE becomes a DISCRETE with values spread on its own scale around the best one. An INTEGER stays one if the
    values follow each other, and otherwise becomes a CATEGORICAL, which reaches the trainer as the same text. A DISCRETE
    takes its neighbouring values; a CATEGORICAL, and any parameter with active conditional ones, stays at its best.

    Args:
        job: The finished job.
        points: Values per parameter, for all or by parameterId (3 for those not named).
        width: The part of a parameter's scale that its values span, above 0 and up to 1.
        trial: The id of the trial to look around; by default the best one.

    Raises:
        UsageError: No trial counts, several are best and none is named, or `points`, `width` or `trial` is wrong.
    """
    if not 0 < width <= 1:
        raise UsageError(f"width {width} is the part of the range to span: above 0 and up to 1")
    spec, centre = study_spec(job), _centre(job, trial)
    placed = _placed(spec, centre)
    names = [dimension.id for dimension, _ in placed]
    counts = dict(points) if isinstance(points, Mapping) else dict.fromkeys(names, points)
    for name, count in counts.items():
        if name not in names:
            raise UsageError(f"{name!r} is no parameter of trial {centre.id}. {did_you_mean(name, names)}")
        if count < 1:
            raise UsageError(f"{count} values of {name!r} make no grid; the least is 1")
    parameters = [_around(dimension, value, counts.get(dimension.id, 3), width) for dimension, value in placed]
    kept = {key: spec[key] for key in ("metrics", "measurementSelectionType") if key in spec}
    return {
        "studySpec": {**kept, "parameters": parameters, "algorithm": "GRID_SEARCH"},
        "maxTrialCount": Space(parameters).size,
    }


def narrow(job: Mapping[str, Any], *, top: int = 5, margin: float = 0.05) -> dict[str, Any]:
    """The study with its ranges narrowed to where its best trials lie: `{"studySpec": …}` to put into a new job.

    Args:
        job: The finished job.
        top: How many of the best trials count; of several objectives it is the Pareto set.
        margin: The part of each parameter's scale added on both sides.

    Raises:
        UsageError: No trial counts.
    """
    spec = study_spec(job)
    space = Space(spec["parameters"])
    several = len(Objective(spec).goals) > 1
    winners = best(job) if several else tuple(trial for _, trial in _ranked(job)[: max(1, top)])
    if not winners:
        raise UsageError(_nothing(job))
    found: dict[str, list[Value]] = {}
    for trial in winners:
        for dimension, value in _placed(spec, trial):
            found.setdefault(dimension.key, []).append(value)
    parameters = [
        _narrowed(row, dimension, found, margin)
        for row, dimension in zip(spec["parameters"], space.dimensions, strict=True)
    ]
    return {"studySpec": {**spec, "parameters": parameters}}


def _ranked(job: Mapping[str, Any]) -> list[tuple[tuple[float, ...], TrialResult]]:
    """Trials that count with their values, more being better, in descending order."""
    objective = Objective(study_spec(job))
    found = []
    for trial in results(job):
        values = objective.values(Measurement(0, 0.0, trial.metrics)) if trial.state == "SUCCEEDED" else None
        if values is not None:
            signed = tuple(goal.sign * value for goal, value in zip(objective.goals, values, strict=True))
            found.append((signed, trial))
    return sorted(found, key=lambda row: row[0], reverse=True)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _centre(job: Mapping[str, Any], trial_id: str) -> TrialResult:
    if trial_id:
        every = {trial.id: trial for trial in results(job)}
        if trial_id not in every:
            raise UsageError(f"the job has no trial {trial_id!r}. {did_you_mean(trial_id, every)}")
        return every[trial_id]
    winners = best(job)
    if not winners:
        raise UsageError(_nothing(job))
    if len(winners) > 1:
        ids = ", ".join(trial.id for trial in winners)
        raise UsageError(f"the study has several objectives and {len(winners)} best trials ({ids}); name one of them")
    return winners[0]


def _nothing(job: Mapping[str, Any]) -> str:
    every = results(job)
    reason = next((f" Trial {trial.id}: {trial.reason}" for trial in every if trial.reason), "")
    return f"none of the {len(every)} trials succeeded with a finite value of every metric.{reason}"


def _placed(spec: Mapping[str, Any], trial: TrialResult) -> list[tuple[Dimension, Value]]:
    rows = [{"parameterId": name, "value": value} for name, value in trial.parameters.items()]
    placed = Space(spec["parameters"]).read(rows)
    if placed is None:
        raise UsageError(f"the parameters of trial {trial.id} do not fit the study's own space: {trial.parameters}")
    return list(placed.values())


def _around(dimension: Dimension, value: Value, points: int, width: float) -> dict[str, Any]:
    row: dict[str, Any] = {"parameterId": dimension.id}
    if dimension.kind == "CATEGORICAL":
        return {**row, "categoricalValueSpec": {"values": [value]}}
    pinned = any(dimension.active(value))
    if dimension.kind == "DISCRETE":
        values = sorted(dimension.values)
        chosen = [value] if pinned else _window(values, values.index(value), points)
        return {**row, "discreteValueSpec": {"values": chosen}}
    number = float(value)
    spread = {number} if pinned else set(_spread(dimension, number, points, width))
    if dimension.kind == "DOUBLE":
        return {**row, "discreteValueSpec": {"values": sorted(spread)}}
    whole = sorted(int(one) for one in spread)
    if whole[-1] - whole[0] + 1 == len(whole):
        return {**row, "integerValueSpec": {"minValue": whole[0], "maxValue": whole[-1]}}
    return {**row, "categoricalValueSpec": {"values": [str(one) for one in whole]}}


def _window(values: Sequence[Value], centre: int, points: int) -> list[Value]:
    """`points` neighbouring values around a place, moved inwards at the ends."""
    first = max(0, min(centre - points // 2, len(values) - points))
    return list(values[first : first + points])


def _spread(dimension: Dimension, value: float, points: int, width: float) -> list[float]:
    """`value` and others on its scale, `width` of the scale from first to last, moved inwards at the ends."""
    if points == 1 or dimension.count == 1:
        return [value]
    if dimension.count is not None and width * (dimension.count - 1) < points - 1:
        near = range(min(points, dimension.count))  # too few whole numbers in the width: the nearest ones
        first = max(int(dimension.low), min(int(value) - points // 2, int(dimension.high) - len(near) + 1))
        return [float(first + i) for i in near]
    unit = dimension.to_unit(value)
    first_unit = max(0.0, min(unit - width / 2, 1 - width))
    raw = [dimension.from_unit(first_unit + width * i / (points - 1)) for i in range(points)]
    nearest = min(range(points), key=lambda i: abs(dimension.to_unit(raw[i]) - unit))
    inside = [min(dimension.high, max(dimension.low, _rounded(one, dimension))) for one in raw]
    return [value if i == nearest else one for i, one in enumerate(inside)]


def _rounded(value: float, dimension: Dimension) -> float:
    return float(round(value)) if dimension.kind == "INTEGER" else float(f"{value:.4g}")


def _narrowed(
    row: Mapping[str, Any], dimension: Dimension, found: Mapping[str, Sequence[Value]], margin: float
) -> dict[str, Any]:
    values = found.get(dimension.key)
    if not values:
        return dict(row)
    narrowed = dict(row)
    kept: Sequence[Value] | None = None
    if dimension.kind == "CATEGORICAL":
        kept = [value for value in dimension.values if value in values]
        narrowed["categoricalValueSpec"] = {"values": kept}
    elif dimension.kind == "DISCRETE":
        ordered = sorted(dimension.values)
        ranks = [ordered.index(value) for value in values]
        reach = math.ceil(margin * len(ordered)) if margin else 0
        kept = ordered[max(0, min(ranks) - reach) : max(ranks) + reach + 1]
        narrowed["discreteValueSpec"] = {"values": kept}
    else:
        units = [dimension.to_unit(float(value)) for value in values]
        low, high = (dimension.from_unit(unit) for unit in (max(0, min(units) - margin), min(1, max(units) + margin)))
        low, high = min(low, *map(float, values)), max(high, *map(float, values))
        if dimension.kind == "INTEGER":
            narrowed["integerValueSpec"] = {"minValue": math.floor(low), "maxValue": math.ceil(high)}
            kept = range(math.floor(low), math.ceil(high) + 1)
        else:
            narrowed["doubleValueSpec"] = {"minValue": low, "maxValue": high}
    if kept is not None and dimension.children:
        children = _narrowed_children(row, dimension, kept, found, margin)
        narrowed.pop("conditionalParameterSpecs")
        narrowed.update({"conditionalParameterSpecs": children} if children else {})
    return narrowed


def _narrowed_children(
    row: Mapping[str, Any],
    dimension: Dimension,
    kept: Sequence[Value],
    found: Mapping[str, Sequence[Value]],
    margin: float,
) -> list[dict[str, Any]]:
    """The conditional parameters that can still become active, with conditions on values that are left."""
    children = []
    for entry, (when, child) in zip(row["conditionalParameterSpecs"], dimension.children, strict=True):
        left = [value for value in when if value in kept]
        if left:
            key = next(key for key in entry if key.startswith("parent"))
            inner = _narrowed(entry["parameterSpec"], child, found, margin)
            children.append({**entry, key: {"values": left}, "parameterSpec": inner})
    return children


def _result(row: Mapping[str, Any], space: Space) -> TrialResult:
    state = row.get("state", 0)
    given = [
        {"parameterId": own.get("parameterId", ""), "value": _plain(own.get("value"))}
        for own in row.get("parameters") or ()
    ]
    placed = space.read(given)
    parameters = (
        {dimension.id: value for dimension, value in placed.values()}
        if placed is not None
        else {str(own["parameterId"]): own["value"] for own in given}
    )
    final = row.get("finalMeasurement") or {}
    # protobuf's JSON leaves out a value of 0
    metrics = {str(own.get("metricId", "")): _finite(own.get("value", 0.0)) for own in final.get("metrics") or ()}
    return TrialResult(
        id=str(row.get("id", "")),
        state=_STATES[state] if isinstance(state, int) and 0 <= state < len(_STATES) else str(state),
        parameters=parameters,
        metrics={name: value for name, value in metrics.items() if value is not None},
        seconds=_seconds(row.get("startTime"), row.get("endTime")),
        reason=str(row.get("infeasibleReason") or ""),
        custom_job=str(row.get("customJob") or ""),
    )


def _plain(value: Any) -> Any:
    """A google.protobuf.Value as it is, also from libraries that keep its wrapper."""
    if isinstance(value, Mapping):
        return next((value[key] for key in ("numberValue", "stringValue") if key in value), None)
    return value


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _seconds(start: Any, end: Any) -> float | None:
    try:
        return round(_instant(end) - _instant(start), 3)
    except (TypeError, ValueError):
        return None


def _instant(when: Any) -> float:
    if hasattr(when, "timestamp"):
        return float(when.timestamp())
    if not isinstance(when, str):
        raise TypeError(when)
    return seconds_since_1970(when)
