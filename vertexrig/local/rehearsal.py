"""Rehearsals: a job's or sweep's YAML run on this machine as Vertex AI would run it, from the package to the exit code."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vertexrig import package, spec
from vertexrig.checks.workspace import Prepared, Workspace
from vertexrig.errors import FindingsError, UsageError
from vertexrig.local.hints import hint
from vertexrig.local.jobs.inprocess import run_study
from vertexrig.local.jobs.settings import Settings
from vertexrig.local.runner import Control, Line, LocalImage, RunOptions, run_job
from vertexrig.project.config import STATE_FOLDER
from vertexrig.spec.states import SUCCEEDED
from vertexrig.submit.trials import table


@dataclass(frozen=True)
class Watcher:
    """Who is told while it runs.

    Args:
        line: Called with the id of a trial ("" outside sweeps) and each line that its replicas print.
        state: Called with each state the job goes through.
        trial: Called with a trial's record, as the API shows it, at each change.
    """

    line: Callable[[str, Line], None] = lambda trial, line: None
    state: Callable[[str], None] = lambda state: None
    trial: Callable[[Mapping[str, Any]], None] = lambda trial: None


@dataclass(frozen=True)
class Rehearsal:
    """How a rehearsal went.

    Args:
        name: The job or sweep.
        state: The state it ended in, such as `JOB_STATE_SUCCEEDED`.
        error: Why it failed, "" if it did not.
        seconds: Wall time.
        output: Folder on this machine that the output URI stands for, None without one.
        metrics: The trainer's metrics by the name it reports them under, as its summary.json has them.
        failed_replica: The replica that failed the job, "" if none did.
        traceback: The end of its output.
        hint: What that usually means.
        stand_ins: A sentence for each thing that was stood in for.
        trials: A sweep's trials as rows, the best first (`vertexrig.submit.trials.table`).
    """

    name: str
    state: str
    error: str
    seconds: float
    output: Path | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    failed_replica: str = ""
    traceback: str = ""
    hint: str = ""
    stand_ins: tuple[str, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.state == SUCCEEDED

    @property
    def model(self) -> Path | None:
        """Folder of the job's model on this machine, None if there is none."""
        folder = self.output / "model" if self.output is not None else None
        return folder if folder is not None and folder.is_dir() else None


def rehearse(
    workspace: Workspace,
    name: str,
    *,
    watcher: Watcher | None = None,
    control: Control | None = None,
    trials: int | None = None,
    seed: int = 0,
) -> Rehearsal:
    """Render job or sweep `name`, package its trainer, and run it to its end.

    Args:
        workspace: The project.
        name: A job or sweep of it.
        watcher: Who is told while it runs.
        control: To cancel it from another thread.
        trials: For a sweep: this many trials instead of maxTrialCount.
        seed: For a sweep: what its search starts from.

    Raises:
        FindingsError: The checks found an error.
        UsageError: There is no such job, or `trials` was given for a job.
    """
    prepared = workspace.prepare(name)
    if not prepared.ok:
        raise FindingsError(f"{name} would fail: `{workspace.verb('check', name)}` says why")
    if trials is not None and prepared.document.study is None:
        raise UsageError(f"{name} is a job, which has no trials; leave --trials out")
    root = workspace.loaded.path(STATE_FOLDER)
    place_packages(workspace, prepared, root)
    watcher = watcher or Watcher()
    if prepared.document.study is None:
        return _job(workspace, prepared, root, watcher, control)
    return _sweep(workspace, prepared, root, watcher, control, trials, seed)


def _job(workspace: Workspace, prepared: Prepared, root: Path, watcher: Watcher, control: Control | None) -> Rehearsal:
    document = prepared.document
    output = _output(document, root)
    result = run_job(
        document.job,
        root=root,
        on_line=lambda line: watcher.line("", line),
        on_state=watcher.state,
        control=control,
        options=run_options(workspace, prepared),
    )
    message = result.error.message if result.error else ""
    return Rehearsal(
        name=prepared.rendered.view.name,
        state=result.state,
        error=message,
        seconds=result.wall_seconds,
        output=output,
        metrics=_metrics(workspace, document, output) if result.succeeded else {},
        failed_replica=result.failed_replica,
        traceback=result.traceback,
        hint="" if result.succeeded else hint(f"{result.traceback}\n{message}"),
        stand_ins=result.stand_ins,
    )


def _sweep(
    workspace: Workspace,
    prepared: Prepared,
    root: Path,
    watcher: Watcher,
    control: Control | None,
    trials: int | None,
    seed: int,
) -> Rehearsal:
    document = prepared.document
    data = {**document.data, "displayName": prepared.rendered.view.display_name}
    if trials is not None:
        data["maxTrialCount"] = trials
        data["parallelTrialCount"] = min(trials, int(data.get("parallelTrialCount", 1)))
    tails: dict[str, list[str]] = {}
    stand_ins: dict[str, None] = {}

    def line(job: str, one: Line) -> None:
        if one.text.startswith("Stand-in"):
            stand_ins[one.text] = None
        tail = tails.setdefault(job, [])
        tail.append(one.text)
        del tail[:-50]
        watcher.line(job.rpartition("/")[2], one)

    settings = Settings(root=root, run=run_options(workspace, prepared), seed=seed)
    if workspace.loaded.project.local.slots:
        settings = replace(settings, slots=workspace.loaded.project.local.slots)
    begun = time.monotonic()
    job = run_study(data, settings=settings, on_line=line, on_trial=watcher.trial, control=control)
    message = (job.get("error") or {}).get("message", "")
    last_words = "\n".join(text for tail in tails.values() for text in tail)
    failed = job["state"] != SUCCEEDED
    return Rehearsal(
        name=prepared.rendered.view.name,
        state=job["state"],
        error=message,
        seconds=time.monotonic() - begun,
        output=_output(document, root),
        hint=hint(last_words) if failed else "",
        traceback=last_words if failed else "",
        stand_ins=tuple(stand_ins),
        trials=tuple(table(job)),
    )


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
            part = target.with_name(f".{target.name}.part")
            shutil.copyfile(built.path, part)
            part.replace(target)
        placed.append(target)
    return placed


def run_options(workspace: Workspace, prepared: Prepared) -> RunOptions:
    """The run's options as the project file's `local:` gives them."""
    project = workspace.loaded.project
    images = {
        pattern: LocalImage(workspace.loaded.path(image.path).resolve(), image.command)
        for pattern, image in project.local.images.items()
    }
    return RunOptions(
        display_name=prepared.rendered.view.display_name,
        project=project.project,
        region=project.region,
        interpreters=project.local.interpreters,
        images=images,
    )


def _output(document: spec.Document, root: Path) -> Path | None:
    uri = (document.job.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")
    return root / "gs" / uri.removeprefix("gs://").rstrip("/") if uri.startswith("gs://") else None


def _metrics(workspace: Workspace, document: spec.Document, output: Path | None) -> dict[str, float]:
    """The metrics that the trainer reports, as the summary.json beside its model has them."""
    try:
        text = (output / "model" / "summary.json").read_text(encoding="utf-8") if output else ""
        summary = json.loads(text)
    except (OSError, ValueError):
        return {}
    trainer = workspace.context(document).trainer
    names = trainer.metric_ids if trainer is not None and isinstance(summary, dict) else ()
    return {name: summary[name] for name in sorted(names) if isinstance(summary.get(name), (int, float))}
