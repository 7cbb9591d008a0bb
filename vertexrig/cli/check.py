"""`vertexrig check`: the project's jobs, or any YAML for gcloud from anywhere; and the list of rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vertexrig import files
from vertexrig.checks.workspace import Workspace
from vertexrig.cli import options, output, show, steps, streams, targets
from vertexrig.cli.tables import table
from vertexrig.errors import FindingsError, UsageError
from vertexrig.finding import Finding, Severity
from vertexrig.project.overrides import check_rules
from vertexrig.spec.reading import unreadable


@click.command("check")
@click.argument("wanted", nargs=-1, metavar="[NAME | FILE]...")
@options.file_option
@options.set_option
@options.templates_option
@options.info_option
@click.option("--kind", type=click.Choice(list(targets.KINDS)), help="Kind of the files; by default their keys decide.")
@click.option("--region", metavar="REGION", help="Region the files are for; the project's by default.")
@click.option("--trainer", type=click.Path(path_type=Path), help="Trainer folder that the files must fit.")
@options.format_option("text", "json", "sarif")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option("--list-rules", is_flag=True, help="Print every rule: id, severity, what holds; check nothing.")
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
    list_rules: bool,
) -> None:
    """Check jobs and sweeps by NAME, or any YAML FILE that gcloud would take; without either, all of the project.

    The keys of a file decide whether it is a custom job or a tuning job; stderr names which. Of a project file,
    such as vertexrig.yaml, all jobs and sweeps are checked. `-` reads stdin. The exit code is 1 if anything of severity
    error is found.
    """
    if list_rules:
        if wanted or format_ == "sarif":
            raise UsageError("--list-rules checks nothing: leave out NAME and FILE, and print it as text or json")
        _list_rules(format_)
        return
    paths = [target for target in wanted if options.is_file(target)]
    names = [target for target in wanted if target not in paths]
    one, needed = names[0] if len(names) == 1 else None, bool(names) or not wanted
    workspace = targets.workspace(file, overrides, one, templates, needed=needed, region=region, trainer=trainer)
    found = _found(workspace, names if wanted else _of_project(workspace))
    sources = show.project_sources(workspace.loaded.file)
    for path in paths:
        try:
            sources[path] = files.read_text(path)
        except UsageError as error:
            if len(wanted) == 1:
                raise
            found.append(unreadable(path, str(error)))  # and the others are checked
            continue
        # A project file given as FILE is not itself YAML for gcloud: what it renders to is checked.
        own = targets.project(sources[path], path, overrides)
        if own is None:
            found += _file(workspace, path, sources[path], kind, propose=trainer is not None)
        else:
            other = Workspace(own, templates=templates, region=region, trainer=trainer, program=steps.program())
            names = _all_names(other)
            streams.note(f"{path}: a project file: checked {', '.join(names) or 'nothing, since it has no jobs'}")
            found += _found(other, names)
    _report(found, format_, sources, info=info, strict=strict)


def _of_project(workspace: Workspace) -> list[str]:
    """All that a project has to be checked, once its trigger's rules hold: the function would refuse to start with others."""
    check_rules(workspace.loaded)
    names = _all_names(workspace)
    if not names:
        streams.note(f"{workspace.loaded.file} has no jobs and no sweeps: nothing is checked")
    return names


def _all_names(workspace: Workspace) -> list[str]:
    return [*workspace.loaded.project.jobs, *workspace.loaded.project.sweeps]


def _found(workspace: Workspace, names: Sequence[str]) -> list[Finding]:
    """The findings of jobs and sweeps of a project."""
    return [finding for name in names for finding in workspace.prepare(name).findings]


def _report(found: list[Finding], format_: str, sources: dict[str, str], *, info: bool, strict: bool) -> None:
    """Print findings; FindingsError if one is of severity error, or with `strict` a warning."""
    if format_ == "sarif":
        output.say(show.sarif(found), nl=False)
    elif format_ == "json":
        output.document().data["findings"] = show.rows(found)
    else:
        show.findings(found, sources=sources, info=info, err=False)
    severities = {finding.severity for finding in found}
    if Severity.ERROR in severities or (strict and Severity.WARNING in severities):
        raise FindingsError("" if format_ == "text" else show.summary(found))  # as text it ends with the count


def _file(workspace: Workspace, path: str, text: str, kind: str | None, *, propose: bool) -> list[Finding]:
    """What there is to report about a YAML file; with `propose`, also the lines that map its image to the trainer's folder."""
    document, found = workspace.check_text(text, file=path, kind=targets.kind(kind))
    if document.data:
        streams.note(f"{path}: read as a {document.kind}")
    proposed = workspace.proposed_image(document) if propose else ""
    if proposed:
        place = "add to vertexrig.yaml"
        if not workspace.loaded.file.name:
            place, proposed = "write a vertexrig.yaml", f"project: my-project\nregion: us-central1\n{proposed}"
        streams.note(f"{path}: to rehearse its image on this machine, {place}:\n{proposed}")
    return found


def _list_rules(format_: str) -> None:
    rules = show.rules()
    rows = [(rule["id"], rule["severity"], rule["summary"]) for rule in rules]
    output.result(format_, {"rules": rules}, lambda: table(("id", "severity", "what holds"), rows))


@click.command("checks", hidden=True)
@options.format_option("text", "json")
def renamed_checks(format_: str) -> None:
    """List every rule, as `vertexrig check --list-rules` does."""
    streams.note(f"`checks` is now called `{steps.line('check', '--list-rules')}`")
    _list_rules(format_)
