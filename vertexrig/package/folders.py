"""A trainer's place on disk: a script, a package or a project, and the files of it that may be packaged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vertexrig import files
from vertexrig.errors import PackageError, nearest
from vertexrig.text import quoted

DESCRIPTIONS = ("setup.py", "setup.cfg", "pyproject.toml")
"""Files that describe a distribution: a folder with one of them is a project, not a bare package."""
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "tests"})
_SKIPPED_AT_TOP = frozenset({"build", "dist", "test", "venv", "env"})
# Where trainers write when they run in their own folder: ours (outputs), and the defaults of PyTorch Lightning, MLflow,
# Weights & Biases and TensorBoard's examples. A folder with Python in it is source, whatever its name.
_RUN_OUTPUTS_AT_TOP = frozenset({"outputs", "runs", "logs", "checkpoints", "lightning_logs", "mlruns", "wandb"})
# pyproject.toml stays out: any of it makes pip build in isolation, which needs PyPI (measured with pip 21.3 to 26.0).
_SKIPPED_FILES_AT_TOP = frozenset(
    {"vertexrig.yaml", "pyproject.toml", "conftest.py", "tox.ini", "noxfile.py", "MANIFEST"}
)
_SKIPPED_ENDINGS = (".pyc", ".pyo", "~", ".swp", ".egg-info", ".egg-link", ".dist-info")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")


MOST_FILES = 20_000
"""Files of a trainer's folder that may be packaged."""
MOST_LEVELS = 100
"""Folders inside each other, in a trainer's folder."""
MOST_DESCRIPTION = 5 * files.MIB
"""Bytes of a file that describes a trainer: setup.py, setup.cfg, pyproject.toml, requirements.txt, MANIFEST.in."""


def is_script(path: Path) -> bool:
    """Whether a trainer's path is a single Python file."""
    return path.is_file() and path.suffix == ".py" and path.stem.isidentifier()


def is_package(path: Path) -> bool:
    """Whether a trainer's path is the folder of a Python package without metadata of a project in it."""
    if not (path.is_dir() and path.resolve().name.isidentifier()):
        return False
    return (path / "__init__.py").is_file() and not any((path / name).exists() for name in DESCRIPTIONS)


def is_bare(path: Path) -> bool:
    """Whether a trainer is a script or a package folder: its module names begin in the folder that holds it."""
    return is_script(path) or is_package(path)


def absent(path: Path) -> str:
    """Return the message about a trainer's path at which there is none; it names the nearest folder or script beside it."""
    try:
        beside = sorted(one.name for one in path.parent.iterdir() if one.is_dir() or is_script(one))
    except OSError:
        beside = []
    best = nearest(path.name, beside)
    return f"there is no folder or script {path}" + (f". Did you mean {str(path.parent / best)!r}?" if best else "")


def module_root(path: Path) -> Path:
    """Return the folder in which a trainer's module names begin."""
    return Path(os.path.abspath(path)).parent if is_bare(path) else path


def read_bytes(path: Path, relative: str) -> bytes:
    """Return the bytes of a file that describes a trainer, such as setup.py.

    Raises:
        PackageError: It cannot be read or is too large; `relative` names it in the message.
    """
    if file_size(path, relative) > MOST_DESCRIPTION:
        raise PackageError(f"{quoted(relative)} of the trainer is larger than {MOST_DESCRIPTION // files.MIB} MiB")
    return b"".join(parts_of(path, relative, MOST_DESCRIPTION))


def file_size(path: Path, relative: str) -> int:
    """Return a file's size; PackageError as `read_bytes`."""
    with _named(relative):
        return os.stat(path).st_size


def parts_of(path: Path, relative: str, size: int) -> Iterator[bytes]:
    """Yield a file's bytes, no more than its size, in parts; PackageError as `read_bytes`."""
    with _named(relative), open(path, "rb") as stream:
        while part := stream.read(min(size, files.MIB)):
            size -= len(part)
            yield part


@contextmanager
def _named(relative: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PackageError(f"{quoted(relative)} of the trainer cannot be read: {error.strerror}") from error


def files_of(folder: Path, prefix: str = "") -> dict[str, Path]:
    """Return the files of a folder that may be packaged, by `prefix` and their path relative to it with `/`.

    Raises:
        PackageError: There is no such folder, it cannot be read, or it has too many files or levels.
    """
    if not folder.is_dir():
        raise PackageError(f"{str(folder)!r}, the trainer's path, is not a folder")
    found: dict[str, Path] = {}
    try:
        for name, path in _files_below(folder, prefix, (os.path.realpath(folder),)):
            found[name] = path
            if len(found) > MOST_FILES:
                raise PackageError(
                    f"the trainer's folder {str(folder)!r} has more than {MOST_FILES:,} files, such as {quoted(name)}: "
                    "put data into the bucket"
                )
        return found
    except OSError as error:
        raise PackageError(f"the trainer's folder cannot be read: {error.strerror}: {error.filename}") from error


def _files_below(folder: Path, prefix: str, above: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    if len(above) > MOST_LEVELS:
        raise PackageError(
            f"the trainer's folder has more than {MOST_LEVELS} folders inside each other: {quoted(prefix[:200])}"
        )
    with os.scandir(folder) as entries:
        for entry in entries:
            if _skipped(entry.name, at_top=not prefix, is_folder=entry.is_dir()):
                continue
            if entry.is_symlink() and not files.is_inside(entry.path, above[0]):
                yield prefix + entry.name, Path(entry.path)  # not entered; the caller leaves it out, and names it
                continue
            if entry.is_file():
                yield prefix + entry.name, Path(entry.path)
            elif entry.is_dir():
                if not prefix and _is_run_output(folder, entry.name):
                    continue
                real = os.path.realpath(entry.path)
                if real in above or os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                    continue  # a link back up, or a virtual environment
                yield from _files_below(Path(entry.path), f"{prefix}{entry.name}/", (*above, real))


def _is_run_output(folder: Path, name: str) -> bool:
    """Whether a folder at the top is what a run of the trainer left: by its name, no Python in it, not in MANIFEST.in."""
    if name not in _RUN_OUTPUTS_AT_TOP:
        return False
    manifest = folder / "MANIFEST.in"
    if manifest.is_file() and re.search(rb"\b%b\b" % name.encode(), read_bytes(manifest, "MANIFEST.in")):
        return False
    return not any(file.endswith(".py") for _, _, names in os.walk(folder / name) for file in names)


def _skipped(name: str, *, at_top: bool, is_folder: bool) -> bool:
    if name.startswith(".") or name.endswith(_SKIPPED_ENDINGS):
        return True
    if is_folder:
        return name in _SKIPPED_FOLDERS or (at_top and name in _SKIPPED_AT_TOP)
    return at_top and (name in _SKIPPED_FILES_AT_TOP or _TEST_FILE.fullmatch(name) is not None)


def why_absent(folder: Path, module: str) -> str:
    """Return why a module that is in the trainer's folder is not in its package; empty if it is not in the folder."""
    parts = module.split(".")
    if why := why_outside(folder, module):
        return why
    for root in ("", "src/"):
        stem = root + "/".join(parts)
        if not ((folder / f"{stem}.py").is_file() or any((folder / stem).glob("*.py"))):
            continue
        if _SKIPPED_FOLDERS & set(parts):
            return "It is in the folder, but folders named tests are left out of the package"
        for count in range(1, len(parts) + 1):
            package = root + "/".join(parts[:count])
            if (folder / package).is_dir() and not (folder / package / "__init__.py").is_file():
                return f"{package}/ has no __init__.py, so it is not packaged: add an empty one"
        if len(parts) == 1 and not (folder / stem).is_dir():
            return f"It is in the folder, but not packaged: add py_modules=['{module}'] to setup(), or move it into a package"
        return "It is in the folder, but not packaged: use packages=find_packages() in setup()"
    return ""


def why_outside(folder: Path, module: str) -> str:
    """Return why a module of the package whose folder is the trainer's own is not in what is packaged; empty for another module."""
    outer = _outer_package(folder, module.split("."))
    if outer is None:
        return ""
    name = outer.name
    return (
        f"The package has the content of {name}/, not {name} itself. Write the project file into {outer.parent}, with "
        f"trainer: {{path: {name if is_package(outer) else '.'}, module: {name}.MODULE}}"
    )


def _outer_package(folder: Path, parts: list[str]) -> Path | None:
    """Return the trainer's folder, or a folder above it, if it is the package from which an import takes its module; None otherwise."""
    place = Path(os.path.abspath(folder))
    inner = place.joinpath(*parts[1:])
    if place.name == parts[0] and len(parts) > 1 and (inner.with_suffix(".py").is_file() or any(inner.glob("*.py"))):
        return place
    while (place / "__init__.py").is_file():
        if place.name == parts[0]:
            return place
        place = place.parent
    return None
