"""`python -m tools.fidelity`, or `make fidelity`: hold the local Vertex, or the real service, against what the service was seen to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localvertex import server, state
from vertexrig import files, times
from vertexrig.cli import options, streams
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.errors import FindingsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.fidelity.manifest import Manifest
    from tools.fidelity.prices import Creation
    from tools.fidelity.score import AreaScore
    from tools.fidelity.scripts import ScriptRecord
    from tools.fidelity.target import Target
    from tools.fidelity.tries import Tried

_BUDGET = 5.0
_MEMORY = 400 * 1024 * 1024
"""Bytes that a replica may take on the server that is started here: one row has a replica that takes more."""


@click.command("fidelity")
@click.option("--area", "areas", multiple=True, metavar="AREA", help="Only the rows of an area, such as `study`.")
@click.option(
    "--row", "ids", multiple=True, metavar="ROW", help="Only this row, or those that a pattern such as `state-*` fits."
)
@click.option(
    "--root", type=click.Path(path_type=Path), help="Folder of a running server to try; by default one is started."
)
@click.option(
    "--against", type=click.Choice(["local", "cloud"]), default="local", show_default=True, help="What to try."
)
@click.option("--project", metavar="ID", help="Google Cloud project, with --against cloud.")
@click.option(
    "--region", metavar="REGION", default="us-central1", show_default=True, help="Region, with --against cloud."
)
@click.option(
    "--bucket",
    metavar="BUCKET",
    help="Bucket for packages and outputs, with --against cloud; by default gs://PROJECT-vertexrig.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=_BUDGET,
    show_default=True,
    help="US dollars that it may cost at most, with --against cloud.",
)
@click.option("--dry-run", is_flag=True, help="Only print what it would create, and the estimate.")
@click.option(
    "--recording", type=click.Path(path_type=Path), metavar="FILE", help="Write every request with its answer, blanked."
)
@click.option(
    "--replay",
    "replayed",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="In place of rows, send a recording's requests again and compare the answers.",
)
@click.option("--manifest", type=click.Path(path_type=Path), metavar="FOLDER", help="Rows to try in place of our own.")
@click.option("--accept", is_flag=True, help="Write the result into the manifest's score.json, for the page.")
@options.format_option("text", "json")
def command(
    areas: tuple[str, ...],
    ids: tuple[str, ...],
    root: Path | None,
    against: str,
    project: str | None,
    region: str,
    bucket: str | None,
    budget: float,
    dry_run: bool,
    recording: Path | None,
    replayed: Path | None,
    manifest: Path | None,
    accept: bool,
    format_: str,
) -> None:
    """Try every row of the manifest: requests, answers, states, logs, errors, as the real service was seen to do them.

    A row that differs is shown with what was expected and what was seen. With --against cloud the rows are tried on
    Vertex AI with your credentials, which creates jobs and costs money; what would cost more than --budget is refused.
    """
    from vertexrig.cli import extras

    extras.need("starlette", "requests")  # the local extra brings both
    from tools.fidelity import prices, tries
    from tools.fidelity.manifest import load
    from tools.fidelity.score import moved

    if replayed is not None:
        _replay(format_, replayed, _target(against, project, region, bucket, root))
        return
    held = load(manifest)
    rows = held.chosen(areas, ids)
    if accept and (areas or ids or against == "cloud"):  # a score of some rows would replace that of all on the page
        raise UsageError(
            "--accept writes the result of all rows on the local Vertex: leave --area, --row and --against out"
        )
    made = prices.creations(held, rows, region)
    if dry_run:
        _show_plan(format_, made)
        return
    if against == "cloud":
        _check_budget(made, budget)  # before anything is created
    with _target(against, project, region, bucket, root) as target:
        outcome = tries.conform(held, rows, target, _report)
    if recording is not None:
        files.write_text(recording, tries.recording(outcome.exchanges))
        streams.note(f"wrote {files.typed(recording)}")
    changed = moved(held, outcome.verdicts)
    streams.note(
        "no row has moved since the accepted result"
        if not changed
        else "moved since the accepted result:\n  " + "\n  ".join(changed)
    )
    if accept:
        _accept(held, outcome)
    _conclude(format_, held, outcome, strict=against == "cloud", accepted=accept)


def _conclude(format_: str, held: Manifest, outcome: Tried, *, strict: bool, accepted: bool) -> None:
    """Print the score; with rows that differ and no decision about them (with `strict`, any that differ) it fails."""
    from tools.fidelity.score import by_evidence, document, scores, side_by_side

    differing = [one for one in outcome.verdicts if one.result == "differs"]
    text = "\n\n".join(
        [*map(side_by_side, differing), _table([*by_evidence(outcome.verdicts), *scores(outcome.verdicts)])]
    )
    result(format_, document(held, outcome.verdicts), text)
    # A decision excuses the local Vertex for a difference; the service is not excused from what it was seen to do.
    unknown = [one.row.id for one in differing if strict or not held.decided(one.row.id)]
    if unknown and not accepted:
        raise FindingsError(
            f"{len(unknown)} rows differ, and decisions.jsonl says nothing about them: {', '.join(unknown[:10])}"
            + (" …" if len(unknown) > 10 else "")
        )


def _replay(format_: str, file: Path, where: AbstractContextManager[Target]) -> None:
    """Send a recording again, and show where the answers differ."""
    from tools.fidelity import replay
    from tools.fidelity.judge import short

    lines = replay.read(file)
    with where as target:
        found = replay.replay(lines, target)
    shown = [
        f"{files.typed(file)}:{one.line} {one.request}: {one.place}\n  recorded  {short(one.recorded)}\n  seen      {short(one.seen)}"
        for one in found.differs
    ]
    summary = f"{found.made} requests sent again, {len(found.left_out)} left out, {len(found.differs)} places differ"
    data = {"made": found.made, "left_out": list(found.left_out), "differs": [asdict(one) for one in found.differs]}
    result(format_, data, "\n\n".join([*shown, summary]))
    if found.differs:
        raise FindingsError(f"{len(found.differs)} places of the answers are not as recorded")


def _report(name: str, record: ScriptRecord) -> None:
    streams.note(f"{name}: {record.broken or record.missing or 'done'}")


def _table(found: Sequence[AreaScore]) -> str:
    rows = ([one.area, one.rows, one.same, one.differs, one.not_tried, _percent(one.percent)] for one in found)
    return table(["score of", "rows", "same", "differs", "not tried", "score"], rows)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def _show_plan(format_: str, made: Sequence[Creation]) -> None:
    data = [
        {"script": one.script, "what": one.what, "jobs": one.jobs, "usd_at_most": round(one.usd, 4)} for one in made
    ]
    usd = sum(one.usd for one in made)
    rows = [[one.script, one.what, one.jobs, f"{one.usd:.2f}"] for one in made]
    text = table(
        ["script", "creates", "jobs at most", "USD at most"],
        [*rows, ["all", "", sum(o.jobs for o in made), f"{usd:.2f}"]],
    )
    result(
        format_, {"creates": data, "usd_at_most": round(usd, 4), "complete": all(one.complete for one in made)}, text
    )
    streams.note("every job is priced until its timeout of 10 minutes; most end after about 4")


def _check_budget(made: Sequence[Creation], budget: float) -> None:
    usd = sum(one.usd for one in made)
    if not all(one.complete for one in made):
        streams.note("warning: the catalog has no prices for this region: the rows may cost more than its sums")
    if usd > budget:
        raise UsageError(
            f"the rows would cost up to {usd:.2f} USD, and --budget is {budget:.2f}; choose rows with --area or --row, "
            "or raise --budget; --dry-run shows what is created"
        )


@contextmanager
def _target(against: str, project: str | None, region: str, bucket: str | None, root: Path | None) -> Iterator[Target]:
    """Provide the real service, a running server, or one that is started for as long as this lasts."""
    from localvertex.front import control
    from tools.fidelity import target

    if against == "cloud":
        if not project:
            raise UsageError("--against cloud needs --project: whose Vertex AI to try")
        yield target.cloud(project, region, (bucket or f"{project}-vertexrig").removeprefix("gs://").strip("/"))
        return
    if root is not None:
        here = state.find(root)
        if here is None:
            raise UsageError(f"no local Vertex is running for {root}; leave --root out, and one is started")
        control.make_bucket(here, _BUCKET)
        yield target.local(here, _BUCKET)
        return
    with starting() as started:
        yield started


@contextmanager
def starting() -> Iterator[Target]:
    """Provide a local Vertex of its own, in this process."""
    import tempfile

    from localvertex.front import control
    from localvertex.jobs.settings import PENDING_FOR_S, QUEUED_FOR_S, Settings
    from localvertex.runner import RunOptions
    from localvertex.runner.children import can_show_buckets
    from tools.fidelity import target
    from vertexrig.project.local import LocalImage

    with tempfile.TemporaryDirectory(prefix="vertexrig-fidelity-") as folder:
        image = Path(folder) / "image"
        image.mkdir()
        run = RunOptions(
            grace=0.5,
            images={"*/vertex-ai/training/tf-*": LocalImage(str(image), ())},
            memory_limit=_MEMORY,
            keep_gs=can_show_buckets(),  # as `local up` has it
        )
        # Longer than `local up` has it: what looks at a job that is QUEUED shares the machine with the jobs of other rows.
        with server.running(
            Settings(
                Path(folder) / "state", slots=8, options=run, pending_for=PENDING_FOR_S, queued_for=4 * QUEUED_FOR_S
            )
        ) as started:
            control.make_bucket(started, _BUCKET)
            yield target.local(started, _BUCKET)


_BUCKET = "fidelity-bucket"


def _accept(held: Manifest, outcome: Tried) -> None:
    """Keep the result beside the rows; the page is made from it."""
    from tools.fidelity.score import accepted

    path = held.folder / "score.json"
    today = f"{times.now():%Y-%m-%d}"
    files.write_text(path, json.dumps(accepted(held, outcome.verdicts, today), indent=1, ensure_ascii=False) + "\n")
    streams.note(f"wrote {files.typed(path)}")
