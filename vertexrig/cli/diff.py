"""`vertexrig diff`: show how a change of project file, templates or trainer changes each job; rehearse the changed jobs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.bring import revision
from vertexrig.cli import extras, next_commands, options, output, streams, targets
from vertexrig.errors import ConfigError, FindingsError, JobFailedError, UsageError, VertexrigError
from vertexrig.explain import change
from vertexrig.explain.change import Change
from vertexrig.finding import Severity
from vertexrig.project import config
from vertexrig.project.config import Loaded, ProjectOrigins
from vertexrig.project.model import Project
from vertexrig.text import clean, code, fenced, markdown, markup, shown
from vertexrig.workspace import Workspace, emulator

if TYPE_CHECKING:
    from vertexrig.results.rehearsal import Rehearsal


@click.command("diff")
@click.argument("rev", default="HEAD", metavar="[REV]")
@options.project_options
@options.variables_option
@click.option(
    "--rehearse", multiple=True, metavar="NAME", help="If this job or sweep changed, rehearse it at REV and now."
)
@click.option(
    "--rehearse-set",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key for these rehearsals, such as args.epochs=1.",
)
@options.format_option("text", "json", "markdown")
def command(
    rev: str, project: options.ProjectOptions, rehearse: tuple[str, ...], rehearse_set: tuple[str, ...], format_: str
) -> None:
    """Compare every job and sweep with its state at REV of the project's git repository, by default the last commit.

    For each changed job, the result has the changes of its YAML, its replicas, its quota, the price of a run and of a month of
    scheduled runs, and the new and removed findings. With --rehearse it also has the results of both rehearsals. The exit code is 1 if
    there is a new error, or if a rehearsal after the change fails.
    """
    workspace = project.workspace()
    for name in rehearse:
        workspace.loaded.runnable(name)
    with _earlier(workspace, project, rev) as before:
        found = list(change.changes(before, workspace))
        changed = [one for one in found if one.kind]
        ends = [
            (
                one.name,
                _end(before, one.name, rehearse_set) if one.before else None,
                _end(workspace, one.name, rehearse_set),
            )
            for one in changed
            if one.name in rehearse and one.after is not None
        ]
    env = workspace.loaded.env
    title = f"environment {env}\n\n" if env else ""
    data = {
        "revision": rev,
        "environment": env or None,
        "jobs": [change.data(one) for one in found],
        "rehearsals": [_row(*end) for end in ends],
    }
    if format_ == "markdown":
        output.say(title + comment(rev, changed, len(found), ends))
    else:
        output.result(format_, data, lambda: title + _text(rev, changed, len(found), ends))
    if any(after is None or not after.succeeded for _, _, after in ends):
        raise JobFailedError("a rehearsal after the change failed")
    if change.new_errors(changed):
        raise FindingsError("the change adds errors")


@contextmanager
def _earlier(workspace: Workspace, project: options.ProjectOptions, rev: str) -> Iterator[Workspace]:
    """Give the project of a revision while its files exist; a project without jobs if there was none."""
    folder = Path(tempfile.mkdtemp(prefix="vertexrig-"))
    try:
        try:
            here = revision.write(workspace.loaded.folder, rev, folder)
        except revision.NoRevisionError as error:
            if rev not in workspace.loaded.project.entries:
                raise
            raise UsageError(
                f"{error}. {rev} is a job or sweep: `diff` compares all of them, so leave it out"
            ) from None
        file, mistakes = here / workspace.loaded.file.name, list[ConfigError]()
        loaded = Loaded(Project(project="", region=""), file, ProjectOrigins(str(file)))
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            loaded = targets.project(text, str(file), project.overrides, mistakes) or loaded
        for one in mistakes:
            streams.note(f"{rev}: {one.message}")
        yield Workspace(loaded, program=next_commands.program())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(workspace: Workspace, name: str, overrides: Sequence[str]) -> Rehearsal | None:
    """Return how a rehearsal ended; None if it could not start."""
    extras.need("optuna", "requests")
    file = workspace.loaded.file
    try:
        loaded = workspace.loaded
        loaded = config.load(file, overrides=[*loaded.overrides, *overrides], target=name, env=loaded.env)
        return emulator.load("diff --rehearse").rehearse(Workspace(loaded, program=next_commands.program()), name)
    except VertexrigError as error:
        streams.note(f"{name}: {error}")
        return None


def _row(name: str, before: Rehearsal | None, after: Rehearsal | None) -> dict[str, Any]:
    sides = {"before": before, "after": after}
    return {"name": name} | {
        key: one
        and {
            "state": one.state,
            "seconds": round(one.seconds, 1),
            "metrics": dict(one.metrics),
            "hint": one.hint or None,
        }
        for key, one in sides.items()
    }


def _text(rev: str, changed: Sequence[Change], count: int, ends: Sequence[tuple[str, Any, Any]]) -> str:
    if not changed:
        return f"no difference from {rev} in {count} jobs and sweeps"
    parts = []
    for one in changed:
        rows = [f"{one.name}: {one.kind}", *(f"  {what}: {how}" for what, how in change.lines(one))]
        rows += [
            f"  {sign} {_found(each)}"
            for sign, found in (("+", one.new), ("-", one.gone))
            for each in found
            if _loud(each)
        ]
        rows += [f"  {line}" for line in one.diff.splitlines()]
        parts.append("\n".join(rows))
    parts += ["\n".join(f"{name} rehearsed, {when}: {how}" for name, when, how in _rehearsed(ends))] if ends else []
    return "\n\n".join(parts)


def _loud(finding: Any) -> bool:
    return finding.severity is not Severity.INFO


def _found(finding: Any) -> str:
    return f"{finding.severity.value}[{finding.id}]: {clean(finding.message)}"


def _rehearsed(ends: Sequence[tuple[str, Any, Any]]) -> Iterator[tuple[str, str, str]]:
    for name, *sides in ends:
        for when, one in zip(("before", "after"), sides, strict=True):
            if one is None:
                yield name, when, "could not start"
                continue
            metrics = ", ".join(f"{tag} {shown(value)}" for tag, value in one.metrics.items())
            ended = "trained" if one.succeeded else f"failed: {one.error.partition(chr(10))[0]}"
            yield name, when, f"{ended} in {one.seconds:.1f} s" + (f", {metrics}" if metrics else "")


def comment(rev: str, changed: Sequence[Change], count: int, ends: Sequence[tuple[str, Any, Any]]) -> str:
    """Return the result as a comment for a pull request."""
    if not changed:
        return f"vertexrig: no difference from {code(rev)} in {count} jobs and sweeps."
    lines = [f"vertexrig: {len(changed)} of {count} jobs and sweeps differ from {code(rev)}.", ""]
    lines += ["| job | | what changes | findings |", "| --- | --- | --- | --- |"]
    for one in changed:
        what = "<br>".join(f"{markdown(name)}: {markdown(how)}" for name, how in change.lines(one))
        found = [f"new {markdown(_found(each))}" for each in one.new if _loud(each)]
        found += [f"gone {markdown(_found(each))}" for each in one.gone if _loud(each)]
        lines.append(f"| {markdown(one.name)} | {one.kind} | {what} | {'<br>'.join(found)} |")
    if ends:
        lines += ["", "| rehearsed | | |", "| --- | --- | --- |"]
        lines += [f"| {markdown(name)} | {when} | {markdown(how)} |" for name, when, how in _rehearsed(ends)]
    for one in changed:
        if one.diff:
            lines += ["", f"<details><summary>{markup(one.name)}</summary>", "", fenced(one.diff, "diff"), "</details>"]
    return "\n".join(lines)
