"""`vertexrig render`: YAML for gcloud, checked, and the commands that submit it."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, show, steps
from vertexrig.errors import FindingsError, UsageError
from vertexrig.files import write_text

STDOUT = Path("-")


@click.command("render")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.file_option
@options.set_option
@options.templates_option
@options.info_option
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="File; build/jobs/NAME.yaml by default, - for stdout."
)
@click.option("--check/--no-check", default=True, show_default=True, help="Check what was rendered.")
def command(
    names: tuple[str, ...],
    file: Path | None,
    overrides: tuple[str, ...],
    templates: Path | None,
    info: bool,
    output: Path | None,
    check: bool,
) -> None:
    """Write the YAML of job or sweep NAME, check it, and print the commands that upload its package and submit it.

    Findings go to stderr. With one of severity error the YAML is still written, no command is printed, and the exit
    code is 1.
    """
    if output is not None and len(names) > 1:
        raise UsageError(f"--output takes one job; {len(names)} were named")
    workspace = options.workspace(file, overrides, names[0] if len(names) == 1 else None, templates)
    prepared = [workspace.prepare(name, check=check) for name in names]
    written = []
    for one in prepared:
        name = one.rendered.view.name
        path = output or workspace.loaded.path(f"build/jobs/{name}.yaml")
        if path == STDOUT:
            click.echo(one.rendered.text, nl=False)
            continue
        write_text(path, one.rendered.text)
        options.note(f"wrote {path}")
        if one.ok:
            written.append((one, path))
    found = [finding for one in prepared for finding in one.findings]
    show.findings(found, sources=show.project_sources(workspace.loaded.file), info=info)
    for line in steps.on_vertex(workspace, written, file, overrides):
        click.echo(line)
    failed = [one.rendered.view.name for one in prepared if not one.ok]
    if failed:
        raise FindingsError(f"{', '.join(failed)} would fail: see above")
