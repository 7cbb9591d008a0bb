"""What was read of a trainer, cached as JSON by a hash of its sources: a second look at an unchanged trainer costs a few ms."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vertexrig import __version__
from vertexrig.errors import VertexrigError
from vertexrig.files import is_inside, write_text
from vertexrig.package import folders
from vertexrig.trainer_source import trainer_model
from vertexrig.trainer_source.trainer_model import TrainerSource

_MOST_BYTES = 20_000_000


def read_trainer(place: Path, module: str, store: Path) -> TrainerSource | None:
    """Return what is read of a trainer's folder, package, script or archive; None if it is not there. `store` as in `read_cached`."""
    if place.is_dir() and not folders.is_bare(place):
        return read_cached(place, module, store)
    if not place.exists():
        return None
    from vertexrig.trainer_source.reader import read  # 60 ms that a cached trainer does without

    # not cached: a script's folder also holds unrelated files, and reading an archive is cheap
    return read(folders.module_root(place) if folders.is_bare(place) else place, module)


def read_cached(folder: Path, module: str, store: Path) -> TrainerSource:
    """Return what `vertexrig.trainer_source.reader.read` returns for a folder, from `store` if the sources have not changed since.

    Args:
        folder: The trainer's folder.
        module: The entry module.
        store: Folder of the cache. If it is missing, damaged or cannot be written, the sources are read again.
    """
    key = _key(folder, module)  # "": the cache is not used
    file = store / f"trainer-{key}.json"
    if key:
        try:
            cached: TrainerSource = decoder(TrainerSource)(json.loads(file.read_text(encoding="utf-8")))
            return cached
        # no such file, or a damaged one
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
    # only now: with the cache warm the modules that parse are never loaded, which is most of the time saved
    from vertexrig.trainer_source.reader import read

    found = read(folder, module)
    if key:
        try:
            write_text(file, json.dumps(encode(found)), below=store)
        except VertexrigError:
            pass  # the sources are read again the next time
    return found


@cache
def _tool() -> str:
    """Return a text that changes with the tool's version, Python, or a file of the reader."""
    here = Path(trainer_model.__file__).parent
    marks = [
        f"{entry.name} {(stat := entry.stat()).st_size} {stat.st_mtime_ns}"
        for entry in os.scandir(here)
        if entry.name.endswith(".py")
    ]
    return "\n".join([__version__, sys.version, *sorted(marks)])


def _key(folder: Path, module: str) -> str:
    """Return a hash over everything the reading depends on; "" if the folder is too large, cannot be read, or has a link to a folder
    above it.
    """
    digest = hashlib.sha256(f"{_tool()}\n{module}\n".encode())
    size = count = 0
    top = os.path.realpath(folder)
    entered = {top}
    try:
        for base, subfolders, names in os.walk(folder, followlinks=True):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name != "__pycache__")
            for name in [name for name in subfolders if os.path.islink(os.path.join(base, name))]:
                target = os.path.realpath(os.path.join(base, name))
                if Path(target) in Path(top).parents:
                    return ""  # it holds the trainer, and maybe the cache itself
                inside = is_inside(target, folder)
                if inside:
                    link = os.path.relpath(os.path.join(base, name), folder)
                    digest.update(f"{link}\0{target}\0".encode("utf-8", "surrogateescape"))
                if not inside or target in entered:
                    subfolders.remove(name)
                entered.add(target)
            for name in sorted(names):
                if name.startswith(".") or name.endswith(".pyc"):
                    continue
                path = os.path.join(base, name)
                if not os.path.isfile(path) or (os.path.islink(path) and not is_inside(path, folder)):
                    continue
                with open(path, "rb") as stream:
                    # only the names of other files are read, so their content does not count in the key: data may be large
                    is_source = name.endswith((".py", ".txt", ".cfg", ".toml", ".in"))
                    content = stream.read(_MOST_BYTES + 1) if is_source else b""
                size, count = size + len(content), count + 1
                if size > _MOST_BYTES or count > folders.MOST_FILES:
                    return ""
                # with the length, so that bytes cannot move from one file to the next unseen
                digest.update(f"{os.path.relpath(path, folder)}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
                digest.update(content)
    except (OSError, RecursionError):  # os.walk goes down by calls, before Python 3.12
        return ""
    return digest.hexdigest()[:24]


def encode(value: Any) -> Any:
    """Return a value of `trainer_model` as JSON data."""
    if is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, (set, frozenset)):
        # sets have no order of their own; the same value has to give the same JSON
        return sorted(value)
    return value


@cache
def decoder(hint: Any) -> Callable[[Any], Any]:
    """Return a function from what `encode` made to the value of type `hint`; other data may raise TypeError, KeyError or AttributeError.

    Cached, because a trainer has hundreds of imports and flags.
    """
    if isinstance(hint, type) and is_dataclass(hint):
        parts = {name: decoder(inner) for name, inner in typing.get_type_hints(hint).items()}
        return lambda data: hint(**{name: part(data[name]) for name, part in parts.items()})
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        item = decoder(inner[0])
        return lambda data: tuple([item(one) for one in data])
    if origin is frozenset:
        return frozenset
    if origin is dict:
        part = decoder(inner[1])
        return lambda data: {key: part(one) for key, one in data.items()}
    if type(None) in inner and len(inner) == 2:  # such as tuple[str, ...] | None
        given = decoder(next(part for part in inner if part is not type(None)))
        if given is _same:
            return _same
        return lambda data: None if data is None else given(data)
    return _same


def _same(data: Any) -> Any:
    return data
