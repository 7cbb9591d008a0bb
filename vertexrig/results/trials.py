"""One trial of a study, as its job describes it, and rows of trials as columns.

A job is REST's camelCase, or the SDK's `to_dict()` with snake_case keys and numbers for enums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vertexrig.spec.parameters import Value
from vertexrig.spec.space import Space
from vertexrig.spec.trial import TrialState
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


def trial_result(row: Mapping[str, Any], space: Space) -> TrialResult:
    """Return a trial from its resource in camelCase, its parameters typed by the space of its study."""
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
