"""The one parser and evaluator of list filters and of the Logging query language: text to a tree of comparisons, and that to a predicate.

Both are dialects of AIP-160: NOT binds tightest, then OR, then AND, which may be left out. What a comparison means
is up to the caller.
"""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from localvertex.http import ApiError, invalid

# A keyword is not the beginning of a name (`ORDER`) or of a field with an operator (`NOT.x`, `OR=1`).
_WORD = re.compile(r"(AND|OR|NOT)(?![\w.:=<>!~-])")
# A minus sign negates only right before a term.
_MINUS = re.compile(r"-(?=[\w(\"])")
_OPEN, _CLOSE = re.compile(r"\("), re.compile(r"\)")
_FIELD = re.compile(r'[A-Za-z_]\w*(?:\.(?:[\w-]+|"(?:[^"\\]|\\.)*"))*')
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
"""What the operators do that compare whole values."""
_OPERATOR = re.compile(r"=~|!~|!=|<=|>=|=|<|>|:")


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
    """A field compared with a value; without a field, text to be found anywhere."""

    path: tuple[str, ...]
    operator: str
    value: str


Node = All | Any_ | Not | Compare
Predicate = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Dialect:
    """What the two languages do not share.

    Args:
        refusal: How the service begins its message about a text that cannot be read.
        length: Most characters.
        depth: Most nested parentheses.
        text: Whether a term may be text without a field.
        space: What separates terms; it matches the empty text.
        quoted: A quoted value with its quotes.
        bare: A value without quotes.
    """

    refusal: str
    length: int
    depth: int
    text: bool
    space: re.Pattern[str]
    quoted: re.Pattern[str]
    bare: re.Pattern[str]


def parse(text: str, dialect: Dialect) -> Node:
    """Read a filter; the empty one is `All(())`.

    Raises:
        ApiError: 400 INVALID_ARGUMENT with the position.
    """
    if len(text) > dialect.length:
        raise invalid(f"{dialect.refusal}: it has {len(text)} characters, and {dialect.length} are allowed.")
    return _Parser(text, dialect).filter()


def predicate(node: Node, comparison: Callable[[Compare], Predicate]) -> Predicate:
    """Return a filter as a predicate on resources; `comparison` raises for a comparison that the API does not have."""
    if isinstance(node, Compare):
        return comparison(node)
    if isinstance(node, Not):
        inner = predicate(node.part, comparison)
        return lambda body: not inner(body)
    parts, join = [predicate(part, comparison) for part in node.parts], all if isinstance(node, All) else any
    return lambda body: join(part(body) for part in parts)


def like(value: object, pattern: str) -> bool:
    """Whether a value matches a pattern, in which `*` means any text and every other character itself."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), str(value), re.DOTALL) is not None


class _Parser:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text, self.dialect, self.at, self.depth = text, dialect, 0, 0

    def filter(self) -> Node:
        node = self.conjunction()
        if self.at < len(self.text):
            raise self.wrong()
        return node

    def wrong(self, what: str = "unexpected") -> ApiError:
        near = self.text[self.at : self.at + 40]
        return invalid(f"{self.dialect.refusal}: {what} at character {self.at + 1}, near {near!r}.")

    def take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match.group()

    def skip(self) -> None:
        self.take(self.dialect.space)

    def word(self, name: str) -> bool:
        """Read a keyword if it comes next, and return whether it did."""
        self.skip()
        match = _WORD.match(self.text, self.at)
        if match is None or match.group(1) != name:
            return False
        self.at = match.end()
        return True

    def over(self) -> bool:
        """Whether the text or the current parentheses end here."""
        self.skip()
        return self.at >= len(self.text) or self.text[self.at] == ")"

    def conjunction(self) -> Node:
        self.depth += 1
        # The parser calls itself: deep nesting would end in a RecursionError.
        if self.depth > self.dialect.depth:
            raise self.wrong(f"more than {self.dialect.depth} nested parentheses")
        parts: list[Node] = []
        while not self.over():
            parts.append(self.disjunction())
            if self.word("AND") and self.over():
                raise self.wrong("a term is missing")
        self.depth -= 1
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def disjunction(self) -> Node:
        parts = [self.negation()]
        while self.word("OR"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else Any_(tuple(parts))

    def negation(self) -> Node:
        negative = False
        while self.word("NOT") or self.take(_MINUS):
            negative = not negative
        node = self.term()
        return Not(node) if negative else node

    def term(self) -> Node:
        if self.take(_OPEN):
            return self.closed(self.conjunction)
        start, field = self.at, self.take(_FIELD)
        if field:
            self.skip()
            operator = self.take(_OPERATOR)
            if operator:
                return self.comparison(_path(field), operator)
            # Not a field after all: the word is text to be found anywhere.
            self.at = start
        if not self.dialect.text or _WORD.match(self.text, self.at):
            raise self.wrong("a term is missing" if self.over() else "unexpected")
        return Compare((), ":", self.value("a term"))

    def closed(self, inner: Callable[[], Node]) -> Node:
        """Return what is in parentheses, up to the closing one."""
        node = inner()
        self.skip()
        if not self.take(_CLOSE):
            raise self.wrong("a ')' is missing")
        return node

    def comparison(self, path: tuple[str, ...], operator: str) -> Node:
        """Return the value after an operator, or a group of values in parentheses."""
        # The service matches by RE2, whose syntax Python's re does not share.
        if operator in ("=~", "!~"):
            raise self.wrong("the local Vertex does not match regular expressions (use ':' for a part of a text)")
        self.skip()
        if self.take(_OPEN):
            return self.closed(lambda: self.values(path, operator))
        return Compare(path, operator, self.value())

    def values(self, path: tuple[str, ...], operator: str) -> Node:
        """Parse `"a" OR "b"` and `"a" AND "b"` in parentheses after an operator."""
        parts: list[Node] = [Compare(path, operator, self.value())]
        either = False
        while not self.over():
            both = not self.word("OR")
            if len(parts) > 1 and both is either:
                raise self.wrong("AND and OR are mixed in a group of values")
            either = not both
            if both:
                self.word("AND")
            parts.append(Compare(path, operator, self.value()))
        return Any_(tuple(parts)) if either else All(tuple(parts))

    def value(self, what: str = "a value") -> str:
        self.skip()
        quoted = self.take(self.dialect.quoted)
        if quoted:
            return _unescaped(quoted[1:-1])
        bare = self.take(self.dialect.bare)
        if not bare:
            raise self.wrong(f"{what} is missing")
        return bare


def _path(text: str) -> tuple[str, ...]:
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|([\w-]+)', text)
    return tuple(_unescaped(quoted) if quoted else plain for quoted, plain in parts)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
