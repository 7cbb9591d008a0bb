"""The decision on each parameter of a finished study: fix it, narrow it, widen it, or keep it, with the reason.

The best fifth of the trials (at least three) is compared with the rest. Nothing is fitted: a reason names values of trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Literal

from vertexrig.spec.parameters import LOG, Value
from vertexrig.spec.space import Dimension

Action = Literal["fix", "narrow", "widen", "keep"]

EDGE = 0.05
"""Part of a range next to a bound that counts as being on the bound."""
NEAR = 0.8
"""From here on the best value is near its upper bound, if others of the best trials are on it."""
MARGIN = 0.25
"""Room left on each side of the values of the best trials, as a part of their spread."""
WHOLE = 0.8
"""Best trials spread over at least this part of a range give no reason to narrow it."""
REACH = 0.5
"""How far a range is widened beyond a bound, as a part of it on its scale."""
LEAST = 3
"""Values that a grid tries of a continuous parameter, at least."""
_NICE = (1.0, 2.0, 2.5, 5.0)


@dataclass(frozen=True)
class Decision:
    """What the next sweep does with a parameter.

    Args:
        dimension: The parameter as the study had it.
        value: What it is fixed at, or its value in the best trial.
        low: Least value from now on, of a DOUBLE or INTEGER.
        high: Greatest value from now on.
        values: The values from now on: of a parameter with listed values, or in a grid.
    """

    dimension: Dimension
    action: Action
    reason: str
    value: Value
    low: float = 0.0
    high: float = 0.0
    values: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return self.dimension.id

    @property
    def settings(self) -> dict[str, Any]:
        """The parameter as the project file writes it, in a study that is not a grid."""
        kind = self.dimension.kind
        # Vertex AI refuses a range of one value. A whole number is text, since a discrete one may reach the trainer as 64.0.
        if self.action == "fix" and kind == "INTEGER":
            return {"categorical_value_spec": {"values": [str(tidy(self.value))]}}
        if self.action == "fix" and kind == "DOUBLE":
            return {"discrete_value_spec": {"values": [tidy(self.value)]}}
        field = {"DOUBLE": "double_value_spec", "INTEGER": "integer_value_spec"}.get(kind)
        if field is None:
            name = "categorical_value_spec" if kind == "CATEGORICAL" else "discrete_value_spec"
            found: dict[str, Any] = {name: {"values": list(self.values)}}
        else:
            found = {field: {"min_value": tidy(self.low), "max_value": tidy(self.high)}}
        return {**found, "scale_type": self.dimension.scale} if self.dimension.scale else found

    def row(self) -> dict[str, Any]:
        """For a JSON document."""
        found: dict[str, Any] = {"parameter": self.name, "action": self.action, "reason": self.reason}
        if self.action == "fix":
            return {**found, "value": tidy(self.value)}
        if self.values:
            return {**found, "values": [tidy(value) for value in self.values]}
        return {**found, "min_value": tidy(self.low), "max_value": tidy(self.high)}


def tidy(value: Any) -> Any:
    """Return a number without a fraction of zero, everything else as it is: 64.0 as 64."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return int(value) if whole else value


def shown(value: Any) -> str:
    value = tidy(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def decision_on(dimension: Dimension, best: Value, top: Sequence[Value]) -> Decision:
    """Return the decision on one parameter.

    Args:
        best: Its value in the best trial.
        top: Its values in the best trials, that one's first.
    """
    best, top = dimension.typed(best), [dimension.typed(value) for value in top]
    if dimension.kind == "CATEGORICAL":
        return _categorical(dimension, best, top)
    if dimension.kind == "DISCRETE":
        return _discrete(dimension, best, top)
    if dimension.low == dimension.high:
        return Decision(dimension, "fix", "the study had one value only", best)
    return _range(dimension, float(best), [float(value) for value in top])


def fixed_at_best(decision: Decision, reason: str) -> Decision:
    """Return the same parameter, fixed at its value in the best trial."""
    return Decision(decision.dimension, "fix", reason, decision.value)


def gridded(decisions: Sequence[Decision], combinations: int, importance: dict[str, float]) -> list[Decision]:
    """Return the decisions for a grid of at most this many combinations.

    Listed values count as they are; the continuous parameters share the rest as evenly as they can. While even three values each
    are too many, the parameter that mattered least is fixed.

    Args:
        combinations: Of the grid, at most.
        importance: By parameter, from 0.
    """
    found = {one.name: _listed(one) for one in decisions}

    def least() -> int:
        return math.prod(len(one.values) or LEAST for one in found.values() if one.action != "fix")

    # even three values of each may be too many: then a parameter goes, and not the resolution of all
    while least() > combinations:
        open_ = [one for one in found.values() if one.action != "fix"]
        loser = min(open_, key=lambda one: (importance.get(one.name, 0.0), one.name))
        reason = f"it mattered least, and a grid of {combinations} combinations has no room for it"
        found[loser.name] = fixed_at_best(loser, reason)
    continuous = [one for one in found.values() if one.action != "fix" and not one.values]
    fixed = math.prod(len(one.values) for one in found.values() if one.values and one.action != "fix")
    for one, count in zip(continuous, _counts(len(continuous), combinations // fixed), strict=True):
        found[one.name] = replace(one, values=_spread(one, count))
    return list(found.values())


def _counts(parameters: int, room: int) -> tuple[int, ...]:
    """Return how many values each of the continuous parameters gets: the largest product that fits, as evenly as possible."""
    if not parameters:
        return ()
    # at most this many values each: the products of all counts are tried below
    most = max(LEAST, min(room // LEAST ** (parameters - 1), 25 if parameters < 3 else 9))
    fitting = (one for one in product(range(LEAST, most + 1), repeat=parameters) if math.prod(one) <= room)
    return max(fitting, key=lambda one: (math.prod(one), min(one) - max(one), one), default=(LEAST,) * parameters)


def _listed(decision: Decision) -> Decision:
    """Return a listed number as a grid tries it: the best with one value on each side, not much further away than half of it."""
    dimension = decision.dimension
    if decision.action == "fix" or dimension.kind != "DISCRETE":
        return decision
    best = float(decision.value)
    before, after = _neighbour(dimension, best, -1), _neighbour(dimension, best, +1)
    values = tuple(_between(best, other) for other in (before, after) if other is not None)
    tried = tuple(sorted({best, *values}))
    if set(tried) <= set(dimension.values):
        return replace(decision, values=tried)
    others = [shown(value) for value in tried if value != best]
    return replace(
        decision,
        values=tried,
        reason=f"{decision.reason}; the grid also has {' and '.join(others)} next to {shown(best)}",
    )


def _between(best: float, other: float) -> float:
    """Return a neighbour, or the middle on the way to it if it is half of the best value or more away."""
    if abs(other - best) < abs(best) / 2:
        return other
    middle = (best + other) / 2
    return float(round(middle)) if best.is_integer() and other.is_integer() else _digits(middle)


def _categorical(dimension: Dimension, best: Value, top: Sequence[Value]) -> Decision:
    kept = tuple(value for value in dimension.values if value in top)
    others = [str(value) for value in dimension.values if value not in top]
    if len(kept) == 1:
        reason = f"all of the {len(top)} best trials have it" + (f", none has {_either(others)}" if others else "")
        return Decision(dimension, "fix", reason, best)
    if others:
        reason = f"none of the {len(top)} best trials has {_either(others)}"
        return Decision(dimension, "narrow", reason, best, values=kept)
    return Decision(
        dimension, "keep", f"each value is in one of the {len(top)} best trials", best, values=dimension.values
    )


def _discrete(dimension: Dimension, best: Value, top: Sequence[Value]) -> Decision:
    numbers = sorted(float(value) for value in dimension.values)
    number, chosen = float(best), sorted({float(value) for value in top})
    last = numbers.index(number) if number in numbers else -1
    if len(numbers) > 1 and last in (0, len(numbers) - 1):
        beyond = _neighbour(dimension, number, +1 if last else -1)
        side = "largest" if last else "smallest"
        if beyond is not None:
            inner = numbers[last - 1] if last else numbers[1]
            values = tuple(sorted({*chosen, inner, number, beyond}))
            reason = f"the best trial has the {side} value, {shown(number)}"
            return Decision(dimension, "widen", reason, number, values=values)
    if len(chosen) == 1:
        reason = f"all of the {len(top)} best trials have it, and other trials have smaller and larger values"
        if len(numbers) == 1 or last in (0, len(numbers) - 1):
            reason = f"all of the {len(top)} best trials have it"
        return Decision(dimension, "fix", reason, number)
    left_out = [shown(value) for value in numbers if value not in chosen]
    if left_out:
        reason = f"none of the {len(top)} best trials has {_either(left_out)}"
        return Decision(dimension, "narrow", reason, number, values=tuple(chosen))
    return Decision(
        dimension, "keep", f"each value is in one of the {len(top)} best trials", number, values=tuple(numbers)
    )


def _neighbour(dimension: Dimension, value: float, side: int) -> float | None:
    """Return the listed value next to one, or the next of an even series beyond its end; None if there is no such number."""
    numbers = sorted(float(one) for one in dimension.values)
    at = numbers.index(value) + side
    if 0 <= at < len(numbers):
        return numbers[at]
    if len(numbers) < 2:
        return None
    inner = numbers[1] if side < 0 else numbers[-2]
    steps = [after - before for before, after in pairwise(numbers)]
    even = all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps)
    if (len(numbers) > 2 and even) or value <= 0 or inner <= 0:
        found = value + (value - inner)  # after 10, 20, 30 comes 40
    else:
        found = value * value / inner  # after 32, 64, 128 comes 256
    if numbers[0] >= 0 and (found < 0 or (found == 0 and numbers[0] > 0)):
        return None
    found = round(found) if all(one.is_integer() for one in numbers) else _digits(found)
    return float(found) if found != value else None


def _range(dimension: Dimension, best: float, top: Sequence[float]) -> Decision:
    """Return the decision on a DOUBLE or INTEGER."""
    units = [dimension.to_unit(value) for value in top]
    at, low, high = dimension.to_unit(best), min(units), max(units)
    first, last = _natural(dimension)
    if (first and high <= 2 * EDGE) or (last and low >= 1 - 2 * EDGE):
        bound, word, other = (
            (dimension.low, "at most", max(top))
            if first and high <= 2 * EDGE
            else (dimension.high, "at least", min(top))
        )
        reason = f"the {len(top)} best trials have {word} {shown(other)}, next to the bound, and nothing lies beyond it"
        return Decision(dimension, "fix", reason, tidy(bound))
    up = not last and (at >= 1 - EDGE or (at >= NEAR and high >= 1 - EDGE))
    down = not first and (at <= EDGE or (at <= 1 - NEAR and low <= EDGE))
    room = max(EDGE, MARGIN * (high - low))
    ends = (-REACH if down else max(0.0, low - room), 1 + REACH if up else min(1.0, high + room))
    span = f"{shown(min(top))} to {shown(max(top))}"
    if up or down:
        side = "upper" if up else "lower"
        reason = (
            f"the best trial has {shown(best)}, at the {side} bound {shown(dimension.high if up else dimension.low)}"
        )
        if dimension.low < best < dimension.high and not (at >= 1 - EDGE or at <= EDGE):
            reason = f"the {len(top)} best trials have {span} and reach the {side} bound"
        return _bounded(dimension, "widen", reason, best, ends)
    if ends[1] - ends[0] >= WHOLE:
        reason = f"the {len(top)} best trials have {span}, most of the range"
        return Decision(dimension, "keep", reason, _typed(dimension, best), low=dimension.low, high=dimension.high)
    return _bounded(dimension, "narrow", f"the {len(top)} best trials have {span}", best, ends)


def _natural(dimension: Dimension) -> tuple[bool, bool]:
    """Whether nothing lies beyond the lower and the upper bound: 0 of what is not negative, 1 of a fraction."""
    least = (0, 1) if dimension.kind == "INTEGER" else (0,)
    return dimension.low in least, dimension.kind == "DOUBLE" and dimension.low >= 0 and dimension.high == 1


def _bounded(dimension: Dimension, action: Action, reason: str, best: float, ends: tuple[float, float]) -> Decision:
    """Return a range between two positions on the parameter's scale; positions beyond 0 and 1 are outside the old range."""
    low, high = (_at(dimension, end) for end in ends)
    if dimension.low >= 0 and dimension.high <= 1 and dimension.kind == "DOUBLE":
        high = min(high, 1.0)
    # widening a range of positive values must not reach 0, which a rate or a size cannot be
    if low <= 0 < dimension.low:
        low = dimension.low / 2
    if dimension.kind == "INTEGER":
        low, high = math.floor(low), math.ceil(high)
        low = max(low, 1) if dimension.low >= 1 else max(low, 0) if dimension.low >= 0 else low
    else:
        low, high = _digits(low, math.floor), _digits(high, math.ceil)
    if ends[0] >= 0:
        low = max(low, dimension.low)
    if ends[1] <= 1:
        high = min(high, dimension.high)
    return Decision(dimension, action, reason, _typed(dimension, best), low=min(low, best), high=max(high, best))


def _at(dimension: Dimension, unit: float) -> float:
    """Return the value at a position on the scale, also outside the old range."""
    if 0 <= unit <= 1:
        return float(dimension.from_unit(unit))
    if dimension.scale == LOG:
        return math.exp(math.log(dimension.low) + unit * (math.log(dimension.high) - math.log(dimension.low)))
    return dimension.low + unit * (dimension.high - dimension.low)


def _spread(decision: Decision, count: int) -> tuple[Value, ...]:
    """Return `count` values of a range around the best one: even steps of a round number, or even factors on a log scale."""
    dimension, best = decision.dimension, float(decision.value)
    low, high = decision.low, decision.high
    if high <= low:
        return (_typed(dimension, best),)
    if dimension.scale == LOG:
        factor, (floor, ceiling) = (high / low) ** (1 / (count - 1)), _limits(decision)
        lowest, highest = max(floor, low / factor), min(ceiling, high * factor)
        first = math.ceil(math.log(lowest / best) / math.log(factor) - 1e-9)
        last = math.floor(math.log(highest / best) / math.log(factor) + 1e-9)
        # the best value is one of them (n = 0), as near to the middle as the limits allow
        start = max(first, min(-(count // 2), last - count + 1))
        values = {_digits(best * factor**n) for n in range(start, min(start + count - 1, last) + 1)}
    else:
        step, first, last = _step(decision, count)
        start = max(first, min(round(best / step) - count // 2, last - count + 1))
        values = {_digits(n * step, digits=6) for n in range(start, min(start + count - 1, last) + 1)}
    # on a log scale neighbours may be one whole number
    return tuple(sorted({_typed(dimension, value) for value in values}))


def _limits(decision: Decision) -> tuple[float, float]:
    """Return the values between which a grid must stay: the old range, unless it is widened on that side."""
    dimension = decision.dimension
    return min(decision.low, dimension.low), max(decision.high, dimension.high)


def _typed(dimension: Dimension, value: float) -> Value:
    return round(value) if dimension.kind == "INTEGER" else value


def _step(decision: Decision, count: int) -> tuple[float, int, int]:
    """Return the step of a grid, and the first and last multiple of it that the grid may have.

    It is the round number nearest to an even step over the range, or the next smaller one of which `count` values fit. A grid stays in the
    range but for one step, and in the old range unless that is widened.
    """
    low, high, (floor, ceiling) = decision.low, decision.high, _limits(decision)
    even, whole = (high - low) / (count - 1), decision.dimension.kind == "INTEGER"
    power = math.floor(math.log10(even))
    rounds = sorted({one * 10.0**exponent for exponent in range(power - 3, power + 2) for one in _NICE}, reverse=True)
    nearest = min(rounds, key=lambda one: abs(math.log(one / even)))
    found = (nearest, 0, 0)
    for one in (max(1.0, round(one)) if whole else one for one in rounds if one <= nearest):
        # a bound that is a multiple itself counts in spite of rounding
        first = math.ceil(max(floor, low - one) / one - 1e-9)
        last = math.floor(min(ceiling, high + one) / one + 1e-9)
        found = (one, first, last)
        if last - first + 1 >= count:
            break
    return found


def _digits(value: float, rounded: Any = round, digits: int = 2) -> float:
    """Return a number with this many significant digits."""
    if abs(value) < 1e-300:  # the power of ten would overflow
        return value
    power = digits - 1 - math.floor(math.log10(abs(value)))
    scaled = value * 10.0**power
    # 0.29 * 100 is 28.999999999999996, of which floor() must not make 28
    if abs(scaled - round(scaled)) < 1e-6:
        scaled = round(scaled)
    return float(f"{rounded(scaled) * 10.0**-power:.12g}")


def _either(names: Sequence[str]) -> str:
    few = [*names[:5], *(["…"] if len(names) > 5 else [])]
    return " or ".join([", ".join(few[:-1]), few[-1]] if len(few) > 1 else few)
