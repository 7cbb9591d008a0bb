"""YAML text to plain values with the line of every value, read as gcloud reads it.

gcloud parses YAML 1.1 with ruamel.yaml; PyYAML differs in three places (found 2026-11-20 with gcloud 528): `1e-4` is a
number to gcloud and text to PyYAML; `y`, `Y`, `n`, `N` are booleans to gcloud and text to PyYAML; with a duplicate
key gcloud keeps the first value and PyYAML the last. This module takes gcloud's side and notes each such place.
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.resolver import Resolver

FileKey = tuple["str | int", ...]
"""The keys and indexes that lead to a value in a file, from the top."""

# An alias or a merge may multiply what a small text expands to. A value takes about 10 bytes of text, so that a text of
# 2 MiB, the most that is read of a file, may have this many.
MAX_VALUES = 200_000
MAX_DEPTH = 100
_SHORT = 3_000  # characters: such a text cannot be nested so deep that libyaml's own recursion is in danger
MAX_STEPS = 20  # mean length of a path in a text with as many values as it may have; all paths are kept, so their sum is limited
MAX_NUMBER = 400  # characters of a number or date: a long one in base 60 takes minutes to read
_MERGE = "tag:yaml.org,2002:merge"

_BOOLS = {"y": True, "Y": True, "n": False, "N": False}
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_STRING_TAG = "tag:yaml.org,2002:str"

try:
    from yaml.cyaml import CParser as _CParser  # type: ignore[attr-defined]

    class _Loader(_CParser, SafeConstructor, Resolver):
        def __init__(self, text: str) -> None:
            _CParser.__init__(self, text)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)
except ImportError:  # PyYAML built without libyaml: slower, same result
    _Loader = yaml.SafeLoader  # type: ignore[assignment, misc]


class YamlError(Exception):
    """The text is not one YAML document; has the line of the error, and a fix if one is clear."""

    def __init__(self, message: str, line: int | None = None, fix: str = "") -> None:
        self.message, self.line, self.fix = message, line, fix
        super().__init__(f"{message}: {fix}" if fix else message)


@dataclass(frozen=True)
class Note:
    """A value that two readers of YAML understand differently.

    Args:
        kind: `duplicate-key`, `octal` for a number such as 012, or `two-readings` for any other value.
        fix: What to do about a key twice or an octal number, which the author surely did not mean; "" for any other value.
        value: What gcloud reads; None for a key.
    """

    kind: Literal["duplicate-key", "octal", "two-readings"]
    path: FileKey
    line: int
    message: str
    fix: str = ""
    value: Any = None


@dataclass
class Reading:
    """A YAML text as data.

    Args:
        data: Plain values: dict, list, str, int, float, bool, None, date, datetime, bytes. Keys are texts as written, such as `1`.
        lines: Line of each value (in a mapping: of its key), counted from 1, by the value's path of keys and indexes.
        notes: Values that other YAML readers understand differently.
    """

    data: Any = None
    lines: dict[FileKey, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def read(text: str) -> Reading:
    """Read one YAML document; YamlError if the text is not YAML, holds several documents, or expands to too much."""
    most = max(MAX_VALUES, len(text) // 10)  # more for a longer text, which may have that many written out
    # Python's search for cycles goes over all nodes again and again while they are made: it took two thirds of the time
    # of a text of 1 MB (2026-11-21).
    collecting = gc.isenabled()
    gc.disable()
    try:
        if len(text) > _SHORT:  # of a shorter one, the builder finds what is too deep or too many
            _bound(text, most)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            builder = _Builder(loader, most)
            if node is not None:
                builder.reading.data = builder.value(node, (), ())
            return builder.reading
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        cause = _cause(text.splitlines(), mark, error.context_mark) if mark else None
        if cause is not None:
            raise YamlError(f"not valid YAML: {cause[0]}", *cause[1:]) from error
        raise YamlError(f"not valid YAML: {reason}", mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        raise YamlError(f"not valid YAML: {error.reason}", text.count("\n", 0, position) + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {error}") from error
    except (RecursionError, UnicodeError, ValueError) as error:
        raise YamlError(f"not valid YAML: {error}") from error
    finally:
        if collecting:
            gc.enable()


def compose(text: str) -> yaml.Node | None:
    """Return the nodes of a text that `read` has read, with their positions; None for an empty text."""
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


_DEEPER = {
    yaml.SequenceStartEvent: 1,
    yaml.MappingStartEvent: 1,
    yaml.SequenceEndEvent: -1,
    yaml.MappingEndEvent: -1,
}


def _bound(text: str, most: int) -> None:
    """Refuse a text that is nested too deeply or has too many values, before nodes are made of it.

    libyaml makes nodes by recursion in C, which 30,000 brackets bring down; its events come one by one.
    """
    loader, depth, count = _Loader(text), 0, 0
    try:
        while loader.check_event():
            event: Any = loader.get_event()
            deeper = _DEEPER.get(type(event), 0)
            depth += deeper
            count += 0 if deeper < 0 else 1  # the end of a list or mapping is no value
            if depth > MAX_DEPTH:
                raise YamlError(f"values are nested more than {MAX_DEPTH} deep", event.start_mark.line + 1)
            if count > 2 * most:  # keys count, too
                raise YamlError(f"the text has more than {most:,} values", event.start_mark.line + 1)
    finally:
        loader.dispose()


_UNFIT = {
    "@": "put the value in quotes",
    "`": "put the value in quotes",
    "%": "put the value in quotes",
    "*": "put it in quotes if it is text; * names a value above that has the mark &",
    "\\": "write the text in single quotes, where a backslash is itself",
}
_TAB, _KEY, _VALUE = re.compile(r" *(?:- +)*\t"), re.compile(r":(?: |$)"), re.compile(r":\s+[^\s#&|>]")


def _cause(lines: list[str], mark: Any, context: Any) -> tuple[str, int, str] | None:
    """Return the probable reason why a parser stops at a mark, by the text around it: message, line, fix; None if it is not clear.

    Args:
        mark: Where the parser stopped.
        context: Where the value begins that it was in; None if it does not say.
    """
    row, line = mark.line, (lines[mark.line] if mark.line < len(lines) else "")
    for number in (row, row - 1):
        if 0 <= number < len(lines) and _TAB.match(lines[number]):
            return "a tab is where YAML takes spaces only", number + 1, "replace the tab with spaces"
    opening = lines[context.line][context.column : context.column + 1] if context and context.line < len(lines) else ""
    if opening and opening in "[{\"'" and (row > context.line or not line[mark.column :].strip()):
        return f"the {opening} here is never closed", context.line + 1, "close it"
    here, before = line[mark.column : mark.column + 1], line[: mark.column].rstrip()
    for sign in (here, opening):
        if sign in _UNFIT:
            return f"{sign} has a meaning of its own here", row + 1, _UNFIT[sign]
    if here and before.endswith(('"', "'")):
        return "there is text after the closing quote", row + 1, "put all of it in one pair of quotes"
    if here in ("}", "]"):
        wrong = f"does not close the {opening}" if opening and opening in "[{" else "closes nothing"
        return f"the {here} {wrong}", row + 1, "remove it, or write the one that belongs there"
    if here == ":" and opening == "{" and _KEY.search(before):
        text = "a comma is missing, or a value holds a colon followed by a space"
        return text, row + 1, "put a comma behind the value, or the value in quotes"
    if here == ":" and _KEY.search(before):
        return "a value holds a colon followed by a space", row + 1, "put the value in quotes"
    plain = [at for at in range(min(row, len(lines))) if lines[at].split("#")[0].strip()]
    if not plain or (here and before and here != ":"):
        return None
    above, indent = lines[plain[-1]], len(line) - len(line.lstrip())
    depths = sorted({len(lines[at]) - len(lines[at].lstrip()) for at in plain})
    if not _KEY.search(above) and not above.lstrip().startswith("- "):
        return (
            "a line here is neither `key: value` nor `- item`",
            plain[-1] + 1,
            "put a colon and a space behind its key",
        )
    if here and indent > depths[0] and indent > len(above) - len(above.lstrip()) and _VALUE.search(above):
        return f"a line is indented below line {plain[-1] + 1}, which has a value", row + 1, "indent the two alike"
    if here and indent not in depths:
        text = f"a line is indented by {indent}, and the lines above by {', '.join(map(str, depths))}"
        return text, row + 1, "indent it as the lines that it belongs to"
    if opening == "-" or line.lstrip().startswith("- "):
        return "keys and items of a list are mixed at one depth", row + 1, "indent the items below their key"
    return None


class _Builder:
    """Turns nodes into values and keeps the line of each."""

    def __init__(self, loader: Any, most: int) -> None:
        self.loader, self.most = loader, most
        self.reading = Reading()
        self.count = self.steps = 0
        self.flat: dict[int, list[tuple[yaml.Node, yaml.Node]]] = {}

    def value(self, node: yaml.Node, path: FileKey, parents: tuple[int, ...]) -> Any:
        line = node.start_mark.line + 1
        self.add(len(path), line)
        if id(node) in parents:
            raise YamlError("an alias refers to a value that contains it", line)
        if len(parents) > MAX_DEPTH:
            raise YamlError(f"values are nested more than {MAX_DEPTH} deep", line)
        self.reading.lines[path] = line
        parents = (*parents, id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index), parents) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, parents)
        assert isinstance(node, yaml.ScalarNode)
        return self.plain_value(node, path)

    def add(self, steps: int, line: int) -> None:
        """Count a value and the length of its path against the limits."""
        self.count += 1
        self.steps += steps
        if self.count > self.most or self.steps > self.most * MAX_STEPS:
            raise YamlError(f"the text expands to more than {self.most:,} values", line)

    def mapping(self, node: yaml.MappingNode, path: FileKey, parents: tuple[int, ...]) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != _MERGE:
                name = (key_node.tag, key_node.value)
                if name in seen:
                    line = key_node.start_mark.line + 1
                    text = f"key {key_node.value!r} is there twice: gcloud takes the first, most others the last"
                    self.reading.notes.append(
                        Note("duplicate-key", (*path, key_node.value), line, text, "keep one of them")
                    )
                seen.add(name)
        for key_node, value_node in self.pairs(node):
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlError("a key must be plain text, not a list or mapping", key_node.start_mark.line + 1)
            key = self.plain_value(key_node, path, is_key=True)
            if not isinstance(key, str):
                key = str(key_node.value)
            if key in result:
                continue
            result[key] = self.value(value_node, (*path, key), parents)
            place = (*path, key)
            self.reading.lines[place] = key_node.start_mark.line + 1
        return result

    def pairs(self, node: yaml.MappingNode, above: tuple[int, ...] = ()) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the pairs of a mapping in order of precedence: its own first, then those merged in with `<<`.

        PyYAML's own merging copies the pairs of every mapping merged in: nested 9 deep, 1.5 kB become 10^9 pairs.
        """
        if id(node) in self.flat:
            return self.flat[id(node)]
        line = node.start_mark.line + 1
        if id(node) in above:
            raise YamlError("an alias refers to a value that contains it", line)
        if len(above) > MAX_DEPTH:
            raise YamlError(f"values are nested more than {MAX_DEPTH} deep", line)
        found = [(key, value) for key, value in node.value if key.tag != _MERGE]
        seen = {key.value for key, _ in found if isinstance(key, yaml.ScalarNode)}
        for merged in [value for key, value in node.value if key.tag == _MERGE][::-1]:
            for base in merged.value if isinstance(merged, yaml.SequenceNode) else [merged]:
                if not isinstance(base, yaml.MappingNode):
                    raise YamlError("not valid YAML: << takes a mapping or a list of mappings", line)
                for key, value in self.pairs(base, (*above, id(node))):
                    self.add(0, line)
                    if not (isinstance(key, yaml.ScalarNode) and key.value in seen):
                        found.append((key, value))
                        seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        self.flat[id(node)] = found
        return found

    def plain_value(self, node: yaml.ScalarNode, path: FileKey, *, is_key: bool = False) -> Any:
        text, line = node.value, node.start_mark.line + 1
        written_bare = node.end_mark.index - node.start_mark.index == len(text)  # no quotes, no tag
        if written_bare and node.tag == _STRING_TAG:
            other: Any = None
            if text in _BOOLS:
                other = _BOOLS[text]
            elif _FLOAT.fullmatch(text):
                other = float(text.replace("_", ""))
            if other is not None:
                reading = "the boolean " + str(other).lower() if isinstance(other, bool) else "a number"
                message = f"gcloud reads {text} as {reading}, other readers of YAML as the text {text!r}"
                self.reading.notes.append(Note("two-readings", path, line, message, "", None if is_key else other))
                return other
        if node.tag == _STRING_TAG:
            return text
        if len(text) > MAX_NUMBER and node.tag != "tag:yaml.org,2002:binary":
            raise YamlError(f"a number or date has more than {MAX_NUMBER} characters; quote it if it is text", line)
        try:
            value = self.loader.construct_object(node)
            if written_bare and _OCTAL.fullmatch(text) and value != int(text):
                message = f"gcloud reads {text} as the octal number {value}, readers of YAML 1.2 as {int(text)}"
                fix = f"write {int(text)}, or '{text}' with quotes if it is text"
                self.reading.notes.append(Note("octal", path, line, message, fix, None if is_key else value))
            return value
        except ConstructorError as error:
            raise YamlError(f"not valid YAML: {error.problem}", line) from error
        except (ValueError, OverflowError, AttributeError, KeyError) as error:
            raise YamlError(f"not valid YAML: {text[:60]!r} is not a value of its kind: {error}", line) from error


class _Dumper(yaml.SafeDumper):
    """Quotes also the texts that gcloud reads as booleans or numbers and PyYAML as texts."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_FLOAT.pattern + "$"), list("-+0123456789"))


def dump(data: Any) -> str:
    """Return plain data as YAML in blocks that gcloud reads as the same data; long texts stay on one line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


# YAML refuses these, or reads them as a line break, where JSON accepts them (YAML 1.1, section 5.1 and 5.4).
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def scalar(value: Any) -> str:
    """Return `value` as JSON that every YAML 1.1 reader reads as the same value; TypeError or ValueError if it has no such form."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        if value.isascii() and "\x7f" not in value:  # nearly every text
            return _quoted(str(value))
        if _SURROGATE.search(value):
            raise ValueError(f"{value!r} is not valid Unicode text")
        return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", _quoted(str(value)))
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        text = repr(float(value))
        if "e" in text:  # 1e-05 is a number only to some readers, 1.0e-05 to all
            mantissa, _, exponent = text.partition("e")
            sign = "" if exponent.startswith("-") else "+"
            text = f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.lstrip('+')}"
        return text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(key))}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(scalar(item) for item in value) + "]"
    raise TypeError(
        f"{type(value).__name__} cannot be written to YAML; only text, numbers, booleans, lists and mappings can"
    )


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # booleans and null in YAML 1.1


def flow(value: Any) -> str:
    """Return plain data on one line, without quotes around texts that every YAML reader reads as texts."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    bare = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return str(value) if bare else scalar(value)


def block(data: Any, indent: int = 0) -> list[str]:
    """Return plain data as block YAML, one JSON scalar a line."""
    margin = " " * indent
    lines: list[str] = []
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            name = key if _NAME.fullmatch(key) and key.lower() not in _WORDS else scalar(key)
            if isinstance(value, (Mapping, list)) and value:
                lines.append(f"{margin}{name}:")
                # a list's dashes are at the indentation of its key
                lines += block(value, indent + (0 if isinstance(value, list) else 2))
            else:
                lines.append(f"{margin}{name}: {scalar(value)}")
    elif isinstance(data, list) and data:
        for item in data:
            inner = block(item, indent + 2)
            lines += [f"{margin}- {inner[0].lstrip(' ')}", *inner[1:]]
    else:
        lines.append(f"{margin}{scalar(data)}")
    return lines
