"""One HTTP request of a job, as Cloud Scheduler sends it."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from localvertex.http import Json
from localvertex.services.scheduler_jobs import USER_AGENT, seconds, target_of
from vertexrig.guard import LOOPBACK

REPLACED = ("host", "content-length", "user-agent", "transfer-encoding", "connection")
REPLACED_PREFIXES = ("x-google-", "x-appengine-", "x-cloudscheduler")
# HTTP status -> google.rpc code (google/rpc/code.proto, "HTTP Mapping")
CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 416: 11, 429: 8, 499: 1, 500: 13, 501: 12, 503: 14, 504: 4}
UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, PERMISSION_DENIED = 2, 3, 4, 7
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14


@dataclass(frozen=True)
class DeliveryOutcome:
    """The outcome of a request: google.rpc code (0 is success), message, whether retries are pointless, and HTTP status (0: none)."""

    code: int
    message: str = ""
    final: bool = False
    http: int = 0

    def status(self) -> Json:
        """Return the status that a job shows: the code alone where the target answered (an answer of 2021)."""
        message = {"message": self.message} if self.message and not self.http else {}
        return {"code": self.code, **message} if self.code else {}


class TargetRefused(Exception):
    """A target, or a redirect of one, is not on this machine."""


def refusal(host: str) -> str | None:
    """Return why requests to a host are refused, or None: a job made for the cloud must not reach the real target."""
    try:
        here = host in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if here:
        return None
    return f"The local Vertex is a development server and sends requests to this machine only, not to {host!r}."


def stand_in_token(job: Json) -> str | None:
    """Return a bearer token that looks like Google's OIDC token, is not signed, and says that it is a stand-in."""
    target = job["httpTarget"]
    if "oauthToken" in target:
        return "local-vertex-stand-in-access-token"
    if "oidcToken" not in target:
        return None
    header = {"alg": "none", "typ": "JWT", "kid": "local-vertex-stand-in"}
    email = target["oidcToken"]["serviceAccountEmail"]
    claims = {
        "iss": "https://local-vertex.invalid",
        "aud": target["oidcToken"]["audience"],
        "email": email,
        "email_verified": True,
        "sub": "local-vertex-stand-in",
        "local_vertex": "stand-in, not signed by Google",
    }
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    return ".".join([*parts, "local-vertex-stand-in"])


def headers_of(job: Json, schedule_time: str) -> dict[str, str]:
    """Return the headers of a job's request; the ones that Cloud Scheduler sets itself win."""
    target = job["httpTarget"]
    given = {
        key: value
        for key, value in target.get("headers", {}).items()
        if key.lower() not in REPLACED and not key.lower().startswith(REPLACED_PREFIXES)
    }
    headers = {"User-Agent": USER_AGENT}
    usual = {"Content-Type": "application/octet-stream"} if target.get("body") else {}
    usual["Accept-Encoding"] = "gzip, deflate, br"
    # Names of headers have no case, and keys of a dict have: the job's own must not be sent with the usual one.
    named = {key.lower() for key in given}
    headers |= {key: value for key, value in usual.items() if key.lower() not in named}
    token = stand_in_token(job)
    if token is not None:
        given = {key: value for key, value in given.items() if key.lower() != "authorization"}
        headers["Authorization"] = f"Bearer {token}"
    return {
        **headers,
        **given,
        "X-CloudScheduler": "true",
        "X-CloudScheduler-JobName": job["name"].rsplit("/", 1)[-1],
        "X-CloudScheduler-ScheduleTime": schedule_time,
    }


async def deliver(job: Json, schedule_time: str) -> DeliveryOutcome:
    """Send a job's request once, and wait for the answer within its attempt deadline; only HTTP targets are delivered to."""
    if "httpTarget" not in job:
        return DeliveryOutcome(UNIMPLEMENTED, f"The local Vertex does not deliver to a {target_of(job)}.", final=True)
    try:
        return await asyncio.wait_for(_send(job, schedule_time), timeout=seconds(job["attemptDeadline"]))
    except asyncio.TimeoutError:
        # The service shows a 504 of its own (log entries of 2026).
        text = f"No answer within the attempt deadline of {job['attemptDeadline']}."
        return DeliveryOutcome(DEADLINE_EXCEEDED, text, http=504)


async def _send(job: Json, schedule_time: str) -> DeliveryOutcome:
    import httpx  # costs 100 ms, and only a job that fires needs it

    async def check(request: Any) -> None:
        # Called for redirects too.
        reason = refusal(request.url.host)
        if reason is not None:
            raise TargetRefused(reason)

    target = job["httpTarget"]
    body = base64.b64decode(target["body"]) if target.get("body") else None
    # `deliver` has the deadline, and a proxy of the user's environment leads to no port of this machine.
    settings: Json = {
        "timeout": None,
        "follow_redirects": True,
        "trust_env": False,
        "event_hooks": {"request": [check]},
    }
    headers = headers_of(job, schedule_time)
    try:
        async with httpx.AsyncClient(**settings) as client:
            client.headers.clear()  # the service sends no Accept and no Connection
            async with client.stream(target["httpMethod"], target["uri"], headers=headers, content=body) as answer:
                async for _ in answer.aiter_raw():
                    pass  # the handler may still be at work until its answer ends
    except TargetRefused as error:
        return DeliveryOutcome(PERMISSION_DENIED, str(error), final=True)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as error:
        return DeliveryOutcome(INVALID_ARGUMENT, f"The target cannot be requested: {error}", final=True)
    except httpx.HTTPError as error:
        return DeliveryOutcome(UNAVAILABLE, f"{type(error).__name__}: {error}")
    status = answer.status_code
    if 200 <= status < 300:
        return DeliveryOutcome(0, http=status)
    return DeliveryOutcome(CODES.get(status, UNKNOWN), f"The target answered HTTP {status}.", http=status)
