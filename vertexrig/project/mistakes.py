"""A project file with mistakes: each of them, and the project without the jobs, sweeps and schedules that have them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from vertexrig import files, yamltext
from vertexrig.errors import MOST_ERRORS, ConfigError
from vertexrig.project import environments
from vertexrig.project.config import Loaded
from vertexrig.project.model import Project
from vertexrig.schema import typed

Load = Callable[[Collection[yamltext.FileKey]], Loaded]
"""Reads a project without the entries at these paths."""
_BY_NAME = ("jobs", "sweeps", "schedules")
# What else may be missing without a change to any job.
_APART = ("schedules", "trigger", "local")


def sound_part(load: Load, text: str | None = None) -> tuple[Loaded, tuple[ConfigError, ...]]:
    """Return a project without the entries that have mistakes, and the mistakes.

    Args:
        load: Reads it.
        text: The text of the file, if it has not been written yet.

    Raises:
        ConfigError: A mistake is not in an entry of its own, so that nothing can be said of any job.
    """
    first: ConfigError | None = None
    left: set[yamltext.FileKey] = set()
    full = 0  # times that more was wrong than is collected: each of them may be followed by as many more
    while True:
        try:
            return load(left), first.errors if first is not None else ()
        except ConfigError as error:
            # What is wrong only because something was left out, such as a sweep of a job, is no mistake.
            first = first or error
            full += len(error.errors) >= MOST_ERRORS
            places = _entries(error.errors, text) if full < 2 else left
            if places <= left:
                raise first from None
            left |= places


def _entries(errors: Iterable[ConfigError], text: str | None) -> set[yamltext.FileKey]:
    """Return the entries on the lines of mistakes that can be left out; empty for a mistake in a command line."""
    places = {(error.file, error.line) for error in errors}
    known = typed.keys(Project)
    found = set()
    for file in {file for file, _ in places if file is not None and Path(file).is_file()}:
        try:
            lines = yamltext.read(files.read_text(file) if text is None else text).lines
        except yamltext.YamlError:
            continue
        for path, line in lines.items():
            if path[:1] == (environments.KEY,):
                path = path[2:]  # it was merged over the file
            if (file, line) in places and path:
                if path[0] in _BY_NAME and len(path) > 1:
                    found.add(path[:2])
                elif path[0] in _APART or path[0] not in known:
                    found.add(path[:1])
    return found
