"""Trials and their measurements, as the REST API lists them, and the states a trial goes through.

Source: Trial and Measurement in google-cloud-aiplatform 2.7.0 (`types/study.py`), read 2026-11-20.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from vertexrig import times


class TrialState(str, Enum):
    """Trial.State."""

    REQUESTED = "REQUESTED"
    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    INFEASIBLE = "INFEASIBLE"

    @property
    def ended(self) -> bool:
        return self in (TrialState.SUCCEEDED, TrialState.INFEASIBLE)


_NEXT = {
    TrialState.REQUESTED: {TrialState.ACTIVE, TrialState.INFEASIBLE},
    TrialState.ACTIVE: {TrialState.STOPPING, TrialState.SUCCEEDED, TrialState.INFEASIBLE},
    TrialState.STOPPING: {TrialState.SUCCEEDED, TrialState.INFEASIBLE},
    TrialState.SUCCEEDED: set(),
    TrialState.INFEASIBLE: set(),
}


@dataclass(frozen=True)
class Measurement:
    """What a trial reported at one point.

    Args:
        step: The global step; 0 if the trainer gave none.
        elapsed: Seconds since the trial's start.
        metrics: Finite values by metricId.
    """

    step: int
    elapsed: float
    metrics: Mapping[str, float]

    @property
    def order(self) -> tuple[int, float]:
        """What measurements of a trial are strictly ordered by."""
        return self.step, self.elapsed

    def to_dict(self) -> dict[str, Any]:
        """As REST lists it; int64 travels as text."""
        metrics = [{"metricId": name, "value": value} for name, value in self.metrics.items()]
        return {"elapsedDuration": times.duration(self.elapsed), "stepCount": str(self.step), "metrics": metrics}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        metrics = {str(row["metricId"]): float(row.get("value", 0.0)) for row in data.get("metrics", ())}
        return cls(int(data.get("stepCount", 0)), times.duration_seconds(data.get("elapsedDuration")) or 0.0, metrics)


@dataclass
class Trial:
    """One trial of a study; `to_dict` is what the REST API lists, `record` what a store keeps.

    Args:
        id: "1", "2", … in the order of suggestion.
        state: See `TrialState`; change it with `move`.
        parameters: `[{"parameterId": …, "value": …}]`, active parameters only.
        measurements: In the strict order of (step, elapsed).
        final_measurement: Set when the trial has succeeded.
        start_time: When it became ACTIVE, with nine digits after the second, as the service lists it (public recording of 2021).
        end_time: When it became SUCCEEDED or INFEASIBLE, in whole seconds likewise, and not before its start.
        infeasible_reason: Why it is INFEASIBLE.
        custom_job: Resource name of its CustomJob.
        name: Resource name of the trial.
        failed: Its job failed (unlike a trial that ended well without a measurement); not part of the API.
    """

    id: str
    state: TrialState = TrialState.REQUESTED
    parameters: list[dict[str, Any]] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    final_measurement: Measurement | None = None
    start_time: str = ""
    end_time: str = ""
    infeasible_reason: str = ""
    custom_job: str = ""
    name: str = ""
    failed: bool = False

    def move(self, state: TrialState, *, at: float) -> None:
        """Go to `state` at the time `at` (seconds since 1970).

        Raises:
            ValueError: A trial does not change from its present state to that one.
        """
        if state not in _NEXT[self.state]:
            raise ValueError(f"trial {self.id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        if state is TrialState.ACTIVE:
            self.start_time = times.rfc3339_ns(int(at * 10**9))  # a recorded time is not one of whole microseconds
        elif state.ended:
            self.end_time = times.whole_second(at, self.start_time)

    def add(self, measurements: Iterable[Measurement]) -> bool:
        """Add measurements; return whether any was new.

        Metrics that a trainer reports one after another for the same step join into one measurement, since
        cloudml-hypertune writes one entry per metric. Of two reports of the same moment the later one counts.
        """
        changed = False
        for new in measurements:
            latest = next((own for own in reversed(self.measurements) if own.step == new.step), None)
            if latest is not None and not latest.metrics.keys() & new.metrics.keys():
                new = Measurement(new.step, max(latest.elapsed, new.elapsed), {**latest.metrics, **new.metrics})
            else:
                latest = next((own for own in self.measurements if own.order == new.order), None)
            if latest == new:
                continue
            if latest is not None:
                self.measurements.remove(latest)
            insort(self.measurements, new, key=lambda own: own.order)
            changed = True
        return changed

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as the REST API lists it: fields that are empty are left out."""
        final = self.final_measurement
        fields = {
            "name": self.name,
            "id": self.id,
            "state": self.state.value,
            "parameters": [dict(row) for row in self.parameters],
            "finalMeasurement": final.to_dict() if final else None,
            "measurements": [own.to_dict() for own in self.measurements],
            "startTime": self.start_time,
            "endTime": self.end_time,
            "infeasibleReason": self.infeasible_reason,
            "customJob": self.custom_job,
        }
        return {key: value for key, value in fields.items() if value}

    def record(self) -> dict[str, Any]:
        """Return all that is needed to rebuild the trial: `to_dict` and what the API does not show."""
        return {**self.to_dict(), **({"failed": True} if self.failed else {})}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """Return the trial of a `record` or a REST listing."""
        final = data.get("finalMeasurement")
        return cls(
            id=str(data["id"]),
            state=TrialState(data.get("state", "REQUESTED")),
            parameters=[dict(row) for row in data.get("parameters", ())],
            measurements=[Measurement.from_dict(row) for row in data.get("measurements", ())],
            final_measurement=Measurement.from_dict(final) if final else None,
            start_time=str(data.get("startTime", "")),
            end_time=str(data.get("endTime", "")),
            infeasible_reason=str(data.get("infeasibleReason", "")),
            custom_job=str(data.get("customJob", "")),
            name=str(data.get("name", "")),
            failed=bool(data.get("failed", False)),
        )
