"""What the console shows of one job and of one study, computed from what the local Vertex keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vertexrig.errors import ConfigError, UsageError
from vertexrig.local.http import Json, invalid, not_found
from vertexrig.local.jobs.resources import CUSTOM_JOBS, PIPELINES, STUDIES, TUNING_JOBS
from vertexrig.local.jobs.store import ResourceStore, StoredResource
from vertexrig.local.runner.places import job_folder
from vertexrig.spec import cluster
from vertexrig.spec.document import Document
from vertexrig.text import shown

if TYPE_CHECKING:
    from vertexrig.studies.study import StudyRecord


MOST_LISTED = 100
"""Jobs of each kind, models and schedules that the page lists."""
_LISTED = ("name", "displayName", "state", "createTime", "startTime", "endTime")


def jobs(store: ResourceStore) -> Json:
    """The newest jobs of each kind in all places, the newest first, and how many there are; not those of trials.

    Args:
        store: Where jobs are kept.
    """
    rows, counts = [], {}
    for kind in (CUSTOM_JOBS, TUNING_JOBS, PIPELINES, STUDIES):
        counts[kind], found = store.newest(kind, MOST_LISTED)
        for one in found:
            row = {key: one.body.get(key, "") for key in _LISTED}
            rows.append({**row, "trials": _counted(store, one)} if kind == TUNING_JOBS else row)
    rows.sort(key=lambda row: str(row["createTime"]), reverse=True)
    return {"jobs": rows, "counts": counts, "most": MOST_LISTED}


def _counted(store: ResourceStore, study: StoredResource) -> Json:
    """How many trials of a tuning job have ended, of how many."""
    ended = sum(record.get("state") in ("SUCCEEDED", "INFEASIBLE") for record in store.trials(study.name).load())
    return {"ended": ended, "asked": study.body.get("maxTrialCount", 0)}


def replicas(store: ResourceStore, root: Path, name: str) -> Json:
    """The replicas of a custom job: name, role, machine, accelerator, and the size and age of its log file.

    Args:
        store: Where jobs are kept.
        root: The state folder.
        name: Resource name of the job.
    """
    stored = _stored(store, name)
    if f"/{CUSTOM_JOBS}/" not in name:
        raise invalid(f"{name[:200]} is not a custom job and has no replicas.")
    pools = Document("CustomJobSpec", dict(stored.hidden["spec"])).pools
    folder = job_folder(root, name.rpartition("/")[2]) / "logs"
    rows = []
    for one in cluster.replicas(pools):
        pool = pools[one.pool]
        accelerators = f"{pool.accelerator_count} × {pool.accelerator_type}" if pool.accelerator_type else ""
        row = {"name": one.name, "role": one.role, "machine": pool.machine_type, "accelerators": accelerators}
        rows.append({**row, **_log(folder / f"{one.name}.log")})
    return {"replicas": rows, "folder": str(folder)}


def _log(path: Path) -> Json:
    try:
        facts = path.stat()
    except OSError:
        return {"bytes": 0, "written": None}
    return {"bytes": facts.st_size, "written": facts.st_mtime}


def plots(store: ResourceStore, name: str) -> Json:
    """The rows of a study's plots, the same that `vertexrig report` draws its charts from.

    The report's charts are drawn by Vega-Lite, which is in an extra of its own, takes the server 150 MiB and 3 s to bundle,
    and has the browser parse 0.9 MB. The console draws the same rows with a few marks of SVG instead: what counts as a
    trial, the best so far, the place of a value on its axis and the labels there are decided once, in `studies.chart_data`.

    Args:
        store: Where studies are kept.
        name: Resource name of a tuning job or of a study of Vizier.
    """
    from vertexrig.cloud.vertex import RemoteJob
    from vertexrig.studies import chart_data, study

    stored = _stored(store, name)
    data = {**stored.body, "trials": store.trials(name).load()}
    try:
        found = study.read(RemoteJob(data))
    except (ConfigError, UsageError) as error:
        raise invalid(f"{name[:200]} has no plots: {error}") from None
    goals = [{"id": goal.id, "sign": goal.sign} for goal in found.goals]
    return {
        "goals": goals,
        "axes": [{"key": key, "title": title} for key, title in chart_data.axes(found)] if goals else [],
        "rows": chart_data.trials(found),
        "ticks": chart_data.ticks(found),
        "trials": _trials(found, store, name, data["trials"]),
        "asked": found.asked,
    }


def _trials(found: StudyRecord, store: ResourceStore, study: str, records: Sequence[Json]) -> list[Json]:
    """A row per trial for the table: parameters and metrics as text, when it ran, and the job that runs it."""
    best = {trial.id for trial in found.best}
    rows = []
    for trial, record in zip(found.trials, records, strict=True):
        rows.append({
            "id": trial.id, "state": trial.state, "reason": trial.reason, "best": trial.id in best,
            "parameters": {key: shown(value) for key, value in trial.parameters.items()},
            "metrics": {key: shown(value) for key, value in (trial.metrics or _latest(record)).items()},
            "start": record.get("startTime", ""), "end": record.get("endTime", ""),
            "job": store.child(study, trial.id),
        })  # fmt: skip
    return rows


def _latest(record: Json) -> Json:
    """The metrics that a trial which has not ended reported last."""
    measured = record.get("measurements") or [{}]
    return {str(one.get("metricId", "")): one.get("value", 0.0) for one in measured[-1].get("metrics", ())}


def _stored(store: ResourceStore, name: str) -> StoredResource:
    stored = store.get(name)
    if stored is None:
        raise not_found(f"There is no resource {name[:200]!r}.")
    return stored
