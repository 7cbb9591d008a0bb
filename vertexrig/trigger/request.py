"""The trigger's request: a small JSON body, read with limits and checked against the rules of the project file.

Nothing of a body reaches a job but values for keys that the project file opens (see `vertexrig.project.caller_overrides`).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NoReturn

from vertexrig import times
from vertexrig.cloud.storage import Storage
from vertexrig.errors import did_you_mean
from vertexrig.project import caller_overrides
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import name_of
from vertexrig.submit.claims import WINDOW_S, Key
from vertexrig.submit.submission import Request
from vertexrig.text import kind_of

LIMIT = 64 * 1024
"""Bytes of a body at most."""
DEPTH = 8
"""Levels of lists and mappings in a body at most; a request that is right has two."""
REQUEST_ID = r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,199}"
KEYS = ("run", "set", "args", "then", "dry_run", "request_id")
EVENT_RUN, EVENT_OBJECTS, EVENT_ARG = "VERTEXRIG_EVENT_RUN", "VERTEXRIG_EVENT_OBJECTS", "VERTEXRIG_EVENT_ARG"
"""For events of a bucket: what runs, which objects count (a regular expression on gs:// URIs), and the argument, if any,
that the URI is given in."""
PUBSUB, FINALIZED = "google.cloud.pubsub.topic.v1.messagePublished", "google.cloud.storage.object.v1.finalized"
_OWN_FOLDERS = ("vertexrig/", "packages/", "runs/")
# X-Cloud-Trace-Context has TRACE/SPAN, the W3C traceparent 00-TRACE-SPAN-FLAGS
_TRACE = re.compile(r"([0-9a-fA-F]{32})(?:/|$)|00-([0-9a-f]{32})-")
CHECKED = "SIGNATURE_REMOVED_BY_GOOGLE"
"""What a token has in place of its signature once Cloud Run has checked it (cloud.google.com/run/docs/securing/service-identity)."""
_EMAIL = re.compile(r"[^\s@]{1,120}@[^\s@]{1,120}")
_SCHEDULER_JOB = re.compile(r"[A-Za-z0-9_/.:-]{1,600}")
_SCHEDULER_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})")
# clocks of Cloud Scheduler and of the function may differ by some minutes
_EARLY = timedelta(minutes=10)


@dataclass(eq=False)  # not frozen: an exception gets a traceback
class RequestProblem(Exception):
    """Why a request gets another answer than a job (RFC 9457).

    Args:
        type: A short word for programs, such as `over-budget`.
        detail: A sentence for people.
        findings: All that is wrong: id, path, message, fix.
        retry_after: Seconds after which the same request may go well.
        kept: What else the log and the history have of it; not for the caller.
    """

    status: int
    type: str
    detail: str
    findings: tuple[Mapping[str, str], ...] = ()
    retry_after: float | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A request as read.

    Args:
        dry_run: Only say what would be sent.
        request_id: The caller's own id, "" if there is none.
    """

    request: Request
    dry_run: bool = False
    request_id: str = ""


def parse(data: bytes) -> Any:
    """Return a body as plain data; RequestProblem 413 or 400."""
    if len(data) > LIMIT:
        raise RequestProblem(413, "too-large", f"the body has more than {LIMIT} bytes")
    try:
        text = data.decode("utf-8")
        body = json.loads(
            text, object_pairs_hook=_once, parse_constant=_constant, parse_float=_number, parse_int=_whole
        )
    except RecursionError:
        raise _malformed("the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise _malformed("the body is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"the body is not JSON: character {error.pos + 1}: {error.msg}") from None
    except ValueError as error:
        raise _malformed(f"the body cannot be taken: {error}") from None
    if _deeper(body, DEPTH):
        raise _malformed("the body is nested too deeply")
    try:
        # JSON may write half of a surrogate pair as \ud800; it would fail later, in a label or an object's name
        json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _malformed("the body holds half a character (a lone surrogate)") from None
    return body


def read(body: Any, loaded: Loaded) -> Asked:
    """Return a body as a request that the project file allows.

    Raises:
        RequestProblem: 400 with everything that is wrong in form, 404, 403 or 400 for values.
    """
    found = list(_form(body))
    if found:
        raise RequestProblem(400, "malformed", "the request is not as /openapi.json says", tuple(found))
    run, set_, args = body["run"], body.get("set") or {}, body.get("args") or {}
    names = [*loaded.project.entries]
    if run not in names:
        nearest = did_you_mean(run[:200], names, most=30)
        raise RequestProblem(404, "no-such-run", f"there is no job or sweep {run[:63]!r}. {nearest}")
    if not loaded.project.trigger.may_start(run):
        message = f"callers may not start {run!r}. {did_you_mean(run, startable(loaded), most=30)}"
        wrong = (_finding("not-allowed", "run", message),)
        raise RequestProblem(403, "not-allowed", "the project file does not allow callers to start this run", wrong)
    refused = caller_overrides.check(loaded, run, set_, args)
    # closed keys first: a caller learns nothing of their bounds
    closed = [one for one in refused if not one.allowed]
    if closed:
        rows = tuple(_finding("not-allowed", one.path, one.message) for one in closed)
        raise RequestProblem(403, "not-allowed", "the project file does not allow callers to set these keys", rows)
    if refused:
        rows = tuple(_finding("value", one.path, one.message) for one in refused)
        raise RequestProblem(400, "value", "values are outside what the project file allows", rows)
    then = body.get("then") or ""
    _check_then(loaded, run, set_, args, then)
    return Asked(Request(run, set_, args, then), bool(body.get("dry_run", False)), body.get("request_id") or "")


def startable(loaded: Loaded) -> list[str]:
    """Return the jobs and sweeps that the trigger may start."""
    project = loaded.project
    return [name for name in project.entries if project.trigger.may_start(name)]


def with_steps(loaded: Loaded) -> list[str]:
    """Return the schedules of the project file that have steps."""
    return [name for name, one in loaded.project.schedules.items() if one.then]


def steps(loaded: Loaded, then: str) -> list[str]:
    """Return the names of the steps that follow a run whose request names schedule `then`."""
    return [name_of(step) for step in loaded.project.schedules[then].steps] if then in loaded.project.schedules else []


def _check_then(loaded: Loaded, run: str, set_: Mapping[str, Any], args: Mapping[str, Any], then: str) -> None:
    """Check `then`: a body names a schedule and has no steps of its own. RequestProblem 403 or 400."""
    if not then:
        return
    names = with_steps(loaded)
    if then not in names:
        choices = did_you_mean(then[:200], names) if names else "No schedule of the project file has steps."
        message = f"there is no schedule {then[:63]!r} with steps. {choices}"
        raise RequestProblem(403, "not-allowed", "no such steps", (_finding("not-allowed", "then", message),))
    schedule = loaded.project.schedules[then]
    if run != schedule.run:
        message = f"the steps of {then} follow {schedule.run}, not {run}"
        raise RequestProblem(400, "value", "these steps do not follow that run", (_finding("value", "then", message),))
    own = (dict(schedule.set), dict(schedule.args))
    if (dict(set_), dict(args)) != own and not loaded.project.trigger.allow_then:
        message = (
            f"the steps of {then} run only with that schedule's own values; to allow others: trigger.allow_then: true"
        )
        detail = "the project file allows these steps only with the schedule's own values"
        raise RequestProblem(403, "not-allowed", detail, (_finding("not-allowed", "then", message),))


def event_body(type: str, data: Any, storage: Storage) -> Any:
    """Return the request in a Pub/Sub message, or what a finished object starts, None if that does not count; RequestProblem 400."""
    if type == PUBSUB:
        try:
            body = base64.b64decode(data["message"].get("data", ""), validate=True)
        except (TypeError, KeyError, AttributeError, binascii.Error, ValueError):
            raise _malformed("the event is not a Pub/Sub message") from None
        return parse(body)
    if type != FINALIZED:
        raise _malformed("the trigger takes Pub/Sub messages and finished objects")
    run, pattern = os.environ.get(EVENT_RUN, ""), os.environ.get(EVENT_OBJECTS, "")
    bucket, name = (data.get("bucket"), data.get("name")) if isinstance(data, Mapping) else (None, None)
    if not isinstance(bucket, str) or not isinstance(name, str):
        raise _malformed("the event names no object")
    own = bucket == storage.bucket and name.removeprefix(storage.prefix).startswith(_OWN_FOLDERS)
    uri = f"gs://{bucket}/{name}"
    if own or not run or not pattern or not re.fullmatch(pattern, uri):
        return None  # among others, what our own runs write: else one run would start the next
    arg = os.environ.get(EVENT_ARG, "")
    # the object's generation distinguishes a second upload from a second delivery
    return {"run": run, "args": {arg: uri} if arg else {}}


def fired(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the job of Cloud Scheduler that fired, and the time it says it fired for, RFC 3339; "" for what it does not say.

    They never choose what runs: a schedule's policy, which they name, can only hold a run back or try it again.
    """
    job, text = headers.get("x-cloudscheduler-jobname", ""), headers.get("x-cloudscheduler-scheduletime", "")
    if not _SCHEDULER_JOB.fullmatch(job):
        return "", ""
    time = ""
    if _SCHEDULER_TIME.fullmatch(text):
        with suppress(ValueError):  # a date that there is not
            # one spelling for the same instant: fractions and offsets may be written in several ways
            time = times.rfc3339(times.parse(text), 0)
    return job.rsplit("/", 1)[-1], time


def trace(headers: Mapping[str, str]) -> str:
    """Return the id of a request's trace, "" if it has none."""
    match = _TRACE.match(headers.get("x-cloud-trace-context", "") or headers.get("traceparent", ""))
    return (match[1] or match[2]).lower() if match else ""


def token(headers: Mapping[str, str]) -> str:
    """Return the token that Cloud Run checks: that of X-Serverless-Authorization where it is present."""
    text = headers.get("x-serverless-authorization") or headers.get("authorization", "")
    return text.removeprefix("Bearer ").removeprefix("bearer ").strip()


def caller(headers: Mapping[str, str]) -> str:
    """Return the e-mail of a request's token, "" unless the platform has checked its signature."""
    if "K_SERVICE" not in os.environ:  # not on Cloud Run: anybody may have written the token
        return ""
    parts = token(headers).split(".")
    if len(parts) != 3 or parts[2] != CHECKED:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        email = claims["email"] if claims.get("email_verified", True) else ""
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return ""
    return email if isinstance(email, str) and _EMAIL.fullmatch(email) else ""


def key(asked: Asked, headers: Mapping[str, str], *, now: datetime | None = None) -> Key:
    """Return what makes two deliveries the same request: its id; else Cloud Scheduler's job and time; else its body, for some minutes.

    Headers decide only which deliveries are one request, never what runs. The digest of the body is part of a
    Scheduler key, and times to come are not believed, so a caller cannot use up a run that is scheduled for later.

    Args:
        headers: Of the HTTP request, by lower-case name.
    """
    if asked.request_id:
        return Key("request", asked.request_id)
    job, time = fired(headers)
    if time and times.parse(time) <= (now or times.now()) + _EARLY:
        return Key("schedule", f"{job} {time} {asked.request.digest}")
    return Key("body", asked.request.digest, WINDOW_S)


def _form(body: Any) -> list[Mapping[str, str]]:
    """Return what is wrong with the form of a request."""
    if not isinstance(body, dict):
        return [_finding("form", "", f"the body is {kind_of(body)}; a JSON object belongs here")]
    found = []
    for name in body:
        if name not in KEYS:
            found.append(
                _finding("form", name[:100], f"there is no key {name[:100]!r}. {did_you_mean(name[:200], KEYS)}")
            )
    if not isinstance(body.get("run"), str):
        found.append(_finding("form", "run", "the name of a job or sweep belongs here, as a string"))
    for name in ("set", "args"):
        if name in body and not isinstance(body[name], dict):
            found.append(_finding("form", name, f"{kind_of(body[name])} is here; an object belongs here"))
    if "then" in body and not isinstance(body["then"], str):
        found.append(_finding("form", "then", f"{kind_of(body['then'])} is here; the name of a schedule belongs here"))
    if "dry_run" in body and not isinstance(body["dry_run"], bool):
        found.append(_finding("form", "dry_run", f"{kind_of(body['dry_run'])} is here; true or false belongs here"))
    given = body.get("request_id", "x")
    if not isinstance(given, str) or not re.fullmatch(REQUEST_ID, given):
        message = "1 to 200 letters, digits and ._:/@+=- belong here, a letter or digit first"
        found.append(_finding("form", "request_id", message))
    return found


def _finding(id: str, path: str, message: str) -> Mapping[str, str]:
    return {"id": id, "path": path, "message": message}


def _malformed(detail: str) -> RequestProblem:
    return RequestProblem(400, "malformed", detail)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name[:80]!r} is there twice")
        found[name] = value
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _whole(text: str) -> int:
    # 18 digits fit into the API's 64 bits; and int() of a very long text takes quadratic time
    if len(text) > 18:
        raise ValueError("a whole number has more than 18 digits")
    return int(text)


def _number(text: str) -> int | float:
    """Return a number; 5.0 is the whole number 5, as in JSON Schema."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    if levels == 0:
        return True
    return any(_deeper(item, levels - 1) for item in (value.values() if isinstance(value, dict) else value))
