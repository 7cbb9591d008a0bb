"""Plain values from a YAML file to typed dataclasses, with errors that name the key, the line and the choices.

A field's type hint is its rule: `str`, `int`, `float`, `bool`, `Literal[...]`, a dataclass, `X | None`, `tuple[X, ...]`,
`Mapping[str, X]`, `Scalar` or `Any`. Its metadata may narrow that for each value in it: `pattern` (an expression and what
it is in words), `least` (the smallest number), `items` (the length of a list), `unit` (the unit of a duration
such as 3600s, which a bare number lacks), `lasts` (an example of a duration as people write it). Three more check nothing here: `doc` is the field's line
in the reference page, and in the error where it is missing; `partial` tells `schema.json_schema` that the values of a mapping are parts
of the file itself; `names` tells `catalog.overlay` in which table of the catalog the named rows are.

All that is wrong is reported together. No library does this at a price that a short verb can pay: msgspec 0.22.0 loses the keys of
mappings (`$.jobs[...].worker`), names no nearest key and ends at the first problem (tried 2026-11-21); pydantic 2.14 costs
110 to 150 ms of every short verb: 36 to 61 ms for its import, 55 to 90 ms for 45 models (measured 2026-11-22).
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, TypeVar, Union

from vertexrig import yamltext
from vertexrig.errors import ConfigError, Errors, did_you_mean, meant
from vertexrig.finding import Act, Edit, write
from vertexrig.text import kind_of, quoted
from vertexrig.times import duration_seconds, meant_seconds

T = TypeVar("T")
Scalar = Union[str, int, float, bool]


def given(doc: str, default: Any = dataclasses.MISSING, *, factory: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """Return a dataclass field that a file gives, with its line of documentation."""
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata={"doc": doc, **metadata})
    return dataclasses.field(default=default, metadata={"doc": doc, **metadata})


class Given:
    """A dataclass whose fields are `given`. Generated for each class, `__eq__`, `__hash__` and `__repr__` would take a third of the time of
    the import of a project's classes.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def computed(doc: str) -> Any:
    """Return a dataclass field that code fills in: it is no key of a file."""
    return dataclasses.field(metadata={"doc": doc, "computed": True})


class Untyped(str):
    """Text from the environment or the command line: it takes the type of the field it lands in."""


WRONG: Any = object()
"""Placeholder for a value whose error is already collected; later steps skip it."""


def read(text: str, file: str) -> yamltext.Reading:
    """Return the values and lines of a YAML text; ConfigError if it is not YAML, has a key twice, or a number such as 012."""
    try:
        reading = yamltext.read(text)
    except yamltext.YamlError as error:
        raise ConfigError(str(error), file=file, line=error.line) from None
    # Of two equal keys our reader keeps the first, as gcloud does, and the other would be lost without a message.
    errors = Errors()
    for note in reading.notes:
        if note.kind != "two-readings":
            errors.keep(ConfigError(f"{note.message}: {note.fix}", file=file, line=note.line))
    errors.raise_all()
    return reading


@dataclass(frozen=True)
class Origins:
    """Where values come from.

    Args:
        file: The file's name; None if the values are of no file.
        lines: Line of each value that the file gives, by its path of keys.
        override_of: The override that each value of the command line comes from, by the value's path.
    """

    file: str | None = None
    lines: Mapping[yamltext.FileKey, int] = dataclasses.field(default_factory=dict)
    override_of: Mapping[yamltext.FileKey, str] = dataclasses.field(default_factory=dict)

    def of(self, path: yamltext.FileKey) -> int | str | None:
        """Return what gives the value at `path`, or at the nearest key around it: the line of the file, or the text of an override.

        None if there is no such key.
        """
        for n in range(len(path), 0, -1):
            found = self.override_of.get(path[:n]) or self.lines.get(path[:n])
            if found is not None:
                return found
        return None

    def path_in_file(self, path: yamltext.FileKey) -> yamltext.FileKey:
        """Return where the file has the value at `path`."""
        return path


@dataclass(frozen=True)
class Place:
    """Where a value is.

    Args:
        path: Its path of keys.
        origins: Where the values come from.
        bare_yn: Paths of a bare `y` or `n`, which YAML reads as a boolean.
    """

    path: yamltext.FileKey
    origins: Origins
    bare_yn: frozenset[yamltext.FileKey] = frozenset()

    def at(self, key: str | int) -> Place:
        return Place((*self.path, key), self.origins, self.bare_yn)

    def error(self, message: str, *edits: Edit) -> ConfigError:
        """Return a ConfigError that begins with the path in the file.

        It has the line, or the override, of the value or of the nearest key around it; without one, the line where
        the file's values begin. The edits that mend it are made at the path.
        """
        origin, path = self.origins.of(self.path), self.origins.path_in_file(self.path)
        file, line = self.origins.file, self.origins.lines.get(())
        if origin is not None:
            file, line = (f"--set {origin}", None) if isinstance(origin, str) else (file, origin)
        name, here = dotted(path), tuple(dataclasses.replace(edit, location=path) for edit in edits)
        return ConfigError(f"{name}: {message}" if name else message, file=file, line=line, edits=here)


def dotted(path: yamltext.FileKey) -> str:
    """Return `jobs.cpu.args` for a path of keys; an index is written in brackets."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)
"""Returns the resolved type hints of a dataclass."""


def build(cls: type[T], value: Any, place: Place) -> T:
    """Return the dataclass `cls` from a mapping; ConfigError with all that does not fit."""
    value, known = _mapping_here(value, place), keys(cls)  # type: ignore[arg-type]  # a class is hashable
    # `key:` without a value counts as a key that is not given, but an unknown key is reported in any case
    present = {key: item for key, item in value.items() if item is not None or key not in known}
    errors = Errors()
    with errors:
        found = field_values(cls, present, place)
    # with an unknown key present, the missing key may just be misspelt: report only the unknown one
    if present.keys() <= known.keys():
        for name in lacking(cls, present):
            with errors:
                raise place.error(f"the key {name!r} is required: {known[name].metadata.get('doc', '')}")
    errors.raise_all()
    return cls(**found)


def lacking(cls: Any, found: Mapping[str, Any]) -> list[str]:
    """Return the fields of a dataclass that have no default and are not in `found`."""
    missing = dataclasses.MISSING
    return [
        name
        for name, field in keys(cls).items()
        if name not in found and field.default is missing and field.default_factory is missing
    ]


@cache
def keys(cls: Any) -> Mapping[str, dataclasses.Field[Any]]:
    """Return the fields of a dataclass that a file may give, by name."""
    return {field.name: field for field in dataclasses.fields(cls) if field.init and not field.metadata.get("computed")}


def field_values(cls: Any, value: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return the fields of the dataclass `cls` that a mapping gives, as their types; ConfigError with all that do not fit."""
    known = keys(cls)
    found, errors = {}, Errors()
    for key, item in value.items():
        with errors:
            if key not in known:
                text = f"there is no key {quoted(key)} here. {did_you_mean(str(key), known, most=40)}"
                best = meant(str(key), known.keys() - value.keys())
                raise place.at(key).error(text, *([Edit(key=best)] if best else []))
            # 3600 could be meant as minutes or hours; the service takes only text with an s.
            unit = known[key].metadata.get("unit")
            if unit and isinstance(item, int) and not isinstance(item, bool):
                raise place.at(key).error(
                    f"{item} is a number without a unit: write {item}{unit}", *write(f"{item}{unit}")
                )
            lasts = known[key].metadata.get("lasts")
            if lasts and str(item).isdecimal():
                raise place.at(key).error(f"{item} is a number without a unit: write a duration such as {lasts}")
            found[key] = convert(hints(cls)[key], item, place.at(key))
            if lasts and isinstance(found[key], str) and not meant_seconds(found[key]):
                text = f"{quoted(found[key])} is not a duration such as {lasts}: write whole days, hours, minutes or seconds"
                raise place.at(key).error(f"{text}, above zero, as in 2d, 12h, 1h30m or 90s")
            if unit and isinstance(found[key], str) and duration_seconds(found[key]) is None:
                seconds = meant_seconds(found[key])
                fix = f"write {seconds}s" if seconds is not None else "write seconds and an s, such as 3600s"
                edits = write(None if seconds is None else f"{seconds}s")
                raise place.at(key).error(f"{quoted(item)} is not a duration: {fix}", *edits)
            if known[key].metadata.keys() & {"pattern", "least", "most", "items"}:
                _check_rules(known[key].metadata, found[key], place.at(key))
    errors.raise_all()
    return found


def _check_rules(rules: Mapping[str, Any], value: Any, place: Place) -> None:
    """Check every text and number in a value against what the field's metadata allows."""
    if isinstance(value, (tuple, Mapping)):
        if isinstance(value, tuple) and len(value) != rules.get("items", len(value)):
            raise place.error(f"the list has {len(value)} items; {rules['items']} belong here")
        _each(
            value.items() if isinstance(value, Mapping) else enumerate(value),
            place,
            partial(_check_rules, rules),
        )
    elif isinstance(value, str) and "pattern" in rules and not re.fullmatch(rules["pattern"][0], value):
        raise place.error(f"{quoted(value)} is not {rules['pattern'][1]}")
    elif isinstance(value, (int, float)) and value < rules.get("least", value):
        raise place.error(f"{value} is below {rules['least']}, the smallest number that fits")
    elif isinstance(value, (int, float)) and value > rules.get("most", value):
        raise place.error(f"{value} is above {rules['most']}, the largest number that fits")


def _mapping_here(value: Any, place: Place) -> Mapping[str, Any]:
    value = _resolve(value, place)
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise place.error(f"{quoted(value)} is {kind_of(value)}; a mapping belongs here")
    return value


def convert(hint: Any, value: Any, place: Place) -> Any:
    """`value` as the type `hint` says; ConfigError with all in it that does not fit."""
    if value is WRONG:
        return value
    origin = typing.get_origin(hint)
    if hint is Any:
        return _plain(value, place)
    if origin in (Union, types.UnionType):
        return _union(hint, value, place)
    if origin is Literal:
        choices = [str(choice) for choice in typing.get_args(hint)]
        # str(): an `Untyped` text becomes a plain one.
        if isinstance(value, str) and str(value) in choices:
            return str(value)
        text = f"{quoted(value)} is not one of its values. {did_you_mean(str(value), choices, most=30)}"
        raise place.error(text, *write(meant(str(value), choices)))
    if origin is tuple:
        return _sequence(typing.get_args(hint)[0], value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(typing.get_args(hint)[1], value, place)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, place)
    if isinstance(hint, type) and issubclass(hint, tuple):  # a named tuple of whole numbers
        return _sequence(int, value, place)
    return _scalar(hint, value, place)


def _union(hint: Any, value: Any, place: Place) -> Any:
    options = [part for part in typing.get_args(hint) if part is not type(None)]
    if value is None and len(options) < len(typing.get_args(hint)):
        return None
    if len(options) == 1:
        return convert(options[0], value, place)
    if set(options) == set(typing.get_args(Scalar)):
        # text from outside stays text where text is allowed: `--set args.tag=007` is not 7
        value = _text(value) if isinstance(value, Untyped) else value
        if isinstance(value, bool) and place.path in place.bare_yn:
            letter, word = ("y", "true") if value else ("n", "false")
            text = f"{letter} is read as {word} where it has no quotes: put it in quotes, or write {word}"
            raise place.error(text, Edit(Act.QUOTE))
        if isinstance(value, (str, int, float, bool)):
            return _finite(value, place)
        raise place.error(f"{quoted(value)} is {kind_of(value)}; text, a number or a boolean belongs here")
    resolved = _resolve(value, place)
    for part in options:  # a union here is always of different shapes: the value's shape decides
        origin = typing.get_origin(part)
        is_mapping = dataclasses.is_dataclass(part) or (isinstance(origin, type) and issubclass(origin, Mapping))
        shape = list if origin is tuple else Mapping if is_mapping else None
        if shape is not None and isinstance(resolved, shape):
            return convert(part, resolved, place)
        if shape is None and not isinstance(resolved, (list, Mapping)):
            return convert(part, value, place)
    raise place.error(f"{quoted(value)} is {kind_of(value)}; a mapping or a list belongs here")


def _sequence(item: Any, value: Any, place: Place) -> tuple[Any, ...]:
    value = _resolve(value, place)
    if not isinstance(value, list):
        raise place.error(f"{quoted(value)} is {kind_of(value)}; a list belongs here")
    return tuple(_each(enumerate(value), place, partial(convert, item)).values())


def _mapping(item: Any, value: Any, place: Place) -> dict[str, Any]:
    value = _mapping_here(value, place)
    return _each(value.items(), place, partial(convert, item))


def _each(parts: Iterable[tuple[Any, Any]], place: Place, made: Callable[[Any, Place], Any]) -> dict[Any, Any]:
    """Return what is made of each part by its key or index; ConfigError with all that do not fit."""
    found, errors = {}, Errors()
    for key, part in parts:
        with errors:
            found[key] = made(part, place.at(key))
    errors.raise_all()
    return found


def _scalar(hint: Any, value: Any, place: Place) -> Any:
    if hint is str:
        if isinstance(value, str):
            return _text(value)
        text = f"{quoted(value)} is {kind_of(value)}; text belongs here: put it in quotes"
        raise place.error(text, *([] if value is None or isinstance(value, (list, dict)) else [Edit(Act.QUOTE)]))
    value = _resolve(value, place)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(value, place)
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}[hint]
    raise place.error(f"{quoted(value)} is {kind_of(value)}; {wanted} belongs here")


def _text(value: str) -> str:
    # Untyped is a subclass of str: this makes it plain text
    return str.__str__(value)


def _finite(value: Any, place: Place) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise place.error(f"{value} is not a finite number")
    return value


def _resolve(value: Any, place: Place) -> Any:
    """`Untyped` text as the YAML value it spells; anything else as it is."""
    if not isinstance(value, Untyped):
        return value
    try:
        return yamltext.read(_text(value)).data
    except yamltext.YamlError as error:
        raise place.error(f"{quoted(value)}: {error}") from error


def _plain(value: Any, place: Place) -> Any:
    if value is WRONG:  # its error was reported where it was found
        return value
    value = _resolve(value, place)
    if isinstance(value, Mapping):
        return {str(key): item for key, item in _each(value.items(), place, _plain).items()}
    if isinstance(value, list):
        return list(_each(enumerate(value), place, _plain).values())
    if value is None or isinstance(value, (str, int, float, bool)):
        return _finite(value, place)
    raise place.error(f"{quoted(value)} is {kind_of(value)}; put it in quotes if it is text")
