"""`vertexrig explain`: show the cluster that a job creates, the environment of its replicas, its quota and its price."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from datetime import date

import click

from vertexrig import files, spec
from vertexrig.cli import next_commands, options, output, streams, targets
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.tables import table
from vertexrig.explain import explanation as explain
from vertexrig.explain import picture as explain_text
from vertexrig.finding import Severity
from vertexrig.project import candidates
from vertexrig.spec.estimate import elsewhere, estimate
from vertexrig.spec.quota import quota_needs
from vertexrig.workspace import Workspace


@click.command("explain")
@click.argument("target", cls=NameArgument, metavar="NAME | FILE")
@options.project_options
@click.option("--replica", metavar="NAME", help="Show the whole environment of one replica, such as workerpool1-0.")
@targets.kind_option
@targets.region_option
@options.format_option("text", "json")
def command(
    target: str,
    project: options.ProjectOptions,
    replica: str | None,
    kind: str | None,
    region: str | None,
    format_: str,
) -> None:
    """Show what job or sweep NAME, or any YAML FILE for gcloud, creates on Vertex AI; `-` is stdin.

    The result has a picture of the worker pools, what runs in them, the environment of the replicas, the quota that the job
    needs, and an estimate of the price. `explain` runs no checks; `vertexrig check` does.
    """
    is_file = options.is_file(target)
    workspace = targets.workspace(project, None if is_file else target, needed=not is_file)
    targets.check_region(region, workspace.catalog)
    if is_file:
        targets.check_overrides(project.overrides, target)
    topology = ""
    if is_file:
        document = spec.parse(files.read_text(target), file=target, kind=targets.kind(kind))
        streams.note(f"{target}: read as a {document.kind}")
    else:
        rendered = workspace.renderer.render(target)
        topology = rendered.view.topology
        document = rendered.document
    here = region or workspace.loaded.project.region
    found = explain.explain(
        document, workspace.catalog, region=here, name="stdin" if target == "-" else target, topology=topology
    )
    errors = sum(finding.severity is Severity.ERROR for finding in document.findings)
    if errors:
        check = next_commands.line("check", target) if is_file else workspace.command_line("check", target)
        count = "1 error" if errors == 1 else f"{errors} errors"
        streams.note(
            f"{target} has {count} that `explain` cannot read. Keys with an error are left out. To see the errors: `{check}`"
        )
    one = found.replica(replica) if replica else None
    rows = [] if is_file or one is not None else _candidates(workspace, target, here)
    if format_ == "json":
        data = explain.data(found) if one is None else explain.replica_data(found, one)
        more = {"candidates": [asdict(row) for row in rows]} if rows else {}
        output.document().data.update(data | more)
        return
    if one is not None:
        output.say(explain_text.replica_text(found, one), nl=False)
        return
    # 80 columns where there is no terminal; wider than 120 the picture of the pools is harder to follow
    width = min(shutil.get_terminal_size().columns, 120)
    output.say(explain_text.text(found, width=width, today=date.today().isoformat()), nl=False)
    if rows:
        headings = ("candidate", "changes", "region", "USD per hour", "USD at most", "quota needed")
        lines = [table(headings, [row.cells() for row in rows])]
        lines += [f"candidate {row.candidate} gets no job: {row.left_out}" for row in rows if row.left_out]
        output.say("\n" + "\n".join(lines))


@dataclass(frozen=True)
class _Candidate:
    """A candidate's price and quota; candidate 1 is the job unchanged. A price without a source is None.

    Args:
        left_out: Why the budget lets it start no job, "" if it does.
    """

    candidate: int
    changes: str
    region: str
    usd_per_hour: float | None
    usd_at_most: float | None
    complete: bool
    prices_of: str
    quota: str
    left_out: str

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table; a price that is a lower bound, or of another region, is marked."""
        least = "" if self.complete else "at least "
        of = f" ({self.prices_of} price)" if self.prices_of != self.region else ""
        prices = [
            "price unknown" if usd is None else f"{least}{usd:,.{digits}f}{of}"
            for usd, digits in ((self.usd_per_hour, 4), (self.usd_at_most, 2))
        ]
        return (str(self.candidate), self.changes or "unchanged", self.region, *prices, self.quota or "none")


def _candidates(workspace: Workspace, name: str, here: str) -> list[_Candidate]:
    """Return the candidates of a job or sweep, the first of them unchanged; none if it has no others.

    A candidate that names no region runs in `here`.
    """
    prepared = workspace.prepare_candidates(name, check=False)
    if len(prepared) == 1:
        return []
    from vertexrig.submit import submission  # few jobs have candidates

    changes = ["", *map(candidates.summary, workspace.loaded.runnable(name).candidates)]
    left_out = submission.left_out(prepared, workspace.loaded.project.trigger.budget)
    found = []
    for one, changed in zip(prepared, changes, strict=True):
        project, catalog = one.workspace.loaded.project, one.workspace.catalog
        region = here if project.region == workspace.loaded.project.region else project.region
        own = estimate(one.document, catalog)
        price = elsewhere(own, region, project.trigger.budget.price_factor)
        per_hour, at_most = (price.usd_per_hour or None, price.usd_at_most or None)
        needed = ", ".join(
            f"{need.amount} {need.unit if need.amount != 1 else need.unit.removesuffix('s')} of {need.item}"
            + " (preemptible)" * need.preemptible
            for need in quota_needs(one.document, catalog, region)
        )
        why = left_out.get(one.candidate, "")
        found.append(
            _Candidate(one.candidate, changed, region, per_hour, at_most, own.complete, price.region, needed, why)
        )
    return found
