"""Go through a job's candidates from the command line, for `submit`, `watch` and `rehearse`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
from vertexrig.files import revision
from vertexrig.project import run_ids
from vertexrig.runs import submitted
from vertexrig.runs.candidates import CandidateRun, candidates_of
from vertexrig.runs.deliveries import FOLDER
from vertexrig.runs.engine import Moved
from vertexrig.runs.store import RunStore
from vertexrig.runs.submitted import SubmittedRun
from vertexrig.spec.labels import ENTRY_LABEL, first_of
from vertexrig.studies import report
from vertexrig.submit import publish
from vertexrig.submit.claims import Claim, InProgressError, Key, digest
from vertexrig.submit.submission import Submitter, body_of, left_out
from vertexrig.times import length
from vertexrig.workspace import Prepared, Workspace

PATIENCE_S = 600.0
"""A service may fail for this many seconds before `follow` gives up; the request can be followed again later."""


def digest_of(prepared: Prepared, resume: str) -> str:
    """Return the digest of what is asked for. The same id with another run to resume is another request, and is refused."""
    body = body_of(prepared, prepared.view.labels)
    return digest({"body": body, "run": resume} if resume else body)


def new_request(prepared: Sequence[Prepared], submitter: Submitter, key: Key, resume: str) -> SubmittedRun:
    """Return a new request with its candidates; a candidate's package is uploaded before its first attempt."""
    _note_restarts(prepared)
    for number, why in left_out(prepared, submitter.limits).items():
        streams.note(f"candidate {number} gets no job: {why}")
    return _request(prepared, submitter, digest_of(prepared[0], resume), key=key, run_id=resume)


def _request(prepared: Sequence[Prepared], submitter: Submitter, asked_digest: str, **about: Any) -> SubmittedRun:
    known = quota.known_of(QuotaService(prepared[0].workspace.loaded.project.project))

    def cannot(candidate: CandidateRun) -> str:
        return headroom.cannot_fit(candidate.prepared, known(candidate.prepared.workspace.loaded.project.region)[0])

    return SubmittedRun(candidates_of(prepared, submitter), asked_digest, publish=_publish, cannot=cannot, **about)


def of_job(workspace: Workspace, job: RemoteJob) -> SubmittedRun | None:
    """Return the request that a job belongs to. If this project cannot continue it, stderr says why, and None is returned."""
    name = job.labels.get(ENTRY_LABEL, "")
    known = _known(workspace, job)
    if known is None:
        return None
    prepared, submitter, claim = known
    run = submitted.read(submitter.claims.storage, claim.id)
    if run is not None and claim.asked in (digest_of(prepared[0], ""), digest_of(prepared[0], claim.run_id)):
        return _request(prepared, submitter, claim.asked, run=run)
    streams.note(
        f"{name} has changed in this project since this job was submitted, or the trigger submitted the job: only this job is "
        "followed, not its candidates"
    )
    return None


def attempts_of(workspace: Workspace, found: FoundJob) -> list[dict[str, Any]]:
    """Return the attempts of the request that a job belongs to, from its claims or its rehearsal's record; none without candidates."""
    if found.record is not None:
        return list(map(dict, found.record.attempts))
    known = _known(workspace, found.job, check=False)
    if known is None:
        return []
    prepared, submitter, claim = known
    own = submitter.claims.storage
    run = submitted.read(own, claim.id) or RunStore(own).read(claim.id)
    if run is not None:
        return SubmittedRun(candidates_of(prepared, submitter), claim.asked, run=run).attempts(found.job)
    ended = own.read_json(f"{FOLDER}/{claim.run_id[:4]}-{claim.run_id[4:6]}/{claim.run_id}-{claim.id}.json") or {}
    return list(ended.get("end", {}).get("attempts", ()))


def _known(
    workspace: Workspace, job: RemoteJob, *, check: bool = True
) -> tuple[list[Prepared], Submitter, Claim] | None:
    """Return the candidates of a job, what submits them, and the claim of the request; None for a job without candidates."""
    first, name = first_of(job.labels), job.labels.get(ENTRY_LABEL, "")
    project = workspace.loaded.project
    if not first or name not in {*project.entries}:
        return None
    prepared = workspace.prepare_candidates(name, check=check)
    submitter = Submitter(
        workspace,
        remote.service(workspace.loaded),
        remote.bucket(workspace.loaded, "claims"),
        revision=revision(workspace.loaded.folder),
    )
    claim = submitter.claims.by_id(first)
    return (prepared, submitter, claim) if claim is not None and len(prepared) > 1 else None


def follow(request: SubmittedRun, poll: float, format_: str) -> Moved:
    """Continue a request until it has ended or the reader of its lines has gone; print a line for each change."""
    shown, failing_since, left, name = "", 0.0, 0, ""
    while True:
        pause = poll
        try:
            at = request.advance()
            failing_since = 0.0
        except InProgressError as error:
            pause = min(error.retry_after, poll)
        except RestError as error:
            failing_since = failing_since or time.monotonic()
            if not error.retryable or time.monotonic() - failing_since > PATIENCE_S:
                raise
            streams.note(f"lost the connection, retrying: {error}")
        else:
            if name != (name := at.made.name if at.made is not None else "") or at.ended:
                over = [one for one in request.attempts() if one["reason"]]
                for line in attempt_lines(over[left:]):
                    progress(format_, line)
                left = len(over)
            now = _line(at, request)
            if now and now != shown and not progress(format_, now):
                return at
            shown = now
            if at.ended:
                return at
        time.sleep(pause)


def must_have_succeeded(at: Moved, request: SubmittedRun) -> None:
    """Raise JobFailedError if a request has ended without a job that succeeded."""
    if at.ended and at.run.reason != "SUCCEEDED":
        raise JobFailedError(f"{request.name} ended: {at.text}")


def attempt_lines(attempts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each attempt: its candidate, how it ended, how long it waited, what it cost."""
    lines = []
    for one in attempts:
        parts = [f"waited {length(round(one['waited_s']))}" if one["waited_s"] is not None else ""]
        parts += [f"about ${one['usd']:.2f}" if one["usd"] else "", one["text"]]
        detail = "; ".join(part for part in parts if part)
        head = f"candidate {one['candidate']} ({one['changes'] or 'unchanged'}): {one['reason'] or 'running'}"
        lines.append(f"{head}: {detail}".rstrip(": "))
    return lines


def _line(at: Moved, request: SubmittedRun) -> str:
    """Return the state of a request in one line; "" for a job that was made just now."""
    if at.remote is None:
        return f"{request.which_candidate}: {at.text}" if at.text else ""
    return f"{at.remote.id}  {report.line(at.remote)}  {request.which_candidate}{f': {at.text}' if at.ended else ''}"


def _publish(candidate: CandidateRun) -> None:
    publish_job(candidate.prepared.workspace, candidate.prepared.view.name)


def publish_job(workspace: Workspace, name: str) -> None:
    """Upload the package that a job or sweep uses, and note it or its image on stderr."""
    for uri in publish.publish(workspace, [name], remote.bucket(workspace.loaded, "packages")):
        streams.note(f"{'package' if uri.startswith('gs://') else 'image'}: {uri}")


def _note_restarts(prepared: Sequence[Prepared]) -> None:
    """Note on stderr, before anything starts, which candidates cannot resume from an earlier candidate's checkpoint."""
    first = prepared[0]
    if first.view.sweep is not None:
        streams.note("each candidate of a sweep starts a new study: finished trials are not carried over")
        return
    anew = [
        str(one.candidate)
        for one in prepared
        if one.workspace.loaded.project.bucket != first.workspace.loaded.project.bucket
    ]
    for one in prepared:  # a missing bucket is found now, and not when its candidate starts
        next(remote.bucket(one.workspace.loaded, "packages").list("packages/none"), None)
    if anew:
        streams.note(
            f"candidate {', '.join(anew)} writes into another bucket: it starts from the beginning there, not from a checkpoint"
        )


def resumable(vertex: Vertex, storage: Storage, prepared: Prepared, run_id: str) -> None:
    """Check that a run can be resumed.

    Raises:
        UsageError: The job's runs share one output folder, there is no such run, or a job still writes into its folder.
    """
    prepared.view.check_run_id(run_id, resume=True)
    name = prepared.view.name
    uri = run_ids.output_folder(storage.uri(""), name, run_id)
    collection = COLLECTIONS[prepared.document.kind]
    known = [job for job in vertex.list(collection, filter=f"labels.{ENTRY_LABEL}={name}", limit=50) if job.output]
    live = next((job for job in known if job.output == uri and not job.ended), None)
    if live is not None:
        raise UsageError(f"job {live.id} still writes into {uri}; wait for its end, or `vertexrig cancel {live.id}`")
    written = any(job.output == uri for job in known) or next(storage.list(f"{run_ids.FOLDER}/{name}/{run_id}/"), None)
    if not written:
        raise run_ids.no_such_run(name, run_id, (run_ids.run_id_of(job.output) for job in known))
