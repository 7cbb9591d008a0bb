"""What describes a trainer's folder, and the setup.cfg and setup.py that it becomes in its package.

The container's pip installs an archive with a setup.py and no pyproject.toml without a build backend (see `builder`). So the
metadata of every other layout is written to a setup.cfg, which every setuptools since 30.3 reads, beside a setup.py of
one call. A setup.py of the trainer is kept: setuptools takes from setup.cfg only what the script does not give.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vertexrig.errors import PackageError
from vertexrig.package import pyproject
from vertexrig.package.folders import read_bytes
from vertexrig.package.pyproject import Declared, Metadata
from vertexrig.package.setup_script import read_setup

if TYPE_CHECKING:
    from configparser import RawConfigParser

SETUP_PY = "from setuptools import setup\n\nsetup()\n"
"""The setup.py of a project that has none: setup.cfg says the rest."""
_ROOTS = ("", "src", "lib", "python")
_SETTINGS = frozenset({"setup", "conftest", "noxfile", "tasks", "fabfile"})
# Folders that are packages in many repositories, but are not installed (setuptools' own list).
_NOT_SHIPPED = frozenset(
    """
    benchmark benchmarks bin build changelog ci deploy dist doc docs documentation example examples htmlcov man news
    newsfragments node_modules notebooks scripts site_scons tasks test testing tests toolbox tools vendor
    """.split()
)


@dataclass(frozen=True)
class Layout:
    """What a folder becomes.

    Args:
        generated: Files that staging adds or replaces, by their path; the requirements in `dependencies` are not in them.
        dependencies: Requirements that go into the generated setup.cfg; None if no metadata lists them: `sources` then takes those of
            requirements.txt, or the imported modules.
        alone: Whether the generated setup.cfg has all requirements: the package's own requirements.txt is then only data, and is staged
            unchanged.
        requires_python: Versions of Python it runs on.
        warnings: What cannot be carried over.
        backend_metadata: The metadata of a project that only its build backend can build; then `generated` is empty.
    """

    generated: Mapping[str, str]
    dependencies: tuple[Declared, ...] | None = ()
    alone: bool = False
    requires_python: str = ""
    warnings: tuple[str, ...] = ()
    backend_metadata: Metadata | None = None


def whole(path: Path, files: Mapping[str, Path]) -> Layout:
    """Return the Layout of a script or of a package's folder: every file belongs to it, and a folder of modules becomes a package."""
    packages, modules = _all(files)
    missing = {f"{place}/__init__.py": "" for place in packages.values() if f"{place}/__init__.py" not in files}
    name = path.stem if path.is_file() else path.resolve().name
    return _undescribed(name, read_config(""), packages, modules, files, missing)


def unpacked(
    metadata: Mapping[str, str], requires_python: str, scripts: Collection[str], files: Mapping[str, Path]
) -> Layout:
    """Return the Layout of a wheel's content, with the metadata of the wheel."""
    config = read_config("")
    _fill(config, "metadata", metadata)
    _fill(config, "options", {"python_requires": requires_python})
    _fill(config, "options.entry_points", {"console_scripts": _lines(scripts)})
    _content(config, *_all(files), files)
    return Layout({"setup.py": SETUP_PY, "setup.cfg": _written(config)}, alone=True)


def _all(files: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Return every folder of modules as a package (dotted), and every module at the top, with their folder or file."""
    folders = {parent for file in files if file.endswith(".py") for parent in PurePosixPath(file).parents}
    packages = {folder.as_posix().replace("/", "."): folder.as_posix() for folder in sorted(folders) if folder.name}
    return packages, {file.removesuffix(".py"): file for file in files if file.endswith(".py") and "/" not in file}


def modules(path: Path, files: Mapping[str, Path]) -> Layout | None:
    """Return the Layout of a folder of packages and modules that no file describes; None if it has none."""
    packages, singles = _chosen(Metadata(), files)
    if not packages and not singles:
        return None
    return _undescribed("trainer", _config(files), packages, singles, files, {})


def _undescribed(
    name: str,
    config: RawConfigParser,
    packages: Mapping[str, str],
    modules: Mapping[str, str],
    files: Mapping[str, Path],
    more: Mapping[str, str],
) -> Layout:
    _fill(config, "metadata", {"name": name, "version": "0"})
    _content(config, packages, modules, files)
    return Layout({**more, "setup.py": SETUP_PY, "setup.cfg": _written(config)}, None, alone=True)


def described(folder: Path, files: Mapping[str, Path]) -> Layout | None:
    """Return the Layout of a folder whose pyproject.toml has a project's metadata, with or without a setup.py; None for another folder."""
    found = pyproject.read(folder)
    if found is None:
        return None
    if found.backend_reason:
        return Layout({}, requires_python=found.requires_python, warnings=found.warnings, backend_metadata=found)
    # A setup.py stays and takes precedence: what it gives is not written to setup.cfg as well.
    given = read_setup(read_bytes(files["setup.py"], "setup.py"))[0].keys() if "setup.py" in files else set()
    config = _config(files)
    _fill(config, "metadata", {"name": found.name or "", "version": found.version or ""})
    _fill(config, "options", {"python_requires": found.requires_python})
    _fill(config, "options.entry_points", {"console_scripts": _lines(found.scripts)})
    if not given & {"packages", "py_modules", "ext_modules"} and not _has(config, "options", "packages", "py_modules"):
        packages, modules = _chosen(found, files)
        if not packages and not modules:
            raise PackageError(
                f"pyproject.toml of {str(folder)!r} describes a project without a package or module: there is none at the "
                "top or in src/. Add an empty __init__.py to the folder of the code"
            )
        _content(config, packages, modules, files)
    alone = found.dependencies is not None and "install_requires" not in given
    dependencies = (found.dependencies or ()) if alone else ()
    if dependencies and config.has_section("options"):
        # setuptools, too, takes the list of the [project] table in place of the one in setup.cfg
        config.remove_option("options", "install_requires")
    generated = {**({} if "setup.py" in files else {"setup.py": SETUP_PY}), "setup.cfg": _written(config)}
    return Layout(generated, dependencies, alone, found.requires_python, found.warnings)


def scripted(folder: Path, files: Mapping[str, Path]) -> Layout | None:
    """Return the Layout of a folder with a setup.py, or with a setup.cfg that replaces one; None for another folder."""
    if "setup.py" in files:
        return Layout({})  # nothing is generated: the setup.py has the requirements
    config = _config(files)
    return Layout({"setup.py": SETUP_PY}) if _has(config, "options", "packages", "py_modules") else None


def with_requirements(config_text: str, requirements: Collection[str]) -> str:
    """Return a generated setup.cfg with its install_requires."""
    config = read_config(config_text)
    _fill(config, "options", {"install_requires": _lines(requirements)})
    return _written(config)


# What is packaged


def _chosen(found: Metadata, files: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Return packages (dotted) and modules with their folder or file: those the metadata names, else all there are."""
    packages: dict[str, str] = {}
    modules: dict[str, str] = {}
    for path in (*found.packages, *found.modules):
        base, top = _split(path, files)
        if f"{base}{top}.py" in files:
            modules[top] = f"{base}{top}.py"
        else:
            packages |= _below(f"{base}{top}", top, files, named=True)
    if packages or modules:
        return packages, modules
    for root in found.roots or _ROOTS:
        base = f"{root.strip('./')}/" if root.strip("./") else ""
        tops = dict.fromkeys(path[len(base) :].split("/")[0] for path in files if path.startswith(base))
        for top in tops:
            # src/, lib/ and python/ at the top contain packages but are not packages themselves
            if top.isidentifier() and not (not base and top in {*_NOT_SHIPPED, *_ROOTS}):
                packages |= _below(f"{base}{top}", top, files, named=False)
        modules |= {
            name: f"{base}{top}"
            for top in tops
            if top.endswith(".py") and (name := top[:-3]).isidentifier() and name not in {*_SETTINGS, *_NOT_SHIPPED}
        }
        if packages and base:  # with src/ in use, what is at the top is tools
            break
    return packages, modules


def _split(path: str, files: Mapping[str, Path]) -> tuple[str, str]:
    """Return the folder that a package's path starts from, with its `/`, and its top-level package: `src/app/core` is src/, app."""
    parts = path.split("/")
    tops = (n for n in range(len(parts)) if f"{'/'.join(parts[: n + 1])}/__init__.py" in files)
    place = next(tops, len(parts) - 1)
    return "".join(f"{part}/" for part in parts[:place]), parts[place]


def _below(folder: str, name: str, files: Mapping[str, Path], *, named: bool) -> dict[str, str]:
    """Return a package and the packages in it, by dotted name; one that the metadata names needs no `__init__.py`."""
    holding = {path.rpartition("/")[0] for path in files if path.startswith(f"{folder}/") and path.endswith(".py")}
    if not named:
        holding = {path for path in holding if f"{path}/__init__.py" in files}
        if folder not in holding:
            return {}
    return {
        ".".join([name, *filter(None, path[len(folder) :].split("/"))]): path
        for path in sorted(holding)
        if all(part.isidentifier() for part in path[len(folder) :].split("/") if part)
    }


def _content(
    config: RawConfigParser, packages: Mapping[str, str], modules: Mapping[str, str], files: Mapping[str, Path]
) -> None:
    """Write packages and modules with their folders and the data files between them."""
    folders = {name: path for name, path in packages.items() if path != name.replace(".", "/")}
    root = {file.rpartition("/")[0] for file in modules.values()} - {""}
    pairs = [f"{name} = {path}" for name, path in folders.items()]
    # "" is setuptools' key for the folder in which modules, and packages not named, are looked up.
    if root:
        pairs.append(f"= {sorted(root)[0]}")
    data: dict[str, list[str]] = {}
    for name, path in packages.items():
        inner = [file[len(path) + 1 :] for file in files if file.startswith(f"{path}/")]
        others = {*packages.values()} - {path}
        own = [file for file in inner if not file.endswith(".py") and f"{path}/{file}".rpartition("/")[0] not in others]
        data |= {name: own} if own else {}
    _fill(
        config,
        "options",
        {"packages": _lines(packages), "py_modules": _lines(modules), "package_dir": _lines(pairs)},
    )
    _fill(config, "options.package_data", {name: _lines(names) for name, names in data.items()})


# setup.cfg


def read_config(text: str) -> RawConfigParser:
    """Return a setup.cfg; PackageError if it is not one."""
    from configparser import Error, RawConfigParser  # few trainers have a setup.cfg

    config = RawConfigParser()
    config.optionxform = str  # type: ignore[assignment,method-assign]  # packages in [options.package_data] have capitals
    try:
        config.read_string(text)
    except Error as error:
        raise PackageError(f"setup.cfg cannot be read: {str(error).splitlines()[0]}") from error
    return config


def _config(files: Mapping[str, Path]) -> RawConfigParser:
    data = read_bytes(files["setup.cfg"], "setup.cfg") if "setup.cfg" in files else b""
    return read_config(data.decode("utf-8", "replace"))


def _has(config: RawConfigParser, section: str, *options: str) -> bool:
    return any(config.has_option(section, option) for option in options)


def _fill(config: RawConfigParser, section: str, values: Mapping[str, str]) -> None:
    """Add what is not there and has a value."""
    for option, value in values.items():
        if value and not config.has_option(section, option):
            if not config.has_section(section):
                config.add_section(section)
            config.set(section, option, value)


def _lines(items: Collection[str]) -> str:
    return "".join(f"\n{item}" for item in items)


def _written(config: RawConfigParser) -> str:
    stream = StringIO()
    config.write(stream)
    return stream.getvalue()
