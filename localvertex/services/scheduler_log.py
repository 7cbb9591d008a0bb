"""Entries that Cloud Scheduler writes into Cloud Logging: the start and end of each attempt, and each pause or resumption of a job.

The forms are those of real entries (tests of github index id 56723927715, from entries of 2026-03-25; a failed one: id 59456883418 and
70905315018; the audit entry's log and method: id 68871048500; all read 2026-11-23).
"""

from __future__ import annotations

from typing import Any

from localvertex.http import Json
from localvertex.services.scheduler_delivery import DeliveryOutcome
from localvertex.services.scheduler_jobs import TARGETS, target_of
from vertexrig.cloud.rest import RPC_CODES

DEBUG_INFO = {
    401: "URL_ERROR-ERROR_AUTHENTICATION",
    404: "URL_ERROR-ERROR_NOT_FOUND",
    429: "URL_UNREACHABLE-UNREACHABLE_5xx",
    504: "URL_TIMEOUT-TIMEOUT_WEB",
}
"""How the debugInfo of a failed attempt begins, by HTTP status (entries of 2025 and 2026; index ids 66782792323, 52942007942,
59097142943 and 59345478123)."""
_OTHER_DEBUG_INFO = {True: "URL_UNREACHABLE-UNREACHABLE_5xx", False: "URL_ERROR-ERROR_OTHER"}
"""The same of any other status, by whether it is a 5xx (59097142943, 70836646700)."""
_TYPE = "type.googleapis.com/google.cloud.scheduler.logging."


def attempt_started(job: Json, schedule_time: str) -> Json:
    """Return the entry of an attempt that begins."""
    whole, _, fraction = schedule_time.removesuffix("Z").partition(".")
    digits = fraction.rstrip("0")  # 19:00:53.95875Z
    return _attempt(job, "AttemptStarted", "INFO", scheduledTime=f"{whole}{'.' * bool(digits)}{digits}Z")


def attempt_finished(job: Json, outcome: DeliveryOutcome) -> Json:
    """Return the entry of an attempt that has ended."""
    kind = DEBUG_INFO.get(outcome.http, _OTHER_DEBUG_INFO[outcome.http >= 500]) if outcome.code else "URL_CRAWLED"
    text = f"{kind}. Original HTTP response code number = {outcome.http}"
    payload = {"debugInfo": text if outcome.http else outcome.message}
    if outcome.code:
        payload["status"] = RPC_CODES[outcome.code]
    entry = _attempt(job, "AttemptFinished", "ERROR" if outcome.code else "INFO", **payload)
    return {**entry, "httpRequest": {"status": outcome.http}} if outcome.http else entry


def audit(job: Json, method: str) -> Json:
    """Return the audit entry of a call that changed a job, such as PauseJob."""
    return {
        **_entry(job, "cloudaudit.googleapis.com%2Factivity", "NOTICE"),
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "serviceName": "cloudscheduler.googleapis.com",
            "methodName": f"google.cloud.scheduler.v1.CloudScheduler.{method}",
            "resourceName": job["name"],
        },
    }


def _attempt(job: Json, kind: str, severity: str, **more: Any) -> Json:
    target = target_of(job)
    place = {
        "httpTarget": ("url", "uri"),
        "pubsubTarget": ("pubsubTopic", "topicName"),
        "appEngineHttpTarget": ("relativeUrl", "relativeUri"),
    }
    key, field = place[target]
    about = {"jobName": job["name"], "targetType": TARGETS[target], key: job[target][field]}
    payload = {"@type": f"{_TYPE}{kind}", **about, **more}
    return {**_entry(job, "cloudscheduler.googleapis.com%2Fexecutions", severity), "jsonPayload": payload}


def _entry(job: Json, log: str, severity: str) -> Json:
    _, project, _, location, _, job_id = job["name"].split("/")
    labels = {"job_id": job_id, "location": location, "project_id": project}
    return {
        "logName": f"projects/{project}/logs/{log}",
        "resource": {"type": "cloud_scheduler_job", "labels": labels},
        "severity": severity,
    }
