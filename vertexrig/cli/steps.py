"""Commands to type next, which can be pasted into the shell that started this program."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from vertexrig.text import command_line

NAME = "vertexrig"


def program() -> str:
    """Tell how to type this program: its name if the shell finds it by that, otherwise its path, quoted for a shell."""
    started, found = Path(sys.argv[0]), shutil.which(NAME)
    if started.name != NAME:  # python -m vertexrig, or a function call
        return NAME if found else f"{shlex.quote(sys.executable)} -m {NAME}"
    # The shell may find another vertexrig by that name, of another environment: then the path is typed.
    if found and os.path.samefile(found, started):
        return NAME
    path = started.absolute()
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def line(*words: object) -> str:
    """Return a command that is not about a loaded project; `Workspace.verb` makes the others."""
    return command_line(*words, program=program())


def named(file: Path | None) -> list[object]:
    """Return the option that names the project file again, if it was named."""
    return ["--file", file] if file is not None else []
