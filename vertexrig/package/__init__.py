"""A trainer's folder as a package: `identify` says what it will be called, `build` makes and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vertexrig.package.identity import PackageId, identify

if TYPE_CHECKING:
    from vertexrig.package.builder import Built, build

__all__ = ["Built", "PackageId", "build", "identify"]


def __getattr__(name: str) -> Any:
    # rendering only needs the identity; what builds and verifies is loaded when it is asked for
    if name in ("Built", "build"):
        from vertexrig.package import builder

        return getattr(builder, name)
    raise AttributeError(name)
