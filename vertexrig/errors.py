"""Every error vertexrig raises on purpose, its code for programs, and the exit code it ends the process with.

An error names the value, the rule it broke, the choices, and what to do. Only `vertexrig.cli` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from vertexrig.finding import Edit

SOURCE = "https://github.com/vertexrig/vertexrig"


def install(extra: str) -> str:
    """Return the command that installs the tool again with an extra, from its own source: no package index has the tool."""
    return f'pip install "vertexrig[{extra}] @ git+{SOURCE}", or the wheel as "PATH/TO/WHEEL[{extra}]"'


class VertexrigError(Exception):
    """Base of all errors meant for a person.

    `exit_code` is what the command line ends with; `code` is the word for programs and keeps its
    meaning between versions.
    """

    exit_code = 2
    code = "usage"

    @property
    def details(self) -> Mapping[str, Any]:
        """Further facts for programs, under names that stay the same between versions."""
        return {}


class UsageError(VertexrigError):
    """The command line asks for something that cannot be done (exit code 2)."""


class ConfigError(VertexrigError):
    """The project file, an override or an environment variable is wrong (exit code 2).

    Args:
        message: What is wrong, with the value, the rule and the choices.
        file: The file with the value, or `--set KEY=VALUE`; None if it comes from neither.
        line: Its line, counted from 1.
        edits: Changes of the file that mend it.
    """

    code = "config"

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, edits: tuple[Edit, ...] = ()
    ) -> None:
        self.message, self.file, self.line, self.edits = message, file, line, edits
        place = "" if file is None else f"{file}:{line}: " if line else f"{file}: "
        super().__init__(place + message)

    @property
    def details(self) -> Mapping[str, Any]:
        return {"file": self.file, "line": self.line}

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """The single errors, each with its own file and line: this error itself, unless it combines several."""
        return (self,)


class ConfigErrors(ConfigError):
    """At least two values are wrong (exit code 2); file and line are those of the first."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        self._errors = tuple(errors)
        many = (
            f"{len(errors)} things are wrong" if len(errors) < MOST_ERRORS else "many things are wrong; the first ones"
        )
        super().__init__("\n  ".join([f"{many}:", *map(str, errors)]))
        self.file, self.line = errors[0].file, errors[0].line

    @property
    def details(self) -> Mapping[str, Any]:
        rows = [{"message": one.message, **one.details} for one in self.errors]
        return {**super().details, "errors": rows}

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        return self._errors


MOST_ERRORS = 50
"""Most errors that are collected: more are not read at a time, and each costs a search for the nearest name."""


class Errors:
    """Collects the errors of several values: `with errors:` keeps a ConfigError and continues, `raise_all` raises the kept errors."""

    def __init__(self) -> None:
        self.kept: list[ConfigError] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ConfigError):
            return False
        self.keep(error)
        return True

    def keep(self, error: ConfigError) -> None:
        """Keep an error, or those that it combines; raise all if there are too many."""
        # two pools without an image of their own have the same error: it is said once
        self.kept += [one for one in error.errors if str(one) not in map(str, self.kept)]
        if len(self.kept) >= MOST_ERRORS:
            self.raise_all()

    def raise_all(self) -> None:
        """Raise the kept error, or one that combines all; do nothing if no error was kept."""
        if len(self.kept) > 1:
            raise ConfigErrors(sorted(self.kept, key=lambda one: one.line or 0)) from None
        for error in self.kept:
            raise error from None


class TemplateError(VertexrigError):
    """A template cannot be rendered (exit code 2)."""

    code = "template"


class PackageError(VertexrigError):
    """A trainer folder cannot be built into a package that can be installed and imported (exit code 2)."""

    code = "package"


class FindingsError(VertexrigError):
    """A check has findings of severity error (exit code 1)."""

    exit_code = 1
    code = "findings"


class JobFailedError(VertexrigError):
    """A job or rehearsal did not succeed (exit code 1)."""

    exit_code = 1
    code = "job-failed"


class ServiceError(VertexrigError):
    """A service refused the request or could not be reached (exit code 3).

    Args:
        message: The service's message, in one line.
        status: Its HTTP status, if it answered.
    """

    exit_code = 3
    code = "service"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)

    @property
    def details(self) -> Mapping[str, Any]:
        return {"status": self.status}


MOST_CHOICES = 5000
"""Most names that a misspelt name is compared with: a project file of 2 MiB may have more jobs than can be compared in a second."""


def nearest(value: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice most like `value`, ignoring case and separators; None if no choice is close or two are equally close.

    Numbers must match: NVIDIA_TESLA_L4 means NVIDIA_L4 and never NVIDIA_TESLA_T4, n1-standard-2 is not
    n1-standard-32.

    Args:
        cutoff: The least likeness, from 0 to 1, as difflib measures it.
    """
    by_plain: dict[str, str] = {}
    for choice in islice(choices, MOST_CHOICES):
        by_plain.setdefault(_plain(choice), choice)
    value, choices = value[:200], list(by_plain.values())
    if _plain(value) in by_plain:
        return by_plain[_plain(value)]
    choices = _same_numbers(value, choices)
    words, numbered = set(_words(value)), _numbered(value)
    if len(words) > 1 or numbered:
        # NVIDIA_T4 means NVIDIA_TESLA_T4: the choice with all its words and the fewest others
        wider = [choice for choice in choices if words < set(_words(choice))]
        if wider:
            return _only(wider, lambda choice: len(_words(choice)))
    if numbered:
        # and NVIDIA_TESLA_L4 means NVIDIA_L4: a word too many, and no number
        narrower = [choice for choice in choices if numbered <= set(_words(choice)) < words]
        if narrower:
            return _only(narrower, lambda choice: -len(_words(choice)))
    # experiment_name differs from experiment, but models may be model
    choices = [choice for choice in choices if not set(_words(choice)) < words]
    if sum(_plain(choice).startswith(_plain(value)) for choice in choices) > 1:
        return None  # a beginning that several choices share
    from difflib import SequenceMatcher  # its import takes some milliseconds, and most commands have no error

    matcher = SequenceMatcher(b=_plain(value))  # it caches its second text
    likeness = {}
    for choice in choices:
        matcher.set_seq1(_plain(choice))
        if matcher.real_quick_ratio() >= cutoff and matcher.quick_ratio() >= cutoff:  # upper bounds, and cheap
            likeness[choice] = matcher.ratio()
    return _only([choice for choice in likeness if likeness[choice] >= cutoff], lambda choice: -likeness[choice])


def _only(choices: list[str], rank: Callable[[str], float]) -> str | None:
    """Return the choice of the lowest rank; None if several share it."""
    lowest = min(map(rank, choices), default=0.0)
    first = [choice for choice in choices if rank(choice) == lowest]
    return first[0] if len(first) == 1 else None


def meant(value: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `value` very likely means, for a fix to propose; None if it is not clear."""
    return nearest(value, choices, cutoff=0.84)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _words(text: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return [word for word in re.split(r"[\W_]+", spaced.casefold()) if word]


def _numbered(text: str) -> set[str]:
    return {word for word in _words(text) if any(char.isdigit() for char in word)}


def _same_numbers(value: str, choices: list[str]) -> list[str]:
    """Return the choices that have every numbered word of `value` (L4, v100, 8), else those with the same numbers in order."""
    numbered = _numbered(value)
    if not numbered:
        return choices
    sharing = [choice for choice in choices if numbered <= set(_words(choice))]
    numbers = re.findall(r"\d+", value)
    return sharing or [choice for choice in choices if re.findall(r"\d+", choice) == numbers]


def did_you_mean(value: str, choices: Iterable[str], *, most: int = 12) -> str:
    """Return a sentence that names the nearest choice, or lists them: for the end of an error message."""
    names = sorted(choices)
    best = nearest(value, names)
    if best is not None:
        return f"Did you mean {best!r}?"
    if not names:
        return "There are none to choose from."
    shown = ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")
    return f"Choices: {shown}."
