"""Files read up to a size, and written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

from vertexrig.errors import UsageError, VertexrigError

MIB = 1024 * 1024
largest: ContextVar[int] = ContextVar("largest", default=2 * MIB)
"""Bytes of a project file, an overlay, a template or a checked file, at most; `--max-file-size` raises it.

A file from elsewhere may be made to exhaust the machine that checks it; 2 MiB are about 15,000 jobs.
"""


def read_text(path: str | Path, error: Callable[[str], VertexrigError] = UsageError) -> str:
    """The text of a file in UTF-8, with or without a byte order mark; `-` reads stdin.

    Args:
        path: The file.
        error: Makes the error to raise of a message.

    Raises:
        VertexrigError: It cannot be read, is too large, or is not text.
    """
    most = largest.get()
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with open(path, "rb") as stream:
                data = stream.read(most + 1)
        if len(data) > most:
            raise error(f"{path} is larger than {most / MIB:g} MiB; raise the limit with --max-file-size MIB")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise error(f"there is no file {path}") from None
    except IsADirectoryError:
        raise error(
            f"{path} is a folder and cannot be read as YAML; name its files: {str(path).rstrip('/')}/*.yaml"
        ) from None
    except UnicodeDecodeError as problem:
        raise error(f"{path} is not text in UTF-8: {problem.reason} at byte {problem.start}") from None
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror or problem}") from None


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, making its folder; the old file stays until the new one is complete.

    Raises:
        UsageError: The place cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    """The same with bytes, and with the permissions of the file.

    A symbolic link stays, and its target is written. A device or pipe, such as /dev/null, is written to as it is.
    """
    named = path
    try:
        if _is_device(path):
            path.write_bytes(data)
            return
        path = Path(os.path.realpath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            Path(temporary).chmod(mode)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{named} cannot be written: {error.strerror or error}") from None


def _is_device(path: Path) -> bool:
    """Whether a path is a device or a pipe, which stays where it is: for root a new file could take its place."""
    return path.parts[:2] in (("/", "dev"), ("/", "proc")) or (
        path.exists() and not path.is_file() and not path.is_dir()
    )


def typed(path: Path) -> str:
    """A path as a person would type it here: relative to the working directory if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)
