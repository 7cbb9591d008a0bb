"""What the values of `vertexrig.yaml` share: the names they go by, and the direction of a goal."""

from __future__ import annotations

from typing import Literal

NAME = (r"[a-z0-9][a-z0-9_-]{0,62}", "a name: lowercase letters, digits, - and _, at most 63, a letter or digit first")
Goal = Literal["MAXIMIZE", "MINIMIZE"]
