"""The Python files in a built archive: sdist, wheel, tar or zip."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MAX_ARCHIVE_BYTES = 100_000_000
"""Unpacked size at which reading of an archive stops."""
_UNREADABLE = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, KeyError, OverflowError, struct.error,
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What tarfile and zipfile raise on damaged archives: they have no common base."""


def read_archive(source: Path, most: int) -> tuple[dict[str, bytes], str]:
    """Return the Python files of an archive by their path in it, and what went wrong, "" if nothing did.

    Args:
        source: The archive; of an sdist or tar the top folder is left out of the paths.
        most: Bytes read of one file; what is longer is cut one byte later.
    """
    files: dict[str, bytes] = {}
    total = 0
    is_sdist = not source.name.endswith((".whl", ".zip"))
    try:
        for name, data in _tar_members(source, most) if is_sdist else _zip_members(source, most):
            total += len(data)
            if total > MAX_ARCHIVE_BYTES:
                return files, f"more than {MAX_ARCHIVE_BYTES} bytes of Python in {source.name}; the rest is unread"
            parts = PurePosixPath(name).parts
            # An sdist has one top folder, NAME-VERSION, which is not part of the modules' names.
            files["/".join(parts[1:] if is_sdist else parts)] = data
    except _UNREADABLE as error:
        return files, f"{source.name} is not a readable archive: {type(error).__name__}: {error}"
    return files, ""


def _tar_members(source: Path, most: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(source) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py"):
                stream = archive.extractfile(member)
                if stream is not None:
                    # One byte more than is allowed: parse_module sees by it that the file was cut. The header's size is
                    # not trusted.
                    yield member.name, stream.read(most + 1)


def _zip_members(source: Path, most: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                with archive.open(name) as stream:
                    yield name, stream.read(most + 1)
