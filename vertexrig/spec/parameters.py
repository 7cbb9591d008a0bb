"""The parameters of a StudySpec as they are written, mistakes included, each with its path and the values it can take.

The checks read these; `vertexrig.spec.space` makes of them the space that the engine searches, and refuses what is wrong.

Source of the rules: StudySpec in google-cloud-aiplatform 2.7.0 (`types/study.py`), read 2026-11-20.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Return `value` in the Python type of a kind: float, int or str."""
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
        """Return the value at a position counted from 0, in the order of the grid."""
        if self.kind == "INTEGER":
            return int(self.low) + position
        return self.low if self.kind == "DOUBLE" else self.values[position]

    def position(self, value: Any) -> int | None:
        """Return the position of `value`, None if it is not one of the values (a DOUBLE has no positions)."""
        if self.kind == "CATEGORICAL":
            return self._positions.get(value) if isinstance(value, str) else None
        # True is an int in Python, and not a value of a numeric parameter
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if self.kind == "INTEGER":
            whole = isinstance(value, int) or value.is_integer()
            return int(value) - int(self.low) if whole and self.low <= value <= self.high else None
        # exactly as listed in nearly all cases; only otherwise are all values compared
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
        """Return `value` in the parameter's own Python type: float, int or str."""
        return typed(self.kind, value)

    @property
    def middle(self) -> Value:
        """The value in the middle: of a number's range on its scale, else of the values in ascending order.

        Of an even number of values it is the higher one (`suggest_default.py` of Google's open source Vizier 0.1.24).
        """
        if self.kind in ("CATEGORICAL", "DISCRETE"):
            return sorted(self.values)[len(self.values) // 2]
        if self.kind == "INTEGER" and self.scale not in (LOG, REVERSE_LOG):
            return self.value((self.count or 0) // 2)
        return self.typed(self.from_unit(0.5))

    @property
    def _decades(self) -> float:
        return math.log(self.high) - math.log(self.low)

    def to_unit(self, value: float) -> float:
        """Return `value` on the scale from 0 to 1 that the scaleType means."""
        if self.high == self.low:
            return 0.0
        if self.scale == LOG:
            unit = (math.log(value) - math.log(self.low)) / self._decades
        elif self.scale == REVERSE_LOG:
            unit = 1 - (math.log(self.low + (self.high - value)) - math.log(self.low)) / self._decades
        else:
            unit = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)  # halves: the range may overflow
        # rounding may lead a little outside
        return min(1.0, max(0.0, unit))

    def from_unit(self, unit: float) -> float:
        """Return the value at `unit` on the scale from 0 to 1, rounded for an INTEGER, always within the bounds."""
        if self.scale == LOG:
            raw = math.exp(math.log(self.low) + unit * self._decades)
        elif self.scale == REVERSE_LOG:
            raw = self.low + (self.high - math.exp(math.log(self.low) + (1 - unit) * self._decades))
        else:
            raw = self.low * (1 - unit) + self.high * unit
        if self.kind == "INTEGER":
            return min(int(self.high), max(int(self.low), round(raw)))
        return min(self.high, max(self.low, raw))


@dataclass(frozen=True)
class Condition:
    """What makes a conditional parameter active.

    Args:
        path: The item of `conditionalParameterSpecs`.
        field: `parentDiscreteValues`, `parentIntValues` or `parentCategoricalValues`; "" if none is given.
        values: The parent values it names.
    """

    path: str
    field: str
    values: tuple[Any, ...]

    @property
    def kind(self) -> ValueKind | None:
        """The kind of parent it is written for; None without a condition."""
        return CONDITIONS.get(self.field)


@dataclass(frozen=True)
class Parameter:
    """One ParameterSpec of a study.

    Args:
        path: `studySpec.parameters[0]`, or deeper for a conditional one.
        data: Its canonical data.
        parent: The parameter whose value makes it active, None at the top.
        condition: Which of the parent's values do so, None at the top.
    """

    path: str
    data: Mapping[str, Any]
    parent: Parameter | None = None
    condition: Condition | None = None

    @property
    def id(self) -> str:
        return str(self.data.get("parameterId", ""))

    @property
    def name(self) -> str:
        """What messages call it."""
        return repr(self.id) if self.id else "the parameter"

    @cached_property
    def spec_fields(self) -> list[str]:
        """The value specs that are written: one, unless it is wrong."""
        return [name for name in VALUE_SPECS if name in self.data]

    @property
    def spec_field(self) -> str:
        """`doubleValueSpec` and so on; "" when none of the four is there."""
        return next(iter(self.spec_fields), "")

    @cached_property
    def kind(self) -> ValueKind | None:
        """Its kind, None when no value spec is there."""
        return VALUE_SPECS.get(self.spec_field)

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.data.get(self.spec_field, {})
        return found

    @property
    def spec_path(self) -> str:
        return f"{self.path}.{self.spec_field}"

    @property
    def values(self) -> tuple[Any, ...]:
        """The listed values of a DISCRETE or CATEGORICAL parameter; empty for the other two."""
        return tuple(self.spec.get("values", ()))

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Smallest and largest value of a numeric parameter; None for what is not written."""
        if self.kind == "DISCRETE":
            return (min(self.values), max(self.values)) if self.values else (None, None)
        return self.spec.get("minValue"), self.spec.get("maxValue")

    @property
    def scale(self) -> str:
        """The scale type's name, "" if unset."""
        name = str(self.data.get("scaleType", ""))
        return "" if name == "SCALE_TYPE_UNSPECIFIED" else name

    @cached_property
    def domain(self) -> Domain | None:
        """The values it can take; None if its value spec gives none.

        A single bound that is not written is 0, since the service's JSON leaves out a bound of 0.
        """
        kind = self.kind
        if kind is None:
            return None
        if kind in ("DOUBLE", "INTEGER"):
            if self.bounds == (None, None):
                return None
            low, high = (typed(kind, bound or 0) for bound in self.bounds)
            # for mypy: both kinds here are numeric
            assert not isinstance(low, str) and not isinstance(high, str)
            return Domain(kind, self.scale, low, high) if -math.inf < low <= high < math.inf else None
        values = tuple(dict.fromkeys(typed(kind, value) for value in self.values))
        return Domain(kind, self.scale, values=values) if values else None

    @cached_property
    def children(self) -> tuple[Parameter, ...]:
        """The conditional parameters directly under this one; one without a spec has empty data."""
        found = []
        for index, item in enumerate(self.data.get("conditionalParameterSpecs", ())):
            path = f"{self.path}.conditionalParameterSpecs[{index}]"
            field = next((name for name in CONDITIONS if name in item), "")
            condition = Condition(path, field, tuple(item.get(field, {}).get("values", ())))
            found.append(Parameter(f"{path}.parameterSpec", item.get("parameterSpec", {}), self, condition))
        return tuple(found)

    def together(self) -> Iterable[tuple[Parameter, ...]]:
        """Return the sets of conditional parameters that one value of this one makes active."""
        active: dict[Any, list[Parameter]] = {}
        for child in self.children:
            values = child.condition.values if child.condition else ()
            for value in dict.fromkeys(map(self._same, values)):
                active.setdefault(value, []).append(child)
        # many values make the same ones active, so each set comes once
        return {tuple(child.path for child in group): tuple(group) for group in active.values()}.values()

    def _same(self, value: Any) -> Any:
        """Return a key that is equal for two spellings of one value of this parameter."""
        position = self.domain.position(value) if self.domain else None
        return (repr(value),) if position is None else position


def top(specs: Iterable[Mapping[str, Any]]) -> list[Parameter]:
    """Return the parameters that are active in every trial, of `studySpec.parameters`."""
    return [Parameter(f"studySpec.parameters[{index}]", data) for index, data in enumerate(specs)]


def everywhere(parameters: Sequence[Parameter]) -> Iterator[Parameter]:
    """Yield these parameters with all under them, in the order of the file, conditional ones after their parent."""
    stack = list(reversed(parameters))
    while stack:
        parameter = stack.pop()
        yield parameter
        stack.extend(reversed(parameter.children))


def fill_bounds(study: Mapping[str, Any] | None) -> None:
    """Write the bounds and thresholds of 0 that the service's JSON leaves out into a study, in canonical form and changed in place."""
    for metric in (study or {}).get("metrics", ()):
        if "safetyConfig" in metric:
            metric["safetyConfig"].setdefault("safetyThreshold", 0)
    for parameter in everywhere(top((study or {}).get("parameters", ()))):
        if parameter.kind in ("DOUBLE", "INTEGER") and parameter.bounds != (None, None):
            own = parameter.data[parameter.spec_field]
            own.setdefault("minValue", 0)
            own.setdefault("maxValue", 0)


def clashes(parameters: Sequence[Parameter]) -> dict[str, Parameter]:
    """Return the parameters whose id another one has that can be active in the same trial: by path, with the earlier one.

    The work grows with the size of the study, not with the pairs of its parameters.

    Args:
        parameters: Every parameter of a study, as `everywhere` lists them.
    """
    found: dict[str, Parameter] = {}
    under: dict[str, dict[str, list[Parameter]]] = {}  # by path: a parameter and all under it, by id

    def compare(group: Iterable[Parameter], seen: dict[str, Parameter]) -> None:
        for parameter in group:
            for name, same in under[parameter.path].items():
                first = seen.setdefault(name, same[0])
                if first is not same[0]:
                    for one in same:
                        found.setdefault(one.path, first)

    # children come after their parent in the list, so from the end everything below a parameter is known before it
    for parameter in reversed(parameters):
        own = {parameter.id: parameter} if parameter.id else {}
        for group in parameter.together():
            compare(group, dict(own))
        below: dict[str, list[Parameter]] = {name: [one] for name, one in own.items()}
        for child in parameter.children:
            for name, same in under.pop(child.path).items():
                below.setdefault(name, []).extend(same)
        under[parameter.path] = below
    compare((parameter for parameter in parameters if parameter.parent is None), {})
    return found
