"""Between protobuf messages and the JSON of the REST API, and from a REST error to a gRPC status.

v1beta1 messages are read and written with v1's classes: a test holds that the messages served have the same field numbers,
names and types in both. What only one of the two has is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from localvertex.http import JSON_LIMIT, MOST_VALUES, Json
from vertexrig.spec import messages

_OPERATION, _OPERATIONS = "google.longrunning.Operation", "google.longrunning.ListOperationsResponse"
_BETA, _STABLE = ".aiplatform.v1beta1.", ".aiplatform.v1."


def to_json(kind: Any, request: bytes) -> Json:
    """Return a request as canonical JSON.

    Raises:
        ValueError: The bytes are not such a message, or one of more than `MOST_VALUES` values or `JSON_LIMIT` bytes.
    """
    if len(request) > JSON_LIMIT:
        raise ValueError(f"Request payload size exceeds the limit: {JSON_LIMIT} bytes.")
    try:
        message = kind.FromString(request)
        _bound_values(message)
        masks = _odd_masks(message)
        return {**messages.from_message(message), **masks}
    except (
        DecodeError,
        json_format.Error,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:  # an Any of an unknown type
        raise ValueError(f"The request is not a {kind.DESCRIPTOR.name}: {error}") from None


def _odd_masks(message: Message) -> Json:
    """Take the masks out of a message that protobuf's JSON cannot have, as those with capitals, and return them as REST's clients send them."""
    masks = {
        field.json_name: ",".join(value.paths)
        for field, value in message.ListFields()
        if getattr(field.message_type, "full_name", "") == "google.protobuf.FieldMask"
        and any(character.isupper() for path in value.paths for character in path)
    }
    for field in message.DESCRIPTOR.fields:
        if field.json_name in masks:
            message.ClearField(field.name)
    return masks


def _bound_values(message: Message) -> None:
    """Refuse a message of too many values before it becomes JSON, which takes many times its memory."""
    count, open_ = 0, [message]
    while open_:
        for field, value in open_.pop().ListFields():
            listed = isinstance(value, (Sequence, Mapping)) and not isinstance(value, (str, bytes))
            count += len(value) if listed else 1
            if count > MOST_VALUES:
                raise ValueError(f"it has more than {MOST_VALUES:,} values")
            if field.message_type is not None:
                items = value.values() if isinstance(value, Mapping) else value if listed else (value,)
                open_.extend(one for one in items if isinstance(one, Message))


def to_answer(name: str, data: Mapping[str, Any]) -> Any:
    """Return the message of that name for a REST answer; fields that it does not have are left out, as by every client."""
    if name == _OPERATION:
        return _operation(data)
    made = messages.message_class(name)()
    # Protobuf's JSON reader wants the type of each Any in its pool, which has none of v1beta1: operations are made apart.
    plain = dict(data)
    listed = plain.pop("operations", ()) if name == _OPERATIONS else ()
    json_format.ParseDict(plain, made, ignore_unknown_fields=True, descriptor_pool=messages.pool())
    if listed:
        made.operations.extend(map(_operation, listed))
    return made


def packed(data: Mapping[str, Any], target: Any) -> None:
    """Fill a google.protobuf.Any from its JSON; the version that its type names stays as it is.

    Raises:
        KeyError: The type is not one of those shipped.
    """
    payload = dict(data)
    url = str(payload.pop("@type"))
    kind = messages.message_class(url.rpartition("/")[2].replace(_BETA, _STABLE))
    made = kind()
    # In an Any, google.protobuf.Empty is {"@type": ..., "value": {}} (protobuf's JSON mapping of well-known types).
    payload = payload.pop("value", {}) if not kind.DESCRIPTOR.fields else payload
    json_format.ParseDict(payload, made, ignore_unknown_fields=True, descriptor_pool=messages.pool())
    target.type_url, target.value = url, made.SerializeToString()


def _operation(data: Mapping[str, Any]) -> Any:
    made = messages.message_class(_OPERATION)()
    plain = {key: value for key, value in data.items() if key not in ("metadata", "response")}
    json_format.ParseDict(plain, made, ignore_unknown_fields=True, descriptor_pool=messages.pool())
    for part in ("metadata", "response"):
        if part in data:
            packed(data[part], getattr(made, part))
    return made


def status(code: int, data: Mapping[str, Any]) -> tuple[str, str, bytes]:
    """Return a REST error as the name of a gRPC status, its message and, if it has details, `grpc-status-details-bin`."""
    error = data.get("error") or {}
    name, message = str(error.get("status", "UNKNOWN")), str(error.get("message", f"HTTP {code}"))
    if name not in grpc.StatusCode.__members__:
        name = "UNKNOWN"
    if not error.get("details"):
        return name, message, b""
    made = messages.message_class("google.rpc.Status")(code=grpc.StatusCode[name].value[0], message=message)
    for detail in error["details"]:
        packed(detail, made.details.add())
    return name, message, made.SerializeToString()
