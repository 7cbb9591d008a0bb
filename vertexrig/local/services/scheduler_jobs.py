"""What a Cloud Scheduler job may hold, and how a change to one is merged.

Rules: the job resource of Cloud Scheduler v1 (https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from vertexrig.cloud.cron import ScheduleError, parse
from vertexrig.local.http import ApiError, Json, invalid
from vertexrig.spec.names import camel
from vertexrig.times import duration_seconds

METHODS = ("HTTP_METHOD_UNSPECIFIED", "POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS")
"""HttpMethod by number: clients send names or numbers."""

OUTPUT_ONLY = ("userUpdateTime", "state", "status", "scheduleTime", "lastAttemptTime", "satisfiesPzs")
NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/jobs/([A-Za-z0-9_-]{1,500})")
BODY_LIMIT = 1024 * 1024
HEADERS_LIMIT = 80 * 1024
URI_LIMIT = 2083
TEXT_LIMIT = 500
DURATION = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?s")
DEFAULT_RETRY = {
    "maxRetryDuration": "0s",
    "minBackoffDuration": "5s",
    "maxBackoffDuration": "3600s",
    "maxDoublings": 5,
}


def seconds(duration: str) -> float:
    """A protobuf duration, already checked, in seconds."""
    return duration_seconds(duration) or 0.0


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, value, "a string")
    return value


def _duration(value: Any, path: str) -> str:
    if not isinstance(value, str) or not DURATION.fullmatch(value):
        raise _wrong(path, value, 'a duration such as "180s"')
    return value


def _count(value: Any, path: str) -> int:
    # protobuf's JSON mapping of int32 takes 3, 3.0 and "3"
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,9}(\.0+)?", str(value)):
        raise _wrong(path, value, "an integer")
    return int(float(value))


def _method(value: Any, path: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(METHODS):
        value = METHODS[value]
    if value not in METHODS:
        raise _wrong(path, value, f"one of {', '.join(METHODS[1:])}")
    return "POST" if value == METHODS[0] else str(value)


def _headers(value: Any, path: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(path, value, "a map of strings")
    for key, text in value.items():
        if not isinstance(text, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key):
            raise invalid(f"Invalid value at '{path}': {key[:80]!r} is not an HTTP header with a string value.")
        if not text.isascii() or any(ord(c) < 32 and c != "\t" for c in text) or "\x7f" in text:
            raise invalid(f"Invalid value at '{path}': the value of header {key[:80]!r} has control characters.")
    if sum(len(k) + len(v) for k, v in value.items()) > HEADERS_LIMIT:
        raise invalid(f"Invalid value at '{path}': the headers are larger than {HEADERS_LIMIT} bytes.")
    return value


def _body(value: Any, path: str) -> str:
    text = _text(value, path)
    try:  # protobuf's JSON mapping of bytes takes both alphabets, with and without padding
        data = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed.") from None
    if len(data) > BODY_LIMIT:
        raise invalid(f"Invalid value at '{path}': the body has {len(data)} bytes, and {BODY_LIMIT} are allowed.")
    return base64.b64encode(data).decode()


Check = Callable[[Any, str], Any]
# message -> field -> how its value is read
FIELDS: Mapping[str, Mapping[str, Check | str]] = {
    "job": {
        "name": _text,
        "description": _text,
        "schedule": _text,
        "timeZone": _text,
        "attemptDeadline": _duration,
        "httpTarget": "httpTarget",
        "retryConfig": "retryConfig",
    },
    "httpTarget": {
        "uri": _text,
        "httpMethod": _method,
        "headers": _headers,
        "body": _body,
        "oidcToken": "oidcToken",
        "oauthToken": "oauthToken",
    },
    "oidcToken": {"serviceAccountEmail": _text, "audience": _text},
    "oauthToken": {"serviceAccountEmail": _text, "scope": _text},
    "retryConfig": {
        "retryCount": _count,
        "maxRetryDuration": _duration,
        "minBackoffDuration": _duration,
        "maxBackoffDuration": _duration,
        "maxDoublings": _count,
    },
}


def read(body: Json) -> Json:
    """A job from a request's body: types checked, enums as names, unknown fields refused, output-only ones dropped."""
    for other in ("pubsubTarget", "appEngineHttpTarget"):
        if body.get(other) is not None:
            raise invalid(f"The local Vertex does not serve '{other}'; it fires httpTarget only.")
    return _message({k: v for k, v in body.items() if k not in OUTPUT_ONLY}, "job", "job")


def _message(value: Any, kind: str, path: str) -> Json:
    if not isinstance(value, dict):
        raise _wrong(path, value, "an object")
    fields, result = FIELDS[kind], {}
    for key, part in value.items():
        name = camel(key)
        check = fields.get(name)
        if check is None:
            # Null, as `read` has refused all else: a client may name every field of the oneof.
            if name in ("pubsubTarget", "appEngineHttpTarget"):
                continue
            raise invalid(
                f"Invalid JSON payload received. Unknown name \"{key[:200]}\" at '{path}': Cannot find field."
            )
        if part is not None:
            where = f"{path}.{name}"
            result[name] = _message(part, check, where) if isinstance(check, str) else check(part, where)
    return result


def complete(job: Json) -> Json:
    """A job with its defaults, all rules held.

    Raises:
        ApiError: 400 for the first rule that is broken.
    """
    target = job.get("httpTarget")
    if not job.get("schedule"):
        raise invalid("Job schedule is required.")
    try:
        parse(job["schedule"], job.get("timeZone", ""))
    except ScheduleError as error:
        raise invalid(f"Schedule or timezone is invalid: {error}.") from None
    if len(job.get("description", "")) > TEXT_LIMIT:
        raise invalid(f"Job description has more than {TEXT_LIMIT} characters.")
    if not target:
        raise invalid("Job must have a target: httpTarget.")
    deadline = job.get("attemptDeadline", "180s")
    if not 15 <= seconds(deadline) <= 1800:
        raise invalid(f"Job attemptDeadline must be between 15s and 1800s, not {deadline}.")
    return {
        **job,
        "timeZone": job.get("timeZone") or "Etc/UTC",
        "attemptDeadline": deadline,
        "httpTarget": _target(target),
        "retryConfig": _retry(job.get("retryConfig", {})),
    }


def _target(target: Json) -> Json:
    uri, method = target.get("uri", ""), target.get("httpMethod", "POST")
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
    tokens = {key: target[key] for key in ("oidcToken", "oauthToken") if any(target.get(key, {}).values())}
    if len(tokens) == 2:
        raise invalid("HttpTarget can have only one of oidcToken and oauthToken.")
    for key, token in tokens.items():
        if "@" not in token.get("serviceAccountEmail", ""):
            raise invalid(f"HttpTarget.{key}.serviceAccountEmail must be the e-mail of a service account.")
    # By default the audience is the URI as it is written (REST reference).
    if "oidcToken" in tokens and not tokens["oidcToken"].get("audience"):
        tokens["oidcToken"] = {**tokens["oidcToken"], "audience": uri}
    kept = {key: value for key, value in target.items() if key not in ("oidcToken", "oauthToken")}
    return {**kept, "httpMethod": method, **tokens}


def _retry(given: Json) -> Json:
    retry = {**DEFAULT_RETRY, **given}
    if not 0 <= retry.get("retryCount", 0) <= 5:
        raise invalid(f"RetryConfig.retryCount must be between 0 and 5, not {retry['retryCount']}.")
    if not 0 <= retry["maxDoublings"] <= 100:
        raise invalid(f"RetryConfig.maxDoublings must be between 0 and 100, not {retry['maxDoublings']}.")
    if seconds(retry["minBackoffDuration"]) > seconds(retry["maxBackoffDuration"]):
        raise invalid("RetryConfig.minBackoffDuration must not be larger than maxBackoffDuration.")
    return retry


def changed(old: Json, body: Json, mask: str) -> Json:
    """A job after a PATCH.

    Args:
        old: The job as it is.
        body: The job of the request, read by `read`.
        mask: Comma-separated paths, camelCase or snake_case; empty means every field that `body` has.
    """
    paths = [camel(part.strip()) for part in mask.split(",") if part.strip()]
    result: Json = dict(old)
    for path in paths or [key for key in body if key != "name"]:
        result = _replaced(result, body, path.split("."), path, "job")
    return {**result, "name": old["name"]}


def _replaced(old: Json, new: Json, keys: list[str], path: str, kind: str) -> Json:
    """`old` with the value at one mask path taken from `new`, or cleared if it is not there."""
    check = FIELDS[kind].get(keys[0])
    if check is None or (len(keys) > 1 and not isinstance(check, str)):
        if keys[0] in OUTPUT_ONLY and kind == "job":
            return old
        raise invalid(f"Invalid field mask: {path[:200]!r} is not a field of a job.")
    if len(keys) > 1 and isinstance(check, str):
        value: Any = _replaced(old.get(keys[0]) or {}, new.get(keys[0]) or {}, keys[1:], path, check) or None
    else:
        value = new.get(keys[0])
    return {key: part for key, part in {**old, keys[0]: value}.items() if part is not None}


def _wrong(path: str, value: Any, expected: str) -> ApiError:
    return invalid(f"Invalid value at '{path}': {str(value)[:80]!r} is not {expected}.")
