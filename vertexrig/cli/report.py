"""`vertexrig report`: write a report of a job as Markdown or HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from vertexrig import variables
from vertexrig.cli import candidates, extras, options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.remote import FoundJob
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.vertex import TUNING
from vertexrig.errors import UsageError
from vertexrig.files import write_text
from vertexrig.project.config import Loaded
from vertexrig.results.study import read
from vertexrig.spec.labels import ENTRY_LABEL
from vertexrig.studies import lineage as way
from vertexrig.studies import report
from vertexrig.studies.cost import spent
from vertexrig.studies.html import Insight, insight, page
from vertexrig.studies.reproduce import reproduction
from vertexrig.text import command_line
from vertexrig.workspace import Workspace

HTML = (".html", ".htm")
_TEXT = ("", ".md", ".markdown", ".txt")


@click.command("report")
@click.argument("job", cls=NameArgument)
@options.where_options
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="File to write instead of stdout. NAME.html is written as HTML; NAME.json needs --format json.",
)
@click.option(
    "--lineage",
    is_flag=True,
    help="JOB is a version of a model instead, MODEL@VERSION or MODEL@ALIAS: show the data and each job that made it, with package, "
    "image, project file and git revision.",
)
@options.format_option("markdown", "json", "html")
def command(job: str, where: options.WhereOptions, output: Path | None, lineage: bool, format_: str) -> None:
    """Write a report of JOB (name, id, resource name, or a rehearsal's run): how it went and, for a sweep, its trials.

    An HTML report is one file that loads nothing from the network. It has charts, an estimate of the cost, and the commands that
    create the job again. HTML needs the extra `report`.
    """
    typed = click.get_current_context().get_parameter_source("format_") is not ParameterSource.DEFAULT
    ending = output.suffix.lower() if output is not None else ""
    if output is not None and not typed and ending not in (*HTML, *_TEXT):
        raise UsageError(
            f"{output}: a report is HTML or Markdown: name it {output.stem}.html or {output.stem}.md, or give --format"
        )
    if lineage:
        if output is not None or where.local or format_ == "html":
            raise UsageError(
                "--lineage shows how a version in the Model Registry was made, as text or with --format json"
            )
        rows = _way(options.workspace_of(where.file).loaded, job)
        result(format_, {"lineage": rows}, way.text(rows))
        return
    html = format_ == "html" or (ending in HTML and not (typed and format_ == "markdown"))
    if html:
        extras.need("vl_convert")  # first: its extra brings what the others need, too
    workspace = options.workspace_of(where.file)
    found = remote.find(where, job)
    is_sweep = found.job.collection == TUNING
    attempts = candidates.attempts_of(workspace, found)
    if html:
        text = _html(found, insight(found.job) if is_sweep else None, workspace, attempts)
    else:
        text = report.page(found.job, found.console, found.record, attempts)
    data: dict[str, Any] = {"job": dict(found.job.data), "console": found.console or None}
    data["trials"] = read(found.job).table() if is_sweep else []
    data |= {"attempts": attempts} if attempts else {}
    if output is not None:
        whole = format_ == "json" and ending == ".json"
        write_text(
            output, json.dumps(variables.shown_result(data), indent=2) + "\n" if whole else variables.shown_result(text)
        )
        streams.note(f"wrote {output}")
    result(format_, {**data, "path": output and str(output)}, "" if output else text.rstrip("\n"))


def _way(loaded: Loaded, text: str) -> list[dict[str, Any]]:
    """Return the way to a version of a model, from the jobs in all regions of the project file."""
    vertex, entries = remote.service(loaded), loaded.project.entries.values()
    others = {str(one["region"]) for run in entries for one in run.candidates if "region" in one} - {vertex.region}
    vertices = [vertex, *map(vertex.in_region, sorted(others))]
    return way.trace(way.version_of(ModelsClient(vertex), text), vertices)


def _html(
    found: FoundJob,
    seen: Insight | None,
    workspace: Workspace,
    attempts: list[dict[str, Any]],
) -> str:
    own = found.record.name if found.record else found.job.labels.get(ENTRY_LABEL) or found.job.display_name
    verb, project = "rehearse" if found.record else "submit", workspace.loaded.project
    text = page(
        found.job,
        seen,
        cost=spent(found.job, workspace.catalog, factor=project.trigger.budget.price_factor),
        reproduction=reproduction(found.job, project=project.project, again=command_line(verb, own)),
        console=found.console,
        record=found.record,
        attempted=attempts,
    )
    # a rehearsal's messages name files of this machine; a page may be sent to others
    from markupsafe import escape

    folder = workspace.loaded.folder.resolve()
    return text.replace(f"{escape(str(folder))}/", "./") if found.record and folder.name else text
