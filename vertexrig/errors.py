"""Every error vertexrig raises on purpose, its code for programs, and the exit code it ends the process with.

An error names the value, the rule it broke, the choices, and what to do. Only `vertexrig.cli` prints them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class VertexrigError(Exception):
    """Base of all errors meant for a person.

    `exit_code` is what the command line ends with; `code` is the word for programs, which docs/json.md promises.
    """

    exit_code = 2
    code = "usage"

    @property
    def details(self) -> Mapping[str, Any]:
        """What else a program may want to know, by the names that docs/json.md has."""
        return {}


class UsageError(VertexrigError):
    """The command was given something it cannot work with (exit code 2)."""


class ConfigError(VertexrigError):
    """The project file, an override or an environment variable is wrong (exit code 2).

    Args:
        message: What is wrong, with the value, the rule and the choices.
        file: The file the value stands in, if it stands in one.
        line: Its line, counted from 1.
    """

    code = "config"

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None) -> None:
        self.message, self.file, self.line = message, file, line
        place = "" if file is None else f"{file}:{line}: " if line else f"{file}: "
        super().__init__(place + message)

    @property
    def details(self) -> Mapping[str, Any]:
        return {"file": self.file, "line": self.line}


class TemplateError(VertexrigError):
    """A template cannot be rendered (exit code 2)."""

    code = "template"


class PackageError(VertexrigError):
    """A trainer folder cannot be built into a package that installs and imports (exit code 2)."""

    code = "package"


class FindingsError(VertexrigError):
    """A check found something of severity error (exit code 1)."""

    exit_code = 1
    code = "findings"


class JobFailedError(VertexrigError):
    """A job or rehearsal ended in any state but success (exit code 1)."""

    exit_code = 1
    code = "job-failed"


class ServiceError(VertexrigError):
    """A service refused the request or could not be reached (exit code 3).

    Args:
        message: What the service said, in one line.
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


def nearest(value: str, choices: Iterable[str]) -> str | None:
    """The choice most like `value` (case and `_`/`-` set aside), or None if none is close."""

    def plain(text: str) -> str:
        return text.replace("_", "").replace("-", "").casefold()

    def words(text: str) -> set[str]:
        return set(text.casefold().replace("-", "_").split("_"))

    choices = list(choices)
    # NVIDIA_T4 means NVIDIA_TESLA_T4, though NVIDIA_L4 has fewer letters to change
    wider = [choice for choice in choices if "_" in value and words(value) < words(choice)]
    if wider:
        return min(wider, key=len)
    by_plain = {plain(choice): choice for choice in choices}
    found = difflib.get_close_matches(plain(value[:200]), by_plain, n=1, cutoff=0.6)
    return by_plain[found[0]] if found else None


def did_you_mean(value: str, choices: Iterable[str], *, most: int = 12) -> str:
    """A sentence that names the nearest choice, or lists them: for the end of an error message."""
    names = sorted(choices)
    best = nearest(value, names)
    if best is not None:
        return f"Did you mean {best!r}?"
    if not names:
        return "There are none to choose from."
    shown = ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")
    return f"Choices: {shown}."
