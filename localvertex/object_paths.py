"""Paths of objects on disk: most names are paths, and all others are hashed."""

from __future__ import annotations

import hashlib
from pathlib import Path


def plain_parts(name: str) -> tuple[str, ...] | None:
    """Return the path of an object below its bucket's folder, or None when the name cannot be a path.

    `a//b`, `a/`, `../a`, NUL bytes and parts over 255 bytes are valid names of objects but not of files.
    """
    parts = tuple(name.split("/"))
    fine = all(part not in ("", ".", "..") and "\0" not in part and len(part.encode()) <= 255 for part in parts)
    return parts if fine else None


def odd_path(state: Path, bucket: str, name: str) -> Path:
    """Return the path, below the storage's folder, of an object whose name cannot be a path."""
    return state / "odd" / bucket / hashlib.sha256(name.encode()).hexdigest()
