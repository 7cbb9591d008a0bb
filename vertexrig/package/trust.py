"""The trainers whose build the user has allowed to run on this machine, by folder and content, in the user's settings."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from vertexrig import files
from vertexrig.package.folders import read_bytes


def _kept() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home, "vertexrig", "trusted.json")


def _read() -> dict[str, str]:
    with suppress(OSError, ValueError):
        found = json.loads(_kept().read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for name in ("setup.py", "setup.cfg", "pyproject.toml"):
        data = read_bytes(folder / name, name) if (folder / name).is_file() else b""
        total.update(b"%d\n%b" % (len(data), data))
    return total.hexdigest()


def is_trusted(folder: Path) -> bool:
    """Whether the build of the trainer in a folder may run its code."""
    return _read().get(os.path.realpath(folder)) == _digest(folder)


def trust(folder: Path) -> None:
    """Remember that the build of the trainer in a folder may run its code, until its setup.py, setup.cfg or pyproject.toml changes."""
    file = _kept()
    with files.locked(file.parent):
        files.write_bytes(
            file, json.dumps({**_read(), os.path.realpath(folder): _digest(folder)}, indent=1).encode(), 0o600
        )
