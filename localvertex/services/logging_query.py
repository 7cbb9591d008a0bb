"""The Logging query language, as far as clients of training jobs use it.

Source: https://cloud.google.com/logging/docs/view/logging-query-language: NOT binds tightest, then OR, then AND; terms
side by side are joined by AND; comparisons of text ignore case; a comparison with a missing field is false.
"""

from __future__ import annotations

import ipaddress
import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from localvertex import filters
from localvertex.filters import All, Any_, Compare, Node, Predicate
from localvertex.http import invalid
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
    # `insertId = abc:def` is an error (page troubleshoot-lql); a time has to be quoted (error reports of 2026)
    bare=re.compile(r"[^\s()\",:=<>]+"),
    functions=frozenset({"log_id", "source", "sample", "ip_in_net", "SEARCH"}),
    expressions=True,
)
_NULL = "NULL_VALUE"
_NUMBERS = frozenset(
    {
        *(("httpRequest", name) for name in ("status", "requestSize", "responseSize", "cacheFillBytes")),
        ("sourceLocation", "line"),
    }
)
"""Fields of an entry that are whole numbers."""
_FIELDS = frozenset(
    """apphub errorgroups httprequest insertid jsonpayload labels logname metadata operation protopayload receivetimestamp resource severity
    sourcelocation spanid split textpayload timestamp trace tracesampled""".split()
)
"""Fields of an entry, in small letters: those of google-cloud-logging 3.17.0 (types/log_entry.py) and of gcloud's messages."""
_MISSING: Any = object()
_WORD = re.compile(r"\w+")
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_MOST_PATTERN = 1000
"""Most characters of a regular expression."""
# RE2 has neither back references nor a look ahead or behind.
_NOT_RE2 = re.compile(r"\(\?(?:[=!<]|P=)|\\[1-9]")
_PATTERN_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


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
    node = filters.parse(text, _LANGUAGE)
    filters.predicate(node, _comparison)  # so that a wrong pattern or network is refused before a page is read
    return node


def matching(node: Node) -> Predicate:
    """Return a filter as a predicate on entries, as `entries:list` shows them."""
    return filters.predicate(node, _comparison)


def _comparison(node: Compare) -> Predicate:
    """Return what one comparison tests; of a list one value that passes is enough."""
    if node.operator == "log_id":
        wanted = node.value.lower()
        return lambda entry: unquote(str(entry.get("logName", ""))).partition("/logs/")[2].lower() == wanted
    if node.operator == "source":
        return lambda entry: str(entry.get("logName", "")).startswith(f"{node.value}/logs/")
    # in any case: the language ignores it outside of regular expressions
    if node.path and node.path[0].replace("_", "").lower() not in _FIELDS:
        raise invalid(f"Field not found: '{node.path[0][:200]}'")
    test = _test(node)
    if not node.path:
        return test if node.operator == "SEARCH" else lambda entry: any(map(test, _texts(entry)))

    def passes(entry: Mapping[str, Any]) -> bool:
        found = _lookup(entry, node.path)
        return any(map(test, found if isinstance(found, list) else [found]))

    return passes


def _test(node: Compare) -> Callable[[Any], bool]:
    """Return the test of a value; a value that is missing passes none."""
    wanted = node.value
    if node.operator in ("=~", "!~"):
        pattern, fits = _pattern(wanted), node.operator == "=~"
        return lambda value: isinstance(value, str) and bool(pattern.search(value)) is fits
    if node.operator == "SEARCH":
        words = set(_WORD.findall(wanted.lower()))
        return lambda value: value is not _MISSING and words <= set(_WORD.findall(" ".join(_texts(value)).lower()))
    if node.operator == "sample":
        share = _number(wanted, 0, 1)
        return lambda value: value is not _MISSING and zlib.crc32(str(value).encode()) < share * 2**32
    if node.operator == "ip_in_net":
        return _in_network(wanted)
    if not node.path:
        return lambda value: wanted.lower() in str(value).lower()
    _check_type(node)
    return lambda value: _holds(node, value)


def _check_type(node: Compare) -> None:
    """Raise a 400 for a value that is not of the type of an entry's own field (stackdriver-metrics-export issue 8)."""
    if node.operator == ":" or node.value == _NULL:
        return
    is_time = len(node.path) == 1 and node.path[0] in TIMES
    if (is_time and nanoseconds(node.value) is None) or (node.path in _NUMBERS and not _WHOLE.fullmatch(node.value)):
        raise invalid(f"The value '{node.value.lower()[:200]}' is of incorrect type.")


def _pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression, which matches any part of a text; 400 for one that is not RE2's or could take years.

    Python's re may take years where a group that is repeated holds a choice or another repetition; RE2 never does.
    """
    try:
        made = re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise invalid(f"Unparseable filter: invalid regular expression {text[:80]!r}") from None
    if len(text) > _MOST_PATTERN or _NOT_RE2.search(text):
        raise invalid(f"Unparseable filter: invalid regular expression {text[:80]!r}")
    loose, after = [False], False  # of each open group; of the group that has just been closed
    for part in _PATTERN_PART.findall(text):
        if part == "(":
            loose.append(False)
        elif part in ("*", "+", "{", "|"):
            if after and part != "|":
                raise invalid(
                    f"The local Vertex does not match {text[:80]!r}: it repeats a group that holds '|' or another repetition."
                )
            loose[-1] = True
        after = part == ")" and len(loose) > 1 and loose.pop()
        loose[-1] |= after
    return made


def _number(text: str, low: float, high: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low <= found <= high:
        raise invalid(f"Unparseable filter: {text[:80]!r} is not a number from {low} to {high}")
    return found


def _in_network(text: str) -> Callable[[Any], bool]:
    """Return whether a value is an address of a network."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise invalid(f"Unparseable filter: {text[:80]!r} is not a network") from None

    def inside(value: Any) -> bool:
        try:
            return ipaddress.ip_address(str(value)) in network
        except ValueError:
            return False

    return inside


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
            return _MISSING
        value = value[key]
    return value


def _holds(node: Compare, value: Any) -> bool:
    if value is _MISSING:
        # An entry without a severity has the default one.
        return node.path == ("severity",) and _compared(0, node.operator, SEVERITIES.get(node.value.upper(), -1))
    if value is None:
        return node.operator == "=" and node.value == _NULL
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
