"""The search space of a StudySpec: parameters, their scales, which are active, and the order of a grid.

Source of the rules: StudySpec in google-cloud-aiplatform 2.7.0 (`types/study.py`), read 2026-11-20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vertexrig.errors import ConfigError

Kind = Literal["DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"]
Value = float | int | str
Parameter = dict[str, Any]

EPSILON = 1e-10  # DiscreteValueCondition: "The Epsilon of the value matching is 1e-10"
LOG, REVERSE_LOG = "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"
_SPECS: dict[str, Kind] = {
    "doubleValueSpec": "DOUBLE",
    "integerValueSpec": "INTEGER",
    "categoricalValueSpec": "CATEGORICAL",
    "discreteValueSpec": "DISCRETE",
}
_CONDITIONS: dict[str, Kind] = {
    "parentIntValues": "INTEGER",
    "parentCategoricalValues": "CATEGORICAL",
    "parentDiscreteValues": "DISCRETE",
}


@dataclass(frozen=True)
class Dimension:
    """One parameter at one place of the space.

    Args:
        key: Its place, unique in the space: `optimizer[0].momentum` is the first conditional child of `optimizer`.
        id: The parameterId; the same id may stand at several places under conditions that exclude each other.
        kind: Its type.
        scale: The scaleType, "" if none.
        low: Least value of a DOUBLE or INTEGER.
        high: Greatest value of a DOUBLE or INTEGER.
        values: The values of a CATEGORICAL or DISCRETE, without repeats.
        children: Conditional parameters, each with the values of this one that make it active.
    """

    key: str
    id: str
    kind: Kind
    scale: str = ""
    low: float = 0.0
    high: float = 0.0
    values: tuple[Value, ...] = ()
    children: tuple[tuple[tuple[Value, ...], Dimension], ...] = ()

    @property
    def count(self) -> int | None:
        """How many values it has; None for a DOUBLE with room between its bounds."""
        if self.kind == "INTEGER":
            return int(self.high) - int(self.low) + 1
        if self.kind == "DOUBLE":
            return 1 if self.low == self.high else None
        return len(self.values)

    def value(self, position: int) -> Value:
        """The value at a position counted from 0, in the order of the grid."""
        if self.kind == "INTEGER":
            return int(self.low) + position
        return self.low if self.kind == "DOUBLE" else self.values[position]

    def position(self, value: Value) -> int | None:
        """The position of `value`, None if it is not one of its values (a DOUBLE has no positions)."""
        if self.kind == "INTEGER":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return int(value) - int(self.low) if whole and self.low <= float(value) <= self.high else None
        return next((i for i, own in enumerate(self.values) if _same(own, value)), None)

    def holds(self, value: Any) -> bool:
        """Whether `value` lies in the parameter's space."""
        if self.kind == "CATEGORICAL":
            return value in self.values
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return self.low <= value <= self.high if self.kind == "DOUBLE" else self.position(value) is not None

    def active(self, value: Value) -> Iterator[Dimension]:
        """The conditional parameters that `value` makes active."""
        return (child for when, child in self.children if any(_same(value, own) for own in when))

    def typed(self, value: Any) -> Value:
        """`value` in the parameter's own Python type: float, int or str."""
        return {"INTEGER": int, "CATEGORICAL": str}.get(self.kind, float)(value)  # type: ignore[no-any-return]

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


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return abs(one - other) <= EPSILON


class Space:
    """All parameters of a StudySpec.

    Args:
        parameters: `studySpec.parameters` in canonical camelCase.

    Raises:
        ConfigError: A parameter cannot be searched; the message names its path and the rule.
    """

    def __init__(self, parameters: Sequence[Mapping[str, Any]]) -> None:
        if not parameters:
            raise ConfigError("studySpec.parameters is empty; a study needs at least one parameter")
        self.dimensions = tuple(_dimension(spec, f"studySpec.parameters[{i}]", "") for i, spec in enumerate(parameters))
        _refuse_repeats(self.dimensions)

    def everywhere(self) -> Iterator[Dimension]:
        """Every parameter at every place, parents before children."""
        stack = list(reversed(self.dimensions))
        while stack:
            dimension = stack.pop()
            yield dimension
            stack.extend(child for _, child in reversed(dimension.children))

    def walk(self, choose: Callable[[Dimension], Value]) -> list[Parameter]:
        """Parameters in the form Vertex lists them: those active under the choices made, in the order of the spec.

        Args:
            choose: Gives the value of each parameter that is active.
        """
        return [{"parameterId": dimension.id, "value": value} for dimension, value in self._active(choose)]

    def read(self, parameters: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Dimension, Value]] | None:
        """The place and value of each listed parameter by its key; None if the list does not fit this space."""
        given = {str(row["parameterId"]): row.get("value") for row in parameters}

        def choose(dimension: Dimension) -> Value:
            value = given.pop(dimension.id)
            if not dimension.holds(value):
                raise KeyError(dimension.id)
            return dimension.typed(value)

        try:
            found = {dimension.key: (dimension, value) for dimension, value in self._active(choose)}
        except KeyError:
            return None
        return None if given else found

    def _active(self, choose: Callable[[Dimension], Value]) -> Iterator[tuple[Dimension, Value]]:
        stack = list(reversed(self.dimensions))
        while stack:
            dimension = stack.pop()
            value = choose(dimension)
            yield dimension, value
            stack.extend(reversed(list(dimension.active(value))))

    @property
    def size(self) -> int | None:
        """How many combinations there are; None if a DOUBLE makes them uncountable."""
        return _product(self.dimensions)

    def combination(self, index: int) -> list[Parameter]:
        """The combination at `index` of the grid, counted from 0.

        The order: parameters as the spec lists them, the last one changing fastest, as in an odometer; values of an
        INTEGER from low to high, of the others as listed; conditional children come right after their parent and
        only for the values that make them active. (Vertex documents no order; this one is ours.)
        """
        chosen: dict[str, Value] = {}
        _decode(self.dimensions, index, chosen)
        return self.walk(lambda dimension: chosen[dimension.key])

    def command_line(self, parameters: Iterable[Mapping[str, Any]], *, strict: bool = True) -> list[str]:
        """The arguments a trial's trainer gets, after its own: `--learning_rate=0.01`, in the order listed.

        The spelling `--name=value` and DISCRETE values as "128.0" are what users of the service report
        (kuds/mesozoic-labs pulls 127, 180, 197); Google's page shows `--learning_rate VALUE` and one of its samples
        parses a discrete value with `type=int`, so a trainer should read both.

        Args:
            parameters: A trial's parameters, as Vertex lists them.
            strict: Send DISCRETE values as floats ("128.0"); otherwise whole ones as "128".
        """
        placed = self.read(parameters)
        if placed is None:
            raise ConfigError(f"the parameters {list(parameters)!r} are not in this study's space")
        return [f"--{dimension.id}={_text(dimension, value, strict)}" for dimension, value in placed.values()]


def _text(dimension: Dimension, value: Value, strict: bool) -> str:
    if dimension.kind == "DISCRETE" and not strict and float(value).is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (str, int)) else repr(value)


def _dimension(spec: Mapping[str, Any], path: str, parent: str) -> Dimension:
    name = str(spec.get("parameterId", ""))
    if not name:
        raise ConfigError(f"{path}.parameterId is missing; it becomes the flag the trainer gets")
    kinds = [key for key in _SPECS if key in spec]
    if len(kinds) != 1:
        raise ConfigError(f"{path} ({name}): exactly one of {', '.join(_SPECS)} is needed, {len(kinds)} are there")
    kind, body = _SPECS[kinds[0]], spec[kinds[0]]
    scale = str(spec.get("scaleType", ""))
    low = high = 0.0
    values: tuple[Value, ...] = ()
    if kind in ("DOUBLE", "INTEGER"):
        low, high = _bounds(body, f"{path}.{kinds[0]}", kind)
        if scale in (LOG, REVERSE_LOG) and low <= 0:
            raise ConfigError(f"{path}.scaleType {scale} needs a range above 0, and minValue is {low:g}")
    else:
        convert: Callable[[Any], Value] = str if kind == "CATEGORICAL" else float
        values = tuple(dict.fromkeys(convert(value) for value in body.get("values", ())))
        if not values:
            raise ConfigError(f"{path}.{kinds[0]}.values is empty; it lists the values of {name}")
    key = f"{parent}.{name}" if parent else name
    children = tuple(
        _child(entry, f"{path}.conditionalParameterSpecs[{i}]", kind, f"{key}[{i}]")
        for i, entry in enumerate(spec.get("conditionalParameterSpecs", ()))
    )
    return Dimension(key, name, kind, scale, low, high, values, children)


def _bounds(body: Mapping[str, Any], path: str, kind: Kind) -> tuple[float, float]:
    if "minValue" not in body and "maxValue" not in body:
        raise ConfigError(f"{path} needs minValue and maxValue")
    # the service's JSON leaves out a bound that is 0
    low, high = ((int if kind == "INTEGER" else float)(body.get(key, 0)) for key in ("minValue", "maxValue"))
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ConfigError(f"{path}: minValue {low:g} is above maxValue {high:g}; swap them")
    return low, high


def _child(entry: Mapping[str, Any], path: str, parent: Kind, key: str) -> tuple[tuple[Value, ...], Dimension]:
    conditions = [name for name in _CONDITIONS if name in entry]
    if len(conditions) != 1 or _CONDITIONS[conditions[0]] != parent:
        wanted = next((name for name, kind in _CONDITIONS.items() if kind == parent), None)
        rule = f"{wanted} belongs here" if wanted else "a DOUBLE parameter has no conditional parameters"
        raise ConfigError(f"{path}: the parent is {parent}: {rule}")
    values = entry[conditions[0]].get("values", ())
    convert: Callable[[Any], Value] = {"INTEGER": int, "CATEGORICAL": str}.get(parent, float)
    child = _dimension(entry.get("parameterSpec", {}), f"{path}.parameterSpec", key)
    return tuple(convert(value) for value in values), child


def _refuse_repeats(dimensions: Sequence[Dimension]) -> None:
    """Two parameters of one id must never be active together."""

    def ids(dimension: Dimension) -> set[str]:
        found = {dimension.id}
        for _, child in dimension.children:
            found |= ids(child)
        return found

    def check(siblings: Sequence[tuple[tuple[Value, ...] | None, Dimension]], above: frozenset[str]) -> None:
        for i, (when, dimension) in enumerate(siblings):
            apart = [other for then, other in siblings[:i] if when is None or then is None or _meet(when, then)]
            twice = (above & {dimension.id}) | (ids(dimension) & set().union(*map(ids, apart)))
            if twice:
                raise ConfigError(
                    f"studySpec.parameters: {min(twice)!r} can be active twice at once; "
                    "a parameterId stands once, or under conditions that exclude each other"
                )
            check(dimension.children, above | {dimension.id})

    check([(None, dimension) for dimension in dimensions], frozenset())


def _meet(when: tuple[Value, ...], then: tuple[Value, ...]) -> bool:
    return any(_same(one, other) for one in when for other in then)


def _product(dimensions: Iterable[Dimension]) -> int | None:
    total = 1
    for dimension in dimensions:
        size = _size(dimension)
        if size is None:
            return None
        total *= size
    return total


def _runs(dimension: Dimension) -> Iterator[tuple[int, int, tuple[Dimension, ...]]]:
    """Stretches of positions with the same active children: (first position, how many, children).

    An INTEGER may have billions of values, but only those that a condition names can differ from the rest.
    """
    count = dimension.count or 0
    named = {dimension.position(value) for when, _ in dimension.children for value in when}
    at = 0
    for position in sorted(position for position in named if position is not None):
        if position > at:
            yield at, position - at, ()
        yield position, 1, tuple(dimension.active(dimension.value(position)))
        at = position + 1
    if count > at:
        yield at, count - at, ()


def _size(dimension: Dimension) -> int | None:
    if dimension.count is None:
        return None
    total = 0
    for _, many, children in _runs(dimension):
        below = _product(children)
        if below is None:
            return None
        total += many * below
    return total


def _decode(dimensions: Sequence[Dimension], index: int, chosen: dict[str, Value]) -> None:
    for dimension in reversed(dimensions):
        size = _size(dimension)
        if size is None:
            raise ConfigError(f"{dimension.id} is or contains a DOUBLE, which has no grid; use DISCRETE or INTEGER")
        index, rest = divmod(index, size)
        for first, many, children in _runs(dimension):
            below = _product(children) or 1
            if rest < many * below:
                step, inner = divmod(rest, below)
                chosen[dimension.key] = dimension.value(first + step)
                _decode(children, inner, chosen)
                break
            rest -= many * below
