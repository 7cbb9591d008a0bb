"""The commands that create rendered jobs on Vertex AI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vertexrig.checks.cluster import refused_by_gcloud
from vertexrig.workspace import Prepared


def commands(prepared: Sequence[tuple[Prepared, Path]]) -> list[str]:
    """Return the commands that upload the package or image of rendered jobs and create the jobs on Vertex AI.

    Args:
        prepared: Each job or sweep, and the file its YAML was written to.

    Returns:
        Lines for a shell, the last of which creates the last job. A package or image that jobs share is uploaded once.
    """
    lines: list[str] = []
    uploaded: set[str] = set()
    for one, path in prepared:
        name, workspace = one.view.name, one.workspace
        if refused_by_gcloud(one.document):  # whatever of it is checked, silenced or shown
            # gcloud cannot create such a job from the file, but the API can.
            lines.append(workspace.verb("submit", name))  # it also uploads the package
            continue
        own = {uri for pool in one.document.pools for uri in pool.package_uris}
        # Packages that the user names by URI are there already: only those made here are uploaded.
        own &= set(one.view.packages.values())
        images = {pool.image for pool in one.document.pools} & set(one.view.images.values())
        if images - uploaded:
            lines.append(workspace.verb("image", name, "--push"))
            uploaded |= images
        if own - uploaded:
            lines.append(workspace.verb("package", name, "--upload"))
            uploaded |= own
        lines.append(one.rendered.shell_command(path))
    return lines
