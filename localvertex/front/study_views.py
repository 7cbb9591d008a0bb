"""What the console shows of one study, computed from what the local Vertex keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from localvertex.front.job_views import stored
from localvertex.http import Json, invalid
from localvertex.jobs.store import ResourceStore
from vertexrig.errors import ConfigError, UsageError
from vertexrig.text import shown

if TYPE_CHECKING:
    from vertexrig.results.study import StudyRecord


def plots(store: ResourceStore, name: str) -> Json:
    """Return the rows of a study's plots, the same that `vertexrig report` draws its charts from.

    The report's charts are drawn by Vega-Lite, which is an optional extra, takes the server 150 MiB and 3 s to bundle,
    and has the browser parse 0.9 MB. The console draws the same rows with a few marks of SVG instead: what counts as a
    trial, the best so far, the position of a value on its axis and the labels there are decided once, in `results.chart_data`.
    """
    # Here, for the server at rest: 5 MiB, and 0.6 s of its start on a busy machine (2026-11-22).
    from vertexrig.cloud.vertex import RemoteJob
    from vertexrig.results import chart_data, study

    kept = stored(store, name)
    data = {**kept.body, "trials": store.trials(name)}
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
