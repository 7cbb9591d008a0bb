"""What is wrong with the JSON of a message, in the words of Google's API front end.

Words of real answers, by kind: an unknown field (python-aiplatform issue 1684), a list for a single value, an object for a scalar
(answers of the Fitness and Slides APIs, index ids 33498322215 and 68932666373), a wrong number or enum value (Docs API, index id
59104286371), a duration (Pub/Sub, index id 4934232507), a time (Talent API, index id 44313741114), two fields of a oneof (Sheets and
Firestore, index ids 70086072947 and 69638355758); all read 2026-11-27.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from localvertex.http import ApiError, bad_request
from vertexrig.spec import messages
from vertexrig.spec.api_names import camel

_TYPES = "type.googleapis.com/"
_SAYS = {
    "google.protobuf.Duration": "Illegal duration format; duration must end with 's'",
    "google.protobuf.Timestamp": "Illegal timestamp format; timestamps must end with 'Z' or have a valid timezone offset.",
}
"""What is said of a text that is not of a well-known type, after the name of its field."""
MOST = 200
"""Problems that an error lists: a bound of our own."""


def error_of(problems: Sequence[tuple[str, str]]) -> ApiError:
    """Return the 400 that lists all problems, pairs of field path and message."""
    return ApiError(400, "\n".join(text for _, text in problems), details=[bad_request(problems)])


def is_repeated(field: Any) -> bool:
    """Whether a field is a list; protobuf deprecates `label` in the releases that have `is_repeated`."""
    return bool(
        field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptorProto.LABEL_REPEATED
    )


def misread(kind: Any, data: Mapping[str, Any], place: str = "") -> list[tuple[str, str]]:
    """Return the field path and the service's words about each of the first 200 values that the message cannot have; it is at `place` in the request."""
    return list(islice(_misread(kind, data, place), MOST))


def _misread(kind: Any, data: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    at = f" at '{place}'" if place else ""
    chosen: set[str] = set()
    for key, value in data.items():
        field = kind.fields_by_camelcase_name.get(camel(key))
        if field is None:
            yield place, f'Invalid JSON payload received. Unknown name "{key[:100]}"{at}: Cannot find field.'
            continue
        if value is None:
            continue
        oneof = field.containing_oneof
        if oneof is not None and oneof.name in chosen:
            yield (
                place,
                f"Invalid value{at} (oneof), oneof field '{oneof.name}' is already set. Cannot set '{key[:100]}'",
            )
        chosen |= {oneof.name} if oneof is not None else set()
        yield from _field(field, key, value, place)


def _field(field: Any, key: str, value: Any, place: str) -> Iterator[tuple[str, str]]:
    inner, at = field.message_type, f" at '{place}'" if place else ""
    path = f"{place}.{field.name}" if place else field.name
    if inner is not None and inner.GetOptions().map_entry:
        values = value.values() if isinstance(value, dict) else ()
        for index, one in enumerate(values):
            yield from _value(inner.fields_by_name["value"], f"{path}[{index}].value", one, key, place)
    elif is_repeated(field):
        if not isinstance(value, list):
            yield from _value(field, path, value, key, place)
        for index, one in enumerate(value if isinstance(value, list) else ()):
            yield from _value(field, f"{path}[{index}]", one, key, place)
    elif isinstance(value, list) and not _is_known(inner):
        text = f'Invalid JSON payload received. Unknown name "{key[:100]}"{at}: '
        yield place, f"{text}Proto field is not repeating, cannot start list."
    else:
        yield from _value(field, path, value, key, place)


def _is_known(inner: Any) -> bool:
    """Whether a message is a well-known type, whose JSON is its own."""
    return inner is not None and inner.full_name.startswith("google.protobuf.")


def _value(field: Any, path: str, value: Any, key: str, place: str) -> Iterator[tuple[str, str]]:
    inner = field.message_type
    if inner is not None and not _is_known(inner):
        if isinstance(value, dict):
            yield from _misread(inner, value, path)
        elif value is not None:
            yield path, f"Invalid value at '{path}' ({_TYPES}{inner.full_name}), {json.dumps(value)}"
        return
    if _fits(field, value):
        return
    if inner is not None:
        name = inner.full_name
        says = f"Field '{key}', {_SAYS[name]}" if name in _SAYS and isinstance(value, str) else json.dumps(value)
        yield path, f"Invalid value at '{path}' ({_TYPES}{name}), {says}"
    elif isinstance(value, dict):
        at = f" at '{place}'" if place else ""
        yield place, f"Invalid value{at} ({field.name}), Starting an object on a scalar field"
    elif field.enum_type is not None:
        yield path, f"Invalid value at '{path}' ({_TYPES}{field.enum_type.full_name}), {json.dumps(value)}"
    else:
        name = FieldDescriptorProto.Type.Name(field.type)
        says = "Base64 decoding failed for " if name == "TYPE_BYTES" else ""
        yield path, f"Invalid value at '{path}' ({name}), {says}{json.dumps(value)}"


def _fits(field: Any, value: Any) -> bool:
    """Whether protobuf's own reader takes a value for a field."""
    if field.type == field.TYPE_STRING:  # most values, and trying each takes 100 µs
        return isinstance(value, str)
    holder = field.containing_type
    if holder.GetOptions().map_entry:
        return not isinstance(value, (dict, list))
    try:
        messages.to_message(holder.full_name, {field.camelcase_name: [value] if is_repeated(field) else value})
    except (json_format.ParseError, ValueError, TypeError):
        return False
    return True
