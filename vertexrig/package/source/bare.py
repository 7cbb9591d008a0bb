"""Trainers that nobody packaged: a single script, or the folder of a Python package without a setup.py beside it."""

from __future__ import annotations

from pathlib import Path

DESCRIPTIONS = ("setup.py", "setup.cfg", "pyproject.toml")
"""Files that describe a distribution: a folder with one of them is a project, not a bare package."""


def is_bare(path: Path) -> bool:
    """Whether a trainer's path is a script, or a folder that is a package and no project."""
    if path.is_file():
        return path.suffix == ".py" and path.stem.isidentifier()
    if not (path.is_dir() and path.resolve().name.isidentifier()):
        return False
    return (path / "__init__.py").is_file() and not any((path / name).exists() for name in DESCRIPTIONS)


def root(path: Path) -> Path:
    """The folder in which a trainer's module names begin: the one that holds a bare trainer, else the trainer's own."""
    return path.absolute().parent if is_bare(path) else path
