"""Callers of the trigger, by the e-mail of their token: what each may start and set, and the budget that is theirs.

Where the project file has `trigger.callers`, a caller is known only by a token whose signature was checked: by Cloud Run, if the
function requires the right to invoke it, or here by google-auth.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from vertexrig.cloud import identity
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import Caller, Schedule
from vertexrig.spec.labels import CALLER_LABEL, label_value
from vertexrig.submit.budget import Share, Terms
from vertexrig.submit.submission import Request
from vertexrig.trigger import request
from vertexrig.trigger.request import Asked, RequestProblem

CHECKED_FOR_S = 300.0
NOBODY = Caller(runs=(), keys=())


def rule(loaded: Loaded, email: str) -> tuple[str, Caller]:
    """Return the first entry of `trigger.callers` that a caller fits, with its pattern; one that allows nothing if there is none."""
    found = loaded.project.trigger.callers.items()
    fits = (one for one in found if email and fnmatchcase(email.lower(), one[0].lower()))
    return next(fits, ("", NOBODY))


def narrowed(loaded: Loaded, email: str) -> Loaded:
    """Return the project with only what is open to one caller."""
    _, own = rule(loaded, email)
    trigger = loaded.project.trigger
    fixed = {f"labels.{key}" for key in own.labels}

    def may(name: str) -> bool:
        # with its path, as in jobs.cpu.labels.team, it is the same label
        return not any(name == key or name.endswith(f".{key}") for key in fixed) and any(
            fnmatchcase(name, key) for key in own.keys
        )

    runs = tuple(name for name in request.startable(loaded) if any(fnmatchcase(name, one) for one in own.runs))
    allow = {key: bound for key, bound in trigger.allow.items() if may(key)}
    allow_args = {key: bound for key, bound in trigger.allow_args.items() if may(f"args.{key}")}
    open_ = replace(trigger, runs=runs, allow=allow, allow_args=allow_args)
    return replace(loaded, project=replace(loaded.project, trigger=open_))


def read(body: Any, loaded: Loaded, email: str) -> Asked:
    """Return a body as a request that is allowed to this caller; RequestProblem as of `request.read`, 403 if no entry fits the caller."""
    if email == loaded.project.invoker:
        asked = request.read(body, loaded)
        # the requests of schedules are in the project file already
        if asked.request.digest in {of_schedule(name, one).digest for name, one in loaded.project.schedules.items()}:
            return asked
    if rule(loaded, email)[1] is NOBODY:
        who = (
            f"{email} matches no pattern in trigger.callers"
            if email
            else "the caller is not known: no token was checked"
        )
        raise RequestProblem(403, "unknown-caller", f"{who}; `vertexrig doctor` shows who may call the function")
    return request.read(body, narrowed(loaded, email))


def of_schedule(name: str, schedule: Schedule) -> Request:
    """Return the request of a schedule."""
    return Request(schedule.run, schedule.set, schedule.args, name if schedule.then else "")


def terms(loaded: Loaded, email: str) -> Terms:
    """Return on what terms a caller's runs are started: their labels, and the budget that is theirs."""
    pattern, own = rule(loaded, email)
    if not pattern:
        return Terms(labels={CALLER_LABEL: label_value(email)} if email else {})
    share = Share("caller", label_value(email), own.budget, f"trigger.callers.{pattern}.budget")
    return Terms((share,), own.labels)


@dataclass
class CheckedTokens:
    """The identity of callers whose token was checked."""

    loaded: Loaded
    certificates: str = identity.CERTIFICATES
    _checked: tuple[float, bool] = field(default=(0.0, False), init=False)

    def email(self, headers: Mapping[str, str]) -> str:
        """Return the caller's e-mail, "" if it is not known."""
        audience = (self.loaded.project.trigger.uri or "").split("?")[0].rstrip("/")
        by_platform = request.caller(headers)
        if by_platform:
            return by_platform if self._platform_checks(audience) else ""
        token = request.token(headers)
        signed = token.count(".") == 2 and not token.endswith(f".{request.CHECKED}")
        return identity.email_of(token, audience, self.certificates) if audience and signed else ""

    def _platform_checks(self, uri: str) -> bool:
        """Whether the platform refuses every call without a token that it has checked; otherwise anybody may write such a token."""
        at, closed = self._checked
        if not at or time.monotonic() - at > CHECKED_FOR_S:
            closed = bool(uri) and identity.refuses_anonymous(uri)
            self._checked = (time.monotonic(), closed)
        return closed
