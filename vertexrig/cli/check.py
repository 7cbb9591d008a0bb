"""`vertexrig check`: the project's jobs, or any YAML for gcloud from anywhere."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, output, show, targets
from vertexrig.errors import FindingsError
from vertexrig.finding import Finding, Severity


@click.command("check")
@click.argument("wanted", nargs=-1, metavar="[NAME | FILE]...")
@options.file_option
@options.set_option
@options.templates_option
@options.info_option
@click.option(
    "--kind", type=click.Choice(list(targets.KINDS)), help="Take files for this kind; by default their keys decide."
)
@click.option("--region", help="Region the files are for; the project's by default.")
@click.option("--trainer", type=click.Path(path_type=Path), help="Trainer folder to hold the files against.")
@options.format_option("text", "json", "sarif")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def command(
    wanted: tuple[str, ...],
    file: Path | None,
    overrides: tuple[str, ...],
    templates: Path | None,
    info: bool,
    kind: str | None,
    region: str | None,
    trainer: Path | None,
    format_: str,
    strict: bool,
) -> None:
    """Check jobs and sweeps by NAME, or any YAML FILE that gcloud would take; without either, all of the project.

    Each file is taken for a custom job or a tuning job by its keys; which one is said on stderr. `-` reads stdin.
    The exit code is 1 if anything of severity error is found.
    """
    files = [target for target in wanted if targets.is_file(target)]
    names = [target for target in wanted if target not in files]
    workspace = targets.workspace(
        file,
        overrides,
        names[0] if len(names) == 1 else None,
        templates,
        needed=bool(names) or not wanted,
        region=region,
        trainer=trainer,
    )
    if not wanted:
        names = [*workspace.loaded.project.jobs, *workspace.loaded.project.sweeps]
    found: list[Finding] = []
    sources = show.project_sources(workspace.loaded.file)
    for name in names:
        found += workspace.prepare(name).findings
    for path in files:
        text = sources[path] = targets.read(path)
        document, findings = workspace.check_text(text, file=path, kind=targets.kind(kind))
        options.note(f"{path}: taken for a {document.kind}")
        found += findings
    if format_ == "sarif":
        output.say(show.sarif(found), nl=False)
    elif format_ == "json":
        output.document().data["findings"] = show.rows(found)
    else:
        show.findings(found, sources=sources, info=info, err=False)
    severities = {finding.severity for finding in found}
    if Severity.ERROR in severities or (strict and Severity.WARNING in severities):
        raise FindingsError(show.summary(found))
