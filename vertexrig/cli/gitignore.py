"""Patterns of .gitignore files, matched as git matches them, in time that grows with the lengths of pattern and path alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from vertexrig.errors import UsageError

MOST_PATTERNS = 2_000
"""Patterns of one .gitignore, or of check.exclude. Further ones are skipped."""
MOST_BYTES = 1_000
"""Bytes of one pattern. A longer one is skipped."""
MOST_WORK = 1_000_000_000
"""Comparisons of one check, about 5 s of processor time on 2026-11-26."""
_PARSED = 10_000  # what reading one pattern costs, in comparisons
_STEP = 50  # what comparing one name of a path with one of a pattern costs

_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb" \t", b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9",
    b"graph": rb"!-~", b"lower": rb"a-z", b"print": rb" -~", b"punct": rb"!-/:-@\[-`{-~", b"space": rb" \t\n\v\f\r",
    b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}  # fmt: skip
_CLASS_BYTES = {
    name: frozenset(re.findall(b"[%b]" % text, bytes(range(256)), re.DOTALL)) for name, text in _CLASSES.items()
}


class _WrongPatternError(ValueError):
    """A pattern that matches nothing, and why."""


class Work:
    """Counts the comparisons of one check."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def spend(self, count: int) -> None:
        """Count comparisons.

        Raises:
            UsageError: There have been more than MOST_WORK.
        """
        self._left -= count
        if self._left < 0:
            raise UsageError(
                f"the patterns of .gitignore and check.exclude take more than {MOST_WORK:,} comparisons with the files of this "
                "folder: check a smaller folder, or name the files"
            )


_One = bytes | frozenset[bytes] | None
"""What one byte of a name may be: this one, one of these, or any (None)."""


class _Glob:
    """A pattern of one name: pieces of fixed length with `*` between them."""

    def __init__(self, tokens: Sequence[_One | str]) -> None:
        pieces: list[list[_One]] = [[]]
        for token in tokens:
            if isinstance(token, str):
                pieces.append([])
            else:
                pieces[-1].append(token)
        self._exact = len(pieces) == 1
        self._first, *middle, self._last = map(_piece, pieces if len(pieces) > 1 else [pieces[0], []])
        self._first_size, self._last_size = len(pieces[0]), len(pieces[-1]) if len(pieces) > 1 else 0
        self._middle = [piece for piece, of in zip(middle, pieces[1:-1], strict=True) if of]
        self.longest = max(map(len, pieces))
        # most patterns are a name or an ending
        self.is_simple = not self._middle and all(isinstance(one, (bytes, str)) for one in tokens)

    def matches(self, name: bytes) -> bool:
        """Whether it matches a whole name: each piece is looked for once, as early as it may be."""
        end = len(name) - self._last_size
        if end < self._first_size or (self._exact and len(name) != self._first_size):
            return False
        if self._first(name, 0, self._first_size) < 0 or self._last(name, end, len(name)) < 0:
            return False
        at = self._first_size
        for piece in self._middle:
            at = piece(name, at, end)
            if at < 0:
                return False
        return True


def _piece(tokens: Sequence[_One]) -> Callable[[bytes, int, int], int]:
    """Return a function that finds a piece in a part of a name, and returns where it ends, or -1."""
    literal = b"".join(one for one in tokens if isinstance(one, bytes))
    if len(literal) == len(tokens):

        def find(name: bytes, start: int, end: int) -> int:
            found = name.find(literal, start, end)
            return found if found < 0 else found + len(literal)

        return find
    parts = (b"." if one is None else b"[%b]" % b"".join(map(re.escape, sorted(one))) if isinstance(one, frozenset) else
             re.escape(one) for one in tokens)  # fmt: skip
    search = re.compile(b"".join(parts), re.DOTALL).search

    def seek(name: bytes, start: int, end: int) -> int:
        match = search(name, start, end)
        return match.end() if match is not None else -1

    return seek


_ANY = None
"""`**` among the names of a pattern."""


@dataclass(frozen=True)
class _Pattern:
    """One line: the names that it consists of, from the folder of the .gitignore; of a basename alone just that one.

    `**` is None. It stands for any number of names; at the end, for at least one.
    """

    names: tuple[_Glob | None, ...]
    includes: bool
    folders_only: bool
    anywhere: bool
    cost: int

    @cached_property
    def runs(self) -> tuple[list[_Glob], list[list[_Glob]], list[_Glob], int, bool]:
        """The runs of names between `**`: the first, those in the middle and the last; how many names the last `**` needs, and
        whether there is no `**`. Like the pieces of a name, each run is looked for once, as early as it may be.
        """
        runs = [[]] if self.names[0] is _ANY else list[list[_Glob]]()
        for is_any, names in groupby(self.names, lambda one: one is None):
            if not is_any:
                runs.append([one for one in names if one is not None])
        is_open = self.names[-1] is _ANY
        runs += [[]] if is_open else []
        first, *middle, last = runs if len(runs) > 1 else [runs[0], []]
        return first, middle, last, int(is_open), len(runs) == 1

    def matches(self, path: Sequence[bytes], work: Work) -> bool:
        """Whether it matches a path, given by its names."""
        if self.anywhere:
            glob = self.names[0]
            assert glob is not None
            if not glob.is_simple:
                work.spend(glob.longest * len(path[-1]))
            return glob.matches(path[-1])
        work.spend(self.cost * len(path))
        first, middle, last, least, is_exact = self.runs
        end = len(path) - least
        if is_exact and end != len(first):
            return False
        stop = end - len(last)
        if stop < len(first) or not _fit(first, path, 0) or not _fit(last, path, stop):
            return False
        at = len(first)
        for run in middle:
            while at + len(run) <= stop and not _fit(run, path, at):
                at += 1
            if at + len(run) > stop:
                return False
            at += len(run)
        return True


def _fit(globs: Sequence[_Glob], path: Sequence[bytes], at: int) -> bool:
    return all(glob.matches(name) for glob, name in zip(globs, path[at:], strict=False))


class Patterns:
    """The patterns of one .gitignore, or of check.exclude.

    Args:
        lines: The lines.
        work: Counts what they cost.

    Attributes:
        wrong: The lines that are skipped, by their number, each with why.
    """

    def __init__(self, lines: Iterable[bytes], work: Work) -> None:
        self.wrong: dict[int, str] = {}
        self._found: list[_Pattern] = []
        for number, line in enumerate(lines, 1):
            text = _trimmed(line)
            if not text or text.startswith(b"#"):
                continue
            if len(self._found) == MOST_PATTERNS:
                self.wrong[number] = (
                    f"there are more than {MOST_PATTERNS:,} patterns; this one and the rest are skipped"
                )
                break
            if len(text) > MOST_BYTES:
                self.wrong[number] = f"a pattern has at most {MOST_BYTES:,} bytes"
                continue
            work.spend(_PARSED)
            try:
                self._found.append(_pattern(text))
            except _WrongPatternError as error:
                self.wrong[number] = str(error)
        self._found.reverse()

    def ignores(self, path: Sequence[bytes], *, is_folder: bool, work: Work) -> bool | None:
        """Whether the last pattern that matches a path ignores it; None if no pattern matches.

        Args:
            path: The names of the path, from the folder of the .gitignore.
            is_folder: Whether it is a folder.
            work: Counts what it costs.
        """
        work.spend(len(self._found))
        for one in self._found:
            if (is_folder or not one.folders_only) and one.matches(path, work):
                return not one.includes
        return None


class Ignored:
    """Which files the .gitignore files of several folders ignore, the nearest first, as git does: what lies in an ignored
    folder is ignored.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._patterns: dict[str, list[Patterns]] = {}
        self._folders: dict[str, bool] = {}

    def add(self, folder: str, patterns: Patterns) -> None:
        """Add patterns for what is below a folder; later ones of the same folder count more."""
        self._patterns.setdefault(folder, []).append(patterns)

    def has(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether the file or folder at an absolute path is ignored."""
        if not self._patterns:
            return False
        above, here = [], os.path.dirname(path)
        while here not in self._folders and here != os.path.dirname(here):
            above.append(here)
            here = os.path.dirname(here)
        ignored = self._folders.get(here, False)
        for folder in reversed(above):
            ignored = self._folders[folder] = ignored or self._decide(folder, is_folder=True)
        return ignored or self._decide(path, is_folder=is_folder)

    def _decide(self, path: str, *, is_folder: bool) -> bool:
        names: list[bytes] = []
        here = path
        while here != os.path.dirname(here):
            here, name = os.path.split(here)
            names.insert(0, os.fsencode(name))
            for patterns in reversed(self._patterns.get(here, [])):
                found = patterns.ignores(names, is_folder=is_folder, work=self._work)
                if found is not None:
                    return found
        return False


def _trimmed(line: bytes) -> bytes:
    """Return a line without the spaces at its end that no backslash protects."""
    text = line.removesuffix(b"\r").partition(b"\0")[0]
    bare = text.rstrip(b" ")
    escapes = len(bare) - len(bare.rstrip(b"\\"))
    return text[: len(bare) + 1] if escapes % 2 else bare


def _pattern(text: bytes) -> _Pattern:
    """Return what a line says.

    Raises:
        _WrongPatternError: It matches nothing.
    """
    includes = text.startswith(b"!")
    text = text[1:] if includes else text
    folders_only = text.endswith(b"/")
    text = text[:-1] if folders_only else text
    if not text:
        raise _WrongPatternError("it has no name")
    anywhere = b"/" not in text
    names: list[_Glob | None] = []
    for tokens in _names(text.removeprefix(b"/")):
        if not anywhere and len(tokens) > 1 and all(isinstance(one, str) for one in tokens):
            names += [] if names and names[-1] is _ANY else [_ANY]
        else:
            names.append(_Glob(tokens))
    cost = _STEP * len(names) + max(one.longest for one in (*names, _Glob(())) if one) * len(names)
    return _Pattern(tuple(names), includes, folders_only, anywhere, cost)


def _names(text: bytes) -> list[list[_One | str]]:
    """Return the names of a pattern, each as its tokens; `*` is a text."""
    names: list[list[_One | str]] = [[]]
    at = 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b"\\":
            at += 1
            byte = text[at : at + 1]
            if not byte:
                raise _WrongPatternError("a backslash stands at its end")
            if byte == b"/":
                names.append([])
            else:
                names[-1].append(byte)
        elif byte == b"/":
            names.append([])
        elif byte == b"*":
            names[-1].append("*")
        elif byte == b"?":
            names[-1].append(None)
        elif byte == b"[":
            allowed, at = _bracket(text, at + 1)
            names[-1].append(allowed)
        else:
            names[-1].append(byte)
        at += 1
    return names


def _bracket(text: bytes, at: int) -> tuple[frozenset[bytes], int]:
    """Return the bytes that a bracket allows, and where it ends; `at` is the byte after `[`."""
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    allowed: set[bytes] = set()
    before, is_first = b"", True
    while is_first or text[at : at + 1] != b"]":
        is_first = False
        byte = text[at : at + 1]
        if byte == b"-" and before and text[at + 1 : at + 2] not in (b"", b"]"):
            at += 2 if text[at + 1 : at + 2] == b"\\" else 1
            last = text[at : at + 1]
            allowed |= {bytes([one]) for one in range(before[0], last[0] + 1)} if last else set()
            before = b""
        elif byte == b"[" and text[at + 1 : at + 2] == b":":
            end = text.find(b"]", at + 2)
            if end > at + 2 and text[end - 1 : end] == b":":
                try:
                    allowed |= _CLASS_BYTES[text[at + 2 : end - 1]]
                except KeyError:
                    raise _WrongPatternError("it names an unknown class of characters") from None
                at, before = end, b""
            else:
                allowed.add(byte)
                before = byte
        else:
            if byte == b"\\":
                at += 1
                byte = text[at : at + 1]
            allowed.add(byte)
            before = byte
        at += 1
        if at > len(text):
            break
    if at >= len(text):
        raise _WrongPatternError("a bracket is not closed")
    found = frozenset({bytes([one]) for one in range(256)} - allowed if negated else allowed) - {b"/"}
    if not found:
        raise _WrongPatternError("a bracket allows no character")
    return found, at
