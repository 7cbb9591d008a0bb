"""uv, which resolves requirements and makes environments: how to start it."""

from __future__ import annotations

import shutil
import subprocess
import sys

from vertexrig.errors import UsageError


def uv() -> list[str]:
    """Return how to start uv.

    Raises:
        UsageError: It is not installed.
    """
    if shutil.which("uv"):
        return ["uv"]
    # installed by pip into an environment that is not activated: its program is not on the PATH
    found = subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False)
    if found.returncode == 0:
        return [sys.executable, "-m", "uv"]
    raise UsageError(f"uv is needed for this and is not installed: {sys.executable} -m pip install uv")
