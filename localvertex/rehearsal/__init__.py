"""Rehearsals: a job's or sweep's YAML run on this machine as Vertex AI would run it, from the package to the record."""

from __future__ import annotations

import filecmp
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localvertex.jobs.inprocess import LocalJobs
from localvertex.jobs.manager import Watcher
from localvertex.jobs.metrics import last_values
from localvertex.jobs.project_settings import settings_of_project
from localvertex.jobs.resources import TUNING_JOBS
from localvertex.runner.environment import local_path
from localvertex.runner.job_files import metric_file
from localvertex.runner.lines import Line
from localvertex.runner.result import JobResult
from localvertex.state import bind
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.errors import FindingsError, UsageError
from vertexrig.files import write_bytes
from vertexrig.package import builder
from vertexrig.project import run_ids
from vertexrig.project.config import PACKAGES_FOLDER, STATE_FOLDER
from vertexrig.results.history import History, Record
from vertexrig.results.rehearsal import Rehearsal, all_failed
from vertexrig.results.study import read
from vertexrig.spec.labels import ENTRY_LABEL
from vertexrig.spec.states import ENDED, FAILED
from vertexrig.workspace import Prepared, Workspace

_OTHER_SEARCH = "Optuna chooses the trials' values instead of Vertex AI; on Vertex AI, the trials get other values"
"""The difference of every sweep."""


def prepare(workspace: Workspace, name: str) -> Prepared:
    """Return job or sweep `name`, rendered and checked.

    Raises:
        FindingsError: The checks found an error.
        ConfigError: The project file has an error, or its values contradict each other.
        UsageError: There is no such job or sweep.
    """
    prepared = workspace.prepare(name)
    refuse_errors(prepared, workspace)
    return prepared


def refuse_errors(prepared: Prepared, workspace: Workspace) -> None:
    """Raise FindingsError if the checks found an error in a job or sweep of a workspace, or in a candidate of one."""
    if not prepared.ok:
        name = prepared.view.name
        check = workspace.command_line("check", name)
        raise FindingsError(f"{name} would fail: {prepared.first_error}; `{check}` shows all")


def rehearse(
    prepared: Prepared,
    *,
    watcher: Watcher | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    trials: int | None = None,
    seed: int = 0,
    resume: str = "",
    pace: str = "none",
    speed: float | None = None,
    engine: str | None = None,
) -> Rehearsal:
    """Package the trainer of a job or sweep, run it to its end, and leave a record in the project's history.

    Args:
        prepared: The job or sweep.
        watcher: Called as it runs.
        cancelled: Whether it is to be cancelled; asked about ten times a second.
        trials: For a sweep: this many trials instead of maxTrialCount.
        seed: For a sweep: what its search starts from.
        resume: An earlier run whose output folder is used; a new one by default.
        pace: `none`, or `recorded` for the times of recorded jobs (`localvertex.jobs.project_settings.waits`).
        speed: Divides these times.
        engine: What runs images (`RunOptions`).

    Raises:
        PackageError: The trainer cannot be packaged.
        UsageError: There is no such run, `trials` was given for a job, a speed without a pace, or the state folder was made elsewhere
            (ForeignStateError).
        ConfigError: `local.interpreters` names a Python that was not made yet.
    """
    name, loaded = prepared.view.name, prepared.workspace.loaded
    if trials is not None and prepared.document.study is None:
        raise job_without_trials(name)
    root = bind(loaded.output(STATE_FOLDER))  # the verb has done so, and has asked the user; other callers have not
    if resume:
        _check_resumed_run(prepared, root, resume)
    prepared = prepared.in_run(resume or run_ids.new_run_id())
    document, view = prepared.document, prepared.view
    # Each replica of a job that is not a sweep is a new process (cold). A process that has made the imports and forks replicas pays off
    # only if more replicas with the same Python and packages follow. A rehearsal has no server behind gs://, so paths are always mapped
    # to folders.
    settings = settings_of_project(
        loaded, root, cold=document.study is None, engine=engine, gs_paths="mapped", seed=seed, pace=pace, speed=speed
    )
    place_packages(prepared, root)
    # Of a sweep, the states would be those of its trials' jobs.
    recorder = Recorder(name, root, watcher or Watcher(), states=document.study is None, run_id=view.run_id)
    with LocalJobs(settings, recorder.watcher) as jobs:
        beside_spec = {"displayName": view.display_name, "labels": {**view.labels, ENTRY_LABEL: name}}
        resource_name = jobs.add(
            beside_spec, document.job if document.study is None else _limited(document.data, trials)
        )
        with recorder.history.running(recorder.record(jobs.get(resource_name))):
            return recorder.finish(jobs.follow(resource_name, recorder.save, cancelled))


def job_without_trials(name: str) -> UsageError:
    """Return the error for `--trials` with a job that is not a sweep."""
    return UsageError(f"{name} is a job, which has no trials; leave --trials out")


def _limited(study: Mapping[str, Any], trials: int | None) -> Mapping[str, Any]:
    """Return a tuning job limited to this number of trials, in all and in parallel; the same tuning job if `trials` is None.

    The YAML stays as it is: `vertexrig rehearse` writes it for Vertex AI.
    """
    if trials is None:
        return study
    # The checks advise parallelTrialCount <= maxTrialCount.
    parallel = min(trials, int(study.get("parallelTrialCount", 1)))
    return {**study, "maxTrialCount": trials, "parallelTrialCount": parallel}


def _check_resumed_run(prepared: Prepared, root: Path, run_id: str) -> None:
    """Raise UsageError if a run that is to be resumed was not rehearsed here."""
    view = prepared.view
    view.check_run_id(run_id, resume=True)
    folder = _local(prepared.document.output_folder, root)
    known = [path.name for path in folder.iterdir() if path.is_dir()] if folder and folder.is_dir() else []
    if run_id not in known:
        raise run_ids.no_such_run(view.name, run_id, known)


class Recorder:
    """Follows the jobs of a rehearsal: tells the caller's watcher what to show, and makes the `Rehearsal` and its record at the end.

    Args:
        name: The job or sweep.
        root: The folder of the state.
        callers_watcher: The caller's watcher. It gets the lines to show, and the trials.
        states: Whether it also gets the states that `Watcher.state` reports, but the last.
        run_id: The run whose output folder the job has; "" if it is not known yet, or if all runs of the job share one.

    Attributes:
        watcher: The recorder's own watcher, which the local Vertex calls.
    """

    def __init__(self, name: str, root: Path, callers_watcher: Watcher, *, states: bool, run_id: str = "") -> None:
        self.name, self.root, self.history, self.run_id = name, root, History(root), run_id
        self.watcher = Watcher(line=self._line, state=self._state, trial=callers_watcher.trial, result=self._result)
        self._callers_watcher, self._states, self._began_at = callers_watcher, states, time.monotonic()
        self._results: dict[str, JobResult] = {}
        self._of_study: list[str] = []

    def _line(self, resource_name: str, line: Line) -> None:
        if f"/{TUNING_JOBS}/" in resource_name:
            # A study's own log lines report what differs from Vertex AI; the summary lists them as differences.
            self._of_study.append(line.text)
        elif line.shown:
            self._callers_watcher.line(resource_name, line)

    def _state(self, resource_name: str, state: str) -> None:
        if self._states and state not in ENDED:
            self._callers_watcher.state(resource_name, state)

    def _result(self, resource_name: str, result: JobResult) -> None:
        self._results[resource_name] = result

    def record(self, body: Mapping[str, Any], **more: Any) -> Record:
        """Return what the history keeps of a job as it is now."""
        output = _local(RemoteJob(body).output, self.root)
        return Record(name=self.name, resource=body, run=self.run_id, output=str(output or ""), **more)

    def save(self, body: Mapping[str, Any]) -> None:
        """Keep the record of a job as it is now."""
        self.history.save(self.record(body))

    def finish(
        self, body: Mapping[str, Any], error: str = "", attempts: tuple[Mapping[str, Any], ...] = ()
    ) -> Rehearsal:
        """Keep the last record, and return how the rehearsal went.

        Args:
            body: The job or sweep as the API shows it; without a name if none was made.
            error: Why it failed, by default the job's own error.
            attempts: As `vertexrig.results.attempts` has them.
        """
        job, tuning = RemoteJob(body), RemoteJob(body).collection == TUNING
        # For a sweep: the results of all its trials' jobs.
        results = [one for resource_name, one in list(self._results.items()) if tuning or resource_name == job.name]
        sentences = [*(one for result in results for one in result.differences), *self._of_study]
        if tuning:
            sentences.insert(0, _OTHER_SEARCH)
        differences = tuple(dict.fromkeys(sentences))  # each once
        metrics = last_values(metric_file(self.root, job.id)) if job.name and not tuning else {}
        if job.name:
            self.history.save(self.record(body, metrics=metrics, differences=differences, attempts=attempts))
        trials = tuple(read(job).table()) if tuning else ()
        # a sweep whose trials have all failed may succeed, by its max_failed_trial_count
        broken = job.state == FAILED or all_failed(trials)
        failures = [one for one in results if one.state == FAILED] if broken else []
        failed = failures[-1] if failures else None  # for a sweep: the last of its trials' jobs that failed
        done = Rehearsal(
            name=self.name,
            state=job.state,
            error=error or job.error,
            seconds=time.monotonic() - self._began_at,
            output=_local(job.output, self.root),
            run=self.run_id,
            metrics=metrics,
            failed_replica=failed.failed_replica if failed else "",
            quoted_output=failed.quoted_output if failed else "",
            hint=failed.hint if failed else "",
            differences=differences,
            warnings=tuple(dict.fromkeys(one for result in results for one in result.warnings)),
            trials=trials,
            attempts=attempts,
        )
        # `astray` is set last, because `models_empty` needs the fields above.
        jobs = {str(one["id"]): one.get("customJob", "") for one in body.get("trials", ())}
        # For a sweep, the folders in `models_empty` are OUTPUT/TRIAL_ID/model.
        resource_names = [jobs[folder.parent.name] if tuning else job.name for folder in done.models_empty]
        without_model = [self._results[one] for one in resource_names if one in self._results]
        return replace(done, astray=_left_in(without_model[0].folder)) if without_model else done


def place_packages(prepared: Prepared, root: Path) -> None:
    """Build the trainer's packages that the job installs, and copy each to the local path of its gs:// URI."""
    workspace = prepared.workspace
    trainer = workspace.loaded.project.trainer
    folder, out = workspace.loaded.path(trainer.path, "trainer", "path"), workspace.loaded.output(PACKAGES_FOLDER)
    for tf_version, uri in prepared.view.own_packages.items():
        pools = [pool for pool in prepared.document.pools if uri in pool.package_uris]
        target = local_path(uri, root)
        if not pools:
            continue
        # The package is the same for every module; `build` is called for each, because it fails if the package lacks the module.
        for module in sorted({pool.module or trainer.module for pool in pools}):
            built = builder.build(folder, out, tf_version=tf_version, module=module, most_mib=trainer.package_mib)
        # The name holds a hash of the sources, which proves nothing about a file that came with a copied project: compare the bytes.
        if target.is_file() and filecmp.cmp(built.path, target, shallow=False):
            continue
        # Whole at once: another job that runs now must not install half a package.
        write_bytes(target, built.path.read_bytes())


def _left_in(folder: Path) -> tuple[Path, ...]:
    """Return what the replicas of a job left in their working directories, the largest first."""
    found = [path for path in folder.glob("*/work/**/*") if path.is_file() and not path.is_symlink()]
    return tuple(sorted(found, key=lambda path: -path.stat().st_size))


def _local(uri: str, root: Path) -> Path | None:
    """Return the folder of an output URI on this machine."""
    return local_path(uri.rstrip("/"), root) if uri.startswith("gs://") else None
