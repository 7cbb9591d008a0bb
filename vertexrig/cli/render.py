"""`vertexrig render`: a job's YAML, checked, and the gcloud command that submits it."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, show
from vertexrig.errors import FindingsError
from vertexrig.files import write_text


@click.command("render")
@click.argument("name")
@options.file_option
@options.set_option
@options.templates_option
@options.info_option
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Where to; build/jobs/NAME.yaml by default, - for stdout."
)
@click.option("--check/--no-check", default=True, show_default=True, help="Check what was rendered.")
def command(
    name: str,
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
    workspace = options.workspace(file, overrides, name, templates)
    if check:
        prepared = workspace.prepare(name)
        rendered, findings, ok = prepared.rendered, prepared.findings, prepared.ok
    else:
        rendered, findings, ok = workspace.renderer.render(name), [], True
    if output is not None and str(output) == "-":
        click.echo(rendered.text, nl=False)
    else:
        path = output or workspace.loaded.path(f"build/jobs/{name}.yaml")
        write_text(path, rendered.text)
        options.note(f"wrote {path}")
    show.findings(findings, sources=show.project_sources(workspace.loaded.file), info=info)
    if not ok:
        raise FindingsError(f"{name} would fail: see above")
    if output is None or str(output) != "-":
        click.echo(rendered.shell_command(path))
