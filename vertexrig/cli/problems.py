"""What each exception means to the person: a code, a message and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from vertexrig.cli.arguments import misspelt
from vertexrig.cli.extras import missing
from vertexrig.errors import ServiceError, UsageError, VertexrigError

INTERRUPTED = 130


@dataclass(frozen=True)
class Failure:
    """What went wrong.

    Args:
        code: A word for programs, which keeps its meaning between versions.
        message: For a person.
        exit_code: What the command ends with.
        details: More for programs, such as `file` and `line`.
        usage: How the command is used, where it was used wrongly.
    """

    code: str
    message: str
    exit_code: int
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: str = ""

    def data(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {"code": self.code, "message": self.message, "exit_code": self.exit_code, **self.details}

    def text(self, *, color: bool = False) -> str:
        """As stderr shows it."""
        if self.exit_code == INTERRUPTED:
            return self.message
        line = f"\x1b[1;31merror:\x1b[0m {self.message}" if color else f"error: {self.message}"
        return f"{self.usage}\n\n{line}" if self.usage else line


def problem(error: BaseException) -> Failure | None:
    """Return what an exception means for the person; None for an exception that only a defect raises."""
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return Failure("interrupted", "interrupted", INTERRUPTED)
    if isinstance(error, click.NoSuchOption):
        return Failure("usage", misspelt(error), UsageError.exit_code, usage=_usage(error))
    if isinstance(error, click.ClickException):
        return Failure("usage", error.format_message().strip(), UsageError.exit_code, usage=_usage(error))
    if isinstance(error, VertexrigError):
        return Failure(error.code, _with_login(error), error.exit_code, error.details)
    if isinstance(error, ImportError):
        lacking = missing(error)
        return None if lacking is None else problem(lacking)
    # One without strerror was made by Python code and not by the system: that is a defect, with its traceback.
    if isinstance(error, OSError) and error.strerror is not None:  # a file, wherever that shows
        file = None if error.filename is None else str(error.filename)[:200]
        message = error.strerror if file is None else f"{file}: {error.strerror}"
        return Failure("file", message, UsageError.exit_code, {"file": file})
    # A file name or argument with bytes that are not UTF-8 reaches Python as surrogates, which no file or request can
    # carry.
    if isinstance(error, UnicodeEncodeError):
        return Failure("usage", f"{ascii(error.object)[:200]} contains bytes that are not text", UsageError.exit_code)
    return None


def _with_login(error: VertexrigError) -> str:
    """Return the message, and what to do about credentials that are missing or have run out."""
    if not isinstance(error, ServiceError) or error.status != 401:
        return str(error)
    return f"{str(error).rstrip('.')}. Log in with `gcloud auth application-default login`; `vertexrig local up` needs no login"


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    return f"{context.get_usage()}\nTry '{context.command_path} --help' for help."
