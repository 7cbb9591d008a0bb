"""`vertexrig submit`: a job of the project, created on Vertex AI exactly once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.cli import climbing, forecast, options, remote, show, steps, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.watch import lines
from vertexrig.errors import FindingsError, UsageError
from vertexrig.project.runs import new_run_id
from vertexrig.project.triggered import Budget
from vertexrig.submit import publish
from vertexrig.submit import submission as submit
from vertexrig.submit.claims import fresh_key, request_key

if TYPE_CHECKING:
    from vertexrig.cloud.vertex import Vertex
    from vertexrig.submit.ladder import Ladder
    from vertexrig.submit.submission import Submitted, Submitter
    from vertexrig.workspace import Prepared


@click.command("submit")
@click.argument("name", cls=NameArgument)
@options.project_options
@options.info_option
@click.option(
    "--request-id",
    metavar="ID",
    help="Submitting again with the same id finds the first job instead of making another.",
)
@options.resume_option
@click.option(
    "--watch",
    is_flag=True,
    help="Follow it to its end, and go on to the next of its candidates where machines are scarce.",
)
@options.poll_option
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.option("--no-budget", is_flag=True, help="Do not hold the run against the project file's budget.")
@forecast.forecast_options
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
    asked: forecast.ForecastOptions,
    format_: str,
) -> None:
    """Render and check job or sweep NAME, upload its package, and create it on Vertex AI.

    With VERTEXRIG_AIPLATFORM and STORAGE_EMULATOR_HOST set, as `vertexrig local env` prints them, it goes to the local
    Vertex instead. Findings and progress go to stderr; the job's resource name to stdout. Each run writes into its own
    output folder, BUCKET/runs/NAME/RUN; the same --request-id means the same run. Of a job with candidates the first one is
    created that is not refused for lack of machines; --watch, or `vertexrig watch`, goes on to the others.
    """
    _check_request(request_id)
    workspace = project.workspace(name)
    every = workspace.prepare_all(name)
    prepared, found = every[0], [finding for one in every for finding in one.findings]
    show.findings(found, sources=workspace.loaded.sources, info=info)
    if not all(one.ok for one in every):
        result(format_, {"findings": show.rows(found)}, "")
        raise FindingsError(f"{name} would fail: see above")
    vertex = remote.service(workspace.loaded)
    storage = remote.bucket(workspace.loaded, "claims and packages")
    submitter = submit.Submitter(workspace, vertex, storage, limits=Budget() if no_budget else None)
    # Before anything is uploaded: a run that cannot be resumed is bad usage.
    if resume:
        climbing.resumable(vertex, storage, prepared, resume)
    first = submitter.first_allowed(every)
    _ahead(submitter, first, asked, project.file)
    if dry_run:
        shown = first.in_run(resume or new_run_id())
        if len(every) > 1:
            streams.note(f"{name}: candidate {first.candidate} of {len(every)}")
        would = submitter.dry_run(shown)
        streams.note(f"estimate: {would.estimate['arithmetic']}")
        body = submit.body_of(shown, would.labels)
        result(format_, body, lambda: json.dumps(body, indent=2))
        return
    # Without an id of the person's the key is fresh: two calls without one are two jobs.
    key = fresh_key() if request_id is None else request_key(request_id)
    if len(every) > 1:
        _climb(vertex, climbing.ladder(every, submitter, key, resume), watch, poll, format_, project.file)
        return
    for uri in publish.publish(workspace, [name], storage):
        streams.note(f"{'package' if uri.startswith('gs://') else 'image'}: {uri}")
    made = submitter.submit(prepared, key, climbing.digest_of(prepared, resume), resume)
    _notes(name, made, vertex.handle(made.name), project.file)
    result(format_, asdict(made), made.name)
    if watch and (last := vertex.get(made.name)) is not None:
        last = lines(vertex, last, poll, format_)
        result(format_, {"state": last.state}, "")
        remote.must_have_succeeded(last)


def _climb(vertex: Vertex, climbed: Ladder, watch: bool, poll: float, format_: str, file: Path | None) -> None:
    """Start a job with candidates, and with `watch` go on with them to the end."""
    at = climbed.advance()
    if at.made is not None:
        name = at.made.run
        streams.note(f"{name}: {at.said}")
        _notes(name, at.made, vertex.handle(at.made.name), file)
    if watch:
        at = climbing.follow(climbed, poll, format_)
    made = {} if at.made is None else asdict(at.made)
    result(format_, {**made, "candidate": at.candidate, "tries": climbing.data(climbed)}, made.get("name", ""))
    climbing.must_have_succeeded(at, climbed)


def _check_request(id: str | None) -> None:
    if id is not None and not id.strip():
        raise UsageError(
            "--request-id is empty, so a second submission would make a second job: give an id, or leave it out"
        )


def _ahead(submitter: Submitter, prepared: Prepared, asked: forecast.ForecastOptions, file: Path | None) -> None:
    """Print the estimate of time and money that the options ask for."""
    catalog = submitter.workspace.catalog
    ahead = (
        forecast.forecast(submit.price_within(prepared, submitter.limits), prepared.document, catalog, asked, file)
        if asked
        else None
    )
    if ahead is not None:
        streams.note(forecast.text(ahead))


def _notes(name: str, made: Submitted, handle: str, file: Path | None) -> None:
    """Say what a person wants to know of the new job, and what to type next."""
    streams.note(f"estimate: {made.estimate.get('arithmetic', '')}")
    streams.note(f"output: {made.output or 'none'}")
    streams.note(f"console: {made.console}")
    if made.duplicate:
        streams.note(f"{name} was submitted before with this request id; this is the first job")
    streams.note(f"follow it to its end:\n{steps.line('watch', handle, *steps.named(file))}")
    streams.note(f"start it over HTTP or by schedule:\n{steps.line('function', 'build', *steps.named(file))}")
