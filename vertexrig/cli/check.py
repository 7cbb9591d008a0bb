"""`vertexrig check`: the project's jobs, or any YAML for gcloud from anywhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import click

from vertexrig import config, spec
from vertexrig.cli import options, show
from vertexrig.errors import FindingsError, UsageError
from vertexrig.finding import Finding, Severity
from vertexrig.project import Project
from vertexrig.workspace import Workspace

KINDS = {"custom-job": "CustomJobSpec", "hp-tuning-job": "HyperparameterTuningJob"}


@click.command("check")
@click.argument("targets", nargs=-1, metavar="[NAME | FILE]...")
@options.file_option
@options.set_option
@options.templates_option
@options.info_option
@click.option("--kind", type=click.Choice(list(KINDS)), help="Take files for this kind; by default their keys decide.")
@click.option("--region", help="Region the files are for; the project's by default.")
@click.option("--trainer", type=click.Path(path_type=Path), help="Trainer folder to hold the files against.")
@options.format_option("text", "json", "sarif")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def command(
    targets: tuple[str, ...],
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
    files = [target for target in targets if _is_file(target)]
    names = [target for target in targets if target not in files]
    target = names[0] if len(names) == 1 else None
    loaded = _project(file, overrides, target, needed=bool(names) or not targets)
    workspace = Workspace(loaded, templates=templates, region=region, trainer=trainer)
    if not targets:
        names = [*workspace.loaded.project.jobs, *workspace.loaded.project.sweeps]
    found: list[Finding] = []
    sources = show.project_sources(workspace.loaded.file)
    for name in names:
        found += workspace.prepare(name).findings
    for path in files:
        text = _text(path)
        sources[path] = text
        document, findings = workspace.check_text(text, file=path, kind=_kind(kind))
        options.note(f"{path}: taken for a {document.kind}")
        found += findings
    show.findings(found, format_=format_, sources=sources, to_stdout=True, info=info)
    severities = {finding.severity for finding in found}
    if Severity.ERROR in severities or (strict and Severity.WARNING in severities):
        raise FindingsError(show.summary(found))


def _is_file(target: str) -> bool:
    return (
        target == "-"
        or "/" in target
        or "\\" in target
        or Path(target).suffix in (".yaml", ".yml", ".json")
        or Path(target).is_file()
    )


def _kind(kind: str | None) -> spec.Kind | None:
    return next((known for known in get_args(spec.Kind) if kind and known == KINDS[kind]), None)


def _text(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _project(file: Path | None, overrides: tuple[str, ...], target: str | None, *, needed: bool) -> config.Loaded:
    """The project, or an empty one when only files are checked and there is none."""
    try:
        return config.load(file, overrides=overrides, target=target)
    except UsageError:
        if needed or file is not None or overrides:
            raise
        return config.Loaded(Project(project="", region=""), Path(), {})
