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
_OPEN, _CLOSE, _COMMA = re.compile(r"\("), re.compile(r"\)"), re.compile(r",")
_FIELD = re.compile(r'[A-Za-z_]\w*(?:\.(?:@?[\w-]+|"(?:[^"\\]|\\.)*"))*')
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
_PATTERNS = ("=~", "!~")
_WORD_AFTER = re.compile(r"[^\W\d][^\s()\",:=<>]{0,80}")
"""A bare word that follows a token at once."""
_TOKEN = re.compile(r"\w{1,40}|\S", re.DOTALL)


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
        functions: Names that may be called as `NAME(VALUE)` or `NAME(FIELD, VALUE)`: a comparison whose operator is the name.
        expressions: Whether `=~` and `!~` compare with a regular expression.
    """

    refusal: str
    length: int
    depth: int
    text: bool
    space: re.Pattern[str]
    quoted: re.Pattern[str]
    bare: re.Pattern[str]
    functions: frozenset[str] = frozenset()
    expressions: bool = False


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

    def wrong(self) -> ApiError:
        """Return the service's error about the token that comes next (gcloud's messages of 2026)."""
        before = self.text[: self.at]
        line, column = before.count("\n") + 1, self.at - before.rfind("\n")
        token = _TOKEN.match(self.text, self.at)
        found = token.group() if token else "EOF"
        text = f"{self.dialect.refusal}: syntax error at line {line}, column {column}, token '{found}'"
        word = _WORD_AFTER.match(self.text, self.at + 1) if found == ":" else None
        if word:  # recorded of a log name without quotes; a time without quotes is refused by the first line alone
            text += f";\nsyntax error at line {line}, column {column + 1}, token '{word.group()}'"
        return invalid(text)

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
            raise invalid(f"{self.dialect.refusal}: more than {self.dialect.depth} nested parentheses.")
        parts: list[Node] = []
        while not self.over():
            parts.append(self.disjunction())
            if self.word("AND") and self.over():
                raise self.wrong()
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
            if self.take(_OPEN):
                return self.closed(lambda: self.called(field))
            self.skip()
            operator = self.take(_OPERATOR)
            if operator:
                return self.comparison(_path(field), operator)
            # Not a field after all: the word is text to be found anywhere.
            self.at = start
        if not self.dialect.text or _WORD.match(self.text, self.at):
            raise self.wrong()
        return Compare((), ":", self.value())

    def closed(self, inner: Callable[[], Node]) -> Node:
        """Return what is in parentheses, up to the closing one."""
        node = inner()
        self.skip()
        if not self.take(_CLOSE):
            raise self.wrong()
        return node

    def called(self, name: str) -> Node:
        """Return a function of one value, or of a field and a value."""
        if name not in self.dialect.functions:
            raise self.wrong()
        first = self.value()
        self.skip()
        return Compare(_path(first), name, self.value()) if self.take(_COMMA) else Compare((), name, first)

    def comparison(self, path: tuple[str, ...], operator: str) -> Node:
        """Return the value after an operator, or a group of values in parentheses."""
        self.skip()
        if operator in _PATTERNS and not self.dialect.expressions:
            raise self.wrong()
        # A regular expression is in quotes; an operator after one without them is refused before that (index id 69708005904).
        if operator in _PATTERNS and self.text[self.at : self.at + 1] not in ('"', "("):
            at, bare = self.at, self.take(self.dialect.bare)
            self.skip()
            if not bare or not _OPERATOR.match(self.text, self.at):
                self.at = at
            raise self.wrong()
        if self.take(_OPEN):
            return self.closed(lambda: self.values(path, operator))
        return Compare(path, operator, self.value(operator))

    def values(self, path: tuple[str, ...], operator: str) -> Node:
        """Parse `"a" OR "b"` and `"a" AND "b"` in parentheses after an operator."""
        parts: list[Node] = [Compare(path, operator, self.value(operator))]
        either = False
        while not self.over():
            both = not self.word("OR")
            if len(parts) > 1 and both is either:
                raise self.wrong()
            either = not both
            if both:
                self.word("AND")
            parts.append(Compare(path, operator, self.value(operator)))
        return Any_(tuple(parts)) if either else All(tuple(parts))

    def value(self, operator: str = "") -> str:
        self.skip()
        quoted = self.take(self.dialect.quoted)
        if quoted:
            # The escapes of a regular expression, such as \d, are its own.
            return _unescaped(quoted[1:-1], '["\\\\]' if operator in _PATTERNS else ".")
        bare = self.take(self.dialect.bare)
        if not bare:
            raise self.wrong()
        return bare


def _path(text: str) -> tuple[str, ...]:
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|(@?[\w-]+)', text)
    return tuple(_unescaped(quoted) if quoted else plain for quoted, plain in parts)


def _unescaped(text: str, escaped: str = ".") -> str:
    return re.sub(rf"\\({escaped})", r"\1", text, flags=re.DOTALL)
