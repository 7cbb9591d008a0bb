"""`vertexrig render`: YAML for gcloud, checked, and the commands that submit it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.checks.images import AVAILABILITY
from vertexrig.cli import creation, options, show, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result, say
from vertexrig.errors import FindingsError, UsageError
from vertexrig.files import write_text
from vertexrig.project import runs

if TYPE_CHECKING:
    from vertexrig.workspace import Prepared, Workspace

STDOUT = Path("-")


@click.command("render")
@click.argument("names", cls=NameArgument, nargs=-1, required=True, metavar="NAME...")
@options.project_options
@options.info_option
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="File to write; by default build/jobs/NAME.yaml. - is stdout.",
)
@click.option(
    "--run",
    "run_id",
    metavar="RUN_ID",
    default="",
    help="The run whose output folder the YAML gets, BUCKET/runs/NAME/RUN_ID; `new` makes one up. By default it gets "
    "BUCKET/runs/NAME, so that the file stays the same.",
)
@click.option("--check/--no-check", default=True, show_default=True, help="Check what was rendered.")
@options.format_option("text", "json")
def command(
    names: tuple[str, ...],
    project: options.ProjectOptions,
    info: bool,
    output: Path | None,
    run_id: str,
    check: bool,
    format_: str,
) -> None:
    """Write the YAML of job or sweep NAME, check it, and print the commands that upload its package and submit it.

    gcloud creates each job from the file as it is: two jobs of one file share an output folder. `--run new` before each, or
    `vertexrig submit`, gives every run its own. Findings go to stderr. With one of severity error the YAML is still
    written, no command is printed, and the exit code is 1. Candidates are written beside it, as NAME.2.yaml and so on;
    stdout has the commands of the job as it stands, stderr theirs.
    """
    if output is not None and len(names) > 1:
        raise UsageError(f"--output takes one job; {len(names)} were named")
    workspace = project.workspace(names[0] if len(names) == 1 else None)
    run_id = runs.new_run_id() if run_id == "new" else run_id
    if output is not None:  # one file: without the candidates
        prepared = [workspace.prepare(name, check=check) for name in names]
    else:
        prepared = [one for name in names for one in workspace.prepare_all(name, check=check)]
    if run_id:
        for one in prepared:
            runs.must_be_own(one.view, run_id)
        prepared = [one.in_run(run_id) for one in prepared]
    rows = [_write(workspace, one, output) for one in prepared]
    if format_ == "text":
        for row in rows:
            if row["yaml"] is not None:
                say(row["yaml"].encode(), nl=False)  # YAML is UTF-8, whatever the terminal shows
    found = [finding for one in prepared for finding in one.findings]
    if check:
        show.findings(found, sources=workspace.loaded.sources, info=info)
    else:
        streams.note("not checked")
    # the finding about the newest image is a note, which is shown with --info only
    if past := _past_availability(workspace, prepared):
        build = "IMAGE=build" if "${IMAGE:-" in workspace.loaded.text else f"image: build in {workspace.loaded.file}"
        streams.note(
            f"image: {past} is past its end of availability, and Vertex AI may refuse it; {build} takes one of your own"
        )
    written = [(one, Path(row["path"])) for one, row in zip(prepared, rows, strict=True) if one.ok and row["path"]]
    lines = creation.commands([pair for pair in written if pair[0].candidate == 1])
    for one, path in written:
        if one.candidate > 1:
            own = "\n".join(creation.commands([(one, path)]))
            streams.note(f"{one.title}, in place of {one.view.name} once that has ended:\n{own}")
    data = {"jobs": rows, "commands": lines, "checked": check, "findings": show.rows(found)}
    result(format_, data, "\n".join(lines))
    failed = [one.title for one in prepared if not one.ok]
    if failed:
        raise FindingsError(f"{', '.join(failed)} would fail: see above")


def _write(workspace: Workspace, one: Prepared, output: Path | None) -> dict[str, Any]:
    """Write one YAML, or keep it for stdout; its row of the answer, with a command if nothing is wrong with it."""
    name = one.view.name
    folder = workspace.loaded.folder
    path = output or folder / f"build/jobs/{name if one.candidate == 1 else f'{name}.{one.candidate}'}.yaml"
    row: dict[str, Any] = {"name": name, "candidate": one.candidate, "kind": one.document.kind}
    row |= {"path": None, "command": None, "yaml": None}
    if path == STDOUT:
        return row | {"yaml": one.rendered.text}
    write_text(path, one.rendered.text, below=None if output else folder)
    streams.note(f"wrote {path}")
    streams.note(f"output: {_output(one)}")
    return row | {"path": str(path), "command": creation.commands([(one, path)])[-1] if one.ok else None}


def _past_availability(workspace: Workspace, prepared: Sequence[Prepared]) -> str:
    """Return the prebuilt images of jobs that do not silence it, each with its date, that are past their end of availability."""
    uris = [
        pool.image_uri
        for one in prepared
        if AVAILABILITY not in workspace.silences(one.view.name)
        for pool in one.view.pools.values()
        if pool is not None
    ]
    rows = [workspace.catalog.image(uri) for uri in dict.fromkeys(uris)]
    today = date.today().isoformat()
    past = [row for row in rows if row is not None and row.end_of_availability <= today]
    # an image has a row for each part of the world
    return ", ".join(dict.fromkeys(f"{row.name} ({row.end_of_availability})" for row in past))


def _output(prepared: Prepared) -> str:
    """Return the output folder of a job that gcloud creates from the YAML."""
    view, uri = prepared.view, prepared.document.output
    if not uri:
        return "none"
    return (
        uri if view.run_id or not view.own_runs else f"{uri} for every job from this file; --run new gives it its own"
    )
