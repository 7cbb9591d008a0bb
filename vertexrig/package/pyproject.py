"""Name, version, dependencies and packages as a project's own metadata says them: pyproject.toml of any usual backend.

A table of readers, one per table that holds metadata. Nothing is built or run: a version that only a tool computes
(setuptools-scm, hatch-vcs) is left out, and the hash in the package's name tells packages apart.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vertexrig import files
from vertexrig.errors import PackageError
from vertexrig.package.image_modules import normalise
from vertexrig.package.indexes import beyond_the_package, is_pypi

_VERSION = r"""(?m)^\s*(?:__version__|VERSION|version)\s*(?::\s*[\w.]+\s*)?=\s*["']([^"']+)["']"""


@dataclass(frozen=True)
class Declared:
    """One requirement as the metadata has it, in the form pip reads, with its place."""

    text: str
    line: int
    file: str = "pyproject.toml"


@dataclass(frozen=True)
class Metadata:
    """What a project says of itself; None or empty for what it does not say.

    Args:
        name: The distribution's name.
        version: Its version.
        dependencies: What it needs; None if the metadata leaves that to setup.py or setup.cfg.
        requires_python: Versions of Python it runs on.
        packages: Top-level packages it names, `src/app` with the folder that holds them.
        modules: Single modules it names likewise.
        roots: Folders in which to look for packages where it names none.
        scripts: Console scripts, `name = module:function`.
        warnings: What cannot be carried over.
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


class _File:
    """A pyproject.toml as read: its tables, and the line of a text."""

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
    """Return the metadata of a folder's pyproject.toml; None if there is no such file or it only configures tools.

    Raises:
        PackageError: The file cannot be read, or is not TOML.
    """
    path = folder / "pyproject.toml"
    if not path.is_file() or not files.is_inside(path, folder):
        return None
    if sys.version_info >= (3, 11):  # most trainers have no such file
        import tomllib
    else:
        import tomli as tomllib

    try:
        # editors on Windows write a byte order mark, which TOML does not allow
        text = path.read_bytes().decode("utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise PackageError(f"pyproject.toml of the trainer cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PackageError(f"pyproject.toml of the trainer is not valid TOML: {error}") from error
    file = _File(folder, text, data)
    for keys, reader in _READERS:
        if file.table(*keys):
            return _with_sources(reader(file), file)
    return None


# [project], whatever the backend


def _project(file: _File) -> Metadata:
    table = file.table("project")
    dynamic = set(_texts(table.get("dynamic")))
    dependencies: tuple[Declared, ...] | None = tuple(
        Declared(text, file.line(text)) for text in _texts(table.get("dependencies"))
    )
    if "dependencies" in dynamic:
        dependencies = _dynamic_dependencies(file)
    name, version = table.get("name"), table.get("version")
    found = Metadata(
        name if isinstance(name, str) else None,
        version if isinstance(version, str) else _dynamic_version(file, str(name or "")),
        dependencies,
        str(table.get("requires-python") or ""),
        scripts=tuple(f"{key} = {value}" for key, value in file.table("project", "scripts").items()),
    )
    return _layout(found, file)


def _dynamic_version(file: _File, name: str) -> str | None:
    """Return the version that a backend takes from a file, as far as that file says it plainly."""
    given = file.table("tool", "setuptools", "dynamic", "version")
    candidates: list[object] = []
    if given.get("file"):
        texts = [file.text_of(one).strip() for one in _texts(given["file"])]
        return texts[0] if texts and texts[0] else None
    if isinstance(given.get("attr"), str):
        module = given["attr"].rpartition(".")[0].replace(".", "/")
        candidates += [f"{root}{module}{end}" for root in ("", "src/") for end in (".py", "/__init__.py")]
    candidates += [file.table("tool", tool, "version").get("path") for tool in ("hatch", "pdm")]
    # flit, hatch and most authors keep __version__ in the package that has the distribution's name
    plain = re.sub(r"[-.]+", "_", str(file.table("tool", "flit", "module").get("name") or name))
    candidates += [f"{root}{plain}{end}" for root in ("", "src/") for end in ("/__init__.py", ".py", "/__about__.py")]
    for path in candidates:
        match = re.search(_VERSION, file.text_of(path)) if path else None
        if match:
            return match[1]
    return None


def _dynamic_dependencies(file: _File) -> tuple[Declared, ...] | None:
    """Dependencies that setuptools or hatch-requirements-txt take from requirements files; None: from setup.py."""
    given = file.table("tool", "setuptools", "dynamic", "dependencies").get("file")
    given = given or file.table("tool", "hatch", "metadata", "hooks", "requirements_txt").get("files")
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
    """Return the packages and modules that the backend's own table names."""
    setuptools = file.table("tool", "setuptools")
    where = file.table("tool", "setuptools", "packages", "find").get("where")
    top = str(file.table("tool", "setuptools", "package-dir").get("") or "")
    prefix = f"{top.rstrip('/')}/" if top not in {"", "."} else ""
    packages = [prefix + one.replace(".", "/") for one in _texts(setuptools.get("packages"))]
    modules = [prefix + one for one in _texts(setuptools.get("py-modules"))]
    for target in ((), ("targets", "wheel")):
        packages += _texts(file.table("tool", "hatch", "build", *target).get("packages"))
    flit = file.table("tool", "flit", "module").get("name")
    if isinstance(flit, str):
        stem = flit.replace(".", "/")
        base = next((root for root in ("", "src/") if (file.folder / f"{root}{stem}").is_dir()), None)
        packages += [f"{base}{stem}"] if base is not None else []
        modules += [] if base is not None else [flit]
    uv = file.table("tool", "uv", "build-backend")
    if uv.get("module-name"):
        root = str(uv.get("module-root", "src")).strip("/")
        packages += [f"{root}/{one.replace('.', '/')}".lstrip("/") for one in _texts(uv["module-name"])]
    return replace(
        found,
        packages=tuple(dict.fromkeys(one.strip("./") for one in packages)),
        modules=tuple(dict.fromkeys(modules)),
        roots=tuple(_texts(where)) or ((top,) if top else ()),
    )


# Poetry's own table, and flit's old one


def _poetry(file: _File) -> Metadata:
    table = file.table("tool", "poetry")
    needs: list[Declared] = []
    warnings: list[str] = []
    python = ""
    for name, value in file.table("tool", "poetry", "dependencies").items():
        if name == "python":
            python = _range(str(value))
            continue
        for one in value if isinstance(value, list) else [value]:
            text = _poetry_requirement(name, one)
            line = file.line(name)
            if text is None:
                warnings.append(_elsewhere(name, line))
            elif text:
                needs.append(Declared(text, line))
    packages = []
    listed = table.get("packages")
    for item in listed if isinstance(listed, list) else ():
        include = item.get("include") if isinstance(item, dict) else None
        if isinstance(include, str):
            packages.append("/".join(part for part in (str(item.get("from") or ""), include) if part).strip("./"))
    scripts = [
        f"{key} = {value}" for key, value in file.table("tool", "poetry", "scripts").items() if isinstance(value, str)
    ]
    modules = tuple(one.removesuffix(".py") for one in packages if one.endswith(".py"))
    packages = [one for one in packages if not one.endswith(".py")]
    called, version = _text(table.get("name")), _text(table.get("version"))
    return Metadata(
        called, version, tuple(needs), python, tuple(packages), modules, (), tuple(scripts), tuple(warnings)
    )


def _poetry_requirement(name: str, value: object) -> str | None:
    """Return a Poetry dependency as pip reads it; "" for an optional one, None for a folder of this machine."""
    if isinstance(value, str):
        return f"{name}{_range(value)}"
    if not isinstance(value, dict):
        return name
    if value.get("optional"):
        return ""
    if value.get("path"):
        return None
    extras = f"[{','.join(_texts(value.get('extras')))}]" if value.get("extras") else ""
    marker = f" ; {value['markers']}" if value.get("markers") else ""
    link = _link(value)
    if link:
        return f"{name}{extras} @ {link}{marker}"
    return f"{name}{extras}{_range(str(value.get('version', '*')))}{marker}"


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


def _range(text: str) -> str:
    """Poetry's `^1.2.3`, `~1.2` and `1.2` as version ranges that pip reads."""
    # pip has no "or": the first alternative alone is kept
    parts = [part.strip() for part in text.split("||")[0].split(",")]
    return ",".join(found for part in parts if (found := _one_range(part)))


def _one_range(text: str) -> str:
    if text in {"", "*"}:
        return ""
    match = re.fullmatch(r"(\^|~(?!=))\s*(\d+(?:\.\d+)*)(.*)", text)
    if match is None:
        return text.replace(" ", "") if text[0] in "<>=!~" else f"=={text}"
    numbers = [int(part) for part in match[2].split(".")]
    if match[1] == "^":
        # ^ lets everything change behind the first number that is not 0: ^0.2.3 is <0.3, ^0.0.3 is <0.0.4
        place = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
    else:
        place = min(1, len(numbers) - 1)
    above = [*numbers[:place], numbers[place] + 1]
    return f">={match[2]}{match[3]},<{'.'.join(map(str, above))}"


def _flit(file: _File) -> Metadata:
    table = file.table("tool", "flit", "metadata")
    module = str(table.get("module") or "")
    needs = tuple(Declared(text, file.line(text)) for text in _texts(table.get("requires")))
    is_package = (file.folder / module).is_dir() or (file.folder / "src" / module).is_dir()
    found = Metadata(
        _text(table.get("dist-name")) or module or None,
        _dynamic_version(file, module),
        needs,
        str(table.get("requires-python") or ""),
    )
    if not module:
        return found
    root = "src/" if (file.folder / "src" / module).exists() or (file.folder / f"src/{module}.py").exists() else ""
    path = (f"{root}{module}",)
    return replace(found, packages=path) if is_package else replace(found, modules=path)


_READERS: tuple[tuple[tuple[str, ...], Callable[[_File], Metadata]], ...] = (
    (("project",), _project),
    (("tool", "poetry"), _poetry),
    (("tool", "flit", "metadata"), _flit),
)


def _with_sources(found: Metadata, file: _File) -> Metadata:
    """Note requirements that uv or Poetry 2 fetch from elsewhere, with their URL; folders of this machine are warned of."""
    sources = {normalise(key): value for key, value in file.table("tool", "uv", "sources").items()}
    # Poetry 2 keeps names in [project] and where they come from in its own table
    if file.table("project"):
        sources |= {normalise(key): value for key, value in file.table("tool", "poetry", "dependencies").items()}
    needs: list[Declared] = []
    warnings = [*found.warnings, *_indexes(file)]
    for item in found.dependencies or ():
        match = re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?", item.text)
        source = sources.get(normalise(re.split(r"[^A-Za-z0-9._-]", item.text, maxsplit=1)[0]))
        if match is None or not isinstance(source, dict) or "@" in item.text:
            needs.append(item)
        elif source.get("path") or source.get("workspace"):
            warnings.append(_elsewhere(match[0], item.line))
        else:
            link = _link(source)
            needs.append(replace(item, text=f"{match[0]} @ {link}") if link else item)
    dependencies = tuple(needs) if found.dependencies is not None else None
    return replace(found, dependencies=dependencies, warnings=tuple(warnings))


def _indexes(file: _File) -> list[str]:
    """Indexes of uv, Poetry and PDM: a package cannot name them."""
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


def _elsewhere(name: str, line: int) -> str:
    return (
        f"pyproject.toml:{line}: {name} is a folder on this machine, which the container does not have, so it is left out of "
        "the requirements. Copy the package into the trainer, or name a URL or a package index that has it"
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    """Return a text or a list of texts as a list; anything else is none."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
