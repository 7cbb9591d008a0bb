"""Turn an exception into a code for programs, a message for a person, and an exit code."""

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
        code: A word for programs, which means the same in every version.
        message: For a person.
        exit_code: The exit code of the command.
        details: More for programs, such as `file` and `line`.
        usage: The usage line of a command that was used wrongly.
    """

    code: str
    message: str
    exit_code: int
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: str = ""

    def data(self) -> dict[str, Any]:
        """Return the error as JSON."""
        return {"code": self.code, "message": self.message, "exit_code": self.exit_code, **self.details}

    def text(self, *, color: bool = False) -> str:
        """Return the error as stderr shows it."""
        if self.exit_code == INTERRUPTED:
            return self.message
        line = f"\x1b[1;31merror:\x1b[0m {self.message}" if color else f"error: {self.message}"
        return f"{self.usage}\n\n{line}" if self.usage else line


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure that an exception means; None for an exception that only a defect raises."""
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
        return None if lacking is None else failure_of(lacking)
    # an OSError without strerror comes from Python code and not from the system: it is a defect, with a traceback
    if isinstance(error, OSError) and error.strerror is not None:
        file = None if error.filename is None else str(error.filename)[:200]
        message = error.strerror if file is None else f"{file}: {error.strerror}"
        return Failure("file", message, UsageError.exit_code, {"file": file})
    # a file name or argument with bytes that are not UTF-8 reaches Python as surrogates, which cannot be encoded
    if isinstance(error, UnicodeEncodeError):
        return Failure("usage", f"{ascii(error.object)[:200]} contains bytes that are not text", UsageError.exit_code)
    return None


def _with_login(error: VertexrigError) -> str:
    """Return the message; for missing or expired credentials, with the command that logs in."""
    if not isinstance(error, ServiceError) or error.status != 401:
        return str(error)
    return f"{str(error).rstrip('.')}. Log in with `gcloud auth application-default login`. `vertexrig local up` needs no login"


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    return f"{context.get_usage()}\nTry '{context.command_path} --help' for help."
