"""What a project may use of each quota of Vertex AI, and what it uses: Cloud Quotas and Cloud Monitoring.

Sources, read 2026-11-23: google-cloud-quotas 0.6.3 (`quotaInfos`, its fields, the order of `dimensionsInfos`); the page Implement common
use cases of Cloud Quotas (the filter, a window of a week); roles of the IAM reference (Quota Viewer has both permissions); a value of -1 is
no limit (help of `gcloud beta quotas preferences create`, gcloud 528), and one that is left out is 0 (`get_quota` of vertex-ai-samples).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.vertex import service_url

QUOTAS_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDQUOTAS"
MONITORING_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING"
"""gcloud's own variables for other servers."""
SERVICE = "aiplatform.googleapis.com"
LIMITS_PERMISSION, USE_PERMISSION = "cloudquotas.quotas.get", "monitoring.timeSeries.list"
ROLE = "roles/servicemanagement.quotaViewer"
"""Has both."""
_USE = (
    'metric.type="serviceruntime.googleapis.com/quota/allocation/usage" AND resource.type="consumer_quota" AND '
    'resource.label.service="{service}" AND resource.label.location="{region}"'
)
_WINDOW = timedelta(days=7)


@dataclass(frozen=True)
class QuotaLimit:
    """What a project may use of a quota in a region.

    Args:
        metric: Its metric, such as `aiplatform.googleapis.com/custom_model_training_nvidia_l4_gpus`.
        quota_id: Its name in a request for more.
        value: How much; None is no limit.
        refusal: Why a request for more would be refused, "" if it would not.
    """

    metric: str
    quota_id: str
    value: int | None
    refusal: str = ""


class QuotaService:
    """The quotas of one project."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.limits_rest = Rest(f"{service_url('cloudquotas', QUOTAS_VARIABLE)}/v1", "Cloud Quotas")
        self.use_rest = Rest(f"{service_url('monitoring', MONITORING_VARIABLE)}/v3", "Cloud Monitoring")

    def limits(self, region: str) -> dict[str, QuotaLimit]:
        """Return what the project may use in a region, by metric."""
        found = (_limit(row, region) for row in self._infos)
        return {limit.metric: limit for limit in found if limit is not None}

    @cached_property
    def _infos(self) -> list[Any]:
        """The limits of all regions, which come together."""
        path = f"/projects/{self.project}/locations/global/services/{SERVICE}/quotaInfos"
        return list(self.limits_rest.pages(path, "quotaInfos", {"pageSize": 1000}))

    def use(self, region: str) -> dict[str, int]:
        """Return what the project uses in a region, by metric, as last measured; quotas that nothing was measured of are left out."""
        now = times.now()
        asked = {
            "filter": _USE.format(service=SERVICE, region=region),
            "interval.startTime": times.rfc3339(now - _WINDOW, 0),
            "interval.endTime": times.rfc3339(now, 0),
        }
        found: dict[str, int] = {}
        for row in self.use_rest.pages(f"/projects/{self.project}/timeSeries", "timeSeries", asked):
            metric = str(_part(_part(row, "metric"), "labels").get("quota_metric", ""))
            for point in _parts(row, "points")[:1]:  # the newest first
                found[metric] = max(found.get(metric, 0), _whole(_part(point, "value").get("int64Value")))
        return found


def _limit(row: Any, region: str) -> QuotaLimit | None:
    """Return a quota's limit in a region; None if it has none there. What is more specific comes first."""
    for info in _parts(row, "dimensionsInfos"):
        # What may be called in a minute is another matter.
        if row.get("refreshInterval"):
            return None
        place, places = _part(info, "dimensions").get("region"), info.get("applicableLocations")
        if place == region if place else isinstance(places, list) and region in places:
            value = _whole(_part(info, "details").get("value"))
            eligible = _part(row, "quotaIncreaseEligibility")
            refusal = "" if eligible.get("isEligible") else str(eligible.get("ineligibilityReason", ""))
            return QuotaLimit(
                str(row.get("metric", "")), str(row.get("quotaId", "")), None if value < 0 else value, refusal
            )
    return None


def _part(data: Any, key: str) -> Mapping[str, Any]:
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _parts(data: Any, key: str) -> list[Mapping[str, Any]]:
    value = data.get(key) if isinstance(data, Mapping) else None
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []


def _whole(value: Any) -> int:
    """Return an int64 of JSON, which is text; 0 where it is left out."""
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        return 0
