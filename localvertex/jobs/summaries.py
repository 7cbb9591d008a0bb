"""What `local run` prints of a job beside its state and its error: what the service does not say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from localvertex.http import Json
from localvertex.jobs import resources
from localvertex.jobs.resources import TUNING_JOBS
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.runner.job_files import job_folder
from vertexrig.spec.states import FAILED, SUCCEEDED

_MOST_NAMED = 4
"""Trials that a text names."""


def summary(store: ResourceStore, root: Path, kind: str, one: StoredResource) -> Json:
    """Return the warnings of a job that has ended, and hints at why it failed; of a failed one also its last lines and the folder of its logs.

    A pipeline has what its job has, and a tuning job what the jobs of its trials have.
    """
    if kind == TUNING_JOBS:
        return _of_study(store, root, one)
    job = store.get(str(one.hidden["job"])) if "job" in one.hidden else one
    if job is None:
        return {"warnings": [], "hints": []}
    hint = job.hidden.get("hint", "")
    return {
        "warnings": list(job.hidden.get("warnings", ())),
        "hints": [hint] if hint else [],
        **_failure(root, job),
    }


def _of_study(store: ResourceStore, root: Path, study: StoredResource) -> Json:
    """Return each warning and hint of the trials once, after the trials that have it; of a failed study what its last failed trial printed."""
    records = store.trials(study.name)
    names = {str(record["id"]): store.child(study.name, str(record["id"])) for record in records}
    jobs = {trial: job for trial, name in names.items() if (job := store.get(name))}
    found: Json = {
        "warnings": _by_trials((id_, text) for id_, job in jobs.items() for text in job.hidden.get("warnings", ())),
        "hints": _by_trials((id_, job.hidden.get("hint", "")) for id_, job in jobs.items()),
    }
    found["warnings"] += _without_result(study, records)
    failed = [record for record in records if record.get("failed") and str(record["id"]) in jobs]
    if study.body.get("state") != FAILED or not failed:
        return found
    # The trial that the study's error names (`StudyRun`).
    last = str(max(failed, key=lambda record: str(record.get("endTime", "")))["id"])
    return {**found, **_failure(root, jobs[last]), "trial": last}


def _without_result(study: StoredResource, records: Sequence[Json]) -> list[str]:
    """Return that a study which succeeded has no best trial, and why; nothing if one of its trials has a result."""
    if not records or study.body.get("state") != SUCCEEDED or any(one.get("state") != "INFEASIBLE" for one in records):
        return []
    listed = study.body.get("studySpec", {}).get("metrics", ())  # a tuning job that was given may have none
    metrics = " and ".join(repr(str(one.get("metricId", ""))) for one in listed)
    some = any(record.get("measurements") for record in records)
    which = "no trial that reported a usable value of" if some else "no trial reported a usable value of"
    end = " succeeded" if some else ""
    # Of an error that quotes a replica, the first line.
    reasons = _by_trials(
        (str(record["id"]), str(record.get("infeasibleReason", "")).partition("\n")[0].strip()) for record in records
    )
    return ["; ".join([f"{which} {metrics}{end}, so the study has no best trial", *reasons])]


def _by_trials(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return each text once, after the trials that it is of; texts that differ in the folder of the trial alone count as one."""
    found: dict[str, tuple[str, list[str]]] = {}
    for trial, text in texts:
        if text:
            found.setdefault(text.replace(f"/{trial}/", "//"), (text, []))[1].append(trial)
    return [f"{_named(list(dict.fromkeys(trials)))}: {text}" for text, trials in found.values()]


def _named(trials: Sequence[str]) -> str:
    """Return the ids of trials in words: the first ones of many."""
    if len(trials) == 1:
        return f"trial {trials[0]}"
    if len(trials) > _MOST_NAMED:
        shown = trials[: _MOST_NAMED - 1]
        return f"trials {', '.join(shown)} and {len(trials) - len(shown)} more"
    return f"trials {', '.join(trials[:-1])} and {trials[-1]}"


def _failure(root: Path, job: StoredResource) -> Json:
    """Return the last lines of the replica that failed a custom job, and the folder of the job's logs."""
    logs = job_folder(root.absolute(), resources.last_part(job.name)) / "logs"
    if job.body.get("state") != FAILED or not logs.is_dir():
        return {}
    return {"printed": list(job.hidden.get("printed", ())), "logs": str(logs)}
