"""Commands to type next, which can be pasted into the shell that started this program."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from vertexrig.checks.workspace import GCLOUD_REFUSES, Prepared, Workspace
from vertexrig.text import command_line

NAME = "vertexrig"


def program() -> str:
    """How to type this program: its name if the shell finds it by that, otherwise its path, quoted for a shell."""
    started, found = Path(sys.argv[0]), shutil.which(NAME)
    if started.name != NAME:  # python -m vertexrig, or a function call
        return NAME if found else f"{shlex.quote(sys.executable)} -m {NAME}"
    if found and os.path.samefile(found, started):
        return NAME
    path = started.absolute()
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def line(*words: object) -> str:
    """A command that is not about a loaded project; `Workspace.verb` makes the others."""
    return command_line(*words, program=program())


def named(file: Path | None) -> list[object]:
    """The option that names the project file again, if it was named."""
    return ["--file", file] if file is not None else []


def on_vertex(workspace: Workspace, prepared: Sequence[tuple[Prepared, Path]]) -> list[str]:
    """The commands that bring rendered jobs to Vertex AI: the trainer's package or image, then creation.

    Args:
        workspace: The project.
        prepared: Each job or sweep, and the file its YAML was written to.

    Returns:
        Lines for a shell. Jobs that share a package or an image share the line that makes it.
    """
    lines: list[str] = []
    uploaded: set[str] = set()
    for one, path in prepared:
        name = one.rendered.view.name
        if any(finding.id == GCLOUD_REFUSES for finding in one.findings):
            lines.append(workspace.verb("submit", name))  # it also uploads the package
            continue
        own = {uri for pool in one.document.pools for uri in pool.package_uris}
        own &= set(workspace.renderer.packages.values())
        images = {pool.image for pool in one.document.pools} & set(workspace.renderer.images.values())
        if images - uploaded:
            lines.append(workspace.verb("image", name, "--push"))
            uploaded |= images
        if own - uploaded:
            lines.append(workspace.verb("package", name, "--upload"))
            uploaded |= own
        lines.append(one.rendered.shell_command(path))
    return lines
