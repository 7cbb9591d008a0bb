"""The fields of dataclasses that are read from YAML: their documentation and the rules that `vertexrig.catalog.typed` holds."""

from __future__ import annotations

import dataclasses
from typing import Any, Union

Scalar = Union[str, int, float, bool]


def option(doc: str, default: Any = dataclasses.MISSING, *, factory: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """A dataclass field with its line of documentation."""
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata={"doc": doc, **metadata})
    return dataclasses.field(default=default, metadata={"doc": doc, **metadata})
