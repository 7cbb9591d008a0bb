"""`vertexrig render`: YAML for gcloud, checked, and the commands that submit it."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, show
from vertexrig.errors import FindingsError, UsageError
from vertexrig.files import write_text
from vertexrig.finding import Finding
from vertexrig.render import Rendered
from vertexrig.workspace import Workspace

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
    """Write the YAML of job or sweep NAME, check it, and print the gcloud command that submits it.

    Findings go to stderr. With one of severity error the YAML is still written, no command is printed, and the exit
    code is 1.
    """
    if output is not None and len(names) > 1:
        raise UsageError(f"--output takes one job; {len(names)} were named")
    workspace = options.workspace(file, overrides, names[0] if len(names) == 1 else None, templates)
    rendered, found, failed = _render(workspace, names, check=check)
    commands = []
    for one in rendered:
        path = output or workspace.loaded.path(f"build/jobs/{one.view.name}.yaml")
        if path == STDOUT:
            click.echo(one.text, nl=False)
            continue
        write_text(path, one.text)
        options.note(f"wrote {path}")
        if one.view.name not in failed:
            commands.append(one.shell_command(path))
    show.findings(found, sources=show.project_sources(workspace.loaded.file), info=info)
    for line in commands:
        click.echo(line)
    if failed:
        raise FindingsError(f"{', '.join(failed)} would fail: see above")


def _render(
    workspace: Workspace, names: tuple[str, ...], *, check: bool
) -> tuple[list[Rendered], list[Finding], list[str]]:
    """What was rendered, what was found in it, and the names that something of severity error was found in."""
    if not check:
        return [workspace.renderer.render(name) for name in names], [], []
    prepared = [workspace.prepare(name) for name in names]
    failed = [one.rendered.view.name for one in prepared if not one.ok]
    return [one.rendered for one in prepared], [finding for one in prepared for finding in one.findings], failed
