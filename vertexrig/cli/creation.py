"""The commands that create rendered jobs on Vertex AI."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from vertexrig.checks.cluster import refused_by_gcloud
from vertexrig.project.model import Project
from vertexrig.render.resolve import View
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
            packages = {uri for pool in one.document.pools for uri in pool.package_uris} & {
                *one.view.own_packages.values()
            }
            images = {pool.image for pool in one.document.pools} & {*one.view.own_images.values()}
            lines += [workspace.command_line("image", name, "--push", for_paste=True)] if images - uploaded else []
            lines += (
                [workspace.command_line("package", name, "--upload", for_paste=True)] if packages - uploaded else []
            )
            uploaded |= images | packages
        lines.append(create_command(one, path))
    return lines


def create_command(one: Prepared, path: Path) -> str:
    """Return the command that creates a rendered job, once its package and image are uploaded."""
    # A job that gcloud refuses is created through the API. The findings may lack the refusal: the project file can silence the rule.
    if refused_by_gcloud(one.document):
        return one.workspace.command_line("submit", one.view.name, for_paste=True)
    return gcloud_command(one.workspace.loaded.project, one.view, path)


def gcloud_command(project: Project, view: View, file: str | Path) -> str:
    """Return the gcloud command, as a line for a POSIX shell, that creates a job from the YAML written to `file`.

    What the API puts outside the spec (display name, labels, KMS key) is in its flags.
    """
    group = "custom-jobs" if view.sweep is None else "hp-tuning-jobs"
    words = ["gcloud", "ai", group, "create", f"--project={project.project}", f"--region={project.region}"]
    words += [f"--display-name={view.display_name}", f"--config={file}"]
    if view.labels:
        words.append("--labels=" + ",".join(f"{key}={value}" for key, value in sorted(view.labels.items())))
    if view.kms_key_name:
        words.append(f"--kms-key={view.kms_key_name}")
    return shlex.join(words)
