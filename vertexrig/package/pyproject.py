"""Name, version, dependencies and packages as the [project] table of pyproject.toml says them.

Nothing is built or run. A version that a tool computes (setuptools-scm, hatch-vcs) is left out: the hash in the package's
name distinguishes packages. What only the project's build backend knows is left to `backend`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vertexrig import files
from vertexrig.errors import PackageError
from vertexrig.package.folders import read_bytes
from vertexrig.package.image_modules import normalise
from vertexrig.package.indexes import beyond_the_package, is_pypi


@dataclass(frozen=True)
class Declared:
    """One requirement in the form that pip reads, with its file and line."""

    text: str
    line: int
    file: str = "pyproject.toml"


@dataclass(frozen=True)
class Metadata:
    """What a pyproject.toml says of the project; None or empty for what it does not say.

    Args:
        name: The distribution's name.
        version: Its version.
        dependencies: What it needs; None if the metadata leaves that to setup.py or setup.cfg.
        requires_python: Versions of Python it runs on.
        packages: Top-level packages it names, with the folder that holds them: `src/app`.
        modules: Single modules it names, likewise.
        roots: Folders in which to look for packages where it names none.
        scripts: Console scripts, `name = module:function`.
        warnings: What cannot be carried over.
        backend_reason: Why only the project's build backend knows the requirements; "" if they are all in the file.
    """

    name: str | None = None
    version: str | None = None
    dependencies: tuple[Declared, ...] | None = None
    requires_python: str = ""
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    backend_reason: str = ""


class _File:
    """A parsed pyproject.toml: its tables, and the line of a text."""

    def __init__(self, folder: Path, text: str, data: Mapping[str, Any]) -> None:
        self.folder, self.lines, self.data = folder, text.splitlines(), data

    def table(self, *keys: str) -> Mapping[str, Any]:
        here: Any = self.data
        for key in keys:
            here = here.get(key) if isinstance(here, dict) else None
        return here if isinstance(here, dict) else {}

    def line(self, text: str) -> int:
        """Return the first line that holds `text`, 1 if none does."""
        return next((number for number, line in enumerate(self.lines, 1) if text in line), 1)

    def text_of(self, name: object) -> str:
        """Return the text of a file that the metadata names; empty if it is not there or outside of the folder."""
        path = (self.folder / str(name)).resolve()
        try:
            # ValueError for a file outside: `../VERSION` would not be in the package
            path.relative_to(self.folder.resolve())
            return path.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return ""


def read(folder: Path) -> Metadata | None:
    """Return the metadata of a folder's pyproject.toml; None if there is no such file or it only configures tools. PackageError if it is no TOML."""
    path = folder / "pyproject.toml"
    if not path.is_file() or not files.is_inside(path, folder):
        return None
    if sys.version_info >= (3, 11):  # most trainers have no such file
        import tomllib
    else:
        import tomli as tomllib

    try:
        # editors on Windows write a byte order mark, which TOML does not allow
        text = read_bytes(path, "pyproject.toml").decode("utf-8-sig")
        data = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise PackageError(f"pyproject.toml of the trainer is not valid TOML: {error}") from error
    file = _File(folder, text, data)
    if file.table("project"):
        return _with_sources(_project(file), file)
    for keys, name in ((("tool", "poetry"), "name"), (("tool", "flit", "metadata"), "module")):
        if table := file.table(*keys):
            why = f"[{'.'.join(keys)}] of pyproject.toml is read by its build backend alone"
            python = _text(table.get("requires-python")) or ""  # of Flit; Poetry writes it in a form of its own
            return Metadata(
                _text(table.get(name)), _text(table.get("version")), requires_python=python, backend_reason=why
            )
    return None


def _project(file: _File) -> Metadata:
    table = file.table("project")
    dynamic = set(_texts(table.get("dynamic")))
    dependencies: tuple[Declared, ...] | None = tuple(
        Declared(text, file.line(text)) for text in _texts(table.get("dependencies"))
    )
    reason = ""
    if "dependencies" in dynamic:
        dependencies = _from_files(file)
        if dependencies is None and not (file.folder / "setup.py").exists():
            reason = "the dependencies in pyproject.toml are dynamic"
    found = Metadata(
        _text(table.get("name")),
        _text(table.get("version")),
        dependencies,
        str(table.get("requires-python") or ""),
        scripts=tuple(f"{key} = {value}" for key, value in file.table("project", "scripts").items()),
        backend_reason=reason,
    )
    return _layout(found, file)


def _from_files(file: _File) -> tuple[Declared, ...] | None:
    """Return the dependencies that setuptools takes from requirements files; None if it is not told to."""
    given = file.table("tool", "setuptools", "dynamic", "dependencies").get("file")
    if not given:
        return None
    return tuple(
        Declared(line.strip(), number, name)
        for name in _texts(given)
        for number, line in enumerate(file.text_of(name).splitlines(), 1)
        # setuptools refuses options of pip here, and takes comments
        if line.strip() and not line.lstrip().startswith(("#", "-"))
    )


def _layout(found: Metadata, file: _File) -> Metadata:
    """Add the packages and modules that the table of setuptools names."""
    setuptools = file.table("tool", "setuptools")
    where = file.table("tool", "setuptools", "packages", "find").get("where")
    top = str(file.table("tool", "setuptools", "package-dir").get("") or "")
    prefix = f"{top.rstrip('/')}/" if top not in {"", "."} else ""
    packages = [prefix + one.replace(".", "/") for one in _texts(setuptools.get("packages"))]
    modules = [prefix + one for one in _texts(setuptools.get("py-modules"))]
    return replace(
        found,
        packages=tuple(dict.fromkeys(one.strip("./") for one in packages)),
        modules=tuple(dict.fromkeys(modules)),
        roots=tuple(_texts(where)) or ((top,) if top else ()),
    )


def _link(value: Mapping[str, Any]) -> str:
    """Return the URL of a requirement that does not come from an index, in pip's form."""
    if value.get("git"):
        url = str(value["git"])
        # git's short form git@host:path is not a URL, and pip refuses it
        url = re.sub(r"^git@([^:/]+):", r"ssh://git@\1/", url)
        revision = value.get("rev") or value.get("tag") or value.get("branch")
        folder = f"#subdirectory={value['subdirectory']}" if value.get("subdirectory") else ""
        return f"{'' if url.startswith('git+') else 'git+'}{url}{f'@{revision}' if revision else ''}{folder}"
    return str(value.get("url") or "")


def _with_sources(found: Metadata, file: _File) -> Metadata:
    """Give the requirements that uv or Poetry 2 fetch from elsewhere their URL; warn of folders on this machine."""
    sources = {normalise(key): value for key, value in file.table("tool", "uv", "sources").items()}
    # Poetry 2 keeps names in [project] and where they come from in its own table
    sources |= {normalise(key): value for key, value in file.table("tool", "poetry", "dependencies").items()}
    needs: list[Declared] = []
    warnings = [*found.warnings, *_indexes(file)]
    for item in found.dependencies or ():
        match = re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?", item.text)
        source = sources.get(normalise(re.split(r"[^A-Za-z0-9._-]", item.text, maxsplit=1)[0]))
        if match is None or not isinstance(source, dict) or "@" in item.text:
            needs.append(item)
        elif source.get("path") or source.get("workspace"):
            warnings.append(on_this_machine(match[0], item.line))
        else:
            link = _link(source)
            needs.append(replace(item, text=f"{match[0]} @ {link}") if link else item)
    dependencies = tuple(needs) if found.dependencies is not None else None
    return replace(found, dependencies=dependencies, warnings=tuple(warnings))


def _indexes(file: _File) -> list[str]:
    """Return a warning for each index of uv, Poetry and PDM: a package cannot name them."""
    tables = (
        file.table("tool", "uv").get("index"),
        file.table("tool", "poetry").get("source"),
        file.table("tool", "pdm").get("source"),
    )
    urls = [one.get("url") for table in tables if isinstance(table, list) for one in table if isinstance(one, dict)]
    return [
        beyond_the_package(f"pyproject.toml:{file.line(url)}", url)
        for url in urls
        if isinstance(url, str) and not is_pypi(url)
    ]


def on_this_machine(name: str, line: int) -> str:
    """Return the warning about a requirement that is a folder on this machine."""
    return (
        f"pyproject.toml:{line}: {name} is a folder on this machine, which the container does not have, so it is left out of "
        "the requirements. Copy the package into the trainer, or name a URL or a package index that has it"
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    """Return a text or a list of texts as a list; an empty one for anything else."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
