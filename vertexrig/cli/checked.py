"""What `vertexrig check` does with one file: reads it, mends it if asked, and keeps what was selected of its findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vertexrig import checks, files
from vertexrig.checks import comments
from vertexrig.checks.choice import Choice, owner
from vertexrig.checks.model import MARK
from vertexrig.cli import options, steps, streams, targets
from vertexrig.errors import ConfigError, UsageError
from vertexrig.finding import Finding
from vertexrig.project import config
from vertexrig.project.caller_overrides import check_rules
from vertexrig.spec.reading import unreadable
from vertexrig.spec.strict import finding
from vertexrig.workspace import Workspace

_OURS = re.compile("(?i)(worker_?pool|study|trial_?job)_?spec")


@dataclass(frozen=True)
class Checked:
    """What came of one file.

    Args:
        file: Its name.
        found: What is reported.
        text: What it says, with its fixes if they were made.
        mistakes: What is wrong with a project file itself.
        held: Findings that the baseline has.
        fixed: Findings that are gone by a fix.
        before: What it said, if fixes changed it.
    """

    file: str
    found: Sequence[Finding] = ()
    text: str = ""
    mistakes: Sequence[ConfigError] = ()
    held: int = 0
    fixed: int = 0
    before: str | None = None


@dataclass(frozen=True)
class Checker:
    """Checks one file after the other.

    Args:
        workspace: The project.
        project: How the command line named it.
        region: As `--region`.
        trainer: As `--trainer`.
        kind: As `--kind`.
        verbose: As `--verbose`.
        choice: Which findings count.
        mends: `safe` or `unsafe`: fixes that are made; "" for none.
    """

    workspace: Workspace
    project: options.ProjectOptions
    region: str | None
    trainer: Path | None
    kind: str | None
    verbose: bool
    choice: Choice
    mends: str = ""

    def named(self, names: Sequence[str] | None, mistakes: list[ConfigError]) -> Checked:
        """Return what is found of jobs and sweeps of the project, or of all of it, its trigger's rules included."""
        loaded = self.workspace.loaded
        if not self.mends or not loaded.text:
            return self._kept(
                str(loaded.file), loaded.text, self._of_project(self.workspace, names, mistakes), mistakes
            )
        return self._mended(str(loaded.file), partial(self._project, names=names))

    def file(self, path: str, listed: bool, alone: bool = False) -> Checked | None:
        """Return what is found of a file; None of one that is listed in its folder and is nothing of Vertex AI.

        Args:
            path: The file.
            listed: Whether its folder or a pattern was named.
            alone: Whether it is all that was named: then it has to be there.
        """
        try:
            text = files.read_text(path)
        except UsageError as error:
            if alone:
                raise
            return Checked(path, [unreadable(path, str(error))])
        mistakes: list[ConfigError] = []
        # A project file given as FILE is not itself YAML for gcloud: what it renders to is checked.
        own = targets.project(text, path, self.project.overrides, mistakes)
        if own is not None:
            if self.mends:
                return self._mended(path, partial(self._project, names=()))
            other = self._workspace(own)
            names = all_names(other)
            if (names or not mistakes) and (self.verbose or not listed):
                streams.note(f"{path}: a project file: checked {', '.join(names) or 'nothing, since it has no jobs'}")
            return self._kept(path, text, self._of_project(other, names, mistakes), mistakes)
        document, found = self.workspace.check_text(text, file=path, kind=targets.kind(self.kind))
        # a file that cannot be read, such as a chart's template, may be of anything
        if listed and (any(one.id == "not-vertex" for one in found) or not (document.data or _OURS.search(text))):
            return None
        if self.mends:
            return self._mended(path, self._job)
        if document.data and self.verbose:
            streams.note(f"{path}: read as a {document.kind}")
        if self.trainer is not None:
            self._propose(path, self.workspace.proposed_image(document))
        return self._kept(path, text, found)

    def _propose(self, path: str, lines: str) -> None:
        """Print the lines that map a file's image to the trainer's folder."""
        if lines:
            place = "add to vertexrig.yaml"
            if not self.workspace.loaded.file.name:
                place, lines = "write a vertexrig.yaml", f"project: my-project\nregion: us-central1\n{lines}"
            streams.note(f"{path}: to rehearse its image on this machine, {place}:\n{lines}")

    def _workspace(self, loaded: config.Loaded) -> Workspace:
        given = {"templates": self.project.templates, "region": self.region, "trainer": self.trainer}
        return Workspace(loaded, program=steps.program(), **given)  # type: ignore[arg-type]

    def _of_project(
        self, workspace: Workspace, names: Sequence[str] | None, mistakes: list[ConfigError]
    ) -> list[Finding]:
        """Return the findings of jobs and sweeps, or of all; what is wrong with the file itself goes to its mistakes."""
        loaded, found = workspace.loaded, list[Finding]()
        if names is None:
            try:
                check_rules(loaded)  # the function would not start with what they refuse
            except ConfigError as error:
                mistakes += error.errors
        known = all_names(workspace)
        for name in known if names is None else names:
            if mistakes and name not in known and name in loaded.text:
                continue  # it was left out for one of them
            try:
                found += [
                    replace(each, entry=owner(loaded, each.line, name))
                    for one in workspace.prepare_all(name)
                    for each in one.findings
                ]
            except ConfigError as error:
                mistakes += error.errors
        if MARK in loaded.text:
            found += comments.problems(loaded.text, str(loaded.file), checks.rule_ids(), None)
        return found

    def _project(self, path: str, text: str, names: Sequence[str] | None) -> tuple[list[Finding], list[ConfigError]]:
        """Return the findings of a project file's text, and its mistakes; `()` are all names."""
        mistakes: list[ConfigError] = []
        try:
            own = targets.project(text, path, self.project.overrides, mistakes)
        except ConfigError as error:
            return [], list(error.errors)
        workspace = self.workspace if own is None else self._workspace(own)
        found = self._of_project(workspace, all_names(workspace) if names == () else names, mistakes)
        return found, mistakes

    def _job(self, path: str, text: str) -> tuple[list[Finding], list[ConfigError]]:
        from vertexrig.bring.fix import located

        document, found = self.workspace.check_text(text, file=path, kind=targets.kind(self.kind))
        return located(found, document.places), []

    def _mended(self, path: str, look: Any) -> Checked:
        """Return what is left of a file after its fixes."""
        from vertexrig.bring import edit, fix  # 90 ms, which a check without fixes saves

        before, wrong = edit.read(Path(path)), list[ConfigError]()

        def check(text: str) -> list[Finding]:
            found, wrong[:] = look(path, text.removeprefix(edit.BOM))
            return self.choice.of([*found, *map(_mistake, wrong)])[0]

        made = fix.fixed(before, check, unsafe=self.mends == "unsafe")
        found, mistakes = look(path, made.text.removeprefix(edit.BOM))
        kept = self._kept(path, made.text.removeprefix(edit.BOM), found, mistakes)
        changed = before if made.text != before else None
        return replace(kept, text=made.text, fixed=len(made.done), before=changed)

    def _kept(self, path: str, text: str, found: Sequence[Finding], mistakes: Sequence[ConfigError] = ()) -> Checked:
        kept, held = self.choice.of(found)
        unique = {str(one): one for one in mistakes}.values()
        return Checked(path, kept, text, tuple(unique), held)


def _mistake(one: ConfigError) -> Finding:
    return finding("project-file", "", one.message, file=one.file or "", line=one.line, edits=one.edits)


def all_names(workspace: Workspace) -> list[str]:
    """Return the jobs and sweeps of a project."""
    return [*workspace.loaded.project.entries]
