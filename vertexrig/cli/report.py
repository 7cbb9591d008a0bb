"""`vertexrig report`: a job as a Markdown or an HTML page."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import click

from vertexrig.cli import climbing, extras, options, remote, streams, studied
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.remote import FoundJob
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.errors import UsageError
from vertexrig.files import write_bytes, write_text
from vertexrig.results import trials
from vertexrig.spec.labels import RUN_LABEL
from vertexrig.studies import chain as chains
from vertexrig.studies import drawing, report
from vertexrig.studies.chain import Link, StudyChain
from vertexrig.studies.cost import Spent, spent
from vertexrig.studies.html import Insight, insight, page
from vertexrig.studies.reproduce import Reproduction, reproduction
from vertexrig.text import command_line

HTML = (".html", ".htm")
_TEXT = ("", ".md", ".markdown", ".txt")


@click.command("report")
@click.argument("job", cls=NameArgument)
@options.where_options
@studied.chain_option
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="File to write; by default stdout. NAME.html makes it HTML, NAME.json with --format json the JSON.",
)
@click.option("--figures", type=click.Path(path_type=Path, file_okay=False), help="Folder for the charts as PNG files.")
@options.format_option("markdown", "json", "html")
def command(
    job: str, where: options.WhereOptions, chain: bool, output: Path | None, figures: Path | None, format_: str
) -> None:
    """Write JOB (name, number, resource name, or a rehearsal's run) as a page: how it went, and a sweep's trials.

    As HTML it is one file that loads nothing from the network, with charts, the cost as an estimate, and the commands that
    create the job again. With `--chain` the studies that a sweep follows are on it, too. `--figures` also writes each chart
    as PNG. HTML and figures need the extra `report`.
    """
    _must_be_a_page(output)
    html = _is_html(format_, output)
    if html or figures is not None:
        extras.need("vl_convert")  # first: its extra brings what the others need, too

    whole = _chain(where, job) if chain else None
    found = remote.find(where, job) if whole is None else whole[0]
    links = whole[1] if whole is not None else None
    tried = climbing.tries_of(options.workspace_of(where.file), found)
    seen = _insight(found, links) if html or figures is not None else None
    drawn = _drawn(seen) if figures is not None else []  # before anything is written
    text = _html(found, seen, where.file, links, tried) if html else _markdown(found, links, tried)
    data = {**_data(found, links), **({"tries": tried} if tried else {})}
    if figures is not None:
        data["figures"] = _write(drawn, figures)
    if output is not None:
        own = format_ == "json" and output.suffix.lower() == ".json"
        write_text(output, json.dumps(data, indent=2) + "\n" if own else text)
        streams.note(f"wrote {output}")
    result(format_, {**data, "path": output and str(output)}, "" if output else text.rstrip("\n"))


def _must_be_a_page(output: Path | None) -> None:
    """Refuse a file name that promises something else than a report is, unless the format is given."""
    given = click.get_current_context().get_parameter_source("format_")
    if output is None or given is not click.core.ParameterSource.DEFAULT:
        return
    if output.suffix.lower() not in (*HTML, *_TEXT):
        raise UsageError(
            f"{output}: a report is HTML or Markdown: name it {output.stem}.html or {output.stem}.md, or give --format"
        )


def _is_html(format_: str, output: Path | None) -> bool:
    """HTML if it is asked for, or if the file's name says so and no other text is asked for."""
    # `markdown` is the default: only where the person did not write it may the file's name decide.
    given = click.get_current_context().get_parameter_source("format_")
    if format_ == "html":
        return True
    asked = given is not click.core.ParameterSource.DEFAULT and format_ == "markdown"
    return output is not None and output.suffix.lower() in HTML and not asked


def _chain(where: options.WhereOptions, name: str) -> tuple[FoundJob, StudyChain]:
    """Return the last study of a chain as it was found, and the chain."""
    parts = studied.chain(where, name)
    links = (Link(part.sweep, RemoteJob(part.job), _spent(RemoteJob(part.job), where.file)) for part in parts)
    found = parts[-1].found or remote.FoundJob(RemoteJob(parts[-1].job))  # a file was not found anywhere
    return found, StudyChain(tuple(links))


def _spent(job: RemoteJob, file: Path | None) -> Spent:
    workspace = options.workspace_of(file)
    return spent(job, workspace.catalog, factor=workspace.loaded.project.trigger.budget.price_factor)


def _insight(found: FoundJob, chain: StudyChain | None) -> Insight | None:
    return insight(found.job, chain) if chain is not None or found.job.collection == TUNING else None


def _markdown(found: FoundJob, chain: StudyChain | None, tried: list[dict[str, Any]]) -> str:
    return report.page(found.job, found.console, found.record, tried) if chain is None else chains.page(chain)


def _data(found: FoundJob, chain: StudyChain | None) -> dict[str, Any]:
    """Return the report as JSON; of a chain, the job is the last one."""
    shown = found.job if chain is None else chain.study.job
    rows = trials.table(shown.data) if found.job.collection == TUNING else []
    data: dict[str, Any] = {"job": dict(found.job.data), "console": found.console or None, "trials": rows}
    return data if chain is None else {**data, "chain": chain.data()}


def _html(
    found: FoundJob,
    seen: Insight | None,
    file: Path | None,
    chain: StudyChain | None,
    tried: list[dict[str, Any]],
) -> str:
    loaded = options.workspace_of(file).loaded
    text = page(
        found.job,
        seen,
        cost=_spent(found.job, file),
        reproduction=_again(found, chain, loaded.project.project),
        console=found.console,
        record=found.record,
        chain=chain,
        tried=tried,
    )
    # a rehearsal's messages name files of this machine; a page may be sent to others
    folder = loaded.folder.resolve()
    return text.replace(f"{escape(str(folder))}/", "./") if found.record and folder.name else text


def _again(found: FoundJob, chain: StudyChain | None, project: str) -> list[Reproduction]:
    """Tell how to make the job again, or each of its chain."""
    own = found.record.name if found.record else found.job.labels.get(RUN_LABEL) or found.job.display_name
    jobs = [(own, found.job)] if chain is None else [(link.name, link.job) for link in chain.links]
    verb = "rehearse" if found.record else "submit"
    return [reproduction(job, project=project, again=command_line(verb, name)) for name, job in jobs]


def _drawn(seen: Insight | None) -> list[tuple[str, bytes]]:
    """Return the charts as PNG, by name."""
    if seen is None or not seen.charts.sections:
        raise UsageError("there is nothing to draw: a chart needs a sweep with at least one trial that has started")
    return list(drawing.figures(seen.charts))


def _write(drawn: list[tuple[str, bytes]], folder: Path) -> list[str]:
    """Write the charts, and name their files."""
    paths = [folder / f"{name}.png" for name, _ in drawn]
    for path, (_, png) in zip(paths, drawn, strict=True):
        write_bytes(path, png)
    streams.note(f"wrote {len(paths)} charts to {folder}")
    return [str(path) for path in paths]
