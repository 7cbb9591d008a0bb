"""List filters: `state="JOB_STATE_FAILED" AND (labels.team=vision OR NOT display_name:"old-*")`.

The fields and operators are those the list methods of jobs document (display_name: = != :, state: = !=, create_time:
all comparisons, labels: `labels.key=value`, `labels.key:value`, `labels.key:*`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from vertexrig import times
from vertexrig.errors import did_you_mean
from vertexrig.local import filters
from vertexrig.local.filters import All, Any_, Not
from vertexrig.local.http import invalid

Predicate = Callable[[Mapping[str, Any]], bool]

LANGUAGE = filters.Dialect(
    "Invalid filter",
    length=10_000,
    depth=40,
    text=False,
    space=re.compile(r"\s*"),
    quoted=re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""),
    bare=re.compile(r"[^\s()<>=!\"']+"),
)
"""How Vertex AI writes filters of its list methods."""
_FIELDS = {
    "display_name": "displayName", "displayName": "displayName", "state": "state", "create_time": "createTime",
    "createTime": "createTime", "update_time": "updateTime", "start_time": "startTime", "end_time": "endTime",
    "name": "name",
}  # fmt: skip
_TIMES = {"createTime", "updateTime", "startTime", "endTime"}


def parse(text: str) -> Predicate:
    """A filter as a predicate on resource bodies; an empty one is true of all.

    Raises:
        ApiError: 400, for anything that is not a filter.
    """
    return _predicate(filters.parse(text, LANGUAGE))


def _predicate(node: filters.Node) -> Predicate:
    if isinstance(node, Not):
        inner = _predicate(node.part)
        return lambda body: not inner(body)
    if isinstance(node, (All, Any_)):
        parts, join = [_predicate(part) for part in node.parts], all if isinstance(node, All) else any
        return lambda body: join(part(body) for part in parts)
    return _restriction(".".join(node.path), node.operator, node.value)


def _restriction(field: str, operator: str, value: str) -> Predicate:
    if field.startswith("labels."):
        return _label(field[len("labels.") :], operator, value)
    key = _FIELDS.get(field)
    if key is None:
        choices = did_you_mean(field, ["display_name", "state", "create_time", "labels.KEY"])
        raise invalid(f"Invalid filter: there is no field {field[:80]!r} to filter by. {choices}")
    if key in _TIMES:
        return _time(key, operator, value)
    if operator == "=":
        return lambda body: _fits(body.get(key, ""), value) if "*" in value else body.get(key, "") == value
    if operator == "!=":
        return lambda body: body.get(key, "") != value
    # The list methods document `=` and `!=` for a state.
    if operator == ":" and key != "state":
        pattern = value if "*" in value else f"*{value}*"
        return lambda body: _fits(body.get(key, ""), pattern)
    raise invalid(f"Invalid filter: {field} does not support {operator}.")


def _fits(value: object, pattern: str) -> bool:
    """Whether a value has the form of a pattern, in which `*` means any text and every other character itself."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), str(value), re.DOTALL) is not None


def _label(name: str, operator: str, value: str) -> Predicate:
    def labels(body: Mapping[str, Any]) -> Mapping[str, str]:
        return body.get("labels") or {}

    if operator in ("=", ":"):
        if operator == ":" and value == "*":
            return lambda body: name in labels(body)
        return lambda body: labels(body).get(name) == value
    if operator == "!=":
        return lambda body: labels(body).get(name) != value
    raise invalid(f"Invalid filter: labels.{name[:80]} does not support {operator}.")


def _time(key: str, operator: str, value: str) -> Predicate:
    wanted = _moment(value)
    compare: dict[str, Callable[[datetime], bool]] = {
        "=": lambda own: own == wanted, "!=": lambda own: own != wanted, "<": lambda own: own < wanted,
        "<=": lambda own: own <= wanted, ">": lambda own: own > wanted, ">=": lambda own: own >= wanted,
    }  # fmt: skip
    test = compare.get(operator)
    if test is None:
        raise invalid(f"Invalid filter: {key} does not support {operator}.")
    # A time that is not set yet fits no comparison.
    return lambda body: bool(body.get(key)) and test(_moment(str(body[key])))


def _moment(text: str) -> datetime:
    try:
        return times.parse(text)
    except ValueError as error:
        raise invalid(f"Invalid filter: {error}.") from None
