"""Google's own messages as protobuf classes, made from the shipped descriptors (`vertexrig.spec.descriptors`).

They are in a separate descriptor pool: a program that also loads google-cloud-aiplatform, in whatever version, meets
no second definition of a name. `pool()` has the services too, with the request and answer of each method. The strict
reading needs no pool; the local Vertex does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from vertexrig.spec import descriptors

__all__ = ["from_message", "message_class", "pool", "to_message"]


@cache
def pool() -> DescriptorPool:
    """Return the pool of every message and service that is shipped."""
    made = DescriptorPool()
    for path in (descriptors.FILE, descriptors.OTHERS):
        for file in FileDescriptorSet.FromString(path.read_bytes()).file:  # each comes after those it depends on
            made.AddSerializedFile(file.SerializeToString())
    return made


@cache
def message_class(name: str) -> Any:
    """Return the protobuf class of a message; a name without a package is one of Vertex AI's: `CustomJob`. KeyError if there is none."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(descriptors.full_name(name)))


def to_message(name: str, data: dict[str, Any]) -> Any:
    """Return the protobuf message of that name for canonical JSON `data`; json_format.ParseError if it does not fit."""
    return json_format.ParseDict(data, message_class(name)(), ignore_unknown_fields=False, descriptor_pool=pool())


def from_message(message: Any) -> dict[str, Any]:
    """Return a message as REST writes it: camelCase keys, int64 as text, enums as names, fields that are not set left out."""
    data: dict[str, Any] = json_format.MessageToDict(message, descriptor_pool=pool())
    return data
