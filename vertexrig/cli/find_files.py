"""Find the files that a command line names: by path, by pattern, or by folder, without those that .gitignore ignores."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vertexrig import files
from vertexrig.cli import streams
from vertexrig.cli.gitignore import Ignored, Patterns, Work
from vertexrig.errors import UsageError
from vertexrig.text import quoted

_ENDINGS = {".yaml", ".yml", ".json"}
"""File name endings that count in a folder."""
_GITIGNORE = ".gitignore"
_MOST_GITIGNORE = 2_000_000
"""Bytes of a .gitignore that are read: more than MOST_PATTERNS of MOST_BYTES would be a list of files."""


class _Rules:
    """The patterns that one path of the command line is held to: check.exclude, and each .gitignore that is added.

    Args:
        exclude: The lines of check.exclude.
        home: The project's folder.
        work: Counts comparisons.
        told: The places whose wrong lines have been named.
    """

    def __init__(self, exclude: Sequence[str], home: Path, work: Work, told: set[str]) -> None:
        self._work, self._told = work, told
        self._ignored, self._looked = Ignored(work), dict[str, bool]()
        if exclude:
            lines = [line.encode("utf-8", "surrogateescape") for line in exclude]
            self._add(str(home.absolute()), lines, "check.exclude")

    def add(self, folder: str) -> None:
        """Read the .gitignore of a folder, if there is one in it, once."""
        file = os.path.join(folder, _GITIGNORE)
        if os.path.lexists(file) and _is_inside(file, folder):
            data = b""
            with suppress(OSError), open(file, "rb") as stream:
                data = stream.read(_MOST_GITIGNORE)
            self._add(os.path.abspath(folder), data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), file)

    def add_above(self, folder: str) -> None:
        """Read those of a folder and of the folders above it up to the root of their repository; none outside a repository."""
        found, here = list[str](), os.path.abspath(folder)
        while here not in self._looked:
            found.append(here)
            if os.path.exists(os.path.join(here, ".git")):
                self._looked[here] = True
            elif here == os.path.dirname(here):
                self._looked[here] = False
            else:
                here = os.path.dirname(here)
        for one in found:
            self._looked[one] = self._looked[here]
            if self._looked[here]:
                self.add(one)

    def ignore(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether a file or folder is to be skipped."""
        return self._ignored.has(os.path.abspath(path), is_folder=is_folder)

    def _add(self, folder: str, lines: list[bytes], place: str) -> None:
        patterns = Patterns(lines, self._work)
        self._ignored.add(folder, patterns)
        if patterns.wrong and place not in self._told:
            self._told.add(place)
            number, why = next(iter(patterns.wrong.items()))
            more = f"; so are {len(patterns.wrong) - 1} further lines" if len(patterns.wrong) > 1 else ""
            line = lines[number - 1][:60].decode("utf-8", "replace")
            streams.note(f"{place}: line {number} ({quoted(line)}) is skipped: {why}{more}")


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
    work, told, seen = Work(), set[str](), set[str]()
    found: Iterator[tuple[str, bool]]
    for path in named:
        rules = _Rules(exclude, home, work, told)
        if os.path.isdir(path):
            found = ((name, True) for name in _in_folder(path, rules))
        elif glob.has_magic(path) and not os.path.exists(path):
            base = os.path.dirname(re.split(r"[*?\[]", path, maxsplit=1)[0]) or "."  # the part before the pattern
            fit = (name for name in glob.glob(path, recursive=True) if not os.path.isdir(name))
            names = sorted(name for name in fit if _is_inside(name, base))
            if not names:
                raise UsageError(f"no file matches the pattern {path}")
            for folder in {os.path.dirname(name) for name in names}:
                rules.add_above(folder)
            found = iter([(name, True) for name in names if not rules.ignore(name)])
        else:
            found = iter([] if listed and rules.ignore(path) else [(path, listed)])
        for one in found:
            if one[0] not in seen:
                seen.add(one[0])
                yield one


def _in_folder(root: str, rules: _Rules) -> Iterator[str]:
    some = False
    if not os.path.exists(os.path.join(root, ".git")):
        rules.add_above(os.path.join(root, ".."))
    for folder, below, names in os.walk(root):
        if _GITIGNORE in names:
            rules.add(folder)
        below[:] = sorted(
            name
            for name in below
            if name[0] != "."
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            and not rules.ignore(os.path.join(folder, name), is_folder=True)
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.splitext(name)[1] in _ENDINGS and not rules.ignore(path) and _is_inside(path, root):
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
