"""The files that a command line names: themselves, by patterns, or below folders, without those that .gitignore leaves out."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vertexrig import files
from vertexrig.cli import streams
from vertexrig.errors import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_ENDINGS = {".yaml", ".yml", ".json"}
"""Of the files of a folder."""
_Patterns = list[tuple[str, "GitIgnoreSpec"]]


def walk(
    places: Sequence[str], exclude: Sequence[str] = (), home: Path = Path(), *, listed: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each file, and whether it is there because its folder or a pattern was named.

    Args:
        places: Files, folders, and patterns such as `jobs/**/*.yaml`.
        exclude: Patterns of files to pass over, as in a .gitignore of the folder `home`.
        home: The project's folder.
        listed: Whether a file is taken as if its folder was named.
    """
    own: _Patterns = [(str(home.absolute()), _spec(exclude))] if exclude else []
    above, seen = cache(_above), set[str]()
    found: Iterator[tuple[str, bool]]
    for place in places:
        if os.path.isdir(place):
            found = ((name, True) for name in _below(place, own))
        elif glob.has_magic(place) and not os.path.exists(place):
            base = os.path.dirname(re.split(r"[*?\[]", place, maxsplit=1)[0]) or "."  # what stands before the pattern
            fit = (name for name in glob.glob(place, recursive=True) if not os.path.isdir(name))
            names = sorted(name for name in fit if _stays(name, base))
            if not names:
                raise UsageError(f"no file fits {place}")
            folders = (os.path.dirname(os.path.abspath(name)) for name in names)
            fitting = zip(names, folders, strict=True)
            found = ((name, True) for name, folder in fitting if not _is_ignored(name, own + above(folder)))
        else:
            skipped = listed and _is_ignored(place, own)
            found = iter([] if skipped else [(place, listed)])
        for one in found:
            if one[0] not in seen:
                seen.add(one[0])
                yield one


def _below(place: str, own: _Patterns) -> Iterator[str]:
    root = os.path.exists(os.path.join(place, ".git"))
    ignored, some = own + ([] if root else _above(os.path.join(place, ".."))), False
    for folder, below, names in os.walk(place):
        if ".gitignore" in names and _stays(os.path.join(folder, ".gitignore"), place):
            ignored.append(_read(folder))
        below[:] = sorted(
            name
            for name in below
            if name[0] != "."
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            and not _is_ignored(os.path.join(folder, name) + "/", ignored)
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.splitext(name)[1] in _ENDINGS and not _is_ignored(path, ignored) and _stays(path, place):
                some = True
                yield path
    if not some:
        raise UsageError(f"{place} has no YAML or JSON file at any depth")


def _stays(path: str, place: str) -> bool:
    """Tell whether a path that nobody typed is a file of the place's checkout; if not, say that it is left out."""
    if not os.path.isfile(path):
        streams.note(f"{path} is no regular file, and is left out")
    elif not files.is_inside(path, place):
        streams.note(
            f"{path} leads out of {place}, to {os.path.realpath(path)}, and is left out; name it to have it checked"
        )
    else:
        return True
    return False


def _above(folder: str) -> _Patterns:
    """Return the .gitignore files of a folder and those around it, up to its repository's; none outside of one."""
    found, here = [], os.path.abspath(folder)
    while True:
        if os.path.exists(os.path.join(here, ".gitignore")) and _stays(os.path.join(here, ".gitignore"), here):
            found.append(_read(here))
        if os.path.exists(os.path.join(here, ".git")):
            return found[::-1]
        if here == os.path.dirname(here):
            return []
        here = os.path.dirname(here)


def _read(folder: str) -> tuple[str, GitIgnoreSpec]:
    try:
        with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="replace") as file:
            return os.path.abspath(folder), _spec(file.read(1_000_000).splitlines())
    except OSError:
        return os.path.abspath(folder), _spec(())


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # 20 ms, which a check of one file saves

    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(path: str, patterns: _Patterns) -> bool:
    """Tell whether the nearest .gitignore that says anything of a path leaves it out."""
    whole = os.path.abspath(path) + ("/" if path.endswith("/") else "")
    for folder, spec in reversed(patterns):
        if whole.startswith(f"{folder.rstrip('/')}/"):
            include = spec.check_file(whole[len(folder.rstrip("/")) + 1 :]).include
            if include is not None:
                return include
    return False
