"""`vertexrig explain`: the cluster a job makes, the environment of its replicas, its quota and its price."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import click

from vertexrig import files, spec
from vertexrig.cli import forecast, options, output, steps, streams, targets
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.tables import table
from vertexrig.explain import explanation as explain
from vertexrig.explain import picture as explain_text
from vertexrig.explain import simulate
from vertexrig.finding import Severity
from vertexrig.project import candidates
from vertexrig.spec.estimate import elsewhere, estimate
from vertexrig.spec.quota import draws
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
        document = workspace.read(rendered)
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
    ways = [] if is_file or one is not None else _ways(workspace, target, place)
    if format_ == "json":
        data = explain.data(found) if one is None else explain.replica_data(found, one)
        more = {"candidates": [asdict(way) for way in ways]} if ways else {}
        output.document().data.update(data | more | ({} if ahead is None else {"forecast": simulate.data(ahead)}))
    elif one is not None:
        output.say(_printable(explain_text.replica_text(found, one)), nl=False)
    else:
        # 80 where there is no terminal; wider than 120 the picture of the pools is harder to follow.
        width = shutil.get_terminal_size().columns
        text = explain_text.text(found, width=min(width, 120), today=date.today().isoformat())
        output.say(_printable(text), nl=False)
        if ahead is not None:
            output.say(_printable(f"\n{forecast.text(ahead)}"))
        if ways:
            output.say(_printable(f"\n{_ways_text(ways)}"))


@dataclass(frozen=True)
class _Way:
    """One way to run a job: as it stands, or on a candidate; None where no price is sourced, `left_out` why the budget gives it no job."""

    candidate: int
    changes: str
    region: str
    usd_per_hour: float | None
    usd_at_most: float | None
    complete: bool
    prices_of: str
    quota: str
    left_out: str

    def usd(self, amount: float | None, digits: int) -> str:
        """Return a price as the table shows it: a lower bound, or one of another region, is marked."""
        if amount is None:
            return "no sourced price"
        of = f" in {self.prices_of}" if self.prices_of != self.region else ""
        return f"{'' if self.complete else 'at least '}{amount:,.{digits}f}{of}"


def _ways(workspace: Workspace, name: str, place: str) -> list[_Way]:
    """Return a job or sweep as it stands and its candidates beside each other; nothing if it has none.

    Those that name no other region than the project's run in `place`.
    """
    prepared = workspace.prepare_all(name, check=False)
    if len(prepared) == 1:
        return []
    from vertexrig.submit import submission  # few jobs have candidates

    changes = ["", *map(candidates.told, workspace.loaded.runnable(name).candidates)]
    left_out = submission.left_out(prepared, workspace.loaded.project.trigger.budget)
    found = []
    for one, changed in zip(prepared, changes, strict=True):
        project, catalog = one.workspace.loaded.project, one.workspace.catalog
        region = place if project.region == workspace.loaded.project.region else project.region
        own = estimate(one.document, catalog)
        price = elsewhere(own, region, project.trigger.budget.price_factor)
        per_hour, at_most = (price.usd_per_hour or None, price.usd_at_most or None)
        drawn = ", ".join(
            f"{draw.amount} {draw.unit if draw.amount != 1 else draw.unit.removesuffix('s')} of {draw.item}"
            + " (preemptible)" * draw.preemptible
            for draw in draws(one.document, catalog, region)
        )
        why = left_out.get(one.candidate, "")
        found.append(_Way(one.candidate, changed, region, per_hour, at_most, own.complete, price.region, drawn, why))
    return found


def _ways_text(ways: list[_Way]) -> str:
    rows = [
        (
            str(way.candidate),
            way.changes or "as it stands",
            way.region,
            way.usd(way.usd_per_hour, 4),
            way.usd(way.usd_at_most, 2),
            way.quota or "none",
        )
        for way in ways
    ]
    shown = table(("candidate", "changes", "region", "USD per hour", "USD at most", "quota drawn"), rows)
    return "\n".join(
        [shown, *(f"candidate {way.candidate} gets no job: {way.left_out}" for way in ways if way.left_out)]
    )


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
