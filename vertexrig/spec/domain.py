"""The values that one parameter of a study can take: its kind, its scale, membership, and the order of its values.

Source of the rules: StudySpec in google-cloud-aiplatform 2.7.0 (`types/study.py`), read 2026-11-20.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

ValueKind = Literal["DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"]
Value = float | int | str

EPSILON = 1e-10
"""Numbers nearer to each other than this are one value (DiscreteValueCondition, REST DiscreteValueSpec)."""
LOG, REVERSE_LOG = "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"
VALUE_SPECS: dict[str, ValueKind] = {
    "doubleValueSpec": "DOUBLE",
    "integerValueSpec": "INTEGER",
    "categoricalValueSpec": "CATEGORICAL",
    "discreteValueSpec": "DISCRETE",
}
"""The kind that each value spec makes."""
CONDITIONS: dict[str, ValueKind] = {
    "parentDiscreteValues": "DISCRETE",
    "parentIntValues": "INTEGER",
    "parentCategoricalValues": "CATEGORICAL",
}
"""The kind of parent that each condition is written for; a DOUBLE has no conditional parameters."""
CONDITION_OF = {kind: name for name, kind in CONDITIONS.items()}


def typed(kind: ValueKind, value: Any) -> Value:
    """`value` in the Python type of a kind: float, int or str."""
    return {"INTEGER": int, "CATEGORICAL": str}.get(kind, float)(value)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Domain:
    """The values of one parameter.

    Args:
        kind: Its kind.
        scale: The scaleType, "" if none.
        low: Least value of a DOUBLE or INTEGER.
        high: Greatest value of a DOUBLE or INTEGER.
        values: The values of a CATEGORICAL or DISCRETE, without repeats.
    """

    kind: ValueKind
    scale: str = ""
    low: float = 0.0
    high: float = 0.0
    values: tuple[Value, ...] = ()

    @property
    def count(self) -> int | None:
        """How many values there are; None for a DOUBLE with room between its bounds."""
        if self.kind == "INTEGER":
            return int(self.high) - int(self.low) + 1
        if self.kind == "DOUBLE":
            return 1 if self.low == self.high else None
        return len(self.values)

    @cached_property
    def _positions(self) -> dict[Value, int]:
        return {value: index for index, value in enumerate(self.values)}

    def value(self, position: int) -> Value:
        """The value at a position counted from 0, in the order of the grid."""
        if self.kind == "INTEGER":
            return int(self.low) + position
        return self.low if self.kind == "DOUBLE" else self.values[position]

    def position(self, value: Any) -> int | None:
        """The position of `value`, None if it is not one of the values (a DOUBLE has no positions)."""
        if self.kind == "CATEGORICAL":
            return self._positions.get(value) if isinstance(value, str) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if self.kind == "INTEGER":
            whole = isinstance(value, int) or value.is_integer()
            return int(value) - int(self.low) if whole and self.low <= value <= self.high else None
        found = self._positions.get(value)
        near = (i for i, own in enumerate(self.values) if abs(float(own) - value) <= EPSILON)
        return found if found is not None else next(near, None)

    def holds(self, value: Any) -> bool:
        """Whether `value` is one of the values."""
        if self.kind != "DOUBLE":
            return self.position(value) is not None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def typed(self, value: Any) -> Value:
        """`value` in the parameter's own Python type: float, int or str."""
        return typed(self.kind, value)

    @property
    def _decades(self) -> float:
        return math.log(self.high) - math.log(self.low)

    def to_unit(self, value: float) -> float:
        """`value` on the scale from 0 to 1 that the scaleType means."""
        if self.high == self.low:
            return 0.0
        if self.scale == LOG:
            unit = (math.log(value) - math.log(self.low)) / self._decades
        elif self.scale == REVERSE_LOG:
            unit = 1 - (math.log(self.low + (self.high - value)) - math.log(self.low)) / self._decades
        else:
            unit = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)  # halves: the range may overflow
        return min(1.0, max(0.0, unit))

    def from_unit(self, unit: float) -> float:
        """The value at `unit` on the scale from 0 to 1, rounded for an INTEGER, always within the bounds."""
        if self.scale == LOG:
            raw = math.exp(math.log(self.low) + unit * self._decades)
        elif self.scale == REVERSE_LOG:
            raw = self.low + (self.high - math.exp(math.log(self.low) + (1 - unit) * self._decades))
        else:
            raw = self.low * (1 - unit) + self.high * unit
        if self.kind == "INTEGER":
            return min(int(self.high), max(int(self.low), round(raw)))
        return min(self.high, max(self.low, raw))
