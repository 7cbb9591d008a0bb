"""The Logging query language, as far as clients of training jobs use it.

Source: https://cloud.google.com/logging/docs/view/logging-query-language: NOT binds tightest, then OR, then AND; terms
side by side are joined by AND; comparisons of text ignore case; a comparison with a missing field is false.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localvertex import filters
from localvertex.filters import All, Any_, Compare, Node, Predicate
from vertexrig.times import nanoseconds

SEVERITIES = {
    "DEFAULT": 0,
    "DEBUG": 100,
    "INFO": 200,
    "NOTICE": 300,
    "WARNING": 400,
    "ERROR": 500,
    "CRITICAL": 600,
    "ALERT": 700,
    "EMERGENCY": 800,
}
TIMES = ("timestamp", "receiveTimestamp")
_LANGUAGE = filters.Dialect(
    "Unparseable filter",
    length=20_000,  # as the service documents
    depth=50,
    text=True,
    # `--` begins a comment, to the end of its line.
    space=re.compile(r"(?:\s+|--[^\n]*)*"),
    quoted=re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
    bare=re.compile(r"[^\s()\"]+"),
)


@dataclass(frozen=True)
class Bounds:
    """What a filter requires of every entry, for an index: a job id, and the first and last time in ns, each if any."""

    job_id: str | None = None
    first: int | None = None
    last: int | None = None


def parse(text: str) -> Node:
    """Read a filter; the empty filter matches everything.

    Raises:
        ApiError: 400 INVALID_ARGUMENT with the position.
    """
    return filters.parse(text, _LANGUAGE)


def matching(node: Node) -> Predicate:
    """Return a filter as a predicate on entries, as `entries:list` shows them."""
    return filters.predicate(node, lambda one: lambda entry: _passes(one, entry))


def _passes(node: Compare, entry: Mapping[str, Any]) -> bool:
    if not node.path:
        return any(node.value.lower() in text.lower() for text in _texts(entry))
    found = _lookup(entry, node.path)
    return any(_holds(node, value) for value in (found if isinstance(found, list) else [found]))


def _texts(value: Any) -> list[str]:
    """Return every scalar in a value as text."""
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [str(value)]


def _lookup(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def _holds(node: Compare, value: Any) -> bool:
    if value is None:
        # An entry without a severity has the default one.
        return node.path == ("severity",) and _compared(0, node.operator, SEVERITIES.get(node.value.upper(), -1))
    if node.operator == ":":
        return node.value == "*" or any(node.value.lower() in text.lower() for text in _texts(value))
    left, right = _sides(node, value)
    # Sides of different kinds fit no operator, not even `!=`.
    return left is not None and right is not None and _compared(left, node.operator, right)


def _compared(left: Any, operator: str, right: Any) -> bool:
    return bool(filters.COMPARED["=" if operator == ":" else operator](left, right))


def _sides(node: Compare, value: Any) -> tuple[Any, Any]:
    """Return both sides of a comparison in one type: times, severities, numbers, or text without case."""
    if node.path[-1] in TIMES and len(node.path) == 1:
        return nanoseconds(str(value)), nanoseconds(node.value)
    if node.path == ("severity",):
        return _severity(str(value)), _severity(node.value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value), float(node.value)
        except (ValueError, OverflowError):
            return None, None
    text = str(value).lower() if isinstance(value, (str, bool)) else None
    return text, node.value.lower()


def _severity(text: str) -> int | None:
    # Clients may write the number of the enum LogSeverity.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else SEVERITIES.get(text.upper())


def bounds(node: Node) -> Bounds:
    """Return what a filter requires of every entry, to read fewer rows; `matching` decides which entries pass."""
    parts = node.parts if isinstance(node, All) else (node,)
    job_id, first, last = None, None, None
    for part in parts:
        inner = bounds(part) if isinstance(part, All) and part is not node else _bound(part)
        job_id = inner.job_id if inner.job_id is not None else job_id
        first = max((t for t in (first, inner.first) if t is not None), default=None)
        last = min((t for t in (last, inner.last) if t is not None), default=None)
    return Bounds(job_id, first, last)


def _bound(part: Node) -> Bounds:
    if isinstance(part, Any_):
        # ((timestamp="a" AND insertId>"b") OR timestamp>"a") is what gcloud sends while it follows a log.
        firsts = [bounds(choice).first for choice in part.parts]
        return Bounds(first=min((f for f in firsts if f is not None), default=None)) if None not in firsts else Bounds()
    if not isinstance(part, Compare):
        return Bounds()
    if part.path == ("resource", "labels", "job_id") and part.operator == "=":
        return Bounds(job_id=part.value)
    moment = nanoseconds(part.value) if part.path == ("timestamp",) else None
    if moment is None:
        return Bounds()
    return Bounds(
        first=moment if part.operator in ("=", ">", ">=") else None,
        last=moment if part.operator in ("=", "<", "<=") else None,
    )
