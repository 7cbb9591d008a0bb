"""Modules that import TensorFlow, imported at their first use: every test worker collects these tests, and few run them."""

from __future__ import annotations

import importlib
from typing import Any

NOT_OURS = ("__", "pytest", "_pytest", "_mock")
"""Beginnings of attributes that pytest looks for in all that a test module holds."""


class Lazy:
    """A module, or what is named `part` in it."""

    def __init__(self, name: str, part: str = "") -> None:
        self.__dict__.update(lazy_name=name, lazy_part=part)

    def _found(self) -> Any:
        module = importlib.import_module(self.__dict__["lazy_name"])
        part = self.__dict__["lazy_part"]
        return getattr(module, part) if part else module

    def __getattr__(self, name: str) -> Any:
        if name.startswith(NOT_OURS) and name != "__version__":
            raise AttributeError(name)
        return getattr(self._found(), name)


augment, backup, data, models, optimizers, sources, strategy = (
    Lazy(f"trainer.{name}") for name in ("augment", "backup", "data", "models", "optimizers", "sources", "strategy")
)
tf, keras = Lazy("trainer.framework", "tf"), Lazy("trainer.framework", "keras")
