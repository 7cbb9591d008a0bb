"""Google's API schema as data: the descriptors of Vertex AI's messages and services, shipped in one file.

`aiplatform_v1.binpb` is a serialised `google.protobuf.FileDescriptorSet`; a tool of the repository makes it from the installed
google-cloud-aiplatform. What the strict reading needs of it (names, types, unions, enum values) is read here straight from
the bytes: importing protobuf's Python package for that takes 20 to 30 ms of every command, reading the tables 2 to 3 ms
(measured 2026-11-21). `vertexrig.spec.messages` makes protobuf's own message classes from the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["FILE", "PACKAGE", "Enum", "Field", "Message", "enum", "files", "full_name", "message", "other_files"]

FILE = Path(__file__).with_name("aiplatform_v1.binpb")
OTHERS = Path(__file__).with_name("services.binpb")
"""Cloud Scheduler, Cloud Logging, Resource Manager and the details of errors: what the local Vertex needs beside Vertex AI."""
PACKAGE = "google.cloud.aiplatform.v1"

# Field numbers of google/protobuf/descriptor.proto; it is part of protobuf's wire contract.
_SET_FILE = 1
_FILE_PACKAGE, _FILE_MESSAGE, _FILE_ENUM = 2, 4, 5
_NAME = 1  # of a message, a field, an enum, an enum value and a union alike
_MESSAGE_FIELD, _MESSAGE_NESTED, _MESSAGE_ENUM, _MESSAGE_OPTIONS, _MESSAGE_ONEOF = 2, 3, 4, 7, 8
_OPTION_MAP_ENTRY = 7
_FIELD_LABEL, _FIELD_TYPE, _FIELD_TYPE_NAME, _FIELD_ONEOF, _FIELD_JSON_NAME, _FIELD_OPTIONAL = 4, 5, 6, 9, 10, 17
_ENUM_VALUE, _VALUE_NUMBER = 2, 2
_LABEL_REPEATED = 3
_TYPE_MESSAGE, _TYPE_ENUM = 11, 14

_Entries = dict[int, list[bytes]]


@dataclass(frozen=True)
class Enum:
    """An enum of the API.

    Args:
        name: Its name without the package.
        numbers: Number by value name.
    """

    name: str
    numbers: Mapping[str, int]

    @cached_property
    def names(self) -> dict[int, str]:
        """Value name by number; the first one, should two share a number."""
        # reversed, so that of two names with one number the first is written last and stays
        return {number: name for name, number in reversed(list(self.numbers.items()))}


@dataclass(frozen=True)
class Field:
    """One field of a message.

    Args:
        name: As in the proto file, snake_case.
        json_name: As in REST and in gcloud's YAML, camelCase.
        type: `google.protobuf.FieldDescriptorProto.Type` as a number.
        repeated: Whether it takes a list (a map is one of entries).
        oneof: The union it belongs to, "" if none.
        type_name: Full name of its message or enum, "" for a scalar.
    """

    name: str
    json_name: str
    type: int
    repeated: bool = False
    oneof: str = ""
    type_name: str = ""

    @cached_property
    def message(self) -> Message | None:
        return message(self.type_name) if self.type == _TYPE_MESSAGE else None

    @cached_property
    def enum(self) -> Enum | None:
        return enum(self.type_name) if self.type == _TYPE_ENUM else None


@dataclass(frozen=True)
class Message:
    """A message of the API.

    Args:
        full_name: With its package: `google.cloud.aiplatform.v1.CustomJobSpec`.
        fields: In the order of the proto file.
        map_entry: Whether it is the entry of a map: a message with the fields key and value.
    """

    full_name: str
    fields: tuple[Field, ...]
    map_entry: bool

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Each field under its JSON name and under its proto name."""
        return {name: field for field in self.fields for name in (field.json_name, field.name)}

    @cached_property
    def json_names(self) -> tuple[str, ...]:
        return tuple(field.json_name for field in self.fields)


@cache
def message(name: str) -> Message:
    """The message of that name; a name without a package is one of `PACKAGE`, and `A.B` is B inside A.

    Raises:
        KeyError: The file has no such message.
    """
    found = _entries(_encoded(full_name(name)))
    unions = [_text(_entries(union), _NAME) for union in found.get(_MESSAGE_ONEOF, ())]
    options = [_entries(one) for one in found.get(_MESSAGE_OPTIONS, ())]
    map_entry = any(_number(one, _OPTION_MAP_ENTRY) for one in options)
    return Message(full_name(name), tuple(_field(one, unions) for one in found.get(_MESSAGE_FIELD, ())), map_entry)


@cache
def enum(name: str) -> Enum:
    """The enum of that name, which is given as for `message`.

    Raises:
        KeyError: The file has no such enum.
    """
    values = [_entries(value) for value in _entries(_encoded(full_name(name))).get(_ENUM_VALUE, ())]
    return Enum(name.rpartition(".")[2], {_text(value, _NAME): _number(value, _VALUE_NUMBER) for value in values})


@cache
def files() -> tuple[bytes, ...]:
    """The serialised FileDescriptorProtos, each behind those it depends on."""
    return tuple(_entries(FILE.read_bytes())[_SET_FILE])


def other_files() -> tuple[bytes, ...]:
    """The same of `OTHERS`; they depend on `files`, and `message` and `enum` do not find what is in them."""
    return tuple(_entries(OTHERS.read_bytes())[_SET_FILE])


def full_name(name: str) -> str:
    """The name with its package: `PACKAGE`, unless it has one of Google's already."""
    return name if name.startswith("google.") else f"{PACKAGE}.{name}"


@cache
def _index() -> dict[str, bytes]:
    """Each message and enum by full name, still encoded: those at a file's top; `_encoded` adds those inside them."""
    found: dict[str, bytes] = {}
    for file in files():
        entries = _entries(file)
        _add(found, _text(entries, _FILE_PACKAGE), entries, _FILE_MESSAGE, _FILE_ENUM)
    return found


def _add(index: dict[str, bytes], prefix: str, entries: _Entries, *kinds: int) -> None:
    for kind in kinds:
        for one in entries.get(kind, ()):
            # the name is a message's first entry: the rest of it is decoded only when it is asked for
            name = next(value for number, value in _walk(one) if number == _NAME)
            index[f"{prefix}.{name.decode()}"] = one


def _encoded(full_name: str) -> bytes:
    index = _index()
    if full_name not in index:
        parent = full_name.rpartition(".")[0]
        if not parent:
            raise KeyError(full_name)
        _add(index, parent, _entries(_encoded(parent)), _MESSAGE_NESTED, _MESSAGE_ENUM)
    return index[full_name]


def _field(encoded: bytes, unions: list[str]) -> Field:
    entries = _entries(encoded)
    name = _text(entries, _NAME)
    in_union = _FIELD_ONEOF in entries and not _number(entries, _FIELD_OPTIONAL)  # `optional` makes a union of one
    return Field(
        name,
        _text(entries, _FIELD_JSON_NAME) or re.sub("_(.?)", lambda found: found[1].upper(), name),
        _number(entries, _FIELD_TYPE),
        _number(entries, _FIELD_LABEL) == _LABEL_REPEATED,
        unions[_number(entries, _FIELD_ONEOF)] if in_union else "",
        _text(entries, _FIELD_TYPE_NAME).removeprefix("."),
    )


# Protobuf's encoding, as far as descriptors use it (https://protobuf.dev/programming-guides/encoding/, read 2026-11-21):
# each entry is a varint of field number and wire type, then a varint (type 0) or a length and so many bytes (type 2).


def _entries(data: bytes) -> _Entries:
    """The values of an encoded message by field number; a number is kept as its varint's bytes."""
    found: _Entries = {}
    for number, value in _walk(data):
        found.setdefault(number, []).append(value)
    return found


def _walk(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, end = _varint(data, at)
        if tag & 7 == 2:
            at, end = end, end + value
        elif tag & 7 != 0:
            raise ValueError(f"wire type {tag & 7} does not occur in descriptors: is {FILE.name} damaged?")
        yield tag >> 3, data[at:end]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at that place, and where it ends: seven bits a byte, the lowest first, the top bit set but in the last."""
    byte, at = data[at], at + 1
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 0x7F) << shift, shift + 7
    return value, at


def _text(entries: _Entries, number: int) -> str:
    # protobuf's rule: of a field that is there several times the last one counts
    return entries[number][-1].decode() if number in entries else ""


def _number(entries: _Entries, number: int) -> int:
    return _varint(entries[number][-1], 0)[0] if number in entries else 0
