"""The tool as a library, for notebooks and other programs: `check`, `render`, `rehearse`, with results that a notebook shows.

What a verb prints comes back as values; what makes a verb end with an error is raised as its exception (`vertexrig.errors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from vertexrig import files, yamltext
from vertexrig.checks import choice, comments, formats, rule_ids
from vertexrig.checks.model import IGNORE_MARK
from vertexrig.errors import UsageError, install
from vertexrig.finding import Finding, Severity, folded
from vertexrig.project import config
from vertexrig.project.model import Project
from vertexrig.spec.reading import is_project
from vertexrig.text import markup
from vertexrig.workspace import Workspace, emulator

if TYPE_CHECKING:
    from vertexrig.results.rehearsal import Rehearsal

__all__ = ["Findings", "RenderedJob", "check", "rehearse", "render"]


class Findings(Sequence[Finding]):
    """The findings of a check in the order of the file; prints as text, a notebook shows a table."""

    def __init__(self, found: Iterable[Finding], texts: Mapping[str, str]) -> None:
        self._found, self._texts = folded(found), texts

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    @property
    def ok(self) -> bool:
        """Whether there are no findings of severity error."""
        return not any(one.severity is Severity.ERROR for one in self)

    def __str__(self) -> str:
        return formats.text(self._found, self._texts).rstrip("\n")

    def __repr__(self) -> str:
        return f"<Findings: {formats.summary(self._found)}>"

    def _repr_html_(self) -> str:
        places = (f"{one.file}:{one.line}" if one.line else one.file for one in self)
        rows = [
            (one.severity.value, one.id, place, one.message, one.fix) for one, place in zip(self, places, strict=True)
        ]
        return _table(("", "rule", "where", "what", "fix"), rows, caption=formats.summary(self._found))


def _table(names: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str) -> str:
    """Return a table as HTML, every cell as text."""
    head = "".join(f"<th>{markup(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{markup(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{markup(caption)}</caption><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class RenderedJob:
    """A job or sweep as gcloud takes it.

    Args:
        name: Its name.
        yaml: The text for gcloud's --config.
        data: The same as plain values, in the API's camelCase.
        findings: What the checks find in it.
    """

    name: str
    yaml: str
    data: Mapping[str, Any]
    findings: Findings


def check(job: str | Path | Mapping[str, Any], *, project: str | Path | None = None) -> Findings:
    """Check a file for gcloud, a project file with the candidates of its jobs, or a job that is plain data.

    Args:
        job: The file, or the data of a CustomJobSpec or HyperparameterTuningJob.
        project: The project file whose region, catalog and trainer are used to check it, and whose `check:` selects what is
            reported; none by default, and for a project file itself.
    """
    loaded = config.load(Path(project)) if project else config.Loaded(Project(project="", region=""), Path())
    if isinstance(job, Mapping):
        text, file = yamltext.scalar(job), ""
    else:
        text, file = files.read_text(job), str(job)
        if is_project(_data(text)):
            loaded = config.loads(text, file=Path(file))
            return Findings(_selected(loaded, _of_project(Workspace(loaded))), loaded.texts)
    return Findings(_selected(loaded, Workspace(loaded).check_text(text, file=file)[1]), {file: text})


def _of_project(workspace: Workspace) -> list[Finding]:
    """Return the findings of every job and sweep, and of each of its candidates."""
    loaded = workspace.loaded
    found = [
        replace(each, entry=choice.owner(loaded, each.line, name))
        for name in loaded.project.entries
        for one in workspace.prepare_candidates(name)
        for each in one.findings
    ]
    if IGNORE_MARK in loaded.text:
        found += comments.problems(loaded.text, str(loaded.file), rule_ids(), None)
    return found


def _selected(loaded: config.Loaded, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings that the project file's `check:` selects and its baseline does not list."""
    settings, home = loaded.project.check, loaded.folder
    baseline = loaded.path(settings.baseline, "check", "baseline") if settings.baseline else None
    return choice.choice(settings, home, (), (), baseline, writing=False, strict=False).of(found)[0]


def _data(text: str) -> Any:
    """Return the plain data of a YAML text; None if it is not YAML, which the check reports."""
    try:
        return yamltext.read(text).data
    except yamltext.YamlError:
        return None


def render(project: str | Path, name: str, *, set: Sequence[str] = ()) -> RenderedJob:
    """Render a job or sweep of a project file.

    Args:
        project: The project file.
        name: The job or sweep.
        set: Overrides, as `--set` takes them: `args.epochs=1`.

    Raises:
        UsageError: There is no such file, job or sweep.
        ConfigError: The file or an override is wrong.
    """
    workspace = Workspace(config.load(Path(project), overrides=set, target=name))
    prepared = workspace.prepare(name)
    return RenderedJob(name, prepared.text, prepared.document.data, Findings(prepared.findings, workspace.loaded.texts))


def rehearse(project: str | Path, name: str, *, set: Sequence[str] = (), trials: int | None = None) -> Rehearsal:
    """Run a job or sweep of a project file on this machine, to its end; a notebook shows the result as a table.

    Args:
        project: The project file.
        name: The job or sweep.
        set: Overrides, as `--set` takes them.
        trials: For a sweep: this many trials instead of its maxTrialCount.

    Raises:
        FindingsError: The checks found an error.
        UsageError: There is no such job or sweep, or the extra `local` is not installed.
    """
    try:
        local = emulator.load("a rehearsal")
    except ImportError as error:
        raise UsageError(f"a rehearsal needs {error.name}: {install('local')}") from None
    return local.rehearse(Workspace(config.load(Path(project), overrides=set, target=name)), name, trials=trials)
