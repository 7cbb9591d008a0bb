"""The JSON Schema of gcloud's YAML, made from the descriptors: what an editor needs to complete and underline a job's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vertexrig.spec import descriptors, strict
from vertexrig.spec.descriptors import Field, Message
from vertexrig.spec.document import Kind
from vertexrig.times import DURATION

Schema = dict[str, Any]
_WELL_KNOWN: dict[str, Schema] = {
    "Duration": {"type": "string", "pattern": f"^(?:{DURATION})$", "description": "Seconds and an s: 3600s."},
    "Timestamp": {"type": "string", "format": "date-time"},
}
_NUMBER: Schema = {"type": "number"}
# an int64 travels as text in JSON
_INTEGER: Schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}


def job_schema(kind: Kind, examples: Mapping[str, Sequence[str]]) -> Schema:
    """Return the schema of a custom job's or tuning job's file; `examples` are values that an editor proposes, by the name of their field."""
    defs: Schema = {}
    root = _message(descriptors.message(kind), defs, examples)
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": f"{kind} of Vertex AI, as gcloud --config takes it", **root, "$defs": defs}


def _message(schema: Message, defs: Schema, examples: Mapping[str, Sequence[str]]) -> Schema:
    name = schema.full_name.removeprefix(f"{descriptors.PACKAGE}.")
    if name not in defs:
        defs[name] = {}  # a message may hold itself
        properties = {
            field.json_name: {
                "description": f"{name}.{field.json_name} of Vertex AI's REST API v1.",
                **_field(field, defs, examples),
            }
            for field in schema.fields
            if field.json_name not in strict.OUTPUT_ONLY
        }
        defs[name] = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
    return {"$ref": f"#/$defs/{name}"}


def _field(field: Field, defs: Schema, examples: Mapping[str, Sequence[str]]) -> Schema:
    if field.message is not None and field.message.map_entry:
        inner = _single(field.message.by_name["value"], defs, examples)
        return {"type": ["object", "null"], "additionalProperties": inner}
    one = _single(field, defs, examples)
    if field.repeated:
        return {"type": ["array", "null"], "items": one}
    return one if "$ref" in one else {"anyOf": [one, {"type": "null"}]}


def _single(field: Field, defs: Schema, examples: Mapping[str, Sequence[str]]) -> Schema:
    if field.message is not None:
        name = field.message.full_name.removeprefix("google.protobuf.")
        if name == field.message.full_name:
            return _message(field.message, defs, examples)
        if name.endswith("Value") and name not in ("Value", "ListValue"):
            return _NUMBER if name in ("DoubleValue", "FloatValue") else _INTEGER if "Int" in name else {}
        return _WELL_KNOWN.get(name, {})
    if field.enum is not None:
        return {"enum": sorted(field.enum.numbers, key=lambda name: name.endswith("_UNSPECIFIED"))}
    if field.type in strict.INTEGERS:
        return _INTEGER
    if field.type in strict.NUMBERS:
        return _NUMBER
    text: Schema = {"type": "boolean"} if field.type == strict.BOOL else {"type": "string"}
    return {**text, "examples": list(examples[field.name])} if field.name in examples else text
