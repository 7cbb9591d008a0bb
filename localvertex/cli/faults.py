"""A rehearsal with faults: a job and its candidates on a local Vertex where machines are scarce, by the steps of `submit --watch`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localvertex.cli import servers
from localvertex.cli.run import server, unwinding
from localvertex.front.control import add_fault, call, env
from localvertex.jobs.metrics import last_values
from localvertex.runner.environment import local_path
from localvertex.runner.job_files import metric_file
from localvertex.runner.lines import SERVICE
from vertexrig.cli import climbing, remote, streams
from vertexrig.cloud.vertex import CUSTOM, TUNING, RemoteJob
from vertexrig.errors import FindingsError
from vertexrig.project import runs
from vertexrig.project.config import STATE_FOLDER
from vertexrig.project.triggered import Budget
from vertexrig.results.history import History, Record
from vertexrig.results.rehearsal import Rehearsal
from vertexrig.results.trials import table
from vertexrig.spec.states import FAILED
from vertexrig.studies import report
from vertexrig.submit import submission
from vertexrig.submit.claims import fresh_key
from vertexrig.submit.ladder import Ladder
from vertexrig.workspace import Workspace

if TYPE_CHECKING:
    from localvertex.jobs.settings import Settings

SPEED = 300.0
"""What a wait for machines and a fault's length are divided by without a pace: 20 minutes take 4 s."""
_LOOK_EVERY_S = 0.1


def rehearse(
    workspace: Workspace,
    name: str,
    faults: servers.FaultOptions,
    pace: servers.PaceOptions,
    *,
    seed: int,
    resume: str,
    quiet: bool,
) -> Rehearsal:
    """Run a job or sweep on a local Vertex with faults, go on to its candidates, and leave a record in the project's history.

    Args:
        workspace: The project.
        name: A job or sweep of it.
        faults: What goes wrong.
        pace: How long jobs wait for machines; its speed also divides what is waited for.
        seed: What a sweep's search starts from.
        resume: An earlier run whose output folder is used; a new one by default.
        quiet: Do not show what the replicas print.
    """
    loaded, begun = workspace.loaded, time.monotonic()
    every = workspace.prepare_all(name)
    if not all(one.ok for one in every):
        raise FindingsError(f"{name} would fail: `{workspace.verb('check', name)}` says why")
    root = loaded.output(STATE_FOLDER).absolute()
    speed = SPEED if pace.pace == "none" else pace.speed or 1.0

    def settings() -> Settings:
        trainers, gs = servers.TrainerOptions(cold=False, discrete=None), loaded.project.local.gs_paths
        made = servers.settings(loaded, root, trainers, gs_paths=gs or "mapped")
        return replace(made, run=pace.paced(made.run), seed=seed)

    faults.parsed()  # before anything starts
    with unwinding(), server(loaded, root, settings, None, ["--fault"], 0) as here:
        for one in every:
            servers.make_bucket(here, one.workspace.loaded)
        place = env(here, project=loaded.project.project, region=loaded.project.region)
        with _environment(place), nullcontext() if quiet else _printing(root / "jobs"):
            vertex, storage = remote.service(loaded), remote.bucket(loaded, "claims and packages")
            if resume:
                climbing.resumable(vertex, storage, every[0], resume)
            # the budget is for what is paid
            submitter = submission.Submitter(workspace, vertex, storage, limits=Budget())
            climbed = climbing.ladder(every, submitter, fresh_key(), resume)
            climbed.speed = speed
            # until a package is installed a job is PENDING, too: that takes seconds here whatever the speed is
            climbed.waits = lambda job: job.name in call(here, "GET", "/v1/status")["held"]
            climbed.publish(climbed.ways[0])  # which takes its time at any speed, and a fault's begins now
            for text in faults.texts:
                add_fault(here, text, speed)
            try:
                at = climbing.follow(climbed, _LOOK_EVERY_S, "json")
            except BaseException:
                _cancel(climbed)
                raise
            tries = tuple(climbing.data(climbed, at.job))
            made = next((one["job"] for one in reversed(tries) if one["job"]), "")
            job = at.job or (vertex.get(made) if made else None) or RemoteJob({"state": FAILED})
    error = "" if at.state == "succeeded" else at.text or job.error
    output = local_path(job.output.rstrip("/"), root) if job.output else None
    run = runs.run_id_of(job.output)
    metrics = last_values(metric_file(root, job.id)) if job.name and job.collection == CUSTOM else {}
    if job.name:
        History(root).save(Record(name, job.data, run, str(output or ""), metrics, tries=tries))
    trials = tuple(table(job.data)) if job.name and job.collection == TUNING else ()
    seconds = time.monotonic() - begun
    return Rehearsal(name, job.state, error, seconds, output, run, metrics, trials=trials, tries=tries)


def _cancel(climbed: Ladder) -> None:
    """Cancel the job that a rehearsal is at, which the next server would go on with."""
    made = [one.job for one in climbed.tries() if one.job and not one.reason]
    for name in made[-1:]:
        report.cancel(climbed.ways[0].submitter.vertex, name, poll_s=_LOOK_EVERY_S)


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


@contextmanager
def _printing(jobs: Path) -> Iterator[None]:
    """Note what the replicas of jobs print that begin while the block lasts, from their log files."""
    read = {path: path.stat().st_size for path in jobs.glob("*/logs/*.log")}
    ended = threading.Event()

    def look() -> None:
        for path in sorted(jobs.glob("*/logs/*.log")):
            if path.stem == SERVICE:
                continue
            with path.open("rb") as file:
                file.seek(read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            read[path] = read.get(path, 0) + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                streams.note(f"{path.stem} | {line.split(' ', 2)[-1]}")  # without its time and severity

    def follow() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            look()
        look()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
