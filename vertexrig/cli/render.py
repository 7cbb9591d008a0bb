"""`vertexrig render`: write a job's YAML for gcloud, check it, and print the commands that submit it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.checks import formats
from vertexrig.checks.images import AVAILABILITY
from vertexrig.cli import creation, options, show, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result, say
from vertexrig.errors import FindingsError, UsageError
from vertexrig.files import write_text
from vertexrig.finding import Finding, Severity
from vertexrig.project import run_ids
from vertexrig.project.model import IMAGE_VARIABLE

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
    "output_file",
    type=click.Path(path_type=Path),
    help="File to write; by default build/jobs/NAME.yaml, or build/jobs/ENV/NAME.yaml. - is stdout.",
)
@click.option(
    "--run",
    "run_id",
    metavar="RUN_ID",
    default="",
    help="Put the output folder BUCKET/runs/NAME/RUN_ID into the YAML; `new` makes a new RUN_ID. The default output folder is "
    "BUCKET/runs/NAME.",
)
@click.option("--check/--no-check", default=True, show_default=True, help="Check the YAML.")
@options.format_option("text", "json")
def command(
    names: tuple[str, ...],
    project: options.ProjectOptions,
    info: bool,
    output_file: Path | None,
    run_id: str,
    check: bool,
    format_: str,
) -> None:
    """Write the YAML of job or sweep NAME, check it, and print the commands that upload its package and submit it.

    The commands go to stdout, findings to stderr. If there is a finding of severity error, the YAML is still written, the
    command of that job or candidate is not printed, and the exit code is 1.

    Two jobs that gcloud creates from the same file write into the same output folder. For a separate output folder, render with
    `--run new` before each job, or use `vertexrig submit`.

    If the job has candidates, their YAML is written to NAME.2.yaml, NAME.3.yaml and so on, and their commands go to stderr.
    With --output only the job itself is written.
    """
    if output_file is not None and len(names) > 1:
        raise UsageError(f"--output takes one job; {len(names)} were named")
    workspace = project.workspace(names[0] if len(names) == 1 else None)
    run_id = run_ids.new_run_id() if run_id == "new" else run_id
    prepared = [one for name in names for one in workspace.prepare_candidates(name, check=check)]
    if output_file is not None:  # one file: without the candidates
        prepared = prepared[:1]
    if run_id:
        for one in prepared:
            one.view.check_run_id(run_id)
        prepared = [one.in_run(run_id) for one in prepared]
    ready: list[tuple[Prepared, Path]] = []  # each job without an error, and the file its YAML was written to
    rows = []
    for one in prepared:
        path = None if output_file == STDOUT else _write(one, output_file)
        if path is None and format_ == "text":  # as JSON, the row has the YAML
            say(one.text.encode(), nl=False)  # YAML is UTF-8, whatever the terminal shows
        if path is not None and one.ok:
            ready.append((one, path))
        rows.append(_row(one, path))
    found = [finding for one in prepared for finding in one.findings]
    if check:
        show.findings(found, texts=workspace.loaded.texts, info=info)
    else:
        streams.note("not checked")
    if not info:
        # options for the command that `_switch` proposes; `Workspace.command_line` adds --file, --env and --set to it
        given = [
            *(["--output", output_file] if output_file is not None else []),
            *(["--run", run_id] if run_id else []),
        ]
        _note_availability(prepared, [*names, *given])
    commands = creation.commands([pair for pair in ready if pair[0].candidate == 1])
    data = {"jobs": rows, "commands": commands, "checked": check, "findings": formats.rows(found)}
    # these are commands to paste: `render` is not in `output.MASKED_VERBS`, so the values in them stay
    result(format_, data, "\n".join(commands))
    _note_candidates(ready)
    failed = [one.title for one in prepared if not one.ok]
    if failed:
        raise FindingsError(f"{', '.join(failed)} would fail: see above")


def _write(one: Prepared, output_file: Path | None) -> Path:
    """Write the YAML to `output_file`, by default to its file below build/jobs, print the file and the output folder, and return the file."""
    path = output_file or one.yaml_file
    write_text(path, one.text, below=None if output_file else one.workspace.loaded.folder)
    streams.note(f"wrote {path}")
    folder = one.document.output_folder
    shared = one.view.takes_run_id and not one.view.run_id
    more = ". Every job created from this file writes there; use `--run new` for a separate folder"
    streams.note(f"output folder: {folder or 'none'}{more if folder and shared else ''}")
    return path


def _row(one: Prepared, path: Path | None) -> dict[str, Any]:
    """Return a job as the JSON result has it: the file and the command that creates the job, or, for stdout, the YAML."""
    return {
        "name": one.view.name,
        "candidate": one.candidate,
        "kind": one.document.kind,
        "path": None if path is None else str(path),
        "command": None if path is None or not one.ok else creation.create_command(one, path),
        "yaml": one.text if path is None else None,
    }


def _note_candidates(ready: Sequence[tuple[Prepared, Path]]) -> None:
    """Print the commands of the candidates from 2 on, and after which candidate to run them."""
    # the candidate before, by the job's name; a candidate with errors is not in `ready`
    previous: dict[str, int] = {}
    for one, path in ready:
        name = one.view.name
        if one.candidate > 1:
            when = f"if candidate {previous[name]} gets no machines, run" if name in previous else "commands of"
            commands = "\n".join(creation.commands([(one, path)]))
            streams.note(f"{name}: {when} candidate {one.candidate}:\n{commands}", for_paste=True)
        previous[name] = one.candidate


def _note_availability(prepared: Sequence[Prepared], words: Sequence[object]) -> None:
    """Print which prebuilt images have passed their end-of-availability date, and how to build an image instead.

    These are findings of severity info, which the user does not see without --info.

    Args:
        words: The names and options of this `render`, for the command that renders again.
    """
    notes = (
        f"{finding.message}. To build your own image instead: {_switch(one.workspace, finding, words)}"
        for one in prepared
        for finding in one.findings
        if finding.id == AVAILABILITY and finding.severity is Severity.INFO
    )
    for note in dict.fromkeys(notes):
        streams.note(note)


def _switch(workspace: Workspace, finding: Finding, words: Sequence[object]) -> str:
    """Return what the user changes to build an image in place of the one that a finding is about."""
    if finding.given:
        key = re.sub(r"(container\.)?image_uri$", "image", finding.given.partition("=")[0])
        return f"replace `--set {shlex.quote(finding.given)}` with `--set {key}=build`"
    lines = workspace.loaded.text.splitlines()
    if finding.line and "${" + IMAGE_VARIABLE + ":-" in lines[finding.line - 1]:
        return f"`{workspace.command_line('render', *words, environ={IMAGE_VARIABLE: 'build'})}`"
    return f"write `image: build` in {workspace.loaded.file}"
