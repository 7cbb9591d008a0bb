"""A trainer's folder as a package: `identify` says what it will be called, `build` makes and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vertexrig.package.identity import PackageId, identify

if TYPE_CHECKING:
    from vertexrig.package.builder import Built

__all__ = ["Built", "PackageId", "build", "identify"]


def __getattr__(name: str) -> Any:
    # rendering only needs the identity; what builds and verifies is loaded when it is asked for
    if name == "Built":
        from vertexrig.package.builder import Built

        return Built
    raise AttributeError(name)


def build(*args: Any, **options: Any) -> Built:
    """Builds a trainer's package: see `vertexrig.package.builder.build`."""
    from vertexrig.package.builder import build as build_package

    return build_package(*args, **options)
