"""What a finished job or sweep has trained, as the Model Registry keeps it: the model's folder, its metric, where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vertexrig import spec
from vertexrig.bring.edit import literal
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import CUSTOM, RemoteJob
from vertexrig.errors import UsageError
from vertexrig.project.arguments import arguments
from vertexrig.project.config import Loaded
from vertexrig.results.study import read as study_record
from vertexrig.spec.labels import lineage
from vertexrig.spec.objective import likeliest, likely_goal
from vertexrig.studies import register
from vertexrig.studies.decisions import tidy
from vertexrig.studies.outcome import PROMOTED_FROM, TRIAL, chosen, outcome, trial_folder
from vertexrig.studies.register import Trained, label


def of_sweep(
    job: RemoteJob, name: str, *, trial: str | None = None, metric: str | None = None, value: float | None = None
) -> Trained:
    """Return the model of a sweep's best trial, or of another one.

    Args:
        name: What the user calls it.
        trial: Instead of the best one.
        metric: To compare by; the study's first one by default.
        value: Instead of the trial's own.

    Raises:
        UsageError: No trial counts, or what was named is not there.
    """
    ended = outcome(name, job.data, least=1)
    best = chosen(ended, trial)
    folder = trial_folder(job.data, best.id)
    if not folder:
        raise UsageError(f"{name} has no baseOutputDirectory, so its trials saved no model that can be registered")
    goals = {one.id: "MAXIMIZE" if one.sign > 0 else "MINIMIZE" for one in ended.study.goals}
    metric = metric or ended.study.goals[0].id
    if metric not in goals:
        raise UsageError(f"{name} has no metric {metric!r} to compare by. Choices: {', '.join(goals)}.")
    value = best.metrics[metric] if value is None else value
    name = f"{job.display_name}-trial-{best.id}"
    return _trained(job, "trialJobSpec", f"{folder}/{register.MODEL_DIR}", metric, value, goals[metric], name)


def of_job(
    loaded: Loaded,
    job: RemoteJob,
    name: str,
    *,
    metric: str | None = None,
    value: float | None = None,
    goal: str | None = None,
    known: Callable[[], Mapping[str, Any]] = dict,
    folder: Callable[[str], Storage] = Storage,
) -> Trained:
    """Return the model of a custom job that succeeded.

    Args:
        loaded: The project, whose sweeps say which metric counts and what is better.
        name: What the user calls it.
        metric: To compare by, instead of the sweep's.
        value: Instead of what `summary.json` says.
        goal: MAXIMIZE or MINIMIZE, instead of the sweep's.
        known: Finds metrics that are known apart from `summary.json`.
        folder: Opens a gs:// folder.

    Raises:
        UsageError: It saves nothing, or its metric is not known.
        RestError: Cloud Storage failed.
    """
    if not job.output:
        raise UsageError(f"{name} has no baseOutputDirectory, so it saved no model that can be registered")
    uri = f"{job.output}/{register.MODEL_DIR}"
    metric, goal = compared_by(loaded, job.labels, name, metric=metric, goal=goal, known=known)
    if value is None:
        # summary.json goes before what was reported
        summary = folder(uri).read_json(register.SUMMARY) or {}
        value = register.summary_value(summary, metric)
        if value is None:
            value = register.summary_value(known(), metric)
        if value is None:
            numbers = [key for key in summary if register.summary_value(summary, key) is not None]
            has = f"it has {', '.join(numbers[:8])}" if numbers else "it has no number"
            none = f"{uri} has no such file, and Vertex AI keeps no metric of a custom job"
            raise UsageError(
                f"summary.json of {name} has no {metric}: {has if summary else none}; give it with --value=NUMBER"
            )
    return _trained(job, "jobSpec", uri, metric, value, goal, job.display_name)


def compared_by(
    loaded: Loaded,
    labels: Mapping[str, str],
    name: str,
    *,
    metric: str | None = None,
    goal: str | None = None,
    known: Callable[[], Mapping[str, Any]] = dict,
) -> tuple[str, str]:
    """Return the metric that models of a job are compared by, and its goal.

    Args:
        loaded: The project, whose sweeps name metrics and goals.
        labels: Labels of the job.
        name: What the user calls it.
        metric: Instead of the sweep's.
        goal: Instead of the sweep's.
        known: Finds metrics that the job reported.

    Raises:
        LackingError: No sweep names the metric, or its goal.
    """
    goals = goals_of(loaded, labels)
    metric = metric or next(iter(goals), None)
    if metric is None:
        reported = likeliest(known())
        options = {"metric": reported, "goal": likely_goal(reported)} if reported else {}
        raise register.LackingError(
            f"no sweep of {loaded.file} says which metric {name} is compared by; name it with --metric and --goal",
            **options,
        )
    goal = goal or goals.get(metric)
    if goal is None:
        raise register.LackingError(
            f"no sweep of {loaded.file} says whether more or less of {metric} is better; say it with --goal",
            goal=likely_goal(metric),
        )
    return metric, goal


def image(job: RemoteJob) -> str:
    """Return the image that a job or the trials of a sweep ran in, "" if its spec names none."""
    key = "jobSpec" if job.collection == CUSTOM else "trialJobSpec"
    pools = spec.from_data(dict(job.data.get(key) or {}), kind="CustomJobSpec").pools
    return pools[0].image if pools else ""


def of_promoted(job: RemoteJob, study: RemoteJob) -> Mapping[str, float]:
    """Return what the trial reported that a job was promoted from, whose parameters it has; nothing if the study is another one."""
    trials = study_record(study).trials
    trial = next((one for one in trials if label(one.id) == job.labels.get(TRIAL)), None)
    words = spec.from_data(dict(job.data.get("jobSpec") or {}), kind="CustomJobSpec").pools[0].args
    given = arguments({key: literal(tidy(value)) for key, value in (trial.parameters if trial else {}).items()})
    return trial.metrics if trial is not None and set(given) <= set(words) else {}


def _trained(job: RemoteJob, key: str, uri: str, metric: str, value: float, goal: str, name: str) -> Trained:
    """Return what was trained, with what the job's spec at `key` says of its package, data and image."""
    document = spec.from_data(dict(job.data.get(key) or {}), kind="CustomJobSpec")
    package, data = register.package_hash(document), register.data_argument(document)
    found = document.pools[0].image if document.pools else ""
    return Trained(uri, metric, value, goal, name, job.id, package, data, found, lineage(job.labels))


def model_name(job: RemoteJob, own: str) -> str:
    """Return what the model is called: the sweep that the job comes from, so that each promotion is a version of one model."""
    return job.labels.get(PROMOTED_FROM) or own


def goals_of(loaded: Loaded, labels: Mapping[str, str]) -> dict[str, str]:
    """Goals by metric, safety metrics left out: of the sweep that the job was promoted from, otherwise of every sweep of the project."""
    sweeps = loaded.project.sweeps
    own = sweeps.get(str(labels.get(PROMOTED_FROM, "")))
    found: dict[str, str] = {}
    for one in [own] if own is not None else sweeps.values():
        metrics = one.study.metrics if one.study is not None else one.metrics
        for key, settings in metrics.items():
            if isinstance(settings, str) or settings.safety_config is None:
                found.setdefault(key, settings if isinstance(settings, str) else settings.goal)
    return found
