"""Alert policies and a dashboard of Cloud Monitoring, as the JSON that gcloud takes.

Fields: AlertPolicy and Dashboard, REST reference of Cloud Monitoring v3 and v1. The filters match what `vertexrig.trigger` logs, and what
Cloud Scheduler logs of its attempts (`localvertex.services.scheduler_log` names the real entries).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from vertexrig.cloud import cron
from vertexrig.project.config import TICK, Loaded
from vertexrig.trigger import schedules

FUNCTION, SCHEDULER = "function", "scheduler"
CONDITIONS = {
    "refused": (
        "a scheduled run did not start",
        FUNCTION,
        'severity>=ERROR AND jsonPayload.schedule:* AND jsonPayload.decision="refused"',
        "Why: `vertexrig schedule history NAME`, and the entry's `text`.",
    ),
    "failed": (
        "a run failed, or a step that follows it",
        FUNCTION,
        "severity>=ERROR AND jsonPayload.outcome:*",
        "Why: `vertexrig schedule history NAME`, `vertexrig schedule steps`, `vertexrig logs NAME`.",
    ),
    "broken": (
        "the trigger itself fails",
        FUNCTION,
        "severity>=ERROR AND (jsonPayload.error:* OR jsonPayload.service_status:*)",
        "What to type: `vertexrig doctor`.",
    ),
    "overdue": (
        "no delivery arrived for a scheduled run",
        FUNCTION,
        'severity>=ERROR AND jsonPayload.alarm="overdue"',
        "Why: `vertexrig schedule status NAME` compares the file, the function and Cloud Scheduler.",
    ),
    "late": (
        "a run missed its deadline",
        FUNCTION,
        'severity>=ERROR AND jsonPayload.alarm="late"',
        "What it waits for: `vertexrig schedule steps`, `vertexrig schedule history NAME`.",
    ),
    "behind": (
        "a tick ended before it had processed all unfinished runs",
        FUNCTION,
        f'jsonPayload.path="/{TICK}" AND jsonPayload.left>0',
        "Raise `trigger.timeout` (a tick may use half of it), then `vertexrig function deploy --run`. Or make `trigger.tick` more frequent, "
        "then `vertexrig schedule apply`.",
    ),
    "budget": (
        "a budget of the day is nearly used",
        FUNCTION,
        "jsonPayload.budget_used>=0.8",
        "`budget_used` is the part of a limit in `trigger.budget` or `trigger.callers` that is used with this run.",
    ),
    "undelivered": (
        "Cloud Scheduler could not deliver",
        SCHEDULER,
        "severity>=ERROR",
        "The function cannot be reached, refused the caller or the request, or was too slow: `vertexrig schedule status`, `vertexrig doctor`.",
    ),
}
"""By name: what it is, whose log entries it is about, their filter, and what to do."""
ABSENT = "silent"
LONGEST_ABSENCE_S = 23.5 * 3600
"""The longest time of a condition about an absent metric: docs.cloud.google.com/monitoring/alerts/metric-absence (read 2026-11-26)."""
_EXTRACTED = {
    FUNCTION: {"schedule": "EXTRACT(jsonPayload.schedule)", "run": "EXTRACT(jsonPayload.run)"},
    SCHEDULER: {"job": "EXTRACT(resource.labels.job_id)"},
}


def of_function(loaded: Loaded, more: str) -> str:
    """Return a filter of the function's log entries."""
    service = f'resource.type="cloud_run_revision" AND resource.labels.service_name="{loaded.project.trigger.function}"'
    return f"{service} AND {more}"


def filter_of(loaded: Loaded, name: str) -> str:
    """Return the filter of the log entries of a condition."""
    _, of, more, _ = CONDITIONS[name]
    if of == FUNCTION:
        return of_function(loaded, more)
    names = [*loaded.project.schedules, *([TICK] if schedules.ticks(loaded) else [])]
    jobs = " OR ".join(f'"{schedules.job_id(loaded, one)}"' for one in names)
    return f'resource.type="cloud_scheduler_job" AND resource.labels.job_id=({jobs}) AND {more}'


def policies(loaded: Loaded, channels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return an alert policy for each condition, by name; `channels` are resource names of notification channels."""
    function, found = loaded.project.trigger.function, {}
    scheduled = bool(loaded.project.schedules) or schedules.ticks(loaded)

    def policy(title: str, condition: dict[str, Any], strategy: dict[str, Any], advice: str) -> dict[str, Any]:
        return {
            "displayName": f"{function}: {title}",
            "combiner": "OR",
            "conditions": [{"displayName": title, **condition}],
            "alertStrategy": {**strategy, "autoClose": "86400s"},
            "documentation": {"content": advice, "mimeType": "text/markdown"},
            "notificationChannels": list(channels),
        }

    for name, (title, of, _, advice) in CONDITIONS.items():
        if of == FUNCTION or scheduled:
            matched = {"filter": filter_of(loaded, name), "labelExtractors": _EXTRACTED[of]}
            # a policy about log entries has to say how often it tells at most
            often = {"notificationRateLimit": {"period": "300s"}}
            found[name] = policy(title, {"conditionMatchedLog": matched}, often, advice)
    absent = _absent(loaded) if schedules.ticks(loaded) else None
    if absent is not None:
        advice = "It is paused, was deleted, or Cloud Scheduler has lost its role: `vertexrig schedule status`, `vertexrig schedule plan`."
        found[ABSENT] = policy("the tick does not come", {"conditionAbsent": absent}, {}, advice)
    return found


def _absent(loaded: Loaded) -> dict[str, Any] | None:
    """Return the condition that Cloud Scheduler logs no attempt of the tick; None if its times are too far apart for one."""
    runs = cron.next_runs(loaded.project.trigger.tick, schedules.TICK_ZONE, 200)
    longest = max((later - sooner).total_seconds() for sooner, later in pairwise(runs))
    seconds = max(1800.0, longest + 1200.0)
    if seconds > LONGEST_ABSENCE_S:
        return None
    job = schedules.job_id(loaded, TICK)
    return {
        # the metric of Cloud Logging itself: it is there without being made, and counts the entries of each resource
        "filter": f'metric.type="logging.googleapis.com/log_entry_count" AND resource.type="cloud_scheduler_job" AND resource.labels.job_id="{job}"',
        "duration": f"{seconds // 60 * 60:.0f}s",
        "aggregations": [
            {"alignmentPeriod": "300s", "perSeriesAligner": "ALIGN_DELTA", "crossSeriesReducer": "REDUCE_SUM"}
        ],
    }


def dashboard(loaded: Loaded) -> dict[str, Any]:
    """Return a dashboard: requests by status, memory, and what went wrong and what was decided, as log entries."""
    project, function = loaded.project.project, loaded.project.trigger.function
    resource = f'resource.type="cloud_run_revision" resource.label.service_name="{function}"'

    def chart(title: str, metric: str, aligner: str, reducer: str, *labels: str) -> dict[str, Any]:
        how = {"alignmentPeriod": "600s", "perSeriesAligner": aligner, "crossSeriesReducer": reducer}
        series = {
            "filter": f'metric.type="run.googleapis.com/{metric}" {resource}',
            "aggregation": {**how, "groupByFields": list(labels)},
        }
        data = {"timeSeriesQuery": {"timeSeriesFilter": series}, "plotType": "LINE"}
        return {"title": title, "xyChart": {"dataSets": [data]}}

    def logs(title: str, more: str) -> dict[str, Any]:
        return {
            "title": title,
            "logsPanel": {"filter": of_function(loaded, more), "resourceNames": [f"projects/{project}"]},
        }

    widgets = [
        chart("requests", "request_count", "ALIGN_DELTA", "REDUCE_SUM", 'metric.label."response_code"'),
        chart("memory", "container/memory/utilizations", "ALIGN_PERCENTILE_99", "REDUCE_MAX"),
        logs("what went wrong", "severity>=WARNING"),
        logs("deliveries", "jsonPayload.decision:*"),
    ]
    tiles = [
        {"xPos": 6 * (index % 2), "yPos": 4 * (index // 2), "width": 6, "height": 4, "widget": widget}
        for index, widget in enumerate(widgets)
    ]
    return {"displayName": f"{function} of {project}", "mosaicLayout": {"columns": 12, "tiles": tiles}}
