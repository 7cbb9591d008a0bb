"""`vertexrig submit`: a job of the project, created on Vertex AI exactly once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import forecast, options, remote, show, steps, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cloud.vertex import job_body
from vertexrig.errors import FindingsError, UsageError
from vertexrig.project.runs import new_run_id
from vertexrig.project.triggered import Budget
from vertexrig.submit import publish
from vertexrig.submit import submission as submit
from vertexrig.submit.claims import digest

if TYPE_CHECKING:
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
    dry_run: bool,
    no_budget: bool,
    asked: forecast.ForecastOptions,
    format_: str,
) -> None:
    """Render and check job or sweep NAME, upload its package, and create it on Vertex AI.

    With VERTEXRIG_AIPLATFORM and STORAGE_EMULATOR_HOST set, as `vertexrig local env` prints them, it goes to the local
    Vertex instead. Findings and progress go to stderr; the job's resource name to stdout. Each run writes into its own
    output folder, BUCKET/runs/NAME/RUN; the same --request-id means the same run.
    """
    _check_request(request_id)
    workspace = project.workspace(name)
    prepared = workspace.prepare(name)
    show.findings(prepared.findings, sources=workspace.loaded.sources, info=info)
    if not prepared.ok:
        result(format_, {"findings": show.rows(prepared.findings)}, "")
        raise FindingsError(f"{name} would fail: see above")
    vertex = remote.service(workspace.loaded)
    storage = remote.bucket(workspace.loaded, "claims and packages")
    submitter = submit.Submitter(workspace, vertex, storage, limits=Budget() if no_budget else None)
    # Before anything is uploaded: a run that cannot be resumed is bad usage.
    if resume:
        submit.resumable(vertex, storage, prepared, resume)
    _ahead(submitter, prepared, asked, project.file)
    if dry_run:
        shown = prepared.in_run(resume or new_run_id())
        streams.note(f"estimate: {submitter.dry_run(shown).estimate['arithmetic']}")
        result(format_, _body(shown), lambda: json.dumps(_body(shown), indent=2))
        return
    for uri in publish.publish(workspace, [name], storage):
        streams.note(f"{'package' if uri.startswith('gs://') else 'image'}: {uri}")
    # Without an id of the person's the key is fresh: two calls without one are two jobs.
    key = submit.fresh_key() if request_id is None else submit.request_key(request_id)
    made = submitter.submit(prepared, key, _digest(prepared, resume), resume)
    _notes(name, made, project.file)
    if others := len(workspace.loaded.runnable(name).candidates):
        streams.note(f"{name} was started as it stands: none of its {others} candidates is tried by itself")
    result(format_, asdict(made), made.name)


def _check_request(id: str | None) -> None:
    if id is not None and not id.strip():
        raise UsageError(
            "--request-id is empty, so a second submission would make a second job: give an id, or leave it out"
        )


def _digest(prepared: Prepared, resume: str) -> str:
    """Of what is asked for. The same id with another run to go on from is another request, and is refused."""
    body = _body(prepared)
    return digest({"body": body, "run": resume} if resume else body)


def _ahead(submitter: Submitter, prepared: Prepared, asked: forecast.ForecastOptions, file: Path | None) -> None:
    """Print the estimate of time and money that the options ask for."""
    catalog = submitter.workspace.catalog
    ahead = forecast.forecast(submitter.estimate(prepared), prepared.document, catalog, asked, file) if asked else None
    if ahead is not None:
        streams.note(forecast.text(ahead))


def _body(of: Prepared) -> dict[str, Any]:
    """Return what is sent to create the job."""
    view, document = of.view, of.document
    return job_body(
        document.kind,
        document.data,
        display_name=view.display_name,
        labels=view.labels,
        kms_key_name=view.kms_key_name,
    )


def _notes(name: str, made: Submitted, file: Path | None) -> None:
    """Say what a person wants to know of the new job, and what to type next."""
    streams.note(f"estimate: {made.estimate.get('arithmetic', '')}")
    streams.note(f"output: {made.output or 'none'}")
    streams.note(f"console: {made.console}")
    if made.duplicate:
        streams.note(f"{name} was submitted before with this request id; this is the first job")
    streams.note(f"follow it to its end:\n{steps.line('watch', made.name.rpartition('/')[2], *steps.named(file))}")
    streams.note(f"start it over HTTP or by schedule:\n{steps.line('function', 'build', *steps.named(file))}")
