"""One job survives per claim: every other job with the claim's label is cancelled, whoever sees it first.

Vertex AI has no request id and no fencing, so a holder that was frozen between its last look at the clock and its create
call, or a list that lags, can lead to a second job. The recorded one decides, and a record is never replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import CUSTOM, TUNING, RemoteJob, Vertex
from vertexrig.spec.states import CANCELLING
from vertexrig.submit.claims import LABEL, Claim, Claims
from vertexrig.submit.fence import attempt_of

RUN_LABEL = "vertexrig_run"
_CANNOT_BE_CANCELLED = frozenset({400, 404, 409})  # it has ended, or is gone


class Reconciler:
    """Finds the jobs of a claim and cancels all but the recorded one.

    Args:
        vertex: The jobs.
        claims: The claims.
    """

    def __init__(self, vertex: Vertex, claims: Claims) -> None:
        self.vertex, self.claims = vertex, claims

    def with_label(self, claim: str, collection: str) -> list[RemoteJob]:
        """The jobs of a claim, the oldest first."""
        found = self.vertex.list(collection, filter=f'labels.{LABEL}="{claim}"')
        # the name settles equal times, so that all who look choose the same job
        return sorted(found, key=lambda job: (str(job.data.get("createTime", "")), job.name))

    def find(self, claim: str, collection: str) -> RemoteJob | None:
        """The oldest job of a claim, None if there is none."""
        return next(iter(self.with_label(claim, collection)), None)

    def record_of(self, job: RemoteJob) -> dict[str, Any]:
        """What a claim records about a job."""
        claim = job.labels.get(LABEL, "")
        return {
            "run": job.labels.get(RUN_LABEL, ""), "name": job.name, "kind": job.kind, "state": job.state,
            "console": self.vertex.console(job.name), "labels": dict(job.labels), "claim": claim,
            "output": job.output, "attempt": attempt_of(job.data, claim),
        }  # fmt: skip

    def keep_recorded(self, claim: Claim, jobs: Iterable[RemoteJob]) -> list[str]:
        """Cancel those of a claim's jobs that are not the recorded one.

        Returns:
            Resource names of the jobs that were cancelled.

        Raises:
            RestError: One could not be cancelled now; the next look tries again.
        """
        extra = {job.name for job in jobs if job.name != claim.job_name and not job.ended and job.state != CANCELLING}
        failed: RestError | None = None
        for name in sorted(extra):
            try:
                self.vertex.cancel(name)
            except RestError as error:
                # go on with the others before it raises: each job that runs on costs money
                failed = failed if error.status in _CANNOT_BE_CANCELLED else error
        if failed is not None:
            raise failed
        return sorted(extra)

    def look(self, claim_id: str, collection: str) -> list[str]:
        """Cancel the surplus jobs of a claim, if it has any; without a record the oldest job is recorded first.

        Args:
            claim_id: Value of the label.
            collection: Where the job was seen; the custom jobs of a sweep's trials are left alone.

        Returns:
            Resource names of the jobs that were cancelled.

        Raises:
            RestError: A service failed.
        """
        jobs = self.with_label(claim_id, collection)
        # one job is the normal case, and needs no look at the bucket
        held = self.claims.of(claim_id) if len(jobs) > 1 else None
        if held is None:
            return []
        claim = Claim(claim_id, held.token, held.body, held.run, held.kind, path=held.path)
        recorded = (
            held if held.id == claim_id and held.job_name else self.claims.record(claim, self.record_of(jobs[0]), held)
        )
        # the record is of a sweep, and these are the custom jobs of its trials, which carry its labels
        if f"/{collection}/" not in recorded.job_name:
            return []
        return self.keep_recorded(recorded, jobs)


def seen_twice(jobs: Iterable[RemoteJob]) -> list[tuple[str, str]]:
    """Claims that several of these jobs carry, with their collection; the jobs of a sweep's trials do not count."""
    live = [job for job in jobs if LABEL in job.labels]
    sweeps = {job.labels[LABEL] for job in live if job.collection == TUNING}
    counts = Counter(
        (job.labels[LABEL], job.collection)
        for job in live
        if job.collection != CUSTOM or job.labels[LABEL] not in sweeps
    )
    return [one for one, count in counts.items() if count > 1]
