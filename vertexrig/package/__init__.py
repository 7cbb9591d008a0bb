"""A trainer's folder as a package: `sources` says what goes into it and what it is called, `builder` makes and proves it,
`cache` keeps what `vertexrig.trainer_source` reads of it. In goes a path; out come a name, an archive, or a `TrainerSource`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vertexrig.package.builder import Built, build
    from vertexrig.package.sources import PackageId, identify

__all__ = ["Built", "PackageId", "build", "identify"]

# loaded when asked for: rendering needs the name alone, not what builds and verifies
_PLACES = {"Built": "builder", "build": "builder", "PackageId": "sources", "identify": "sources"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
