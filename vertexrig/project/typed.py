"""Plain values from a YAML file to typed dataclasses, with errors that name the key, the line and the choices.

A field's type hint is its rule: `str`, `int`, `float`, `bool`, `Literal[...]`, a dataclass, `X | None`, `tuple[X, ...]`,
`Mapping[str, X]`, `Scalar` or `Any`. Its `metadata["doc"]` is its line in the reference page.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union

from vertexrig import yamltext
from vertexrig.errors import ConfigError, did_you_mean
from vertexrig.text import kind_of, quoted

Scalar = Union[str, int, float, bool]
T = TypeVar("T")


class Given(str):
    """Text from the environment or the command line: it takes the type of the field it lands in."""


def option(doc: str, default: Any = dataclasses.MISSING, *, factory: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """A dataclass field with its line of documentation."""
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata={"doc": doc, **metadata})
    return dataclasses.field(default=default, metadata={"doc": doc, **metadata})


@dataclass(frozen=True)
class Place:
    """Where a value stands: its path of keys, and how to find the file and line of a path."""

    path: yamltext.RawPath
    locate: Callable[[yamltext.RawPath], tuple[str | None, int | None]]

    def at(self, key: str | int) -> Place:
        return Place((*self.path, key), self.locate)

    def error(self, message: str) -> ConfigError:
        """A ConfigError that begins with the path of the value."""
        file, line = self.locate(self.path)
        name = dotted(self.path)
        return ConfigError(f"{name}: {message}" if name else message, file=file, line=line)


def dotted(path: yamltext.RawPath) -> str:
    """`jobs.cpu.args` for a path of keys; an index is written in brackets."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def hints(cls: type) -> dict[str, Any]:
    """The resolved type hints of a dataclass."""
    return _hints(cls)


def build(cls: type[T], value: Any, place: Place) -> T:
    """The dataclass `cls` from a mapping; ConfigError at the first thing that does not fit."""
    value = _resolve(value, place)
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise place.error(f"{quoted(value)} is {kind_of(value)}; a mapping belongs here")
    types_ = hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    found = {}
    for key, item in value.items():
        if key not in known:
            raise place.at(key).error(f"there is no key {key!r} here. {did_you_mean(str(key), known, most=40)}")
        if item is None:
            continue
        found[key] = convert(types_[key], item, place.at(key))
        allowed = known[key].metadata.get("pattern")
        if allowed is not None and isinstance(found[key], str) and not re.fullmatch(allowed[0], found[key]):
            raise place.at(key).error(f"{quoted(found[key])} is not {allowed[1]}")
    for name, field in known.items():
        if name not in found and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise place.error(f"the key {name!r} is required: {field.metadata.get('doc', '')}")
    return cls(**found)


def convert(hint: Any, value: Any, place: Place) -> Any:
    """`value` as the type `hint` says; ConfigError if it does not fit."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return _plain(value, place)
    if origin in (Union, types.UnionType):
        return _union(hint, value, place)
    if origin is Literal:
        choices = [str(choice) for choice in typing.get_args(hint)]
        if isinstance(value, str) and str(value) in choices:
            return str(value)
        raise place.error(f"{quoted(value)} is not one of its values. {did_you_mean(str(value), choices, most=30)}")
    if origin is tuple:
        return _sequence(typing.get_args(hint)[0], value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(typing.get_args(hint)[1], value, place)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, place)
    return _scalar(hint, value, place)


def _union(hint: Any, value: Any, place: Place) -> Any:
    options = [part for part in typing.get_args(hint) if part is not type(None)]
    if value is None and len(options) < len(typing.get_args(hint)):
        return None
    if len(options) == 1:
        return convert(options[0], value, place)
    if set(options) == set(typing.get_args(Scalar)):
        value = _text(value) if isinstance(value, Given) else value
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
    return tuple(convert(item, part, place.at(index)) for index, part in enumerate(value))


def _mapping(item: Any, value: Any, place: Place) -> dict[str, Any]:
    value = _resolve(value, place)
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise place.error(f"{quoted(value)} is {kind_of(value)}; a mapping belongs here")
    return {str(key): convert(item, part, place.at(key)) for key, part in value.items()}


def _scalar(hint: Any, value: Any, place: Place) -> Any:
    if hint is str:
        if isinstance(value, str):
            return _text(value)
        raise place.error(f"{quoted(value)} is {kind_of(value)}; text belongs here: put it in quotes")
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
    return str.__str__(value)


def _finite(value: Any, place: Place) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise place.error(f"{value} is not a finite number")
    return value


def _resolve(value: Any, place: Place) -> Any:
    """`Given` text as the YAML value it spells; anything else as it is."""
    if not isinstance(value, Given):
        return value
    try:
        return yamltext.read(_text(value)).data
    except yamltext.YamlError as error:
        raise place.error(f"{quoted(value)}: {error.message}") from error


def _plain(value: Any, place: Place) -> Any:
    value = _resolve(value, place)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, place.at(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, place.at(index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, (str, int, float, bool)):
        return _finite(value, place)
    raise place.error(f"{quoted(value)} is {kind_of(value)}; put it in quotes if it is text")
