"""Whether an answer has the shape of a message of the API, so that whoever reads it need not ask at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vertexrig.spec import descriptors
from vertexrig.spec.descriptors import Field, Message
from vertexrig.text import kind_of, quoted

_OPEN = frozenset({"google.protobuf.Struct", "google.protobuf.ListValue", "google.protobuf.Any"})
"""Messages that hold any JSON."""
_WELL_KNOWN = "google.protobuf."
"""The other messages of this package are text, a number or a truth value in JSON: times, durations, wrappers. A Value may be
anything, but the one of a job is a trial's parameter."""
_FLOATING, _WHOLE = frozenset({1, 2}), frozenset({3, 4, 5, 6, 7, 13, 15, 16, 17, 18})
"""Types of fields (`Field.type`) that are numbers; 64-bit ones are text in JSON, and so are NaN and Infinity."""


def misshapen(kind: str, data: Any) -> str | None:
    """What of an answer is a list, a mapping, a number or another plain value where the API has another of the four.

    Fields and enum values that the shipped schema lacks pass: the service is newer than it.

    Args:
        kind: The message: `HyperparameterTuningJob`.
        data: The answer's JSON.

    Returns:
        The first such place with its value and what belongs there; None if there is none.
    """
    return _message(descriptors.message(kind), data, "")


def _message(message: Message, data: Any, path: str) -> str | None:
    if message.full_name in _OPEN:
        return None
    if message.full_name.startswith(_WELL_KNOWN):
        return _plain(data, path)
    if not isinstance(data, Mapping):
        return _wrong(path, data, "a mapping")
    fields = message.by_name
    for key, value in data.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        found = _field(field, value, f"{path}.{key}" if path else str(key))
        if found is not None:
            return found
    return None


def _field(field: Field, value: Any, path: str) -> str | None:
    if not field.repeated:
        return _one(field, value, path)
    if field.message is not None and field.message.map_entry:
        if not isinstance(value, Mapping):
            return _wrong(path, value, "a mapping")
        inner = field.message.by_name["value"]
        rows = [(inner, one, f"{path}.{key}") for key, one in value.items()]
    elif not isinstance(value, list):
        return _wrong(path, value, "a list")
    else:
        rows = [(field, one, f"{path}[{index}]") for index, one in enumerate(value)]
    return next((found for row in rows if (found := _one(*row)) is not None), None)


def _one(field: Field, value: Any, path: str) -> str | None:
    if field.message is not None:
        return _message(field.message, value, path)
    if field.type in _FLOATING | _WHOLE:
        return _number(value, path, whole=field.type in _WHOLE)
    return _plain(value, path)


def _plain(value: Any, path: str) -> str | None:
    return _wrong(path, value, "text or a number") if isinstance(value, (Mapping, list)) else None


def _number(value: Any, path: str, *, whole: bool) -> str | None:
    try:
        number = float("x" if isinstance(value, bool) else value)
        fits = not whole or number.is_integer()
    except (TypeError, ValueError, OverflowError):
        fits = False
    return None if fits else _wrong(path, value, "a whole number" if whole else "a number")


def _wrong(path: str, value: Any, belongs: str) -> str:
    return f"{path or 'the answer'} is {kind_of(value)}, {quoted(value)}, where {belongs} belongs"
