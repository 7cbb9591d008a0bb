"""Rehearsals: a job's or sweep's YAML run on this machine as Vertex AI would run it, from the package to the exit code."""

from __future__ import annotations

import filecmp
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from localvertex.jobs import resources
from localvertex.jobs.inprocess import run_study
from localvertex.jobs.metrics import last_values
from localvertex.jobs.settings import Settings
from localvertex.runner.environment import local_path
from localvertex.runner.job_files import metric_file
from localvertex.runner.lines import Line
from localvertex.runner.options import Control, RunOptions
from localvertex.runner.project_options import of_project
from localvertex.runner.result import JobResult, new_job_id
from localvertex.runner.run import run_job
from localvertex.state import claimed
from vertexrig.cloud.vertex import CUSTOM, TUNING
from vertexrig.errors import FindingsError, UsageError
from vertexrig.package import builder
from vertexrig.project import runs
from vertexrig.project.config import PACKAGES_FOLDER, STATE_FOLDER
from vertexrig.results.history import History, Record
from vertexrig.results.rehearsal import Rehearsal
from vertexrig.results.trials import table
from vertexrig.spec.labels import RUN_LABEL
from vertexrig.workspace import Prepared, Workspace


@dataclass(frozen=True)
class Watcher:
    """What is called while it runs.

    Args:
        line: Called with the id of a trial ("" outside sweeps) and each line that its replicas print.
        state: Called with each state the job goes through.
        trial: Called with a trial's record, as the API shows it, at each change.
    """

    line: Callable[[str, Line], None] = lambda trial, line: None
    state: Callable[[str], None] = lambda state: None
    trial: Callable[[Mapping[str, Any]], None] = lambda trial: None


def rehearse(
    workspace: Workspace,
    name: str,
    *,
    watcher: Watcher | None = None,
    control: Control | None = None,
    trials: int | None = None,
    seed: int = 0,
    resume: str = "",
    pace: Callable[[RunOptions], RunOptions] = lambda run: run,
) -> Rehearsal:
    """Render job or sweep `name`, package its trainer, run it to its end, and leave a record in the project's history.

    Args:
        control: To cancel it from another thread.
        trials: For a sweep: this many trials instead of maxTrialCount.
        seed: For a sweep: what its search starts from.
        resume: An earlier run whose output folder is used; a new one by default.
        pace: Gives the run its times (`localvertex.runner.pace.paced`).

    Raises:
        FindingsError: The checks found an error.
        UsageError: There is no such job or run, or `trials` was given for a job.
    """
    prepared = workspace.prepare(name)
    if not prepared.ok:
        raise FindingsError(f"{name} would fail: `{workspace.verb('check', name)}` says why")
    if trials is not None and prepared.document.study is None:
        raise UsageError(f"{name} is a job, which has no trials; leave --trials out")
    root = claimed(workspace.loaded.output(STATE_FOLDER))
    if resume:
        _must_be_there(prepared, root, resume)
    prepared = prepared.in_run(resume or runs.new_run_id())
    place_packages(workspace, prepared, root)
    run = pace(run_options(workspace, prepared))
    stage = _Stage(workspace, prepared, root, watcher or Watcher(), control, run)
    return stage.job() if prepared.document.study is None else stage.sweep(trials, seed)


def _must_be_there(prepared: Prepared, root: Path, run: str) -> None:
    """Refuse to resume a run that was not rehearsed here."""
    view = prepared.view
    runs.must_be_resumable(view, run)
    folder = _local(prepared.document.output, root)
    known = [path.name for path in folder.iterdir() if path.is_dir()] if folder and folder.is_dir() else []
    if run not in known:
        raise runs.no_such_run(view.name, run, known)


@dataclass(frozen=True)
class _Stage:
    """One rehearsal: what runs, where, and who watches."""

    workspace: Workspace
    prepared: Prepared
    root: Path
    watcher: Watcher
    control: Control | None
    run: RunOptions

    @property
    def output(self) -> Path | None:
        return _local(self.prepared.document.output, self.root)

    def record(self, resource: Mapping[str, Any], **more: Any) -> Record:
        """Return what the history keeps."""
        view = self.prepared.view
        return Record(view.name, resource, view.run_id, str(self.output or ""), **more)

    def resource(self, collection: str, number: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resource of a job that begins, as the API would show it."""
        options, view = self.run, self.prepared.view
        parent = resources.parent_name(options.project, options.region)
        shown = {"displayName": view.display_name, "labels": {**view.labels, RUN_LABEL: view.name}, **fields}
        return resources.new_body(f"{parent}/{collection}/{number}", "JOB_STATE_PENDING", shown)

    def job(self) -> Rehearsal:
        document, number = self.prepared.document, new_job_id()
        body = self.resource(CUSTOM, number, {"jobSpec": resources.rest_form("CustomJobSpec", document.job)})
        history = History(self.root)

        def moved(state: str) -> None:
            resources.move(body, state)
            history.save(self.record(body))
            self.watcher.state(state)

        with history.running(self.record(body)):
            result = run_job(
                document.job,
                root=self.root,
                on_line=lambda line: self.watcher.line("", line),
                on_state=moved,
                control=self.control,
                options=replace(self.run, job_id=number),
            )
            error = asdict(result.error) if result.error else None
            resources.move(body, result.state, error)
            metrics = last_values(metric_file(self.root.absolute(), number))
            history.save(self.record(body, metrics=metrics, stand_ins=result.stand_ins))
        return self._ended(
            state=result.state,
            error=result.error.message if result.error else "",
            seconds=result.wall_seconds,
            metrics=metrics,
            failed_replica=result.failed_replica,
            traceback=result.traceback,
            hint=result.hint,
            stand_ins=result.stand_ins,
            astray=_left_in(result.folder),
        )

    def sweep(self, trials: int | None, seed: int) -> Rehearsal:
        data = self._sweep_data(trials)
        ended: dict[str, JobResult] = {}
        records: dict[str, Mapping[str, Any]] = {}
        history = History(self.root)
        shown = resources.rest_form("HyperparameterTuningJob", data)
        body = self.resource(TUNING, new_job_id(), shown)
        body["state"] = "JOB_STATE_RUNNING"

        def trial(record: Mapping[str, Any]) -> None:
            records[str(record["id"])] = {key: value for key, value in record.items() if key != "failed"}
            history.save(self.record({**body, "trials": list(records.values())}))
            self.watcher.trial(record)

        begun, noted = time.monotonic(), list[str]()
        with history.running(self.record(body)):
            job = run_study(
                data,
                settings=self._settings(seed),
                control=self.control,
                on_trial=trial,
                on_line=lambda name, one: self.watcher.line(name.rpartition("/")[2], one),
                on_result=lambda name, result: ended.update({name: result}),
                on_note=noted.append,
            )
            # Of the history's own record: the engine's job has a number that was shown to no one.
            job = {**job, "name": body["name"], "labels": body["labels"]}
            notes = ["the local study engine for Vertex AI's search: its trials have other values"]
            stand_ins = tuple(
                dict.fromkeys(notes + [one for result in ended.values() for one in result.stand_ins] + noted)
            )
            history.save(self.record(job, stand_ins=stand_ins))
        # The last to fail: its end is the one that the study ended with.
        failed = next((one for one in reversed(ended.values()) if one.state == "JOB_STATE_FAILED"), None)
        failed = failed if job["state"] == "JOB_STATE_FAILED" else None
        done = self._ended(
            state=job["state"],
            error=(job.get("error") or {}).get("message", ""),
            seconds=time.monotonic() - begun,
            failed_replica=failed.failed_replica if failed else "",
            hint=failed.hint if failed else "",
            traceback=failed.traceback if failed else "",
            stand_ins=stand_ins,
            trials=tuple(table(job)),
        )
        jobs = {str(one["id"]): one.get("customJob", "") for one in job.get("trials", ())}
        lost = [ended[name] for one in done.models_empty if (name := jobs[one.parent.name]) in ended]
        return replace(done, astray=_left_in(lost[0].folder)) if lost else done

    def _ended(self, **how: Any) -> Rehearsal:
        view = self.prepared.view
        return Rehearsal(name=view.name, output=self.output, run=view.run_id, **how)

    def _sweep_data(self, trials: int | None) -> dict[str, Any]:
        data = {**self.prepared.document.data, "displayName": self.prepared.view.display_name}
        if trials is not None:
            data["maxTrialCount"] = trials
            # As the checks advise: not more trials at a time than in all.
            data["parallelTrialCount"] = min(trials, int(data.get("parallelTrialCount", 1)))
        return data

    def _settings(self, seed: int) -> Settings:
        local = self.workspace.loaded.project.local
        settings = Settings(root=self.root, run=self.run, seed=seed, discrete=local.discrete)
        slots = local.slots
        return replace(settings, slots=slots) if slots else settings


def place_packages(workspace: Workspace, prepared: Prepared, root: Path) -> None:
    """Build the packages that the job names and we make, and put them where their gs:// URIs point on this machine."""
    trainer = workspace.loaded.project.trainer
    folder, out = workspace.loaded.path(trainer.path, "trainer", "path"), workspace.loaded.output(PACKAGES_FOLDER)
    for tf_version, uri in workspace.renderer.packages.items():
        pools = [pool for pool in prepared.document.pools if uri in pool.package_uris]
        target = local_path(uri, root)
        if not pools:
            continue
        for module in sorted({pool.module or trainer.module for pool in pools}):  # each of them has to be in it
            built = builder.build(folder, out, tf_version=tf_version, module=module)
        # Its name holds a hash of its sources; but what has that name here may have come with the folder.
        if target.is_file() and filecmp.cmp(built.path, target, shallow=False):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        shutil.copyfile(built.path, part)
        # Another job that runs now must not install half a package.
        part.replace(target)


def run_options(workspace: Workspace, prepared: Prepared) -> RunOptions:
    """Return the run's options as the project file's `local:` gives them."""
    project = workspace.loaded.project
    return replace(
        of_project(workspace.loaded),
        display_name=prepared.view.display_name,
        project=project.project,
        region=project.region,
    )


def _left_in(folder: Path) -> tuple[Path, ...]:
    """Return what the replicas of a job left in their working directories, the largest first."""
    found = [path for path in folder.glob("*/work/**/*") if path.is_file() and not path.is_symlink()]
    return tuple(sorted(found, key=lambda path: -path.stat().st_size))


def _local(uri: str, root: Path) -> Path | None:
    """Return the folder of an output URI on this machine."""
    return local_path(uri.rstrip("/"), root) if uri.startswith("gs://") else None
