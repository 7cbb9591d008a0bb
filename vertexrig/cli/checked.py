"""What `vertexrig check` does with one file: read it, fix it if asked, and keep the selected findings."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from vertexrig import checks, files
from vertexrig.checks import comments
from vertexrig.checks.choice import Choice, owner
from vertexrig.checks.model import IGNORE_MARK
from vertexrig.checks.reports import FILED
from vertexrig.cli import next_commands, options, streams, targets
from vertexrig.errors import ConfigError, UsageError
from vertexrig.finding import Finding, Severity
from vertexrig.project import config, environments
from vertexrig.project.caller_overrides import check_rules
from vertexrig.spec.reading import unreadable
from vertexrig.spec.strict import finding
from vertexrig.workspace import Workspace

T = TypeVar("T")
_VERTEX_KEY = re.compile("(?i)(worker_?pool|study|trial_?job)_?spec")


@dataclass(frozen=True)
class CheckOptions:
    """How to check, and what to do with the findings."""

    info: bool = options.shared(options.info_option)
    kind: str | None = options.shared(targets.kind_option)
    region: str | None = options.shared(targets.region_option)
    trainer: Path | None = options.option(
        "--trainer", type=click.Path(path_type=Path), help="Folder of the trainer that each FILE runs."
    )
    format_: str = options.shared(options.format_option("text", "json", "sarif", *FILED))
    strict: bool = options.option(
        "--strict",
        is_flag=True,
        help="Exit with 1 for warnings, too, and for any prebuilt image that has passed its end-of-availability date.",
    )
    select: tuple[str, ...] = options.option(
        "--select", multiple=True, metavar="RULES", help="Report only these rules: ids, or patterns such as image-*."
    )
    ignore: tuple[str, ...] = options.option(
        "--ignore", multiple=True, metavar="RULES", help="Do not report these rules."
    )
    baseline: Path | None = options.option(
        "--baseline", type=click.Path(path_type=Path), help="File of known findings, which are not reported."
    )
    write_baseline: bool = options.option(
        "--write-baseline", is_flag=True, help="Write the findings to the file of --baseline."
    )
    skip_others: bool = options.option(
        "--skip-others", is_flag=True, help="Skip files that are not Vertex AI configurations."
    )
    fix: bool = options.option("--fix", is_flag=True, help="Apply the safe fixes to the files.")
    unsafe_fixes: bool = options.option("--unsafe-fixes", is_flag=True, help="Apply the unsafe fixes, too.")
    diff: bool = options.option(
        "--diff",
        is_flag=True,
        help="Show what --fix would change, and change nothing. Exit with 1 if there is a change.",
    )
    jobs: int = options.option(
        "--jobs",
        "-j",
        type=options.Integer(min=1, max=256),
        default=os.cpu_count() or 1,
        show_default="one per processor",
        help="Number of processes that check many files.",
    )
    verbose: bool = options.option("--verbose", "-v", is_flag=True, help="Print how each file was interpreted.")
    list_rules: bool = options.option(
        "--list-rules", is_flag=True, help="Print every rule with its id and severity, and check nothing."
    )


@dataclass(frozen=True)
class Checked:
    """The result for one file.

    Args:
        file: Its name.
        found: The findings to report.
        text: Its text, after its fixes if they were made.
        mistakes: What is wrong with a project file itself.
        in_baseline: How many findings the baseline has.
        fixed: How many findings a fix has removed.
        before: Its text before the fixes, if they changed it.
        piece: What the report prints of it (this and the rest: `_Report.drawn`).
        rows: Its findings as JSON.
        counts: Its findings by severity.
        keys: Its findings as a baseline stores them.
    """

    file: str
    found: Sequence[Finding] = ()
    text: str = ""
    mistakes: Sequence[ConfigError] = ()
    in_baseline: int = 0
    fixed: int = 0
    before: str | None = None
    piece: str = ""
    rows: Sequence[dict[str, object]] = ()
    counts: Counter[Severity] = field(default_factory=Counter)
    keys: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True)
class Checker:
    """Checks one file after the other.

    Args:
        workspace: The project.
        project: How the command line named it.
        given: The options of the command line.
        choice: Which findings count.
        fixes: `safe` or `unsafe`: which fixes to make; "" for none.
    """

    workspace: Workspace
    project: options.ProjectOptions
    given: CheckOptions
    choice: Choice
    fixes: str = ""

    def named(self, names: Sequence[str] | None, mistakes: list[ConfigError]) -> Checked:
        """Check jobs and sweeps of the project, or all of it with the trigger's rules for callers."""
        loaded = self.workspace.loaded
        if not self.fixes or not loaded.text:
            found = self._of_project(self.workspace, names, mistakes)
            return self._kept(str(loaded.file), loaded.text, found, mistakes)
        return self._fixed(str(loaded.file), partial(self._project, names=names))

    def file(self, path: str, listed: bool, alone: bool = False) -> Checked | None:
        """Check a file; return None for one that was found in a folder and is not a Vertex AI configuration.

        Args:
            path: The file.
            listed: Whether it was found in a named folder or by a pattern.
            alone: Whether it is the only argument, so that an unreadable file is an error and not a finding.
        """
        try:
            text = files.read_text(path)
        except UsageError as error:
            if alone:
                raise
            return Checked(path, [unreadable(path, str(error))])
        mistakes: list[ConfigError] = []
        # A project file is not YAML for gcloud: the YAML that it renders to is checked.
        own = targets.project(text, path, self.project.overrides, mistakes)
        if own is not None:
            if self.fixes:
                return self._fixed(path, partial(self._project, names=()))
            other = self._workspace(own)
            names = all_names(other)
            if (names or not mistakes) and (self.given.verbose or not listed):
                streams.note(f"{path}: a project file: checked {', '.join(names) or 'nothing, since it has no jobs'}")
            return self._kept(path, text, self._of_project(other, names, mistakes), mistakes)
        if alone:
            targets.check_overrides(self.project.overrides, path)
        document, found = self.workspace.check_text(text, file=path, kind=targets.kind(self.given.kind))
        # a file that cannot be parsed, such as a template of a Helm chart, is skipped unless it has a key of Vertex AI
        if listed and (any(one.id == "not-vertex" for one in found) or not (document.data or _VERTEX_KEY.search(text))):
            return None
        if self.fixes:
            return self._fixed(path, self._job)
        if document.data and self.given.verbose:
            streams.note(f"{path}: read as a {document.kind}")
        lines = self.workspace.proposed_image(document) if self.given.trainer is not None else ""
        if lines:
            where = "add to vertexrig.yaml"
            if not self.workspace.loaded.file.name:
                where, lines = "write a vertexrig.yaml", f"project: my-project\nregion: us-central1\n{lines}"
            streams.note(f"{path}: to rehearse its image on this machine, {where}:\n{lines}")
        return self._kept(path, text, found)

    def _workspace(self, loaded: config.Loaded) -> Workspace:
        given = self.given
        return Workspace(
            loaded,
            region=given.region,
            trainer=given.trainer,
            program=next_commands.program(),
        )

    def _of_project(
        self, workspace: Workspace, names: Sequence[str] | None, mistakes: list[ConfigError]
    ) -> list[Finding]:
        """Return the findings of jobs and sweeps, or of all, in the file and, unless one is chosen, in each of its environments.

        A finding of the file is not repeated for an environment. What is wrong with the file itself is added to `mistakes`.
        """
        first = workspace.loaded
        if not first.chosen.names or environments.selected() in first.chosen.names:
            return self._of_one(workspace, names, mistakes)
        spaces, wrong = [workspace], [mistakes[:]]
        target = names[0] if names and len(names) == 1 else None
        for env in first.chosen.names[bool(first.env) :]:
            wrong.append([])
            overrides = self.project.overrides
            load = partial(config.loads, first.text, file=first.file, overrides=overrides, target=target, env=env)
            loaded = targets.sound(load, wrong[-1], first.text)
            own, base = loaded.project, first.project
            # what was read of a trainer, the templates and the catalog is used again
            same = (own.trainer, own.templates, own.catalog) == (base.trainer, base.templates, base.catalog)
            spaces.append(workspace.overridden(loaded) if same else self._workspace(loaded))
        known = {name for one in spaces for name in all_names(one)}
        every = names is None or list(names) == all_names(workspace)
        found, errors = _Named[Finding](), _Named[ConfigError]()
        for one, own_mistakes in zip(spaces, wrong, strict=True):
            here = all_names(one)
            asked = names and (here if every else [name for name in names if name in here or name not in known])
            for each in self._of_one(one, asked, own_mistakes):
                found.add((each.id, each.path, each.message, each.line, each.entry), each, one.loaded.env)
            for mistake in own_mistakes:
                errors.add((mistake.message, mistake.line), mistake, one.loaded.env)
        mistakes[:] = [
            ConfigError(
                f"{name}{each.message}",
                file=each.file,
                line=each.line,
                edits=each.edits,
            )
            for each, name in errors
        ]
        return [replace(each, message=f"{name}{each.message}") for each, name in found]

    def _of_one(self, workspace: Workspace, names: Sequence[str] | None, mistakes: list[ConfigError]) -> list[Finding]:
        """Return the findings of jobs and sweeps, or of all, in one environment or none."""
        loaded, found = workspace.loaded, list[Finding]()
        if names is None:
            try:
                check_rules(loaded)  # with a wrong rule the deployed function would not start
            except ConfigError as error:
                mistakes += error.errors
            if loaded.project.schedules:
                from vertexrig.trigger import plans  # 40 ms

                mistakes += plans.impossible(loaded).values()
                with suppress(ImportError):  # without croniter no schedule can be planned here
                    found += plans.clocks(loaded)
        known = all_names(workspace)
        for name in known if names is None else names:
            if mistakes and name not in known and name in loaded.text:
                continue  # it was left out because of one of these mistakes
            try:
                found += [
                    replace(each, entry=owner(loaded, each.line, name))
                    for one in workspace.prepare_candidates(name)
                    for each in one.findings
                ]
            except ConfigError as error:
                mistakes += error.errors
        if IGNORE_MARK in loaded.text:
            found += comments.problems(loaded.text, str(loaded.file), checks.rule_ids(), None)
        return found

    def _project(self, path: str, text: str, names: Sequence[str] | None) -> tuple[list[Finding], list[ConfigError]]:
        """Return the findings and mistakes of a project file's text; with `()` as names, of all its jobs and sweeps."""
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

        document, found = self.workspace.check_text(text, file=path, kind=targets.kind(self.given.kind))
        return located(found, document.locations), []

    def _fixed(self, path: str, check: Any) -> Checked:
        """Fix a file's text, and return the findings that are left."""
        from vertexrig.bring import edit, fix  # 90 ms, which a check without fixes saves

        before = edit.read(Path(path))

        def findings(text: str) -> list[Finding]:
            found, wrong = check(path, text.removeprefix(edit.BOM))
            return self.choice.of([*found, *map(mistake_finding, wrong)])[0]

        made = fix.fixed(before, findings, unsafe=self.fixes == "unsafe")
        text = made.text.removeprefix(edit.BOM)
        kept = self._kept(path, text, *check(path, text))
        return replace(kept, text=made.text, fixed=len(made.done), before=before if made.text != before else None)

    def _kept(self, path: str, text: str, found: Sequence[Finding], mistakes: Sequence[ConfigError] = ()) -> Checked:
        kept, in_baseline = self.choice.of(found)
        unique = {str(one): one for one in mistakes}.values()
        return Checked(path, kept, text, tuple(unique), in_baseline)


class _Named(Generic[T]):
    """What was found in several environments, each once with their names."""

    def __init__(self) -> None:
        self.found: dict[object, tuple[T, list[str]]] = {}

    def add(self, key: object, one: T, env: str) -> None:
        self.found.setdefault(key, (one, []))[1].append(env)

    def __iter__(self) -> Iterator[tuple[T, str]]:
        """Yield each with the beginning of its message; it is empty for what the file without an environment has, too."""
        for one, names in self.found.values():
            named = f"environment{'s' * (len(names) > 1)} {', '.join(names)}: " if all(names) else ""
            yield one, named


def mistake_finding(one: ConfigError) -> Finding:
    """Return what is wrong with a project file as a finding."""
    return finding("project-file", "", one.message, file=one.file or "", line=one.line, edits=one.edits)


def all_names(workspace: Workspace) -> list[str]:
    """Return the jobs and sweeps of a project."""
    return [*workspace.loaded.project.entries]
