"""Rehearsals: a job's YAML run on this machine as Vertex AI would run it, from the package to the exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vertexrig import package
from vertexrig.errors import FindingsError, UsageError
from vertexrig.local.runner.lines import Line
from vertexrig.local.runner.options import Control, LocalImage, RunOptions
from vertexrig.local.runner.run import JobResult, run_job
from vertexrig.workspace import Prepared, Workspace

STATE_FOLDER = ".vertexrig"


@dataclass(frozen=True)
class Rehearsal:
    """How a rehearsal went.

    Args:
        name: The job.
        result: How the run ended.
        summary: The trainer's own summary.json, empty if it wrote none.
        model: Folder of the model on this machine, None if there is none.
        output: Folder on this machine that the output URI stands for.
    """

    name: str
    result: JobResult
    summary: dict[str, Any]
    model: Path | None
    output: Path | None


def rehearse(
    workspace: Workspace,
    name: str,
    *,
    on_line: Callable[[Line], None] | None = None,
    on_state: Callable[[str], None] | None = None,
    control: Control | None = None,
) -> Rehearsal:
    """Render job `name`, package its trainer, and run it to its end.

    Args:
        workspace: The project.
        name: A job of it.
        on_line: Called with each line the replicas print.
        on_state: Called with each state the job goes through.
        control: To cancel it from another thread.

    Raises:
        FindingsError: The checks found an error.
        UsageError: There is no such job.
    """
    prepared = workspace.prepare(name)
    if not prepared.ok:
        raise FindingsError(f"{name} would fail: `vertexrig check {name}` says why")
    if prepared.document.study is not None:
        raise UsageError(f"{name} is a sweep; rehearse its job {workspace.loaded.project.sweeps[name].job!r}")
    root = workspace.loaded.path(STATE_FOLDER)
    place_packages(workspace, prepared, root)
    options = run_options(workspace, prepared)
    result = run_job(
        prepared.document.job, root=root, on_line=on_line, on_state=on_state, control=control, options=options
    )
    output = _output(prepared, root)
    model = output / "model" if output is not None and (output / "model").is_dir() else None
    return Rehearsal(name, result, _summary(model), model, output)


def place_packages(workspace: Workspace, prepared: Prepared, root: Path) -> list[Path]:
    """Build the packages that the job names and we make, and put them where their gs:// URIs point on this machine."""
    wanted = {uri for pool in prepared.document.pools for uri in pool.package_uris}
    placed = []
    for tf_version, uri in workspace.renderer.packages.items():
        if uri not in wanted:
            continue
        target = root / "gs" / uri.removeprefix("gs://")
        if not target.is_file():
            trainer = workspace.loaded.project.trainer
            folder, out = workspace.loaded.path(trainer.path), workspace.loaded.path("build/packages")
            built = package.build(folder, out, tf_version=tf_version, module=trainer.module)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built.path, target.with_suffix(".part"))
            target.with_suffix(".part").replace(target)
        placed.append(target)
    return placed


def run_options(workspace: Workspace, prepared: Prepared) -> RunOptions:
    """The run's options as the project file's `local:` gives them."""
    project = workspace.loaded.project
    images = {
        pattern: LocalImage(workspace.loaded.path(image.path), image.command)
        for pattern, image in project.local.images.items()
    }
    return RunOptions(
        display_name=prepared.rendered.view.display_name,
        project=project.project,
        region=project.region,
        interpreters=project.local.interpreters,
        images=images,
    )


def _output(prepared: Prepared, root: Path) -> Path | None:
    uri = (prepared.document.job.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")
    return root / "gs" / uri.removeprefix("gs://").rstrip("/") if uri.startswith("gs://") else None


def _summary(model: Path | None) -> dict[str, Any]:
    """What the trainer wrote beside its model."""
    for folder in (model, model.parent if model else None):
        try:
            found = json.loads((folder / "summary.json").read_text(encoding="utf-8")) if folder else None
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return {}
