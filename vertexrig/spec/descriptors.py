"""Google's API schema as data: the fields of Vertex AI's messages and the values of its enums, as the strict reading asks for them.

A tool of the repository makes the shipped files from the installed google-cloud-aiplatform: `aiplatform_v1.binpb`, a serialised
`google.protobuf.FileDescriptorSet`, for `vertexrig.spec.messages`; and `aiplatform_v1.json`, the same messages and enums for this
module, which needs no protobuf: to import protobuf 7.36 takes 30 to 45 ms (measured 2026-11-22).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

__all__ = ["FILE", "PACKAGE", "Enum", "Field", "Message", "enum", "full_name", "message"]

FILE = Path(__file__).with_name("aiplatform_v1.binpb")
OTHERS = Path(__file__).with_name("services.binpb")
"""Cloud Scheduler, Cloud Logging, Resource Manager and the details of errors: what the local Vertex needs in addition to Vertex AI;
`message` and `enum` do not find what is in it."""
TABLES = Path(__file__).with_name("aiplatform_v1.json")
"""Messages and enums of `FILE` by full name, those inside messages too. A message is a pair: whether it is the entry of a map, and its
fields, each as the values of `Field` without the defaults at the end. An enum is its numbers by name."""
PACKAGE = "google.cloud.aiplatform.v1"
_ENUM, _MESSAGE = 14, 11  # google.protobuf.FieldDescriptorProto.TYPE_*


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
        type: `google.protobuf.FieldDescriptorProto.Type` as a number.
        repeated: Whether it takes a list (a map is one of entries).
        oneof: The union it belongs to, "" if none.
        type_name: Full name of its message or enum, "" for a scalar.
    """

    name: str
    type: int
    repeated: bool = False
    oneof: str = ""
    type_name: str = ""

    @cached_property
    def json_name(self) -> str:
        """As in REST and in gcloud's YAML, camelCase."""
        return re.sub("_(.?)", lambda match: match[1].upper(), self.name)

    @cached_property
    def message(self) -> Message | None:
        return message(self.type_name) if self.type == _MESSAGE else None

    @cached_property
    def enum(self) -> Enum | None:
        return enum(self.type_name) if self.type == _ENUM else None


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
    map_entry, fields = _tables()["messages"][full_name(name)]
    return Message(full_name(name), tuple(Field(*row) for row in fields), map_entry)


@cache
def enum(name: str) -> Enum:
    """Return the enum of that name, which is given as for `message`. KeyError if there is none."""
    return Enum(full_name(name).rpartition(".")[2], _tables()["enums"][full_name(name)])


def full_name(name: str) -> str:
    """Return the name with its package: `PACKAGE`, unless it has one of Google's already."""
    return name if name.startswith("google.") else f"{PACKAGE}.{name}"


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(TABLES.read_bytes())
    return tables
