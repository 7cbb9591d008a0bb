"""The package around a bare trainer: the files it needs, and the setup.py that nobody wrote for it.

Of a script, the script and those of its neighbours that it imports go in; of a package's folder, all its files. The
requirements are those of a requirements.txt beside it, without what the image brings; where there is none, they are what
the source imports and the image does not bring.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from vertexrig.errors import PackageError
from vertexrig.package.source import TrainerSource, bare, read
from vertexrig.package.source.files import ROOTS
from vertexrig.package.sources import Sources, _minor, _Notes, _read, _requirement, _walk, normalise
from vertexrig.package.verify import IMPORT_NAMES, _is_supplied

REQUIREMENTS = "requirements.txt"
VERSION = "0"
_OF_TENSORFLOW = re.compile(r"tensorflow(-cpu|-gpu|-intel|-macos)?|tf-nightly|keras|protobuf")
_OF_OTHERS = re.compile(r"torch|torchvision|torchaudio|xgboost|jax|jaxlib|numpy")
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def gather_around(path: Path, tf_version: str | None) -> Sources:
    """A bare trainer as the sources of a package.

    Args:
        path: The script, or the package's folder.
        tf_version: TensorFlow of the image, None if it is not known.

    Raises:
        PackageError: A file cannot be read.
    """
    root, name = bare.root(path), path.absolute().stem if path.is_file() else path.resolve().name
    source = read(root, name)
    files = _of_script(root, source) if path.is_file() else _of_folder(path, name)
    rewritten = dict.fromkeys(_missing_inits(files), b"")
    notes = _Notes()
    requirements = _requirements(path, root, source if path.is_file() else _whole(root, files), tf_version, notes)
    rewritten["setup.py"] = _setup(name, [*files, *rewritten], requirements).encode()
    files.update({file: root / file for file in rewritten})
    return Sources(
        root, tuple(sorted(files.items())), rewritten, name, VERSION,
        tuple(notes.requirements), tuple(notes.refusals), tuple(notes.warnings),
    )  # fmt: skip


def _of_script(root: Path, source: TrainerSource) -> dict[str, Path]:
    """The script and the neighbours it imports, by their path in the package."""
    for problem in source.problems:
        place = f"{problem.file}:{problem.line}: " if problem.line else f"{problem.file}: " if problem.file else ""
        raise PackageError(place + problem.message)
    return {_below_its_root(file, root): root / file for file in source.files}


def _below_its_root(file: str, root: Path) -> str:
    """`src/model.py` is imported as `model` unless src is a package itself."""
    for prefix in ROOTS:
        if prefix and file.startswith(prefix) and not (root / prefix / "__init__.py").exists():
            return file.removeprefix(prefix)
    return file


def _of_folder(path: Path, name: str) -> dict[str, Path]:
    try:
        return dict(_walk(path, f"{name}/", (os.path.realpath(path),)))
    except OSError as error:
        raise PackageError(f"the trainer's folder cannot be read: {error.strerror}: {error.filename}") from error


def _whole(root: Path, files: Iterable[str]) -> list[TrainerSource]:
    modules = (PurePosixPath(file).with_suffix("") for file in files if file.endswith(".py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in modules)
    return [read(root, name) for name in names]


def _packages(files: Iterable[str]) -> list[str]:
    """Folders with Python files, as package names, with the folders above them."""
    folders = {parent for file in files if file.endswith(".py") for parent in PurePosixPath(file).parents}
    return sorted(folder.as_posix().replace("/", ".") for folder in folders if folder.name)


def _missing_inits(files: Iterable[str]) -> list[str]:
    names = set(files)
    wanted = (f"{package.replace('.', '/')}/__init__.py" for package in _packages(names))
    return [file for file in wanted if file not in names]


def _setup(name: str, files: Iterable[str], requirements: list[str]) -> str:
    """The setup.py: every module and package by name, and the packages' other files as their data."""
    files = sorted(files)
    packages = _packages(files)
    modules = [file.removesuffix(".py") for file in files if file.endswith(".py") and "/" not in file]
    data: dict[str, list[str]] = {}
    for file in files:
        if not file.endswith(".py"):
            owner = max((p for p in packages if file.startswith(f"{p.replace('.', '/')}/")), key=len)
            data.setdefault(owner, []).append(file[len(owner) + 1 :])
    given = {
        "name": name, "version": VERSION, "py_modules": modules, "packages": packages, "package_data": data,
        "install_requires": requirements,
    }  # fmt: skip
    return "from setuptools import setup\n\nsetup(**" + repr(given) + ")\n"


def _requirements(
    path: Path, root: Path, source: TrainerSource | list[TrainerSource], tf_version: str | None, notes: _Notes
) -> list[str]:
    minor = _minor(tf_version)
    places = [folder / REQUIREMENTS for folder in dict.fromkeys((path, root)) if (folder / REQUIREMENTS).is_file()]
    if not places:
        read_ones = source if isinstance(source, list) else [source]
        found = _imported(read_ones, tf_version)
        return [_requirement(text, file, line, minor, notes) for text, (file, line) in sorted(found.items())]
    brought = _OF_OTHERS if minor is None else _OF_TENSORFLOW
    kept = []
    for number, line in enumerate(_read(places[0], REQUIREMENTS).decode("utf-8", "replace").splitlines(), 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        match = _NAME.match(text)
        if match is None:
            continue  # blank, or an option of pip, which a package cannot have
        if brought.fullmatch(normalise(match[1])):
            notes.warnings.append(f"{REQUIREMENTS}:{number}: {text} is left out: the image brings its own")
            continue
        kept.append(_requirement(text, REQUIREMENTS, number, minor, notes))
    return kept


def _imported(sources: Iterable[TrainerSource], tf_version: str | None) -> Mapping[str, tuple[str, int]]:
    """Distributions of what is imported, neither the image's nor the trainer's own, each with its first place."""
    found: dict[str, tuple[str, int]] = {}
    for source in sources:
        for item in source.imports:
            top = item.module.split(".")[0]
            if item.kind == "other" and not item.caught and not _is_supplied(top, tf_version):
                names = [distribution for distribution, modules in IMPORT_NAMES.items() if top in modules]
                found.setdefault(names[0] if names else top.replace("_", "-"), (item.file, item.line))
    return found
