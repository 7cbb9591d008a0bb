"""uv, which resolves requirements and makes environments: how to start it."""

from __future__ import annotations

import shutil
import sys

from vertexrig.errors import UsageError


def uv() -> list[str]:
    """Return how to start uv; UsageError if it is not installed."""
    if shutil.which("uv"):
        return ["uv"]
    # Installed by pip into an environment that is not activated: its program is not on the PATH. Not `python -m uv`, which
    # would run a uv.py of the working directory.
    try:
        from uv import find_uv_bin

        return [find_uv_bin()]
    except (ImportError, FileNotFoundError):
        raise UsageError(f"uv is needed for this and is not installed: {sys.executable} -m pip install uv") from None
