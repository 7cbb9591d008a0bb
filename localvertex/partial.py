"""What a client asks of the form of an answer: some of its fields, and enums as numbers.

Source: https://cloud.google.com/apis/docs/system-parameters, read 2026-11-27
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from localvertex.http import Json
from vertexrig.spec.api_names import camel


def field_tree(fields: str) -> Json:
    """Return the fields of `name,items(id,size),owner/entity` as nested mappings; an empty one is a whole value."""
    root: Json = {}
    bases, node = [root], root
    for token in re.findall(r"[^(),/\s]+|[(),/]", fields):
        if token == "(":
            bases.append(node)
        elif token == ")" and len(bases) > 1:
            node = bases.pop()
        elif token == ",":
            node = bases[-1]
        elif token not in ")/":
            node = node.setdefault(token, {})
    return root


def chosen(value: Any, fields: Json) -> Any:
    """Return the chosen fields of a value, of each item of a list."""
    if isinstance(value, list):
        return [chosen(item, fields) for item in value]
    if not fields or not isinstance(value, dict):
        return value
    found = {name: fields.get(name, fields.get("*")) for name in value}
    return {name: chosen(value[name], below) for name, below in found.items() if below is not None}


def camel_tree(tree: Json) -> Json:
    """Return a tree of fields with the names of JSON; a client may write those of the message, too."""
    return {camel(name): camel_tree(below) for name, below in tree.items()}


def unknown_paths(kind: Any, tree: Json, above: str = "") -> Iterator[str]:
    """Yield each path of a tree of fields that the message of a descriptor does not have."""
    for name, below in tree.items():
        field = kind.fields_by_camelcase_name.get(camel(name))
        if field is None and name != "*":
            yield above + name
        elif field is not None and field.message_type is not None and not _is_free(field.message_type):
            yield from unknown_paths(field.message_type, below, f"{above}{name}.")


def enum_numbers(kind: Any, data: Any) -> Any:
    """Return the JSON of a message with enums as numbers; what an Any or a map holds stays."""
    if not isinstance(data, Mapping):
        return data
    made: Json = {}
    for key, value in data.items():
        field = kind.fields_by_camelcase_name.get(key)
        made[key] = (
            value
            if field is None
            else [_numbers(field, one) for one in value]
            if isinstance(value, list)
            else _numbers(field, value)
        )
    return made


def _numbers(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_name.get(value) if isinstance(value, str) else None
        return named.number if named is not None else value
    inner = field.message_type
    return value if inner is None or _is_free(inner) else enum_numbers(inner, value)


def _is_free(kind: Any) -> bool:
    """Whether a message is a map or a well-known type, which has no fields of its own in JSON."""
    return bool(kind.GetOptions().map_entry) or kind.full_name.startswith("google.protobuf.")
