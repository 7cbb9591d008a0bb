"""The search space of a StudySpec, as the engine searches it: which parameters are active, and the order of a grid.

It is made of the parameters as written (`vertexrig.spec.parameters`), and refuses what cannot be searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vertexrig.errors import ConfigError
from vertexrig.spec import parameters as written
from vertexrig.spec.parameters import CONDITION_OF, LOG, REVERSE_LOG, VALUE_SPECS, Domain, Value, typed

ParameterValue = dict[str, Any]
"""`{"parameterId": …, "value": …}`, as Vertex lists a trial's parameters."""


@dataclass(frozen=True)
class Dimension(Domain):
    """One parameter of the space, conditional ones once per condition.

    Args:
        key: Its path, unique in the space: `optimizer[0].momentum` is the first conditional child of `optimizer`.
        id: The parameterId; parameters under conditions that exclude each other may share one.
        children: Conditional parameters, each with the positions of the values of this one that make it active.
        start: Its `defaultValue`, None if it has none.
    """

    key: str = ""
    id: str = ""
    children: tuple[tuple[frozenset[int], Dimension], ...] = ()
    start: Value | None = None

    @property
    def first(self) -> Value:
        """Its value in the first trial of a study that names no algorithm."""
        return self.middle if self.start is None else self.start

    def active(self, value: Value) -> Iterator[Dimension]:
        """Return the conditional parameters that `value` makes active."""
        at = self.position(value) if self.children else None
        return (child for positions, child in self.children if at in positions)

    @cached_property
    def size(self) -> int | None:
        """How many combinations it makes with its conditional parameters; None if a DOUBLE makes them uncountable."""
        if self.count is None:
            return None
        total = 0
        for _, many, children in self.runs():
            below = _product(children)
            if below is None:
                return None
            total += many * below
        return total

    def runs(self) -> Iterator[tuple[int, int, tuple[Dimension, ...]]]:
        """Yield stretches of positions with the same active children: (first position, how many, children).

        An INTEGER may have billions of values, but only those that a condition names can differ from the rest.
        """
        count, at = self.count or 0, 0
        for position in sorted({position for positions, _ in self.children for position in positions}):
            if position > at:
                yield at, position - at, ()
            yield position, 1, tuple(child for positions, child in self.children if position in positions)
            at = position + 1
        if count > at:
            yield at, count - at, ()


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
        top = written.top(parameters)
        self.dimensions = tuple(_dimension(parameter, "") for parameter in top)
        found = written.clashes(tuple(written.everywhere(top)))
        if found:
            raise ConfigError(
                f"studySpec.parameters: {min(one.id for one in found.values())!r} can be active twice at once; "
                "a parameterId is used once, or under conditions that exclude each other"
            )

    def everywhere(self) -> Iterator[Dimension]:
        """Yield every parameter of the space, parents before children."""
        stack = list(reversed(self.dimensions))
        while stack:
            dimension = stack.pop()
            yield dimension
            stack.extend(child for _, child in reversed(dimension.children))

    def assign(self, choose: Callable[[Dimension], Value]) -> list[ParameterValue]:
        """Return the parameters that are active under the values chosen, as Vertex lists them, in the order of the spec."""
        return [{"parameterId": dimension.id, "value": value} for dimension, value in self._active(choose)]

    def read(self, parameters: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Dimension, Value]] | None:
        """Return each listed parameter and its value by its key; None if the list does not fit this space."""
        # each is taken out when it is found: what remains at the end does not belong to the space
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

    def listed(
        self, parameters: Iterable[Mapping[str, Any]], fixed: Iterable[Mapping[str, Any]] = ()
    ) -> list[ParameterValue]:
        """Return the values of a trial in the order of the alphabet, each conditional parameter after its parent.

        Args:
            parameters: Values that `assign` or `combination` returned.
            fixed: Values that replace them. A conditional parameter that becomes active has its first value.

        Raises:
            ConfigError: A fixed value is not in the space.
        """
        given = {str(row["parameterId"]): row["value"] for row in parameters}
        replaced = {str(row.get("parameterId", "")): row.get("value") for row in fixed}
        held = {one.id for one in self.everywhere() if one.id in replaced and one.holds(replaced[one.id])}
        for name in replaced.keys() - held:
            raise ConfigError(f"the value {replaced[name]!r} of {name!r} is not in this study's space")
        values = given | replaced

        def choose(dimension: Dimension) -> Value:
            value = values.get(dimension.id)
            return dimension.typed(value) if dimension.holds(value) else dimension.first

        return [{"parameterId": one.id, "value": value} for one, value in self._active(choose, by_name=True)]

    def _active(
        self, choose: Callable[[Dimension], Value], *, by_name: bool = False
    ) -> Iterator[tuple[Dimension, Value]]:
        def backwards(dimensions: Iterable[Dimension]) -> list[Dimension]:
            return (sorted(dimensions, key=lambda one: one.id) if by_name else list(dimensions))[::-1]

        stack = backwards(self.dimensions)
        while stack:
            dimension = stack.pop()
            value = choose(dimension)
            yield dimension, value
            stack.extend(backwards(dimension.active(value)))

    @cached_property
    def size(self) -> int | None:
        """How many combinations there are; None if a DOUBLE makes them uncountable."""
        return _product(self.dimensions)

    def combination(self, index: int) -> list[ParameterValue]:
        """Return the combination at `index` of the grid, counted from 0.

        The order: parameters as the spec lists them, the last one changing fastest, as in an odometer; values of an
        INTEGER from low to high, of the others as listed; conditional children come right after their parent and
        only for the values that make them active. (Vertex documents no order; this one is ours.)
        """
        chosen: dict[str, Value] = {}
        _decode(self.dimensions, index, chosen)
        return self.assign(lambda dimension: chosen[dimension.key])

    def command_line(self, parameters: Iterable[Mapping[str, Any]], *, whole: bool = False) -> list[str]:
        """Return the arguments a trial's trainer gets, after its own: `--learning_rate=0.01`, in the order listed.

        The spelling `--name=value` and DISCRETE values as "128.0" are what users of the service report
        (kuds/mesozoic-labs pulls 127, 180, 197); Google's page shows `--learning_rate VALUE` and one of its samples
        parses a discrete value with `type=int`, so a trainer should read both.

        Args:
            parameters: A trial's parameters, as Vertex lists them.
            whole: Write DISCRETE values that are whole numbers as "128".
        """
        given = self.read(parameters)
        if given is None:
            raise ConfigError(f"the parameters {list(parameters)!r} are not in this study's space")
        found = []
        for dimension, value in given.values():
            if whole and dimension.kind == "DISCRETE" and float(value).is_integer():
                value = int(value)
            found.append(f"--{dimension.id}={value}")
        return found


def _dimension(parameter: written.Parameter, parent: str) -> Dimension:
    path, name = parameter.path, parameter.id
    if not name:
        raise ConfigError(f"{path}.parameterId is missing; it becomes the flag the trainer gets")
    fields = parameter.spec_fields
    if len(fields) != 1:
        raise ConfigError(
            f"{path} ({name}): exactly one of {', '.join(VALUE_SPECS)} is needed, {len(fields)} are there"
        )
    domain = parameter.domain
    if domain is None:
        raise ConfigError(_no_values(parameter))
    if domain.kind in ("DOUBLE", "INTEGER") and domain.scale in (LOG, REVERSE_LOG) and domain.low <= 0:
        raise ConfigError(f"{path}.scaleType {domain.scale} needs a range above 0, and minValue is {domain.low:g}")
    key = f"{parent}.{name}" if parent else name
    children = tuple(_child(child, domain, f"{key}[{i}]") for i, child in enumerate(parameter.children))
    start = parameter.spec.get("defaultValue")
    start = domain.typed(start) if domain.holds(start) else None
    return Dimension(domain.kind, domain.scale, domain.low, domain.high, domain.values, key, name, children, start)


def _no_values(parameter: written.Parameter) -> str:
    if parameter.kind in ("CATEGORICAL", "DISCRETE"):
        return f"{parameter.spec_path}.values is empty; it lists the values of {parameter.id}"
    low, high = parameter.bounds
    if low is None and high is None:
        return f"{parameter.spec_path} needs minValue and maxValue"
    return f"{parameter.spec_path}: minValue {low or 0} is above maxValue {high or 0}; swap them"


def _child(child: written.Parameter, parent: Domain, key: str) -> tuple[frozenset[int], Dimension]:
    condition = child.condition
    if condition is None or condition.kind != parent.kind:
        wanted = CONDITION_OF.get(parent.kind)
        rule = f"{wanted} belongs here" if wanted else "a DOUBLE parameter has no conditional parameters"
        where = condition.path if condition else child.path
        raise ConfigError(f"{where}: the parent is {parent.kind}: {rule}")
    positions = (parent.position(typed(parent.kind, value)) for value in condition.values)
    return frozenset(one for one in positions if one is not None), _dimension(child, key)


def _product(dimensions: Iterable[Dimension]) -> int | None:
    total = 1
    for dimension in dimensions:
        if dimension.size is None:
            return None
        total *= dimension.size
    return total


def _decode(dimensions: Sequence[Dimension], index: int, chosen: dict[str, Value]) -> None:
    # the last one changes fastest, so it is what the lowest part of the index says
    for dimension in reversed(dimensions):
        if dimension.size is None:
            raise ConfigError(f"{dimension.id} is or contains a DOUBLE, which has no grid; use DISCRETE or INTEGER")
        index, rest = divmod(index, dimension.size)
        for first, many, children in dimension.runs():
            below = _product(children) or 1
            if rest < many * below:
                step, inner = divmod(rest, below)
                chosen[dimension.key] = dimension.value(first + step)
                _decode(children, inner, chosen)
                break
            rest -= many * below
