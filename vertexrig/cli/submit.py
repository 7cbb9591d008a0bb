"""`vertexrig submit`: create a job of the project on Vertex AI, exactly once per request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.checks import formats
from vertexrig.cli import candidates, next_commands, options, remote, show, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.watch import continuing, lines
from vertexrig.errors import FindingsError, UsageError
from vertexrig.files import revision
from vertexrig.project.run_ids import new_run_id
from vertexrig.project.triggered import Budget
from vertexrig.submit import submission as submit
from vertexrig.submit.claims import fresh_key, request_key

if TYPE_CHECKING:
    from vertexrig.cloud.vertex import Vertex
    from vertexrig.project.config import Loaded
    from vertexrig.runs.submitted import SubmittedRun
    from vertexrig.submit.submission import Submitted


@click.command("submit")
@click.argument("name", cls=NameArgument)
@options.project_options
@options.info_option
@click.option(
    "--request-id",
    metavar="ID",
    help="Name this request: a second `submit` with the same id finds the first job and creates no other.",
)
@options.resume_option
@click.option(
    "--watch",
    is_flag=True,
    help="Follow the job until it has ended. If it ends for lack of machines, start the next candidate.",
)
@options.poll_option
@click.option("--dry-run", is_flag=True, help="Print the request that would be sent, and send nothing.")
@click.option("--no-budget", is_flag=True, help="Ignore the budget of the project file.")
@options.format_option("text", "json")
def command(
    name: str,
    project: options.ProjectOptions,
    info: bool,
    request_id: str | None,
    resume: str,
    watch: bool,
    poll: float,
    dry_run: bool,
    no_budget: bool,
    format_: str,
) -> None:
    """Render and check job or sweep NAME, upload its package, and create it on Vertex AI.

    The job's resource name goes to stdout; findings and progress go to stderr. Each run writes into its own output folder,
    BUCKET/runs/NAME/RUN_ID.

    If the job has candidates, the first one that Vertex AI accepts is created. `--watch`, or `vertexrig watch` later, starts the
    next one when a job ends for lack of machines.

    To submit to the local Vertex instead, set the variables that `vertexrig local env` prints.
    """
    if request_id is not None and not request_id.strip():
        raise UsageError("--request-id is empty, and an empty id names no request: give an id, or leave the option out")
    workspace = project.workspace(name)
    every = workspace.prepare_candidates(name)
    prepared, found = every[0], [finding for one in every for finding in one.findings]
    show.findings(found, texts=workspace.loaded.texts, info=info)
    if not all(one.ok for one in every):
        result(format_, {"findings": formats.rows(found)}, "")
        raise FindingsError(f"{name} would fail: see above")
    vertex = remote.service(workspace.loaded)
    storage = remote.bucket(workspace.loaded, "claims and packages")
    submitter = submit.Submitter(
        workspace, vertex, storage, limits=Budget() if no_budget else None, revision=revision(workspace.loaded.folder)
    )
    if resume:  # before anything is uploaded: a run that cannot be resumed is bad usage
        candidates.resumable(vertex, storage, prepared, resume)
    first = submitter.first_allowed(every)
    if dry_run:
        shown = first.in_run(resume or new_run_id())
        if len(every) > 1:
            streams.note(f"{name}: candidate {first.candidate} of {len(every)}")
        would = submitter.dry_run(shown)
        streams.note(f"estimate: {would.estimate['arithmetic']}")
        body = submit.body_of(shown, would.labels)
        result(format_, body, lambda: json.dumps(body, indent=2))
        return
    # Without --request-id the key is fresh: two calls make two jobs.
    key = fresh_key() if request_id is None else request_key(request_id)
    handle = partial(_handle, vertex, workspace.loaded)
    if len(every) > 1:
        request = candidates.new_request(every, submitter, key, resume)
        _submit_candidates(handle, request, watch, poll, format_, project.file)
        return
    candidates.publish_job(workspace, name)
    made = submitter.submit(prepared, key, candidates.digest_of(prepared, resume), resume)
    _notes(name, made, handle(made.name), project.file)
    result(format_, asdict(made), made.name)
    if watch and (last := vertex.get(made.name)) is not None:
        with continuing(name, handle(made.name), *next_commands.named(project.file)):
            last = lines(vertex, last, poll, format_)
        result(format_, {"state": last.state}, "")
        remote.must_have_succeeded(last)


def _handle(vertex: Vertex, loaded: Loaded, name: str) -> str:
    """Return what `watch` finds a job by: its number, or its resource name if `--set`, which `watch` does not have, chose another place."""
    return name if {("region",), ("project",)} & loaded.origins.override_of.keys() else vertex.handle(name)


def _submit_candidates(
    handle: Callable[[str], str], request: SubmittedRun, watch: bool, poll: float, format_: str, file: Path | None
) -> None:
    """Start a job with candidates; with `watch`, follow its attempts until the request has ended."""
    at = request.advance()
    if at.made is not None:
        name = at.made.run
        streams.note(f"{name}: {request.which_candidate}")
        _notes(name, at.made, handle(at.made.name), file)
    if watch:
        job = request.name if at.made is None else handle(at.made.name)
        with continuing(request.name, job, *next_commands.named(file)):
            at = candidates.follow(request, poll, format_)
    made = {} if at.made is None else asdict(at.made)
    more = {"candidate": request.candidate, "attempts": request.attempts()}
    result(format_, {**made, **more}, made.get("name", ""))
    candidates.must_have_succeeded(at, request)


def _notes(name: str, made: Submitted, handle: str, file: Path | None) -> None:
    """Print the new job's estimate, output folder and console page, and the commands to type next."""
    streams.note(f"estimate: {made.estimate.get('arithmetic', '')}")
    streams.note(f"output folder: {made.output or 'none'}")
    streams.note(f"console: {made.console}")
    if made.duplicate:
        streams.note(f"{name} was submitted before with this request id; this is the first job")
    streams.note(f"to follow it until it has ended:\n{next_commands.line('watch', handle, *next_commands.named(file))}")
    streams.note(
        f"to start {name} over HTTP or by schedule, first build the Cloud Function:\n{next_commands.line('function', 'build', *next_commands.named(file))}"
    )
