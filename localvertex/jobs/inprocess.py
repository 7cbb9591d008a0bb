"""A tuning job run in this process, without a server: for rehearsals."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from localvertex.http import Json
from localvertex.jobs import resources
from localvertex.jobs.manager import Jobs
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.studies import Studies
from localvertex.runner.lines import Line
from localvertex.runner.options import Control
from localvertex.runner.result import JobResult, new_job_id

_LOOK_EVERY = 0.1


def run_study(
    data: Mapping[str, Any],
    *,
    settings: Settings,
    on_line: Callable[[str, Line], None] = lambda job, line: None,
    on_trial: Callable[[Json], None] = lambda record: None,
    on_result: Callable[[str, JobResult], None] = lambda job, result: None,
    on_note: Callable[[str], None] = lambda text: None,
    control: Control | None = None,
) -> Json:
    """Run a HyperparameterTuningJob to its end.

    Args:
        data: The job, canonical (`spec.Document.data`), with maxTrialCount and parallelTrialCount.
        settings: Folder, slots, seed, how trials run.
        on_line: Called with the resource name of a trial's job and a line of its output, from several threads.
        on_trial: Called with a trial's record at each change, from the study's thread.
        on_result: Called with the resource name of a trial's job and how it ended, from several threads.
        on_note: Called with what its user should know at its end.
        control: Cancels the study from another thread.

    Returns:
        The resource as the API would show it: state, error, trials.

    Raises:
        ApiError: 400, if the study cannot be searched.
    """

    def write(job: str, lines: Iterable[Line]) -> None:
        for line in lines:
            on_line(job, line)

    key = new_job_id()
    root = settings.root.absolute()
    place = root / "rehearsals" / key  # apart from a server's store, which would take these jobs up
    store = ResourceStore(place)
    jobs = Jobs(
        replace(settings, root=root),
        store,
        write,
        on_result,
    )
    studies = Studies(jobs, on_trial, on_note)
    parent = resources.parent_name(settings.run.project, settings.run.region)
    own = control or Control()
    try:
        name = str(studies.add(parent, dict(data))["name"])
        _wait(studies, name, own)
        return studies.get(name)
    finally:
        # Studies first, as with a server: one that goes on would start further jobs.
        studies.close()
        jobs.close()
        store.close()
        shutil.rmtree(place, ignore_errors=True)
        if control is None:
            own.close()


def _wait(studies: Studies, name: str, control: Control) -> None:
    """Wait for the end of a study, which `control` may cancel."""
    asked = False
    while not studies.wait(name, _LOOK_EVERY):
        if control.cancelled and not asked:
            # Once: cancelling again would write the state at every look.
            asked = True
            studies.cancel(name)
