"""The outcome of a finished study: its best trials, and a table of all.

Pure functions on a HyperparameterTuningJob as a dict: REST's camelCase, or the SDK's `to_dict()` with snake_case keys
and numbers for enums. A trial counts only if it succeeded with a finite value of every metric; what is None, nan or
infeasible never ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vertexrig.errors import UsageError
from vertexrig.spec import reading
from vertexrig.spec.api_names import camel_keys
from vertexrig.spec.objective import Objective, dominates
from vertexrig.spec.parameters import Value, fill_bounds
from vertexrig.spec.space import Space
from vertexrig.spec.trial import Measurement, TrialState
from vertexrig.times import seconds_since_1970

# the numbers by which the SDK writes Trial.State
_STATES = ("STATE_UNSPECIFIED", *(state.value for state in TrialState))


@dataclass(frozen=True)
class TrialResult:
    """One trial of a study.

    Args:
        id: Its id, "1", "2", …
        state: Trial.State, by name.
        parameters: Values by parameterId: int, float or str after the study's types.
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
    """Return the job's StudySpec in canonical camelCase."""
    raw = job.get("studySpec") or job.get("study_spec")
    if not isinstance(raw, dict):
        raise UsageError("the job has no studySpec; it is not a HyperparameterTuningJob")
    study = reading.from_data({"studySpec": raw}, kind="HyperparameterTuningJob").study or {}
    fill_bounds(study)
    return study


def results(job: Mapping[str, Any]) -> tuple[TrialResult, ...]:
    """Return every trial of the job, in the order listed."""
    space = Space(study_spec(job).get("parameters", ()))
    # its learning curve is most of a trial, and a result has none of it
    rows = ({key: value for key, value in row.items() if key != "measurements"} for row in job.get("trials") or ())
    return tuple(_result(camel_keys(row), space) for row in rows)


def best(job: Mapping[str, Any]) -> tuple[TrialResult, ...]:
    """Return the best trial; of several objectives the Pareto set; nothing if no trial counts.

    The goals decide what is better, safety metrics must keep their thresholds, and of equal trials the first counts.
    """
    in_order = _ranked(job)
    if not in_order or len(in_order[0][0]) == 1:
        return tuple(trial for _, trial in in_order[:1])
    # of two equal trials neither dominates the other, so both are in the front
    front = [(value, trial) for value, trial in in_order if not any(dominates(other, value) for other, _ in in_order)]
    return tuple(trial for _, trial in front)


def ranked(job: Mapping[str, Any]) -> tuple[TrialResult, ...]:
    """Return every trial that counts, the best first by the first goal."""
    return tuple(trial for _, trial in _ranked(job))


def table(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per trial, the best first, those that do not count last.

    Keys: `trial`, `state`, `parameters` and `metrics` (mappings with every one of the study, None where there is none),
    `seconds`, `note` ("best", or why the trial is infeasible).
    """
    spec = study_spec(job)
    parameters = list(dict.fromkeys(dimension.id for dimension in Space(spec.get("parameters", ())).everywhere()))
    metrics = [metric.id for metric in Objective(spec).metrics]
    winners = {trial.id for trial in best(job)}
    in_order = ranked(job)
    counted = {trial.id for trial in in_order}
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
        for trial in [*in_order, *rest]
    ]


def columns(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Headings and cells of rows of trials: each parameter and metric is a column.

    Of several with one name each keeps its group: `parameters.state`, `metrics.seconds`.
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


def _ranked(job: Mapping[str, Any]) -> list[tuple[tuple[float, ...], TrialResult]]:
    """Return trials that count with their values, more being better, in descending order."""
    objective = Objective(study_spec(job))
    found = []
    for trial in results(job):
        values = objective.values(Measurement(0, 0.0, trial.metrics)) if trial.state == "SUCCEEDED" else None
        if values is not None:
            signed = tuple(goal.sign * value for goal, value in zip(objective.goals, values, strict=True))
            found.append((signed, trial))
    # stable with reverse, too: of equal trials the first stays first
    return sorted(found, key=lambda row: row[0], reverse=True)


def _result(row: Mapping[str, Any], space: Space) -> TrialResult:
    state = row.get("state", 0)
    given = [
        {"parameterId": own.get("parameterId", ""), "value": _plain(own.get("value"))}
        for own in row.get("parameters") or ()
    ]
    # None where a value does not fit the study: the trial is shown with what the service lists
    placed = space.read(given)
    parameters = (
        {dimension.id: value for dimension, value in placed.values()}
        if placed is not None
        else {str(own["parameterId"]): own["value"] for own in given}
    )
    start, end = instant(row.get("startTime")), instant(row.get("endTime"))
    final = row.get("finalMeasurement") or {}
    # protobuf's JSON leaves out a value of 0
    metrics = {str(own.get("metricId", "")): _finite(own.get("value", 0.0)) for own in final.get("metrics") or ()}
    return TrialResult(
        id=str(row.get("id", "")),
        state=_STATES[state] if isinstance(state, int) and 0 <= state < len(_STATES) else str(state),
        parameters=parameters,
        metrics={name: value for name, value in metrics.items() if value is not None},
        seconds=None if start is None or end is None else round(end - start, 3),
        reason=str(row.get("infeasibleReason") or ""),
        custom_job=str(row.get("customJob") or ""),
    )


def _plain(value: Any) -> Any:
    """Return a google.protobuf.Value as it is, also from libraries that keep its wrapper."""
    if isinstance(value, Mapping):
        return next((value[key] for key in ("numberValue", "stringValue") if key in value), None)
    return value


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def instant(when: Any) -> float | None:
    """Return seconds since 1970 of a time of the API, as text or as the SDK's datetime; None if it is not one."""
    try:
        return float(when.timestamp()) if hasattr(when, "timestamp") else seconds_since_1970(when)
    except (TypeError, ValueError, AttributeError):
        return None
