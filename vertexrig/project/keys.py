"""Every key of the project file with its type, default and meaning, read from the dataclasses of `model`."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union

from vertexrig.project.model import Project
from vertexrig.schema import typed
from vertexrig.schema.typed import Scalar

_NAMES = {str: "text", int: "whole number", float: "number", bool: "boolean", Any: "anything", type(None): "null"}
_SCALAR = typing.get_args(Scalar)


def rows() -> list[tuple[str, str, str, str]]:
    """Return every key as (name, type, default, meaning), from the top of the file downwards; `Job.worker` is a key of a Job."""
    found = []
    for cls in places():
        hints, prefix = typed.hints(cls), "" if cls is Project else f"{cls.__name__}."
        for item in dataclasses.fields(cls):
            kind = re.sub(r"\[(\w+)\]\(#\w+\)", r"\1", type_text(hints[item.name])).replace("`", "")
            name, default = f"{prefix}{item.name}", default_text(item).strip("`")
            found.append((name, kind, default, meaning(item).replace("`", "")))
    return found


def places() -> dict[type, list[str]]:
    """Return every mapping of the file with the paths where it may be, from the top downwards."""
    found: dict[type, list[str]] = {Project: []}
    pending: list[tuple[type, str]] = [(Project, "")]
    while pending:
        cls, prefix = pending.pop(0)
        for name, hint in typed.hints(cls).items():
            for part, suffix in _dataclasses(hint):
                # A mapping may be at several places, and its keys are listed once.
                if part not in found:
                    found[part] = []
                    pending.append((part, f"{part.__name__}."))
                found[part].append(f"{prefix}{name}{suffix}")
    return found


def _dataclasses(hint: Any, suffix: str = "") -> Iterator[tuple[type, str]]:
    """Yield the dataclasses in a type, each with the suffix of its path: `.NAME` in a mapping, `[]` in a list."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint, suffix
        return
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        suffix += ".NAME"
    elif origin is tuple:
        suffix += "[]"
    for part in typing.get_args(hint):
        yield from _dataclasses(part, suffix)


def type_text(hint: Any) -> str:
    """Return a type hint in words, with links to the mappings it names."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        parts = [part for part in arguments if part is not type(None)]
        others = [part for part in parts if part not in _SCALAR]
        # all four kinds of scalars together have one word
        scalar = ["scalar"] if len(parts) - len(others) == len(_SCALAR) else []
        return " or ".join([*scalar, *map(type_text, others if scalar else parts)])
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of {type_text(arguments[1])}"
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return _NAMES[hint]


def meaning(item: dataclasses.Field[Any]) -> str:
    pattern = item.metadata.get("pattern")
    return str(item.metadata.get("doc", "")) + (f" Must be {pattern[1]}." if pattern else "")


def default_text(item: dataclasses.Field[Any]) -> str:
    if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
        return "required"
    value = item.default if item.default is not dataclasses.MISSING else None
    if value is None or value == "" or value == ():
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
