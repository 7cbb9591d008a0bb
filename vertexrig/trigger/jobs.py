"""The pages of the trigger about jobs: those that it started, one of them with its trials, and its cancellation."""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from vertexrig import times
from vertexrig.cloud.vertex import CUSTOM, RESOURCES, TUNING, RemoteJob, in_filter
from vertexrig.errors import VertexrigError, did_you_mean
from vertexrig.results.study import read
from vertexrig.results.trials import TrialResult
from vertexrig.spec import states
from vertexrig.spec.labels import CLAIM_LABEL, ENTRY_LABEL, FIRST_LABEL
from vertexrig.submit.reconcile import call_off
from vertexrig.submit.submission import Submitter
from vertexrig.trigger import answers
from vertexrig.trigger.answers import JOB, Reply
from vertexrig.trigger.request import RequestProblem

STATES = (*states.LIVE, states.CANCELLING, *states.ENDED)
QUERY: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "run": ({"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$"}, "Only of this job or sweep."),
    "state": ({"type": "string", "enum": sorted(STATES)}, "Only in this state."),
    "since": ({"type": "string", "format": "date-time"}, "Only those created at this time or later."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Jobs of a page at most."),
    "page": ({"type": "string"}, "`next` of the page before."),
}
"""What `GET /jobs` takes: schema and meaning by name."""


@dataclass(frozen=True)
class JobPages:
    """The pages about the jobs that the trigger started.

    Args:
        submitter: Made them.
        may: Whether the caller may see and cancel the jobs of a run.
        stop: Stops a run by the claim of its first attempt: the job that it is at, "" if it has none; None if the run is over.
    """

    submitter: Submitter
    may: Callable[[str], bool]
    stop: Callable[[str], str | None]

    def listing(self, query: Mapping[str, str]) -> Reply:
        """Return a page of jobs, the newest first; RequestProblem 400 with all that is wrong with the query."""
        asked = _read(query)
        limit, (before, shown) = int(asked.get("limit", "20")), _page(asked.get("page", ""))
        terms = [f"labels.{CLAIM_LABEL}:*", f"labels.{ENTRY_LABEL}={in_filter(asked['run'])}" if "run" in asked else ""]
        terms += [f"state={in_filter(asked['state'])}" if "state" in asked else ""]
        terms += [f"create_time>={in_filter(asked['since'])}" if "since" in asked else ""]
        terms += [f"create_time<={in_filter(before)}" if before else ""]
        wanted = " AND ".join(term for term in terms if term)
        collections = product(self.submitter.ledger.vertices, RESOURCES)
        lists = (vertex.list(collection, filter=wanted) for vertex, collection in collections)
        rows: list[RemoteJob] = []
        for job in heapq.merge(*lists, key=_age):
            if job.name in shown or not self._is_open(job):
                continue
            if len(rows) == limit:
                return Reply(200, {"jobs": [self._row(one) for one in rows], "next": _token(rows, before, shown)})
            rows.append(job)
        return Reply(200, {"jobs": [self._row(job) for job in rows]})

    def one(self, number: str) -> Reply:
        """Return a job with its trials; a second one of the same request is cancelled. RequestProblem 404 if there is none."""
        job = self._own(number)
        try:
            surplus = self.submitter.reconciler.look(job.labels[CLAIM_LABEL], job.collection)
        except VertexrigError:
            surplus = []  # the next request repeats it
        if job.name in surplus:
            job = self._now(job)
        return Reply(200, self._row(job, detail=True))

    def cancel(self, number: str) -> Reply:
        """Cancel a job and the run that it belongs to, at whatever job that is now; an ended job stays as it is. RequestProblem 404 if there is
        no such job.
        """
        job = self._own(number)
        current = self.stop(job.labels.get(FIRST_LABEL) or job.labels[CLAIM_LABEL])
        if current == "" and job.ended:
            return Reply(202, self._row(job))
        # a second job of the run's claim, or an earlier one that is ending
        if current and current != job.name and not job.ended:
            call_off(self.submitter.vertex, job.name)
        job = (current and self.submitter.vertex.get(current)) or job
        if job.ended:
            return Reply(200, self._row(job))
        call_off(self.submitter.vertex, job.name)  # it may have ended since
        return Reply(202, self._row(self._now(job)))

    def _now(self, job: RemoteJob) -> RemoteJob:
        return self.submitter.vertex.get(job.name) or job

    def _own(self, number: str) -> RemoteJob:
        asked = self.submitter.ledger.vertices if re.fullmatch(r"[0-9]{1,30}", number) else ()
        job = next((job for vertex in asked if (job := vertex.by_id(number)) is not None), None)
        # callers may not see other jobs of the project
        if job is None or not self._is_open(job):
            raise RequestProblem(404, "no-such-job", "the trigger started no job with this id")
        return job

    def _is_open(self, job: RemoteJob) -> bool:
        # the trials of a sweep are custom jobs with its labels, and no jobs of ours
        run, sweeps = job.labels.get(ENTRY_LABEL, ""), self.submitter.workspace.loaded.project.sweeps
        return CLAIM_LABEL in job.labels and self.may(run) and not (job.collection == CUSTOM and run in sweeps)

    def _row(self, job: RemoteJob, *, detail: bool = False) -> dict[str, Any]:
        best: list[dict[str, Any]] | None = None
        rows: list[dict[str, Any]] | None = None
        if job.collection == TUNING and (detail or "trials" in job.data):
            study = read(job)
            best = [_trial(one) for one in study.best]
            rows = [_trial(one) for one in study.trials] if detail else None
        return answers.answer(JOB, job, console=self.submitter.vertex.console(job.name), best=best, results=rows)


def _trial(one: TrialResult) -> dict[str, Any]:
    known = {name: value for name, value in asdict(one).items() if value not in (None, "")}
    return {name: value for name, value in known.items() if name != "custom_job"}


def _age(job: RemoteJob) -> int:
    """Return what sorts the newest first."""
    return -(times.nanoseconds(job.created) or 0)


def _token(rows: list[RemoteJob], before: str, shown: frozenset[str]) -> str:
    """Return where the next page begins: the time of the last job, and the jobs of that instant that were shown."""
    last = rows[-1].created
    same = [job.name for job in rows if _age(job) == _age(rows[-1])]
    kept = sorted({*same, *(shown if last == before else ())})
    return base64.urlsafe_b64encode(json.dumps([last, kept]).encode()).decode()


def _page(token: str) -> tuple[str, frozenset[str]]:
    if not token:
        return "", frozenset()
    try:
        before, shown = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        times.parse(before)
        return before, frozenset(map(str, shown))
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise _wrong([("page", "page is not a `next` value from an earlier answer")]) from None


def _read(query: Mapping[str, str]) -> dict[str, str]:
    """Return a query as it is meant; RequestProblem 400 with all that is wrong."""
    wrong = [
        (name[:100], f"there is no query parameter {name[:100]!r}. {did_you_mean(name[:200], QUERY)}")
        for name in query.keys() - QUERY
    ]
    asked = {name: query[name] for name in QUERY if query.get(name)}
    limit = asked.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= 100):
        wrong.append(("limit", "a whole number of 1 to 100 belongs here"))
    if "state" in asked and asked["state"] not in STATES:
        wrong.append(("state", did_you_mean(asked["state"][:60], STATES)))
    if not re.fullmatch(str(QUERY["run"][0]["pattern"]), asked.get("run", "a")):
        wrong.append(("run", "the name of a job or sweep belongs here"))
    try:
        asked |= {"since": times.rfc3339(times.parse(asked["since"]))} if "since" in asked else {}
    except (ValueError, OverflowError):
        wrong.append(("since", "a time such as 2026-11-22T03:00:00Z belongs here"))
    if wrong:
        raise _wrong(wrong)
    return asked


def _wrong(found: list[tuple[str, str]]) -> RequestProblem:
    rows: Iterator[Mapping[str, str]] = ({"id": "form", "path": path, "message": text} for path, text in sorted(found))
    return RequestProblem(400, "malformed", "the query is not as /openapi.json says", tuple(rows))
