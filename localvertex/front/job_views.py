"""What the console shows of jobs and studies, computed from what the local Vertex keeps, or from what Vertex AI answers."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from localvertex.http import Json, invalid, not_found
from localvertex.jobs.resources import CUSTOM_JOBS, MODELS, PIPELINES, PLACE, SCHEDULES, STUDIES, TUNING_JOBS
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.runner.job_files import job_folder
from vertexrig import times
from vertexrig.errors import ConfigError, UsageError
from vertexrig.spec import cluster
from vertexrig.spec.document import Document
from vertexrig.spec.labels import CANDIDATE_LABEL, first_of
from vertexrig.spec.states import has_run
from vertexrig.text import shown

if TYPE_CHECKING:
    from vertexrig.results.study import StudyRecord

MOST_LISTED = 100
"""Jobs of each kind, models and schedules that the page lists."""
_LISTED = ("name", "displayName", "state", "createTime", "startTime", "endTime")


class Resources(Protocol):
    """Where jobs and trials are read: a `ResourceStore`, or the services of a project."""

    def newest(self, kind: str, most: int) -> tuple[int, list[StoredResource]]:
        """Return how many resources of a kind there are, -1 if that is not known, and the newest `most`."""

    def get(self, name: str) -> StoredResource | None:
        """Return a resource, None if there is none of that name."""

    def trials(self, study: str) -> list[Json]:
        """Return the trials of a study, the oldest first."""

    def child(self, study: str, trial: str) -> str:
        """Return the resource name of the job that runs a trial, "" if it has none yet."""


def jobs(store: Resources) -> Json:
    """Return the newest jobs of each kind of all locations, the newest first, and how many there are; without the jobs of trials."""
    rows, counts = [], {}
    for kind in (CUSTOM_JOBS, TUNING_JOBS, PIPELINES, STUDIES):
        counts[kind], found = store.newest(kind, MOST_LISTED)
        for one in found:
            rows.append(_tuning_row(store, one) if kind == TUNING_JOBS else _row(one.body))
    rows.sort(key=lambda row: str(row["createTime"]), reverse=True)
    return {"jobs": rows, "counts": counts, "most": MOST_LISTED}


def _row(body: Json) -> Json:
    """Return a job as it is listed, with a start only if it has run."""
    row = {key: body.get(key, "") for key in _LISTED}
    return row if has_run(body) else {**row, "startTime": ""}


def _tuning_row(store: Resources, study: StoredResource) -> Json:
    """Return a tuning job as it is listed, with how many trials have ended and how many it may have."""
    records = store.trials(study.name)
    ended = sum(record.get("state") in ("SUCCEEDED", "INFEASIBLE") for record in records)
    row = {**_row(study.body), **_ran(study.body, records)}
    return {**row, "trials": {"ended": ended, "asked": study.body.get("maxTrialCount", 0)}}


def _ran(body: Json, records: Sequence[Json]) -> Json:
    """Return from when to when a study ran: at least from the start of its first trial to the end of its last.

    A job's own times are whole seconds, and the times of trials are not.
    """
    row = _row(body)
    return {
        key: choose([row[key], *filter(None, (record.get(key) for record in records))], key=times.seconds_since_1970)
        for key, choose in (("startTime", min), ("endTime", max))
        if row[key]
    }


def locations(store: ResourceStore) -> Json:
    """Return each `projects/P/locations/L` that has resources, since the APIs list by location, and the numbers of all
    models and schedules.
    """
    rows = store.database.rows("SELECT DISTINCT parent, kind = ? FROM resources ORDER BY parent", SCHEDULES)
    made, planned = ([row[0] for row in rows if row[1] == own and PLACE.fullmatch(row[0])] for own in (0, 1))
    counts = {"models": store.count(MODELS), "schedules": store.count(SCHEDULES)}
    return {"vertex": made, "scheduler": planned, **counts, "most": MOST_LISTED}


def disk(root: Path) -> Json:
    """Return the bytes below each folder of the state, links not followed, and those that are free on its disk."""
    parts: Counter[str] = Counter()
    for folder, _, names in os.walk(root):
        top = Path(folder).relative_to(root).parts[:1]
        for name in names:
            with suppress(OSError):  # a running job removes files
                parts[top[0] if top else "databases"] += os.lstat(os.path.join(folder, name)).st_size
    return {"parts": {name: size for name, size in parts.items() if size}, "free": shutil.disk_usage(root).free}


def replicas(store: Resources, root: Path | None, name: str) -> Json:
    """Return the replicas of a custom job: name, role, machine, accelerator, and the size and age of its log file below `root`;
    and what the local Vertex says of the job that the service would not.
    """
    kept = stored(store, name)
    if f"/{CUSTOM_JOBS}/" not in name:
        raise invalid(f"{name[:200]} is not a custom job and has no replicas.")
    # A job that was given or seeded did not run here, and has its own spec alone.
    spec = kept.hidden.get("spec") or kept.body.get("jobSpec") or {}
    pools = Document("CustomJobSpec", dict(spec)).pools
    folder = None if root is None else job_folder(root, name.rpartition("/")[2]) / "logs"
    rows = []
    for one in cluster.replicas(pools):
        pool = pools[one.pool_index]
        accelerators = f"{pool.accelerator_count} × {pool.accelerator_type}" if pool.accelerator_type else ""
        row = {"name": one.name, "role": one.role, "machine": pool.machine_type, "accelerators": accelerators}
        rows.append(row if folder is None else {**row, **_log(folder / f"{one.name}.log")})
    hint, notes = kept.hidden.get("hint", ""), [*kept.hidden.get("warnings", ()), *kept.hidden.get("differences", ())]
    return {"replicas": rows, "folder": str(folder or ""), "notes": [*([f"Hint: {hint}"] if hint else []), *notes]}


def _log(path: Path) -> Json:
    try:
        facts = path.stat()
    except OSError:
        return {"bytes": 0, "written": None}
    return {"bytes": facts.st_size, "written": facts.st_mtime}


def candidates(store: Resources, name: str) -> Json:
    """Return the jobs of the same request as a job, in the order in which they were made, if it has candidates."""
    labels = stored(store, name).body.get("labels", {})
    first = first_of(labels)
    rows = []
    for kind in (CUSTOM_JOBS, TUNING_JOBS) if first else ():
        for one in store.newest(kind, MOST_LISTED)[1]:
            if first_of(one.body.get("labels", {})) == first:
                row = _row(one.body)
                error = str((one.body.get("error") or {}).get("message", "")).partition("\n")[0]
                rows.append({**row, "candidate": one.body["labels"][CANDIDATE_LABEL], "error": error})
    return {"candidates": sorted(rows, key=lambda row: str(row["createTime"]))}


def stored(store: Resources, name: str) -> StoredResource:
    """Return a resource by its name; a 404 if there is none."""
    kept = store.get(name)
    if kept is None:
        raise not_found(f"There is no resource {name[:200]!r}.")
    return kept


def study(store: Resources, name: str) -> Json:
    """Return what the console says of a study: its goals, its parameters, and a row per trial."""
    found, records = _study(store, name)
    return {
        "goals": [goal.id for goal in found.goals],
        "parameters": list(found.parameters),
        "trials": _trials(found, store, name, records),
        "asked": found.asked,
        "ran": _ran(stored(store, name).body, records),
    }


def charts(store: Resources, name: str) -> Json:
    """Return a study's charts, the same that `vertexrig report` shows, but those of the importance, which need Optuna."""
    from vertexrig.results.charts import charts
    from vertexrig.results.timeline import timeline

    found, _ = _study(store, name)
    return charts(found, timeline(found)).for_page()


def _study(store: Resources, name: str) -> tuple[StudyRecord, list[Json]]:
    """Return a study with the records of its trials."""
    # Here, for the server at rest: 5 MiB, and 0.6 s of its start on a busy machine (2026-11-22).
    from vertexrig.cloud.vertex import RemoteJob
    from vertexrig.results.study import read

    kept = stored(store, name)
    records = store.trials(name)
    try:
        return read(RemoteJob({**kept.body, "trials": records})), records
    except (ConfigError, UsageError) as error:
        raise invalid(f"{name[:200]} cannot be read as a study: {error}") from None


def _trials(found: StudyRecord, store: Resources, study: str, records: Sequence[Json]) -> list[Json]:
    """Return a row per trial for the table: parameters and metrics as text, when it ran, and the job that runs it."""
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
    """Return the metrics that a trial which has not ended reported last."""
    measured = record.get("measurements") or [{}]
    return {str(one.get("metricId", "")): one.get("value", 0.0) for one in measured[-1].get("metrics", ())}
