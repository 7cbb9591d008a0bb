"""Commands to type next, written so that they can be pasted into the shell that started this program."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from vertexrig import variables
from vertexrig.project import environments
from vertexrig.text import command_line

PROGRAM = "vertexrig"


def program() -> str:
    """Return how to type this program: by its name if the shell finds it, otherwise by its path or as `python -m`, quoted."""
    started, found = Path(sys.argv[0]), shutil.which(PROGRAM)
    if started.name != PROGRAM:  # python -m vertexrig, or a function call
        return PROGRAM if found else f"{shlex.quote(sys.executable)} -m {PROGRAM}"
    # The shell may find another vertexrig by that name, of another environment: then the path is typed.
    if found and os.path.samefile(found, started):
        return PROGRAM
    path = started.absolute()
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def line(*words: object) -> str:
    """Return a command line of this program; `Workspace.command_line` also adds the options of a loaded project."""
    return command_line(*words, program=program(), environ=variables.assigned())


def in_project(file: Path | None, *words: object) -> str:
    """Return a command line of this program with the options that this command got for the project: `--file` and `--env`."""
    return line(*words, *named(file))


def on_local_vertex(file: Path | None, *words: object) -> str:
    """Return the lines that run a command against the local Vertex, preceded by those that start it if this shell does not use it yet."""
    from vertexrig.cloud.vertex import is_local  # 60 ms

    lines = [in_project(file, *words)]
    if not is_local():
        environment = f'eval "$({in_project(file, "local", "env")})"'
        lines[:0] = [in_project(file, "local", "up", "--detach"), environment]
    return "\n".join(lines)


def named(file: Path | None) -> list[object]:
    """Return `--file FILE` if the project file was named, and `--env NAME` if an environment was chosen."""
    env = environments.selected()
    return [*(["--file", file] if file is not None else []), *(["--env", env] if env else [])]
