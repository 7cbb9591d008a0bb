"""Field names in the API's two spellings: camelCase in JSON, snake_case in protobuf and in the project file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def camel(name: str) -> str:
    """`machine_type` as `machineType`; a name that is camelCase already stays."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def snake(name: str) -> str:
    """`machineType` as `machine_type`; in a path every part is changed."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def camel_keys(data: Any) -> Any:
    """Plain data with every key of every mapping in camelCase."""
    if isinstance(data, Mapping):
        return {camel(str(key)): camel_keys(value) for key, value in data.items()}
    return [camel_keys(value) for value in data] if isinstance(data, (list, tuple)) else data
