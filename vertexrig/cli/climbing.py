"""Going on with a job's candidates from the command line, for `submit` and `watch`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vertexrig.cli import quota, remote, streams
from vertexrig.cli.output import progress
from vertexrig.cli.remote import FoundJob
from vertexrig.cloud.quotas import QuotaService
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import COLLECTIONS, RemoteJob, Vertex
from vertexrig.errors import JobFailedError, UsageError
from vertexrig.explain import headroom
from vertexrig.project import runs
from vertexrig.spec.labels import RUN_LABEL, first_of
from vertexrig.studies import report
from vertexrig.submit import publish
from vertexrig.submit.claims import Claim, InProgressError, Key, digest
from vertexrig.submit.ladder import Ladder, LadderState
from vertexrig.submit.rungs import CandidateRun, Try, ways
from vertexrig.submit.submission import Submitter, body_of, left_out
from vertexrig.times import length
from vertexrig.workspace import Prepared, Workspace

PATIENCE_S = 600.0
"""Seconds that a service may fail for before this gives up; the ladder stays where it is."""


def digest_of(prepared: Prepared, resume: str) -> str:
    """Of what is asked for. The same id with another run to go on from is another request, and is refused."""
    body = body_of(prepared, prepared.view.labels)
    return digest({"body": body, "run": resume} if resume else body)


def ladder(prepared: Sequence[Prepared], submitter: Submitter, key: Key, resume: str) -> Ladder:
    """Return the ladder of a new request; each package is uploaded when its candidate's turn has come."""
    _say_what_begins_anew(prepared)
    for number, why in left_out(prepared, submitter.limits).items():
        streams.note(f"candidate {number} gets no job: {why}")
    made = _ladder(prepared, submitter, digest_of(prepared[0], resume), resume)
    made.key = key
    return made


def _ladder(prepared: Sequence[Prepared], submitter: Submitter, body: str, resume: str) -> Ladder:
    known = quota.known_of(QuotaService(prepared[0].workspace.loaded.project.project))

    def cannot(way: CandidateRun) -> str:
        return headroom.cannot_fit(way.prepared, known(way.prepared.workspace.loaded.project.region)[0])

    return Ladder(ways(prepared, submitter), body, run_id=resume, publish=_publish, cannot=cannot)


def of_job(workspace: Workspace, job: RemoteJob) -> Ladder | None:
    """Return the ladder that a job is a try of, if this project can go on with it; stderr says why not, where it cannot."""
    name = job.labels.get(RUN_LABEL, "")
    known = _known(workspace, job)
    if known is None:
        return None
    prepared, submitter, claim = known
    for resume in ("", claim.run_id):
        if digest_of(prepared[0], resume) == claim.asked:
            made = _ladder(prepared, submitter, claim.asked, resume)
            made.first = claim.id
            return made
    streams.note(
        f"this project renders {name} otherwise than it was submitted, or the trigger has submitted it: this follows the job, and does not "
        "go on to its candidates"
    )
    return None


def tries_of(workspace: Workspace, found: FoundJob) -> list[dict[str, Any]]:
    """Return what became of each try of the request that a job is of, as its claims or its rehearsal's record say; none if it has no
    candidates.
    """
    if found.record is not None:
        return list(map(dict, found.record.attempts))
    known = _known(workspace, found.job, check=False)
    if known is None:
        return []
    prepared, submitter, claim = known
    return data(Ladder(ways(prepared, submitter), claim.asked, first=claim.id), found.job)


def _known(
    workspace: Workspace, job: RemoteJob, *, check: bool = True
) -> tuple[list[Prepared], Submitter, Claim] | None:
    """Return the candidates of a job as the project has them, what makes their jobs, and the claim of the request; None if it has none."""
    first, name = first_of(job.labels), job.labels.get(RUN_LABEL, "")
    project = workspace.loaded.project
    if not first or name not in {*project.entries}:
        return None
    prepared = workspace.prepare_all(name, check=check)
    submitter = Submitter(workspace, remote.service(workspace.loaded), remote.bucket(workspace.loaded, "claims"))
    claim = submitter.claims.by_id(first)
    return (prepared, submitter, claim) if claim is not None and len(prepared) > 1 else None


def follow(climbed: Ladder, poll: float, format_: str) -> LadderState:
    """Go on with a ladder until it has ended or the reader of its lines has gone; a line for each change."""
    shown, failing_since, left, name = "", 0.0, 0, ""
    while True:
        pause = poll
        try:
            at = climbed.advance()
            failing_since = 0.0
        except InProgressError as error:
            pause = min(error.retry_after, poll)
        except RestError as error:
            failing_since = failing_since or time.monotonic()
            if not error.retryable or time.monotonic() - failing_since > PATIENCE_S:
                raise
            streams.note(f"lost the connection, trying again: {error}")
        else:
            if name != (name := at.made.name if at.made is not None else "") or at.ended:
                over = [one for one in climbed.tries() if one.reason]
                for line in tried(over[left:]):
                    progress(format_, line)
                left = len(over)
            now = _line(at)
            if now and now != shown and not progress(format_, now):
                return at
            shown = now
            if at.ended:
                return at
        time.sleep(pause)


def must_have_succeeded(at: LadderState, climbed: Ladder) -> None:
    """Raise JobFailedError if a ladder that has ended has no job that has succeeded."""
    if at.ended and at.state != "succeeded":
        raise JobFailedError(f"{climbed.ways[0].prepared.view.name} ended: {at.text or at.state}")


def tried(tries: Sequence[Try]) -> list[str]:
    """Return what became of each try, a line each."""
    lines = []
    for one in tries:
        parts = [f"waited {length(round(one.waited_s))}" if one.waited_s is not None else ""]
        parts += [f"about ${one.usd:.2f}" if one.usd else "", one.text]
        told = "; ".join(part for part in parts if part)
        lines.append(
            f"candidate {one.candidate} ({one.changes or 'as it stands'}): {one.reason or 'goes on'}: {told}".rstrip(
                ": "
            )
        )
    return lines


def data(climbed: Ladder, job: RemoteJob | None = None) -> list[dict[str, Any]]:
    """Return the tries as JSON; `job` is the one that the last is at."""
    return [asdict(one) for one in climbed.tries(job)]


def _line(at: LadderState) -> str:
    """Return where a ladder is, in one line; "" for a job that was made just now."""
    if at.job is None:
        return f"{at.said}: {at.text}" if at.text else ""
    return f"{at.job.id}  {report.line(at.job)}  {at.said}{f': {at.text}' if at.ended else ''}"


def _publish(way: CandidateRun) -> None:
    workspace = way.prepared.workspace
    bucket = remote.bucket(workspace.loaded, "packages")
    for uri in publish.publish(workspace, [way.prepared.view.name], bucket):
        streams.note(f"{'package' if uri.startswith('gs://') else 'image'}: {uri}")


def _say_what_begins_anew(prepared: Sequence[Prepared]) -> None:
    """Say, before anything starts, which candidates cannot go on from a checkpoint of those before."""
    first = prepared[0]
    if first.view.sweep is not None:
        streams.note("each candidate of a sweep begins a study of its own: finished trials are not carried over")
        return
    anew = [
        str(one.candidate)
        for one in prepared
        if one.workspace.loaded.project.bucket != first.workspace.loaded.project.bucket
    ]
    for one in prepared:  # a bucket that is missing is found now, not when its candidate's turn has come
        next(remote.bucket(one.workspace.loaded, "packages").list("packages/none"), None)
    if anew:
        streams.note(
            f"candidate {', '.join(anew)} writes into another bucket, and begins anew there instead of from a checkpoint"
        )


def resumable(vertex: Vertex, storage: Storage, prepared: Prepared, run_id: str) -> None:
    """Refuse to resume a run that cannot be.

    Raises:
        UsageError: The job's runs share one folder, there is no such run, or a job still writes into its folder.
    """
    runs.must_be_resumable(prepared.view, run_id)
    name = prepared.view.name
    uri = runs.folder(storage.uri(""), name, run_id)
    collection = COLLECTIONS[prepared.document.kind]
    known = [job for job in vertex.list(collection, filter=f"labels.{RUN_LABEL}={name}", limit=50) if job.output]
    live = next((job for job in known if job.output == uri and not job.ended), None)
    if live is not None:
        raise UsageError(f"job {live.id} still writes into {uri}; wait for its end, or `vertexrig cancel {live.id}`")
    written = any(job.output == uri for job in known) or next(storage.list(f"{runs.FOLDER}/{name}/{run_id}/"), None)
    if not written:
        raise runs.no_such_run(name, run_id, (runs.run_id_of(job.output) for job in known))
