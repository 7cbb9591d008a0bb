"""Alert policies and a dashboard of Cloud Monitoring, as the JSON that gcloud takes.

Fields: AlertPolicy and Dashboard, REST reference of Cloud Monitoring v3 and v1. The filters match what `vertexrig.trigger` logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vertexrig.project.config import Loaded

CONDITIONS = {
    "refused": (
        "a scheduled run did not start",
        'severity>=ERROR AND jsonPayload.schedule:* AND jsonPayload.decision="refused"',
        "Why: `vertexrig schedule history NAME`, and the entry's `text`.",
    ),
    "failed": (
        "a run failed, or a step that follows it",
        "severity>=ERROR AND jsonPayload.outcome:*",
        "Why: `vertexrig schedule history NAME`, `vertexrig schedule steps`, `vertexrig logs NAME`.",
    ),
    "broken": (
        "the trigger itself fails",
        "severity>=ERROR AND (jsonPayload.error:* OR jsonPayload.service_status:*)",
        "What to type: `vertexrig doctor`.",
    ),
}
"""By name: what it is, the filter of its log entries, and what to do."""


def of_function(loaded: Loaded, more: str) -> str:
    """Return a filter of the function's log entries."""
    service = f'resource.type="cloud_run_revision" AND resource.labels.service_name="{loaded.project.trigger.function}"'
    return f"{service} AND {more}"


def policies(loaded: Loaded, channels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return an alert policy for each condition, by name; `channels` are resource names of notification channels."""
    function, found = loaded.project.trigger.function, {}
    for name, (title, filter, advice) in CONDITIONS.items():
        matched = {
            "filter": of_function(loaded, filter),
            "labelExtractors": {"schedule": "EXTRACT(jsonPayload.schedule)", "run": "EXTRACT(jsonPayload.run)"},
        }
        found[name] = {
            "displayName": f"{function}: {title}",
            "combiner": "OR",
            "conditions": [{"displayName": title, "conditionMatchedLog": matched}],
            # a policy about log entries has to say how often it tells at most
            "alertStrategy": {"notificationRateLimit": {"period": "300s"}, "autoClose": "86400s"},
            "documentation": {"content": advice, "mimeType": "text/markdown"},
            "notificationChannels": list(channels),
        }
    return found


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
