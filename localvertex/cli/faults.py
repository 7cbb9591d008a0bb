"""A rehearsal with faults: a job and its candidates on a local Vertex where machines are scarce, by the steps of `submit --watch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from localvertex.cli import servers
from localvertex.cli.run import unwinding
from localvertex.front.control import add_fault, call, env
from localvertex.jobs.manager import Watcher
from localvertex.jobs.project_settings import settings_of_project
from localvertex.rehearsal import Recorder, job_without_trials, refuse_errors
from localvertex.server import running
from vertexrig.cli import candidates, remote
from vertexrig.cli.options import ProjectOptions
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project import run_ids
from vertexrig.project.config import STATE_FOLDER
from vertexrig.project.model import Sweep
from vertexrig.project.triggered import Budget
from vertexrig.results.rehearsal import Rehearsal
from vertexrig.runs.submitted import SubmittedRun
from vertexrig.spec.states import FAILED
from vertexrig.studies import report
from vertexrig.submit import submission
from vertexrig.submit.claims import fresh_key
from vertexrig.workspace import Workspace

SPEED = 300.0
"""What a wait for machines and a fault's length are divided by without a pace: 20 minutes take 4 s."""
_LOOK_EVERY_S = 0.1


def rehearse(
    project: ProjectOptions,
    name: str,
    faults: servers.FaultOptions,
    pace: servers.PaceOptions,
    *,
    trials: int | None,
    seed: int,
    resume: str,
    engine: str | None,
    watcher: Watcher,
) -> Rehearsal:
    """Run a job or sweep on a local Vertex with faults, go on to its candidates, and leave a record in the project's history.

    The arguments are those of `localvertex.rehearsal.rehearse`; the speed of `pace` also divides what is waited for.
    """
    workspace = limited(project, name, trials)
    loaded = workspace.loaded
    every = workspace.prepare_candidates(name)
    for one in every:
        refuse_errors(one, workspace)
    faults.parsed()  # before anything starts
    root = loaded.output(STATE_FOLDER).absolute()
    speed = SPEED if pace.pace == "none" else pace.speed or 1.0
    gs_paths = loaded.project.local.gs_paths or "mapped"
    settings = settings_of_project(
        loaded, root, gs_paths=gs_paths, engine=engine, seed=seed, pace=pace.pace, speed=pace.speed
    )
    recorder = Recorder(name, root, watcher, states=False)  # `candidates.follow` shows them
    with unwinding(), running(settings, watcher=recorder.watcher) as here:
        for one in every:
            servers.make_bucket(here, one.workspace.loaded)
        with _environment(env(here, project=loaded.project.project, region=loaded.project.region)):
            vertex, storage = remote.service(loaded), remote.bucket(loaded, "claims and packages")
            if resume:
                candidates.resumable(vertex, storage, every[0], resume)
            # without the project's budget, because a rehearsal costs nothing
            submitter = submission.Submitter(workspace, vertex, storage, limits=Budget())
            request = candidates.new_request(every, submitter, fresh_key(), resume)
            request.engine.speed = speed
            # Only the wait for machines counts: a job is PENDING also while its package is installed, in seconds at any speed.
            request.engine.waits = lambda job: job.name in call(here, "GET", "/v1/status")["held"]
            # Before the faults are added, because their time runs from then on.
            request.engine.publish(request.candidates[0])
            for text in faults.texts:
                add_fault(here, text, speed)
            try:
                # With "json" its lines go to stderr: stdout gets the summary alone, in both formats.
                at = candidates.follow(request, _LOOK_EVERY_S, "json")
            except BaseException:
                _cancel(request)
                raise
            attempts = tuple(request.attempts(at.remote))
            made = next((one["job"] for one in reversed(attempts) if one["job"]), "")
            job = at.remote or (vertex.get(made) if made else None) or RemoteJob({"state": FAILED})
    error = "" if at.run.reason == "SUCCEEDED" else at.text
    recorder.run_id = resume or run_ids.run_id_of(job.output)
    return recorder.finish(job.data, error, attempts)


def limited(project: ProjectOptions, name: str, trials: int | None) -> Workspace:
    """Return a project in which a sweep has this number of trials, by overrides, because each candidate is rendered anew and submitted."""
    workspace = project.workspace(name)
    if trials is None:
        return workspace
    sweep = workspace.loaded.runnable(name)
    if not isinstance(sweep, Sweep):
        raise job_without_trials(name)
    # parallel_trial_count must not exceed max_trial_count.
    limits = (f"max_trial_count={trials}", f"parallel_trial_count={min(trials, sweep.parallel_trial_count)}")
    return replace(project, overrides=(*project.overrides, *limits)).workspace(name)


def _cancel(request: SubmittedRun) -> None:
    """Cancel the job that runs; otherwise the next server would continue it."""
    made = [one["job"] for one in request.attempts() if one["job"] and not one["reason"]]
    for name in made[-1:]:
        report.cancel(request.engine.submitter.vertex, name, poll_s=_LOOK_EVERY_S)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Have variables in this process's environment while the block lasts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
