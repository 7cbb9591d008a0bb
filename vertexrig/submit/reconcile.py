"""One job survives per claim: the first process that finds another job with the claim's label cancels it.

Vertex AI has no request id and no fencing, so a holder that was frozen between its last look at the clock and its create
call, or a list that lags, can lead to a second job. The recorded one decides, and a record is never replaced.

So that a trainer sees that another job was recorded, each job has two environment variables: where its claim is, and
which delivery made it. A claim keeps, for each of its ids, the delivery whose job it records (`winners`); a trainer that
finds another one there ends at once. The number of the job cannot do this: the job of a sweep's trial has one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import CUSTOM, TUNING, RemoteJob, Vertex
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import CANCELLING
from vertexrig.submit.claims import Claim, Claims, Recorded

CLAIM_VARIABLE, TOKEN_VARIABLE = "VERTEXRIG_CLAIM", "VERTEXRIG_CLAIM_TOKEN"
"""The gs:// URI of the claim; and `ID.TOKEN`: the claim's id, and the delivery that holds it."""
_PROGRAMS = ("pythonPackageSpec", "containerSpec")


class Reconciler:
    """Finds the jobs of a claim and cancels all but the recorded one; `others` are the other regions that they may be in."""

    def __init__(self, vertex: Vertex, claims: Claims, others: Sequence[Vertex] = ()) -> None:
        self.vertex, self.claims, self.vertices = vertex, claims, (vertex, *others)

    def with_label(self, claim_id: str, collection: str) -> list[RemoteJob]:
        """Return the jobs of a claim, the oldest first."""
        wanted = f'labels.{CLAIM_LABEL}="{claim_id}"'
        found = [job for vertex in self.vertices for job in vertex.list(collection, filter=wanted)]
        # the name decides between equal times, so that every process chooses the same job
        return sorted(found, key=lambda job: (job.created, job.name))

    def find(self, claim_id: str, collection: str) -> RemoteJob | None:
        """Return the oldest job of a claim, None if there is none."""
        return next(iter(self.with_label(claim_id, collection)), None)

    def keep_recorded(self, claim: Claim, jobs: Iterable[RemoteJob]) -> list[str]:
        """Cancel the jobs of a claim that are not the recorded one; return their names. RestError if a cancel failed: call it again later."""
        extra = {job.name for job in jobs if job.name != claim.job.name and not job.ended and job.state != CANCELLING}
        failed: RestError | None = None
        for name in sorted(extra):
            try:
                call_off(self.vertex, name)
            except RestError as error:  # go on with the others before it raises: each job that runs on costs money
                failed = error
        if failed is not None:
            raise failed
        return sorted(extra)

    def look(self, claim_id: str, collection: str) -> list[str]:
        """Cancel the surplus jobs of a claim, if it has any; without a record the oldest job is recorded first.

        Args:
            collection: Where the job was seen; the custom jobs of a sweep's trials are left alone.

        Returns:
            Resource names of the jobs that were cancelled.
        """
        jobs = self.with_label(claim_id, collection)
        # one job is the normal case and needs no read of the bucket
        current = self.claims.by_id(claim_id) if len(jobs) > 1 else None
        if current is None:
            return []
        claim = Claim(claim_id, current.token, current.asked, current.run, current.kind, path=current.path)
        kept = (
            current
            if current.id == claim_id and current.job.name
            else self.claims.record(claim, recorded(jobs[0], claim_id), current)
        )
        # the record is of a sweep, and these custom jobs are its trials, which have the sweep's labels
        if f"/{collection}/" not in kept.job.name:
            return []
        return self.keep_recorded(kept, jobs)


def call_off(vertex: Vertex, name: str) -> None:
    """Cancel a job, unless it has ended or is gone."""
    try:
        vertex.cancel(name)
    except RestError as error:
        if error.status not in (400, 404, 409):
            raise


def recorded(job: RemoteJob, claim_id: str) -> Recorded:
    """Return what a claim, by its id, stores about a job; of the job alone, so without price and packages."""
    return Recorded(job.name, token_of(job.data, claim_id), job.state, job.output, dict(job.labels))


def seen_twice(jobs: Iterable[RemoteJob]) -> list[tuple[str, str]]:
    """Claims that several of these jobs carry, with their collection; the jobs of a sweep's trials do not count."""
    live = [job for job in jobs if CLAIM_LABEL in job.labels]
    sweeps = {job.labels[CLAIM_LABEL] for job in live if job.collection == TUNING}
    counts = Counter(
        (job.labels[CLAIM_LABEL], job.collection)
        for job in live
        if job.collection != CUSTOM or job.labels[CLAIM_LABEL] not in sweeps
    )
    return [one for one, count in counts.items() if count > 1]


def fenced(data: Mapping[str, Any], claim_uri: str, id: str, token: str) -> dict[str, Any]:
    """Return a CustomJobSpec or HyperparameterTuningJob whose containers all know their claim; `token` is the delivery that makes it."""
    if "trialJobSpec" in data:
        return {**data, "trialJobSpec": fenced(data["trialJobSpec"], claim_uri, id, token)}
    ours = {CLAIM_VARIABLE: claim_uri, TOKEN_VARIABLE: f"{id}.{token}"}
    return {**data, "workerPoolSpecs": [_with(pool, ours) for pool in data.get("workerPoolSpecs") or ()]}


def token_of(data: Mapping[str, Any], id: str) -> str:
    """Return the token of the delivery that made a job, from the job's environment; "" if it has none."""
    spec = data.get("jobSpec") or data.get("trialJobSpec") or {}
    for pool in spec.get("workerPoolSpecs") or ():
        for variable in pool.get(_program(pool), {}).get("env") or ():
            of, _, token = str(variable.get("value", "")).partition(".")
            if variable.get("name") == TOKEN_VARIABLE and of == id:
                return token
    return ""


def _program(pool: Mapping[str, Any]) -> str:
    return next((name for name in _PROGRAMS if pool.get(name)), "")


def _with(pool: Mapping[str, Any], ours: Mapping[str, str]) -> dict[str, Any]:
    name = _program(pool)
    if not name:
        return dict(pool)  # an empty pool, which keeps the positions of the others
    # names of variables have to be unique: one that the project file gives under these names would hide ours
    kept = [one for one in pool[name].get("env") or () if one.get("name") not in ours]
    env = [*kept, *({"name": key, "value": value} for key, value in ours.items())]
    return {**pool, name: {**pool[name], "env": env}}
