"""`vertexrig explain`: the cluster a job makes, the environment of its replicas, its quota and its price."""

from __future__ import annotations

import shutil
import sys
from datetime import date
from pathlib import Path

import click

from vertexrig import files, spec
from vertexrig.cli import forecast, options, output, steps, streams, targets
from vertexrig.cli.arguments import NameArgument
from vertexrig.explain import explanation as explain
from vertexrig.explain import picture as explain_text
from vertexrig.explain import simulate
from vertexrig.finding import Severity
from vertexrig.spec.estimate import elsewhere
from vertexrig.workspace import Workspace

# one character for one, so that boxes keep their edges; streams.prepare would write `...` for an ellipsis
_PLAIN = str.maketrans({**dict.fromkeys("┌┐└┘├┤┬┴┼", "+"), "─": "-", "│": "|", "×": "x", "…": "."})


@click.command("explain")
@click.argument("target", cls=NameArgument, metavar="NAME | FILE")
@options.project_options
@click.option(
    "--replica", metavar="NAME", help="Show everything this replica finds in its environment, such as workerpool1-0."
)
@click.option("--kind", type=click.Choice(list(targets.KINDS)), help="Kind of a file; by default its keys decide.")
@click.option("--region", metavar="REGION", help="Region the job runs in; the project's by default.")
@forecast.forecast_options
@options.format_option("text", "json")
def command(
    target: str,
    project: options.ProjectOptions,
    replica: str | None,
    kind: str | None,
    region: str | None,
    asked: forecast.ForecastOptions,
    format_: str,
) -> None:
    """Show what job or sweep NAME, or any YAML FILE that gcloud would take, makes on Vertex AI.

    A picture of the worker pools, then what runs in them, the environment of the replicas, the quota, and an estimate
    of the price. With `--trial-time` or `--learn-from` also an estimate of time and money, for several numbers of trials
    at a time. Nothing is checked: `vertexrig check` does that. `-` reads stdin.
    """
    is_file = options.is_file(target)
    workspace = targets.workspace(project, None if is_file else target, needed=not is_file)
    topology = ""
    if is_file:
        document = spec.parse(files.read_text(target), file=target, kind=targets.kind(kind))
        streams.note(f"{target}: read as a {document.kind}")
    else:
        rendered = workspace.renderer.render(target)
        topology = rendered.view.template
        document = spec.parse(rendered.text, file=target, kind=targets.kind(rendered.kind))
    place = region or workspace.loaded.project.region
    found = explain.explain(
        document, workspace.catalog, region=place, name="stdin" if target == "-" else target, topology=topology
    )
    errors = sum(finding.severity is Severity.ERROR for finding in document.findings)
    if errors:
        what = "error" if errors == 1 else "errors"
        shown_by = steps.line("check", target) if is_file else workspace.verb("check", target)
        streams.note(f"{target}: {errors} {what} in reading; what was refused is left out. `{shown_by}` shows it")
    one = found.replica(replica) if replica else None
    ahead = _ahead(project.file, workspace, document, found, place, asked)
    if format_ == "json":
        data = explain.data(found) if one is None else explain.replica_data(found, one)
        output.document().data.update(data | ({} if ahead is None else {"forecast": simulate.data(ahead)}))
    elif one is not None:
        output.say(_printable(explain_text.replica_text(found, one)), nl=False)
    else:
        # 80 where there is no terminal; wider than 120 the picture of the pools is harder to follow.
        width = shutil.get_terminal_size().columns
        text = explain_text.text(found, width=min(width, 120), today=date.today().isoformat())
        output.say(_printable(text), nl=False)
        if ahead is not None:
            output.say(_printable(f"\n{forecast.text(ahead)}"))


def _ahead(
    file: Path | None,
    workspace: Workspace,
    document: spec.Document,
    found: explain.Explanation,
    region: str,
    asked: forecast.ForecastOptions,
) -> simulate.Forecast | None:
    """Return the estimate of time and money that the options ask for."""
    factor = workspace.loaded.project.trigger.budget.price_factor
    # The catalog has the prices of one region: elsewhere they count with the project's factor, or there is no price.
    price = elsewhere(found.price, region or found.price.region, factor)
    return forecast.forecast(price, document, workspace.catalog, asked, file)


def _printable(text: str) -> str:
    """Return the text with what stdout cannot encode replaced: boxes are drawn with +, - and | then."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text
