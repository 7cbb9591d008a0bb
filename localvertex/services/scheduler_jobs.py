"""The rules for a Cloud Scheduler job, and how a change to one is merged.

Rules: the job resource of Cloud Scheduler v1 (https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from localvertex.http import Json, invalid
from localvertex.jobs.validation import canonical
from localvertex.misread import error_of
from localvertex.services.collection import replaced
from localvertex.services.router import masked
from vertexrig.cloud.cron import ScheduleError, parse
from vertexrig.spec import messages
from vertexrig.spec.api_names import snake
from vertexrig.times import duration_seconds

MESSAGE = "google.cloud.scheduler.v1.Job"
OUTPUT_ONLY = ("userUpdateTime", "state", "status", "scheduleTime", "lastAttemptTime", "satisfiesPzs")
NEVER_RAN = {"code": -1}
"""Status of a job before its first attempt, from its creation on (answers of 2026-05 and 2026-10; those of 2019 to 2025 have neither
status nor scheduleTime until some seconds later)."""
ID = re.compile(r"[A-Za-z0-9_-]{1,500}")
BODY_LIMIT = 1024 * 1024
HEADERS_LIMIT = 80 * 1024
URI_LIMIT = 2083
TEXT_LIMIT = 500
USER_AGENT = "Google-Cloud-Scheduler"
APP_ENGINE_AGENT = "AppEngine-Google; (+http://code.google.com/appengine)"
TARGETS = {"httpTarget": "HTTP", "pubsubTarget": "PUB_SUB", "appEngineHttpTarget": "APP_ENGINE_HTTP"}
"""Fields of which a job has one (a oneof of the message), and the name of each in log entries; only HTTP targets are delivered to."""
TOKENS = ("oidcToken", "oauthToken")
"""Fields of httpTarget of which a job has one at most (a oneof of the message)."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
DEFAULT_RETRY = {"maxRetryDuration": "0s", "minBackoffDuration": "5s", "maxBackoffDuration": "3600s", "maxDoublings": 5}


def seconds(duration: str) -> float:
    """Return a protobuf duration, already checked, in seconds."""
    return duration_seconds(duration) or 0.0


def read(body: Json) -> Json:
    """Return the job in a request's body, in canonical JSON and without output-only fields."""
    target = body.get("httpTarget", body.get("http_target"))
    content = target.get("body") if isinstance(target, dict) else None
    # protobuf's JSON reader leaves out what is not Base64, in either alphabet.
    if isinstance(content, str) and not re.fullmatch(r"[A-Za-z0-9+/_-]*={0,2}", content):
        field = "job.http_target.body"
        text = f"Invalid value at '{field}' (TYPE_BYTES), Base64 decoding failed for {json.dumps(content)}"
        raise error_of([(field, text)])
    return canonical(MESSAGE, {key: value for key, value in body.items() if key not in OUTPUT_ONLY}, "job")


def complete(job: Json) -> Json:
    """Return a job with its defaults, after all rules are checked.

    Raises:
        ApiError: 400 for the first rule that the job breaks.
    """
    try:
        parse(job.get("schedule", ""), job.get("timeZone", ""))
    except ScheduleError:  # answers of 2026-10 (index id 71476445825); until 2020 "Schedule or time zone is invalid."
        raise invalid("The provided schedule or timezone are invalid.") from None
    if len(job.get("description", "")) > TEXT_LIMIT:
        raise invalid(f"Job description has more than {TEXT_LIMIT} characters.")
    kind = target_of(job)
    if not kind:
        raise invalid(f"Job must have a target: {', '.join(TARGETS)}.")
    made, most = {
        "httpTarget": (_http, 1800),
        "pubsubTarget": (_pubsub, math.inf),
        "appEngineHttpTarget": (_app_engine, 86_415),
    }[kind]
    # Ignored of a Pub/Sub target; by default 0 of one of App Engine, whose services have their own.
    deadline = job.get("attemptDeadline") or ("180s" if kind == "httpTarget" else "0s")
    if kind != "pubsubTarget" and not (15 <= seconds(deadline) <= most or (kind != "httpTarget" and deadline == "0s")):
        raise invalid(f"Job attemptDeadline must be between 15s and {most}s, not {deadline}.")
    # Only a job with an HTTP target gets default retries (k8s-config-connector, 2024; App Engine: an answer of 2021-04-01).
    retry = _retry(job.get("retryConfig", {})) if kind == "httpTarget" or "retryConfig" in job else None
    return {
        **job,
        "timeZone": job.get("timeZone") or "UTC",  # Etc/UTC is the default of gcloud (an answer of 2021-08-27)
        **({} if deadline == "0s" else {"attemptDeadline": deadline}),
        kind: made(job[kind]),
        **({"retryConfig": retry} if retry is not None else {}),
    }


def shown(job: Json) -> Json:
    """Return a job with its fields in the order of their numbers, as answers have them (2024 to 2026; index id 71465843041)."""
    return canonical(MESSAGE, job)


def target_of(job: Json) -> str:
    """Return the field with the target of a job, "" if it has none."""
    return next((kind for kind in TARGETS if kind in job), "")


def _pubsub(target: Json) -> Json:
    if not re.fullmatch(r"projects/[^/]+/topics/[^/]+", target.get("topicName", "")):
        raise invalid(
            'Resource name should start with "/projects/<PROJECT_ID>/"'
        )  # terraform-provider-google issue 3086
    if not target.get("data") and not target.get("attributes"):
        raise invalid("PubsubTarget must contain either non-empty data, or at least one attribute.")
    return target


def _app_engine(target: Json) -> Json:
    uri, method = target.get("relativeUri", "") or "/", target.get("httpMethod", "POST")
    _check_content(target, "AppEngineHttpTarget")
    if method in ("PATCH", "OPTIONS"):
        raise invalid(f"AppEngineHttpTarget.httpMethod must not be {method}.")
    if not uri.startswith("/") or " " in uri or len(uri) > URI_LIMIT:
        raise invalid(
            f"AppEngineHttpTarget.relativeUri must begin with '/' and have up to {URI_LIMIT} characters, no space."
        )
    if target.get("body") and method not in ("POST", "PUT"):
        raise invalid(f"AppEngineHttpTarget.body is not allowed with httpMethod {method}; only with POST and PUT.")
    return {**target, "httpMethod": method, "relativeUri": uri, "headers": _app_engine_headers(target)}


def _app_engine_headers(target: Json) -> Json:
    """Return the headers of an App Engine target with those that the service fills in (REST reference; an answer of 2021-04-01)."""
    own = {key: text for key, text in target.get("headers", {}).items() if key.lower() != "content-length"}
    names = {key.lower(): key for key in own}
    agent = own.pop(names.get("user-agent", ""), "").removesuffix(APP_ENGINE_AGENT).strip()
    sent: Json = {"User-Agent": f"{agent} {APP_ENGINE_AGENT}".strip()}
    if target.get("body"):
        sent = {"Content-Length": str(len(base64.b64decode(target["body"]))), **sent}
        sent |= {} if "content-type" in names else {"Content-Type": "application/octet-stream"}
    return {**own, **sent}


def _http(target: Json) -> Json:
    uri, method = target.get("uri", ""), target.get("httpMethod", "POST")
    _check_content(target, "HttpTarget")
    try:
        parts = urlsplit(uri)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(ord(c) <= 32 for c in uri):
        raise invalid(f"HttpTarget.uri must be an http:// or https:// URI with a host, not {uri[:200]!r}.")
    if len(uri.encode()) > URI_LIMIT:
        raise invalid(f"HttpTarget.uri has more than {URI_LIMIT} characters.")
    if target.get("body") and method not in ("POST", "PUT", "PATCH"):
        raise invalid(f"HttpTarget.body is not allowed with httpMethod {method}; only with POST, PUT and PATCH.")
    # An empty message is as good as none.
    tokens = {key: target[key] for key in TOKENS if any(target.get(key, {}).values())}
    for key, token in tokens.items():
        if "@" not in token.get("serviceAccountEmail", ""):
            raise invalid(f"HttpTarget.{key}.serviceAccountEmail must be the e-mail of a service account.")
    host = parts.hostname or ""
    if "oauthToken" in tokens and not (parts.scheme == "https" and host.endswith(".googleapis.com")):
        raise invalid("Invalid url for HttpRequest.oauth_token")  # as documented, for Google's APIs alone
    # By default the audience is the URI as it is written (REST reference).
    if "oidcToken" in tokens and not tokens["oidcToken"].get("audience"):
        tokens["oidcToken"] = {**tokens["oidcToken"], "audience": uri}
    # A token's scope, too, is filled in (gcloud's answer of 2026).
    if "oauthToken" in tokens:
        tokens["oauthToken"] = {"scope": SCOPE, **tokens["oauthToken"]}
    kept = {key: value for key, value in target.items() if key not in TOKENS}
    # The service shows the one that it sends, in place of the client's (gcloud's answers of 2025 and 2026).
    headers = {key: text for key, text in target.get("headers", {}).items() if key.lower() != "user-agent"}
    # So it does with a body's type (gcloud's answers of 2026-04 and 2026-07, index ids 58996648988 and 58582388654).
    if target.get("body") and not any(key.lower() == "content-type" for key in headers):
        headers["Content-Type"] = "application/octet-stream"
    return {**kept, "httpMethod": method, "headers": {**headers, "User-Agent": USER_AGENT}, **tokens}


def _check_content(target: Json, kind: str) -> None:
    headers: dict[str, str] = target.get("headers", {})
    for key, text in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key):
            raise invalid(f"{kind}.headers: {key[:80]!r} is not the name of an HTTP header.")
        if not re.fullmatch(r"[\t\x20-\x7e]*", text):
            raise invalid(f"{kind}.headers: the value of {key[:80]!r} has control characters, or is not ASCII.")
    if sum(map(len, (*headers, *headers.values()))) > HEADERS_LIMIT:
        raise invalid(f"{kind}.headers are larger than {HEADERS_LIMIT} bytes.")
    size = len(base64.b64decode(target.get("body", "")))
    if size > BODY_LIMIT:
        raise invalid(f"{kind}.body has {size} bytes, and {BODY_LIMIT} are allowed.")


def _retry(given: Json) -> Json:
    retry = {**DEFAULT_RETRY, **given}
    if not 0 <= retry.get("retryCount", 0) <= 5:
        raise invalid("invalid retry count. The retry_count must be a positive integer less than 5: invalid argument")
    if not 0 <= retry["maxDoublings"] <= 100:
        raise invalid(f"RetryConfig.maxDoublings must be between 0 and 100, not {retry['maxDoublings']}.")
    for key, value in retry.items():
        if key.endswith("Duration") and "." in str(value):
            raise invalid(f"retryConfig.{snake(key)}.nanos cannot be set: invalid argument")
    negative = next((key for key, value in retry.items() if str(value).startswith("-")), None)
    if negative:
        raise invalid(f"RetryConfig.{negative} must not be negative, not {retry[negative]}.")
    if seconds(retry["minBackoffDuration"]) > seconds(retry["maxBackoffDuration"]):
        raise invalid("RetryConfig.minBackoffDuration must not be larger than maxBackoffDuration.")
    return retry


def _is_field(path: Sequence[str]) -> bool:
    kind: Any = messages.message_class(MESSAGE).DESCRIPTOR
    for key in path:
        field = kind.fields_by_camelcase_name.get(key) if kind is not None else None
        if field is None:
            return False
        kind = field.message_type
    return True


def changed(old: Json, body: Json, mask: str) -> Json:
    """Return a job after a PATCH with a body read by `read`; an empty mask means every field that the body has."""
    result: Json = dict(old)
    paths = masked(mask) or [[key] for key in body if key != "name"]
    if not all(map(_is_field, paths)):
        # nodejs-scheduler issue 447, google-cloud-dotnet issue 3155
        raise invalid(f"Invalid mask for Job: {mask[:200]}")
    for path in paths:
        if path[0] in TARGETS:
            result = {key: value for key, value in result.items() if key not in TARGETS or key == path[0]}
        if path[0] not in OUTPUT_ONLY:
            result = replaced(result, body, path)
        token = path[1] if path[0] == "httpTarget" and len(path) > 1 else ""
        if token in TOKENS and (body.get("httpTarget") or {}).get(token):
            # A token of the other kind takes the place of this one.
            result = replaced(result, {}, ["httpTarget", *(other for other in TOKENS if other != token)])
    return {**result, "name": old["name"]}
