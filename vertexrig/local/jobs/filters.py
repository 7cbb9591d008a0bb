"""List filters: `state="JOB_STATE_FAILED" AND (labels.team=vision OR NOT display_name:"old-*")`.

The fields and operators are those the list methods of jobs document (display_name: = != :, state: = !=, create_time:
all comparisons, labels: `labels.key=value`, `labels.key:value`, `labels.key:*`); the grammar is AIP-160's, where OR
binds closer than AND.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from vertexrig import times
from vertexrig.errors import did_you_mean
from vertexrig.local.http import invalid

Predicate = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<paren>[()])
  | (?P<op><=|>=|!=|=|<|>|:)
  | (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<minus>-(?=[A-Za-z(]))
  | (?P<word>[^\s()<>=!:"']+)
    )""",
    re.VERBOSE,
)
_FIELDS = {
    "display_name": "displayName", "displayName": "displayName", "state": "state", "create_time": "createTime",
    "createTime": "createTime", "update_time": "updateTime", "start_time": "startTime", "end_time": "endTime",
    "name": "name",
}  # fmt: skip
_TIMES = {"createTime", "updateTime", "startTime", "endTime"}
_MOST_DEPTH = 40
_LONGEST = 10_000


def parse(text: str) -> Predicate:
    """A filter as a predicate on resource bodies; an empty one is true of all.

    Raises:
        ApiError: 400, for anything that is not a filter.
    """
    if len(text) > _LONGEST:
        raise invalid(f"Invalid filter: it has {len(text)} characters, and {_LONGEST} are allowed.")
    parser = _Parser(_tokens(text), text)
    if not parser.tokens:
        return lambda _: True
    found = parser.expression(0)
    if parser.tokens:
        raise parser.wrong()
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise invalid(f"Invalid filter: unexpected {text[at:].strip()[:20]!r} in {text[:200]!r}.")
        kind = str(match.lastgroup)
        value = match.group(kind)
        tokens.append((kind, re.sub(r"\\(.)", r"\1", value[1:-1]) if kind == "quoted" else value))
        at = match.end()
    return tokens[::-1]


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], text: str) -> None:
        self.tokens, self.text = tokens, text

    def wrong(self) -> Exception:
        where = f"unexpected {self.tokens[-1][1][:40]!r}" if self.tokens else "it ends too early"
        return invalid(f"Invalid filter: {where} in {self.text[:200]!r}.")

    def word(self, *words: str) -> bool:
        """Take the next token if it is one of these words."""
        if self.tokens and self.tokens[-1][0] in ("word", "minus", "paren") and self.tokens[-1][1] in words:
            self.tokens.pop()
            return True
        return False

    def expression(self, depth: int) -> Predicate:
        if depth > _MOST_DEPTH:
            raise invalid("Invalid filter: it is nested too deeply.")
        parts = [self.factor(depth)]
        while self.tokens and self.tokens[-1] != ("paren", ")"):
            self.word("AND")  # written or not
            parts.append(self.factor(depth))
        return parts[0] if len(parts) == 1 else lambda body: all(part(body) for part in parts)

    def factor(self, depth: int) -> Predicate:
        parts = [self.term(depth)]
        while self.word("OR"):
            parts.append(self.term(depth))
        return parts[0] if len(parts) == 1 else lambda body: any(part(body) for part in parts)

    def term(self, depth: int) -> Predicate:
        if self.word("NOT", "-"):
            inner = self.term(depth + 1) if depth < _MOST_DEPTH else self.expression(depth + 1)
            return lambda body: not inner(body)
        if self.word("("):
            found = self.expression(depth + 1)
            if not self.word(")"):
                raise self.wrong()
            return found
        return self.restriction()

    def restriction(self) -> Predicate:
        if not self.tokens or self.tokens[-1][0] != "word":
            raise self.wrong()
        field = self.tokens.pop()[1]
        if not self.tokens or self.tokens[-1][0] != "op":
            raise self.wrong()
        operator = self.tokens.pop()[1]
        negative = self.tokens and self.tokens[-1][0] == "minus" and self.tokens.pop()
        if not self.tokens or self.tokens[-1][0] not in ("word", "quoted"):
            raise self.wrong()
        value = ("-" if negative else "") + self.tokens.pop()[1]
        while self.tokens and field not in ("labels",) and self.tokens[-1] == ("op", ":") and operator != ":":
            self.tokens.pop()  # an unquoted time: 2026-01-01T00:00:00Z
            value += ":" + (self.tokens.pop()[1] if self.tokens else "")
        return _restriction(field, operator, value)


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
        return lambda body: fnmatchcase(str(body.get(key, "")), value) if "*" in value else body.get(key, "") == value
    if operator == "!=":
        return lambda body: body.get(key, "") != value
    if operator == ":" and key != "state":
        pattern = value if "*" in value else f"*{value}*"
        return lambda body: fnmatchcase(str(body.get(key, "")), pattern)
    raise invalid(f"Invalid filter: {field} does not support {operator}.")


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
    return lambda body: bool(body.get(key)) and test(_moment(str(body[key])))


def _moment(text: str) -> datetime:
    try:
        return times.parse(text)
    except ValueError as error:
        raise invalid(f"Invalid filter: {error}.") from None
