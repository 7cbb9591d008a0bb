"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from vertexrig.errors import UsageError


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, making its folder; the old file stays until the new one is complete.

    Raises:
        UsageError: The place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
