"""The Logging query language, as far as clients of training jobs use it.

Source: https://cloud.google.com/logging/docs/view/logging-query-language: NOT binds tightest, then OR, then AND; terms
side by side are joined by AND; comparisons of text ignore case; a comparison with a missing field is false.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vertexrig.local.http import ApiError, invalid
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
LENGTH_LIMIT = 20_000
"""Most characters of a filter, as the service documents."""
DEPTH_LIMIT = 50
TIMES = ("timestamp", "receiveTimestamp")

_SPACE = re.compile(r"(?:\s+|--[^\n]*)*")
_WORD = re.compile(r"(AND|OR|NOT)(?![\w.:=<>!~-])")
_FIELD = re.compile(r'[A-Za-z_]\w*(?:\.(?:[\w-]+|"(?:[^"\\]|\\.)*"))*')
_OPERATOR = re.compile(r"=~|!~|!=|<=|>=|=|<|>|:")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"[^\s()\"]+")


@dataclass(frozen=True)
class All:
    """Every part holds."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Any_:
    """Some part holds."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Node


@dataclass(frozen=True)
class Compare:
    """A field compared with a value; without a field, text to be found anywhere in the entry."""

    path: tuple[str, ...]
    operator: str
    value: str


Node = All | Any_ | Not | Compare


@dataclass(frozen=True)
class Bounds:
    """What a filter demands of every entry, for an index: a job id, and the first and last time in ns, each if any."""

    job_id: str | None = None
    first: int | None = None
    last: int | None = None


def parse(text: str) -> Node:
    """Read a filter; the empty filter matches everything.

    Raises:
        ApiError: 400 INVALID_ARGUMENT with the place.
    """
    if len(text) > LENGTH_LIMIT:
        raise invalid(f"The filter has {len(text)} characters, and {LENGTH_LIMIT} are allowed.")
    return _Parser(text).filter()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0

    def filter(self) -> Node:
        node = self.conjunction()
        if self.at < len(self.text):
            raise self.wrong()
        return node

    def wrong(self, what: str = "unexpected") -> ApiError:
        near = self.text[self.at : self.at + 40]
        return invalid(f"Unparseable filter: {what} at character {self.at + 1}, near {near!r}.")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def skip(self) -> None:
        self.take(_SPACE)

    def word(self, name: str) -> bool:
        """Take a keyword if it comes next."""
        self.skip()
        match = _WORD.match(self.text, self.at)
        if match is None or match.group(1) != name:
            return False
        self.at = match.end()
        return True

    def conjunction(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self.wrong(f"more than {DEPTH_LIMIT} nested parentheses")
        parts: list[Node] = []
        self.skip()
        while self.at < len(self.text) and self.text[self.at] != ")":
            parts.append(self.disjunction())
            if self.word("AND"):
                self.skip()
                if self.at >= len(self.text) or self.text[self.at] == ")":
                    raise self.wrong("a term is missing")
        self.depth -= 1
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def disjunction(self) -> Node:
        parts = [self.negation()]
        while self.word("OR"):
            parts.append(self.negation())
        self.skip()
        return parts[0] if len(parts) == 1 else Any_(tuple(parts))

    def negation(self) -> Node:
        negative = False
        while self.word("NOT") or self.take(re.compile(r"-(?=[\w(\"])")):
            negative = not negative
        self.skip()
        node = self.term()
        return Not(node) if negative else node

    def term(self) -> Node:
        if self.take(re.compile(r"\(")):
            node = self.conjunction()
            if not self.take(re.compile(r"\)")):
                raise self.wrong("a ')' is missing")
            return node
        start = self.at
        field = self.take(_FIELD)
        if field:
            self.skip()
            operator = self.take(_OPERATOR)
            if operator:
                return self.comparison(_path(field.group()), operator.group())
            self.at = start
        quoted = self.take(_QUOTED)
        if quoted:
            return Compare((), ":", _unescaped(quoted.group(1)))
        if _WORD.match(self.text, self.at):
            raise self.wrong("a term is missing")
        bare = self.take(_BARE)
        if not bare:
            raise self.wrong("a term is missing")
        return Compare((), ":", bare.group())

    def comparison(self, path: tuple[str, ...], operator: str) -> Node:
        """The value after an operator, or a group of values in parentheses."""
        if operator in ("=~", "!~"):
            raise self.wrong("the local Vertex does not match regular expressions (use ':' for a part of a text)")
        self.skip()
        if self.take(re.compile(r"\(")):
            return self.values(path, operator)
        return Compare(path, operator, self.value())

    def values(self, path: tuple[str, ...], operator: str) -> Node:
        """`("a" OR "b")` and `("a" AND "b")` after an operator."""
        parts: list[Node] = [Compare(path, operator, self.value())]
        joined: set[str] = set()
        while not self.take(re.compile(r"\)")):
            joined.add("OR" if self.word("OR") else "AND")
            if "AND" in joined:
                self.word("AND")
            self.skip()
            parts.append(Compare(path, operator, self.value()))
            self.skip()
        if len(joined) > 1:
            raise self.wrong("AND and OR are mixed in a group of values")
        return Any_(tuple(parts)) if joined == {"OR"} else All(tuple(parts))

    def value(self) -> str:
        self.skip()
        quoted = self.take(_QUOTED)
        if quoted:
            return _unescaped(quoted.group(1))
        bare = self.take(_BARE)
        if not bare:
            raise self.wrong("a value is missing")
        self_value = bare.group()
        self.skip()
        return self_value


def _path(text: str) -> tuple[str, ...]:
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|([\w-]+)', text)
    return tuple(_unescaped(quoted) if quoted else plain for quoted, plain in parts)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def matches(node: Node, entry: Mapping[str, Any]) -> bool:
    """Whether an entry (as `entries:list` shows it) passes a filter."""
    if isinstance(node, All):
        return all(matches(part, entry) for part in node.parts)
    if isinstance(node, Any_):
        return any(matches(part, entry) for part in node.parts)
    if isinstance(node, Not):
        return not matches(node.part, entry)
    if not node.path:
        return any(node.value.lower() in text.lower() for text in _texts(entry))
    found = _lookup(entry, node.path)
    return any(_holds(node, value) for value in (found if isinstance(found, list) else [found]))


def _texts(value: Any) -> list[str]:
    """Every scalar in a value as text."""
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
        return node.path == ("severity",) and _compare(0, node.operator, SEVERITIES.get(node.value.upper(), -1))
    if node.operator == ":":
        return node.value == "*" or any(node.value.lower() in text.lower() for text in _texts(value))
    left, right = _sides(node, value)
    return left is not None and right is not None and _compare(left, node.operator, right)


def _sides(node: Compare, value: Any) -> tuple[Any, Any]:
    """Both sides of a comparison in one type: times, severities, numbers, or text without case."""
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
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else SEVERITIES.get(text.upper())


def _compare(left: Any, operator: str, right: Any) -> bool:
    order = (left > right) - (left < right)
    wanted = {"=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1), ":": (0,)}
    return order in wanted[operator]


def bounds(node: Node) -> Bounds:
    """What a filter demands of every entry; only used to read fewer rows, `matches` decides."""
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
