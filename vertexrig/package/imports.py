"""Whether a trainer's imports and requirements go with the image: what `package` refuses, `check` says first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.package.folders import why_absent
from vertexrig.package.image_modules import brought, declared_modules, distribution_of, is_supplied, own_module
from vertexrig.package.lock_files import locked
from vertexrig.package.requirements import Requirement
from vertexrig.package.sources import Sources
from vertexrig.trainer_source.trainer_model import Import, TrainerSource

# Modules of newer Pythons than the prebuilt images' 3.10, with the version they came with.
_SINCE_3_11 = {"tomllib": "3.11"}


@dataclass(frozen=True)
class Verified:
    """What verification found: the imported third-party modules that the image brings, those that requirements bring, and warnings."""

    supplied: tuple[str, ...]
    declared: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """What a build does with a trainer's requirements: reasons to refuse, and those left out (`Sources.left_out`)."""

    refusals: tuple[str, ...]
    left_out: tuple[str, ...]


def hint(folder: Path, module: str) -> str:
    why = why_absent(folder, module)
    return f". {why}" if why else ""


def fit(sources: Sources, trainer: TrainerSource, tf_version: str | None) -> Fit:
    """Return what `build` refuses and leaves out of a trainer's requirements for an image.

    `tf_version` is the image's TensorFlow, None if that is not known.
    """
    refusals = list(sources.refusals)
    # requirements that a setup.py computes are not known before the build
    if not refusals and not trainer.problems and not sources.unsafe:
        imports = [item for item in trainer.imports if item.kind != "missing" and not item.caught]
        try:
            third_party(imports, sources.folder, sources.requirements, tf_version)
        except PackageError as error:
            refusals.append(str(error))
    return Fit(tuple(refusals), sources.left_out)


def third_party(
    imports: Iterable[Import], folder: Path, requirements: Sequence[Requirement], tf_version: str | None
) -> Verified:
    """Return the top-level modules that the image and the requirements bring.

    Raises:
        PackageError: One is named nowhere, and no requirement may bring it; or an import cannot work in the package or in the image.
    """
    known = declared_modules(item.name for item in requirements)

    @cache  # made for the first import that needs it; most do not
    def more() -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the modules of what the requirements bring, and the requirements of which that is not known."""
        names, unknown = brought((item.name for item in requirements), locked(folder))
        return declared_modules(names), unknown

    unsure = [item for item in requirements if not item.sure]
    warnings: list[str] = []
    supplied: set[str] = set()
    declared: set[str] = set()
    for item in imports:
        top = item.module.split(".")[0]
        place = item.where
        if item.kind == "missing" and not item.caught:
            raise PackageError(
                f"{place}: imports {item.module}, which is neither a module nor a name in the package{hint(folder, item.module)}"
            )
        if item.kind == "stdlib" and tf_version is not None and not item.caught and top in _SINCE_3_11:
            raise PackageError(
                f"{place}: {top} came with Python {_SINCE_3_11[top]}; the newest prebuilt image has Python 3.10. "
                "Write image: build with a newer Python, or do not import it"
            )
        if item.kind != "other":
            continue
        if top.lower() in known:
            declared.add(top)
        elif is_supplied(top, tf_version):
            supplied.add(top)
        elif top.lower() in more()[0]:
            declared.add(top)
        # a URL without a name may bring any module, unless the folder itself has one of that name
        elif not item.caught and unsure and not _own(item, top, folder):
            url = unsure[0]
            warnings.append(
                f"{place}: imports {top}; it is not known whether {url.file}:{url.line} ({url.pin.lstrip('@ ')}) provides it"
            )
        elif not item.caught and (unknown := more()[1]) and not _own(item, top, folder):
            shown = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
            warnings.append(f"{place}: imports {top}; it is not known whether a dependency of {shown} provides it")
        elif not item.caught:
            raise PackageError(_named_nowhere(item, top, folder))
    return Verified(tuple(sorted(supplied)), tuple(sorted(declared)), tuple(dict.fromkeys(warnings)))


def _own(item: Import, top: str, folder: Path) -> str:
    """Return why an import does not find the module of the trainer that it means, as the end of a message; empty if there is none."""
    own = own_module(item)
    return f", and Python finds it only as {own}: {item.correction}" if own else hint(folder, top)


def _named_nowhere(item: Import, top: str, folder: Path) -> str:
    place = item.where
    why = _own(item, top, folder)
    if why:
        return f"{place}: imports {item.module}{why}"
    return (
        f"{place}: imports {top}, which neither the image nor the requirements bring. "
        f"Add {distribution_of(top)} to requirements.txt"
    )
