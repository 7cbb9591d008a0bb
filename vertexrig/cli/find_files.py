"""Find the files that a command line names: by path, by pattern, or by folder, without those that .gitignore ignores."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vertexrig import files
from vertexrig.cli import streams
from vertexrig.errors import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_ENDINGS = {".yaml", ".yml", ".json"}
"""File name endings that count in a folder."""
_Patterns = list[tuple[str, "GitIgnoreSpec"]]


def find_files(
    named: Sequence[str], exclude: Sequence[str] = (), home: Path = Path(), *, listed: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each file once, and whether it was found in a named folder or by a pattern.

    Args:
        named: Files, folders, and patterns such as `jobs/**/*.yaml`.
        exclude: Patterns of files to skip, as in a .gitignore of the folder `home`.
        home: The project's folder.
        listed: Whether to treat a named file like one found in a folder.
    """
    own: _Patterns = [(str(home.absolute()), _spec(exclude))] if exclude else []
    above, seen = cache(_above), set[str]()
    found: Iterator[tuple[str, bool]]
    for path in named:
        if os.path.isdir(path):
            found = ((name, True) for name in _in_folder(path, own))
        elif glob.has_magic(path) and not os.path.exists(path):
            base = os.path.dirname(re.split(r"[*?\[]", path, maxsplit=1)[0]) or "."  # the part before the pattern
            fit = (name for name in glob.glob(path, recursive=True) if not os.path.isdir(name))
            names = sorted(name for name in fit if _is_inside(name, base))
            if not names:
                raise UsageError(f"no file matches the pattern {path}")
            folders = (os.path.dirname(os.path.abspath(name)) for name in names)
            fitting = zip(names, folders, strict=True)
            found = ((name, True) for name, folder in fitting if not _is_ignored(name, own + above(folder)))
        else:
            found = iter([] if listed and _is_ignored(path, own) else [(path, listed)])
        for one in found:
            if one[0] not in seen:
                seen.add(one[0])
                yield one


def _in_folder(root: str, own: _Patterns) -> Iterator[str]:
    is_repository = os.path.exists(os.path.join(root, ".git"))
    ignored, some = own + ([] if is_repository else _above(os.path.join(root, ".."))), False
    for folder, below, names in os.walk(root):
        if ".gitignore" in names and _is_inside(os.path.join(folder, ".gitignore"), root):
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
            if os.path.splitext(name)[1] in _ENDINGS and not _is_ignored(path, ignored) and _is_inside(path, root):
                some = True
                yield path
    if not some:
        raise UsageError(f"{root} has no YAML or JSON file at any depth")


def _is_inside(path: str, root: str) -> bool:
    """Whether a path is a regular file in the root's checkout. If not, stderr says that the file is skipped."""
    if not os.path.isfile(path):
        streams.note(f"skipped {path}: not a regular file")
    elif not files.is_inside(path, root):
        target = os.path.realpath(path)
        streams.note(
            f"skipped {path}: it is a symbolic link to {target}, outside {root}; to check it, name it on the command line"
        )
    else:
        return True
    return False


def _above(folder: str) -> _Patterns:
    """Return the .gitignore files of a folder and of those above it up to the root of its repository; none outside a repository."""
    found, here = [], os.path.abspath(folder)
    while True:
        if os.path.exists(os.path.join(here, ".gitignore")) and _is_inside(os.path.join(here, ".gitignore"), here):
            found.append(_read(here))
        if os.path.exists(os.path.join(here, ".git")):
            return found[::-1]
        if here == os.path.dirname(here):
            return []
        here = os.path.dirname(here)


def _read(folder: str) -> tuple[str, GitIgnoreSpec]:
    lines: list[str] = []
    with suppress(OSError), open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="replace") as file:
        lines = file.read(1_000_000).splitlines()
    return os.path.abspath(folder), _spec(lines)


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # 20 ms, which a check of one file saves

    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(path: str, patterns: _Patterns) -> bool:
    """Whether the nearest .gitignore with a pattern for this path ignores it."""
    whole = os.path.abspath(path) + ("/" if path.endswith("/") else "")
    for folder, spec in reversed(patterns):
        if whole.startswith(f"{folder.rstrip('/')}/"):
            include = spec.check_file(whole[len(folder.rstrip("/")) + 1 :]).include
            if include is not None:
                return include
    return False
