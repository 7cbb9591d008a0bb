"""Google's API schema as data: the descriptors of Vertex AI's messages and services, shipped in one file.

`aiplatform_v1.binpb` is a serialised `google.protobuf.FileDescriptorSet`; a tool of the repository makes it from the installed
google-cloud-aiplatform. What the strict reading asks for at every key (names, types, unions, enum values) is kept here in
tables, made of a message's descriptor when it is first met: building a protobuf DescriptorPool of all messages takes 2 to 10 ms
more, and only `vertexrig.spec.messages` needs it. protobuf 7.36 itself takes 30 to 45 ms to import, the file 0.5 ms (measured 2026-11-22).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet

__all__ = ["FILE", "PACKAGE", "Enum", "Field", "Message", "enum", "full_name", "message"]

FILE = Path(__file__).with_name("aiplatform_v1.binpb")
OTHERS = Path(__file__).with_name("services.binpb")
"""Cloud Scheduler, Cloud Logging, Resource Manager and the details of errors: what the local Vertex needs in addition to Vertex AI;
`message` and `enum` do not find what is in it."""
PACKAGE = "google.cloud.aiplatform.v1"


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
        return message(self.type_name) if self.type == FieldDescriptorProto.TYPE_MESSAGE else None

    @cached_property
    def enum(self) -> Enum | None:
        return enum(self.type_name) if self.type == FieldDescriptorProto.TYPE_ENUM else None


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
    """Return the message of that name; a name without a package is one of `PACKAGE`, and `A.B` is B inside A. KeyError if there is none."""
    found = _index()[0][full_name(name)]
    unions = [union.name for union in found.oneof_decl]
    return Message(full_name(name), tuple(_field(one, unions) for one in found.field), found.options.map_entry)


@cache
def enum(name: str) -> Enum:
    """Return the enum of that name, which is given as for `message`. KeyError if there is none."""
    found = _index()[1][full_name(name)]
    return Enum(found.name, {value.name: value.number for value in found.value})


def full_name(name: str) -> str:
    """Return the name with its package: `PACKAGE`, unless it has one of Google's already."""
    return name if name.startswith("google.") else f"{PACKAGE}.{name}"


@cache
def _index() -> tuple[dict[str, DescriptorProto], dict[str, EnumDescriptorProto]]:
    """Return the file's messages and enums by full name, those inside messages too."""
    messages: dict[str, DescriptorProto] = {}
    enums: dict[str, EnumDescriptorProto] = {}

    def add(prefix: str, own: Iterable[DescriptorProto], values: Iterable[EnumDescriptorProto]) -> None:
        enums.update((f"{prefix}.{one.name}", one) for one in values)
        for one in own:
            messages[f"{prefix}.{one.name}"] = one
            add(f"{prefix}.{one.name}", one.nested_type, one.enum_type)

    for file in FileDescriptorSet.FromString(FILE.read_bytes()).file:
        add(file.package, file.message_type, file.enum_type)
    return messages, enums


def _field(found: FieldDescriptorProto, unions: list[str]) -> Field:
    # protobuf makes a union of one for `optional`, which nobody writes
    in_union = found.HasField("oneof_index") and not found.proto3_optional
    return Field(
        found.name,
        found.json_name or re.sub("_(.?)", lambda match: match[1].upper(), found.name),
        found.type,
        found.label == FieldDescriptorProto.LABEL_REPEATED,
        unions[found.oneof_index] if in_union else "",
        found.type_name.removeprefix("."),
    )
