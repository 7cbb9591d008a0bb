"""The commands that create rendered jobs on Vertex AI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vertexrig.checks.cluster import refused_by_gcloud
from vertexrig.workspace import Prepared


def commands(written: Sequence[tuple[Prepared, Path]]) -> list[str]:
    """Return the commands that upload the package or image of rendered jobs and create the jobs on Vertex AI.

    Args:
        written: Each job or sweep, and the file its YAML was written to.

    Returns:
        Lines for a shell, the last of which creates the last job. A package or image that jobs share is uploaded once.
    """
    lines: list[str] = []
    uploaded: set[str] = set()
    for one, path in written:
        name, workspace = one.view.name, one.workspace
        # a job that gcloud refuses goes through `submit`, which uploads package and image itself
        if not refused_by_gcloud(one.document):
            # Packages that the user names by URI are there already: only those made here are uploaded.
            packages = {uri for pool in one.document.pools for uri in pool.package_uris} & {*one.view.packages.values()}
            images = {pool.image for pool in one.document.pools} & {*one.view.images.values()}
            lines += [workspace.command_line("image", name, "--push", literal=True)] if images - uploaded else []
            lines += [workspace.command_line("package", name, "--upload", literal=True)] if packages - uploaded else []
            uploaded |= images | packages
        lines.append(create_command(one, path))
    return lines


def create_command(one: Prepared, path: Path) -> str:
    """Return the command that creates a rendered job, once its package and image are uploaded."""
    # The API creates a job that gcloud refuses. The findings do not tell: the project file may silence the rule.
    if refused_by_gcloud(one.document):
        return one.workspace.command_line("submit", one.view.name, literal=True)
    return one.rendered.shell_command(path)
