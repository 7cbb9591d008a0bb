"""What the typed values of `vertexrig.yaml` share: their base, the names they go by, and the direction of a goal."""

from __future__ import annotations

from typing import Literal

NAME = (r"[a-z0-9][a-z0-9_-]{0,62}", "a name: lowercase letters, digits, - and _, at most 63, a letter or digit first")
Goal = Literal["MAXIMIZE", "MINIMIZE"]


class Value:
    """Equality and repr for all values: generating them for each class would cost 10 ms at every start."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
