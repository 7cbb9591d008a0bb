"""The JSON Schema (draft 2020-12) of a file whose values are dataclasses: what an editor needs to complete and underline it.

It says what `vertexrig.schema.typed` says about each value by itself. What only the whole file tells, such as a job that a
sweep names and that is not there, is not in it, and any value but a mapping may be a `${VARIABLE}`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from vertexrig.schema.typed import hints, lacking

Schema = dict[str, Any]
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_VARIABLE = "variable"
_LAX = "Changed"
"""Prefix of a mapping's name, where an environment changes some of its keys."""
_NULL: Schema = {"type": "null"}
_OR_VARIABLE = {"$ref": f"#/$defs/{_VARIABLE}"}


def json_schema(cls: type, examples: Mapping[str, Sequence[str]] = {}) -> Schema:
    """Return the schema of a file that is one mapping, the dataclass `cls`; `examples` are values that an editor proposes, by key."""
    defs: Schema = {
        _VARIABLE: {
            "type": "string",
            "pattern": r"\$\{",
            "description": "${NAME} or ${NAME:-default}: the value of an environment variable.",
        }
    }
    _message(cls, defs)
    for field in dataclasses.fields(cls):
        if field.metadata.get("partial"):
            _partial(cls, field.name, defs)
    for one in defs.values():
        for name in one.get("properties", {}).keys() & examples.keys():
            one["properties"][name]["examples"] = list(examples[name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": inspect.cleandoc(cls.__doc__ or ""),
        "$ref": f"#/$defs/{cls.__name__}",
        "$defs": defs,
    }


def _partial(cls: type, name: str, defs: Schema) -> None:
    """Let each value of the mapping `name` have keys of the file itself: none is required, and null removes one."""
    own = defs[cls.__name__]
    for key, one in [*defs.items()]:
        if "properties" in one:
            inner = {
                given: _lax(value) for given, value in one["properties"].items() if one is not own or given != name
            }
            defs[_LAX + key] = {**one, "properties": inner, "required": []}
    values = {"anyOf": [{"$ref": f"#/$defs/{_LAX}{cls.__name__}"}, {"type": "null"}]}
    own["properties"][name] = {
        "description": own["properties"][name]["description"],
        "anyOf": [{"type": "object", "additionalProperties": values}, {"type": "null"}],
    }
    own["anyOf"] = [{"required": own["required"]}, {"required": [name]}]
    own["required"] = []


def _lax(value: Any) -> Any:
    """Return a schema of a value in which null removes what is there, also in mappings."""
    if isinstance(value, list):
        return [_lax(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: one if key in ("description", "examples", "enum") else _lax(one) for key, one in value.items()}
    if "$ref" in found and found["$ref"] != _OR_VARIABLE["$ref"]:
        found["$ref"] = found["$ref"].replace("#/$defs/", f"#/$defs/{_LAX}")
    if isinstance(found.get("additionalProperties"), dict):
        found["additionalProperties"] = _any_of([found["additionalProperties"], {"type": "null"}])
    return found if "description" not in found else {"description": found.pop("description"), **_any_of([found, _NULL])}


def _message(cls: Any, defs: Schema) -> Schema:
    """Return the reference to a dataclass, whose schema is among `defs` then."""
    name = cls.__name__
    if name not in defs:
        defs[name] = {}  # a dataclass may hold itself
        required = lacking(cls, {})
        properties: Schema = {}
        for field in dataclasses.fields(cls):
            one = _value(hints(cls)[field.name], field.metadata, defs)
            if field.name not in required:  # a key with nothing behind it takes its default
                one = _any_of([one, {"type": "null"}])
            properties[field.name] = {"description": field.metadata.get("doc", ""), **one}
        defs[name] = {
            "description": inspect.cleandoc(cls.__doc__ or ""),
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _value(hint: Any, rules: Mapping[str, Any], defs: Schema) -> Schema:
    """Return the schema of a value of that type, with what the metadata of its field allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if origin in (Union, types.UnionType):
        return _any_of([_value(part, rules, defs) for part in arguments])
    if hint is type(None):
        return {"type": "null"}
    if origin is Literal:
        return _any_of([{"enum": list(arguments)}, _OR_VARIABLE])
    if origin is tuple:
        length = {"minItems": rules["items"], "maxItems": rules["items"]} if "items" in rules else {}
        return _any_of([{"type": "array", "items": _value(arguments[0], rules, defs), **length}, _OR_VARIABLE])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = _value(arguments[1], rules, defs)
        return _any_of([{"type": "object", "additionalProperties": inner}, _OR_VARIABLE, {"type": "null"}])
    if dataclasses.is_dataclass(hint):
        # a mapping with nothing behind its key has the defaults
        return _any_of([_message(hint, defs), _OR_VARIABLE, *([] if lacking(hint, {}) else [{"type": "null"}])])
    return _scalar(hint, rules)


def _scalar(hint: type, rules: Mapping[str, Any]) -> Schema:
    found: Schema = {"type": _TYPES[hint]}
    if "least" in rules and hint in (int, float):
        found["minimum"] = rules["least"]
    if "most" in rules and hint in (int, float):
        found["maximum"] = rules["most"]
    if hint is not str:
        return _any_of([found, _OR_VARIABLE])
    if "pattern" not in rules:
        return found
    return _any_of([{**found, "pattern": f"^(?:{rules['pattern'][0]})$"}, _OR_VARIABLE])


def _any_of(parts: list[Schema]) -> Schema:
    """Return a schema that any of the parts fits, each once, however deep they are nested."""
    flat: list[Schema] = []
    for part in parts:
        flat += [one for one in part.get("anyOf", [part]) if one not in flat]
    return {"anyOf": flat} if len(flat) > 1 else flat[0]
