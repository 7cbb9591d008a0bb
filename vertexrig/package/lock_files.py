"""What requirements bring, from the lock file beside a trainer: uv.lock, poetry.lock, pdm.lock, Pipfile.lock, requirements.lock."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vertexrig.errors import UsageError
from vertexrig.files import read_text
from vertexrig.package.image_modules import normalise

Graph = Mapping[str, frozenset[str]]
_TABLES = ("uv.lock", "poetry.lock", "pdm.lock")
_FLAT = ("Pipfile.lock", "requirements.lock")
_NAME = re.compile(r"^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(?:==|@)", re.MULTILINE)


def locked(folder: Path) -> Graph:
    """Return what each distribution of a lock file brings, in a trainer's folder or the folder above; nothing if none can be read."""
    home = folder if folder.is_dir() else folder.parent
    for place in (home, home.absolute().parent):
        for name in (*_TABLES, *_FLAT):
            file = place / name
            if not file.is_file():
                continue
            try:
                found = _tables(read_text(file)) if name in _TABLES else _flat(read_text(file))
            except (UsageError, ValueError, TypeError, AttributeError, RecursionError):
                continue
            if found:
                return found
    return {}


def _tables(text: str) -> Graph:
    """Return the packages of a lock file in TOML, with their dependencies."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    found: dict[str, frozenset[str]] = {}
    for one in tomllib.loads(text).get("package", ()):
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            name = normalise(one["name"])
            # a package may have an entry for each platform
            found[name] = found.get(name, frozenset()) | _names(one.get("dependencies"))
    return found


def _names(dependencies: Any) -> frozenset[str]:
    """Return the names of dependencies: keys of a mapping (poetry), names of tables (uv), or requirements (pdm)."""
    rows = dependencies if isinstance(dependencies, (list, dict)) else ()
    texts = (str(row.get("name", "")) if isinstance(row, dict) else str(row) for row in rows)
    matches = (re.match(r"[\w.-]+", text) for text in texts)
    return frozenset(normalise(match[0]) for match in matches if match)


def _flat(text: str) -> Graph:
    """Return the packages of a list; any of them may bring the others, since a list does not say."""
    data = json.loads(text) if text.lstrip().startswith("{") else None
    names = data.get("default", {}) if isinstance(data, dict) else _NAME.findall(text)
    every = frozenset(map(normalise, names))
    return dict.fromkeys(every, every)
