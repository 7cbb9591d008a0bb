"""`vertexrig check`: check the project's jobs, or any YAML for gcloud; and list the rules."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from vertexrig import __version__, files
from vertexrig.checks import all_rules, choice, formats
from vertexrig.checks.reports import FILED, Report, sarif
from vertexrig.cli import checked, options, output, show, streams, targets
from vertexrig.cli.arguments import complete_names
from vertexrig.cli.checked import Checked, Checker, CheckOptions
from vertexrig.cli.find_files import find_files
from vertexrig.cli.tables import table
from vertexrig.errors import ConfigError, ConfigErrors, FindingsError, UsageError
from vertexrig.finding import Severity
from vertexrig.project.config import STAGED_FOLDER
from vertexrig.spec.masking import masked

_CHUNK = 25  # files that a process checks at a time
_FEW = 200  # files that one process checks sooner than several


@click.command("check")
@click.argument(
    "wanted",
    nargs=-1,
    metavar="[NAME | FILE | FOLDER]...",
    shell_complete=lambda ctx, param, text: [
        *map(CompletionItem, complete_names(ctx, text)),
        CompletionItem(text, "file"),
    ],
)
@options.project_options
@options.variables_option
@options.group("given", CheckOptions)
def command(wanted: tuple[str, ...], project: options.ProjectOptions, given: CheckOptions) -> None:
    """Check jobs and sweeps by NAME, or any YAML FILE for gcloud. Without an argument, check the whole project.

    FILE is a configuration of a custom job or of a tuning job, or a project file, whose jobs and sweeps are all checked. `-` is
    stdin. For a FOLDER, or a pattern such as 'jobs/**/*.yaml', each such file in it is checked, except those that .gitignore
    excludes.

    The exit code is 1 if there is a finding of severity error.
    """
    if given.list_rules:
        if wanted or given.format_ not in ("text", "json"):
            raise UsageError("--list-rules checks nothing: leave out NAME and FILE, and use --format text or json")
        _list_rules(given.format_)
        return
    if given.diff and given.format_ not in ("text", "json"):
        raise UsageError(f"--format {given.format_} cannot hold a diff: use --diff with --format text or json")
    fixes = "unsafe" if given.unsafe_fixes else "safe" if given.fix or given.diff else ""
    if fixes and "-" in wanted:
        raise UsageError("stdin cannot be fixed: name a file")
    # a folder of that name is there, but so may be a job
    named = [target for target in wanted if not options.is_file(target)]
    needed = not wanted or any(not Path(name).is_dir() for name in named)
    mistakes: list[ConfigError] = []
    one = named[0] if len(named) == 1 else None
    workspace = targets.workspace(
        project, one, needed=needed, region=given.region, trainer=given.trainer, mistakes=mistakes
    )
    settings, home = workspace.loaded.project.check, workspace.loaded.folder
    baseline = given.baseline
    if baseline is None and settings.baseline:
        baseline = workspace.loaded.path(settings.baseline, "check", "baseline")
    if given.write_baseline and baseline is None:
        raise UsageError("--write-baseline needs --baseline FILE, or check.baseline in the project file")
    chosen = choice.choice(
        settings, home, given.select, given.ignore, baseline, writing=given.write_baseline, strict=given.strict
    )
    checker = Checker(workspace, project, given, chosen, fixes)
    known = checked.all_names(workspace)
    paths = [target for target in wanted if target not in named or (target not in known and Path(target).is_dir())]
    names = list(dict.fromkeys(target for target in named if target not in paths))
    if not wanted and not known and not mistakes:
        streams.note(f"{workspace.loaded.file} has no jobs and no sweeps: nothing is checked")
    run = _Report(given, checker, baseline)
    if names or not wanted:
        run.add(run.drawn(checker.named(names or None, mistakes)))
    # the copy of the project file there has no trainer beside it
    staged = [f"/{STAGED_FOLDER}/"] if (home / STAGED_FOLDER).is_dir() else []
    found = find_files(paths, [*settings.exclude, *staged], home, listed=given.skip_others)
    for each in _check_files(found, run.drawn, checker, given.jobs, len(wanted) == 1):
        run.add(each)
    run.end()


class _Report:
    """Print the findings of each file, and end with the exit code that the worst of them asks for."""

    def __init__(self, given: CheckOptions, checker: Checker, baseline: Path | None) -> None:
        self.given, self.checker, self.baseline = given, checker, baseline
        self.counts = Counter[Severity]()
        self.keys = Counter[tuple[str, str, str]]()
        self.mistakes: dict[str, ConfigError] = {}
        self.in_baseline = self.fixed = self.files = 0
        self.pieces = 0
        self.changed_meanwhile = False
        plain = Report(lambda file, found: "", end="")
        self.report = FILED.get(given.format_) or (sarif(__version__) if given.format_ == "sarif" else plain)
        self.is_text, self.is_json = given.format_ == "text", given.format_ == "json"
        self.diffs: list[str] = []

    def drawn(self, one: Checked) -> Checked:
        """Return a file with what is printed and counted of it, in place of its findings; a process sends it to another."""
        found = [*one.found, *map(checked.mistake_finding, one.mistakes)]
        counted = one.found if self.is_text else found  # as text, the error at the end names the mistakes
        rows: list[dict[str, object]] = []
        if self.is_json:
            rows = formats.rows(found)
        if self.given.diff:
            piece = ""
        elif self.is_text:
            color = streams.wants_color(sys.stdout, os.environ)
            width, sources = show.source_width(sys.stdout), {one.file: one.text}
            blocks = formats.blocks(one.found, sources, color=color, info=self.given.info, width=width)
            piece = "\n\n".join(blocks)
        else:
            piece = self.report.piece(one.file, found)
        return replace(
            one,
            found=(),
            text=one.text if one.before is not None else "",
            piece=piece,
            rows=rows,
            counts=Counter(each.severity for each in counted),
            keys=[self.checker.choice.key(each) for each in one.found] if self.given.write_baseline else (),
        )

    def add(self, one: Checked) -> None:
        """Print what `drawn` has made of a file; write the file if fixes changed it."""
        self.counts += one.counts
        self.keys.update(one.keys)
        self.in_baseline += one.in_baseline
        self.mistakes.update({str(each): each for each in one.mistakes})
        if one.before is not None:
            self._write(one, one.before)
        if one.rows:
            output.document().stream("findings", one.rows)
        if one.piece:
            between = "\n\n" if self.is_text else self.report.between
            output.say((between if self.pieces else self.report.start) + one.piece, nl=False)
            self.pieces += 1

    def _write(self, one: Checked, before: str) -> None:
        """Write a fixed file, or with --diff print its changes."""
        from vertexrig.bring import edit

        path = Path(one.file)
        if self.given.diff:
            difference = masked(edit.difference(before, one.text, one.file))
            if self.is_json:
                self.diffs.append(difference)
            else:
                output.say(difference, for_paste=True)
        else:
            with files.locked(path.resolve().parent):
                now = edit.read(path)
                if now == before:
                    files.write_bytes(path, one.text.encode("utf-8"), path.stat().st_mode & 0o777)
            if now not in (before, one.text):
                self.changed_meanwhile = True
                streams.note(
                    f"{path} was saved by another program during the check, so its fixes were not written: check it again"
                )
                return
        self.fixed, self.files = self.fixed + one.fixed, self.files + 1

    def end(self) -> None:
        """Print the end of the report; raise ConfigError for mistakes in a project file, or FindingsError for findings."""
        mistakes = list(self.mistakes.values())
        if self.is_text and not self.given.diff and (self.counts or not mistakes):
            total = formats.total(self.counts, info=self.given.info)
            output.say(("\n\n" if self.pieces else "") + total)
        done = "would be" if self.given.diff else "are"
        fixed = f"{self.fixed} findings {done} fixed in {self.files} file{'s' * (self.files > 1)}"
        if self.is_json:
            if not output.document().streamed:
                output.document().data["findings"] = []
            if self.given.diff:
                output.document().data["diff"] = "\n".join(self.diffs)
        elif self.is_text or self.given.diff:
            if self.files:
                streams.note(fixed)
            if self.in_baseline:
                streams.note(f"{self.in_baseline} findings are in {self.baseline} and not shown")
        else:
            output.say(("" if self.pieces else self.report.start) + self.report.end, nl=False)
        if self.given.write_baseline and self.baseline is not None:
            loaded = self.checker.workspace.loaded
            below = (
                None if self.given.baseline or ("check", "baseline") in loaded.origins.override_of else loaded.folder
            )
            files.write_text(self.baseline, choice.baseline_text(self.keys), below=below)
            streams.note(f"wrote {sum(self.keys.values())} findings to {self.baseline}")
            if not mistakes:
                return
        if mistakes:
            raise mistakes[0] if len(mistakes) == 1 else ConfigErrors(mistakes)
        if self.given.diff:
            if self.files:
                raise FindingsError(fixed if self.is_json else "")
            return
        failed = self.counts[Severity.ERROR] or (self.given.strict and self.counts[Severity.WARNING])
        if failed or self.changed_meanwhile:
            raise FindingsError("" if self.is_text else formats.total(self.counts, info=True))


_WORK: list[Callable[[tuple[str, bool]], Checked | None]] = []
"""In a forked process: the function that checks a file."""


def _check_files(
    named: Iterator[tuple[str, bool]], drawn: Callable[[Checked], Checked], checker: Checker, jobs: int, alone: bool
) -> Iterator[Checked]:
    """Yield each file, checked and drawn, in the order of the files; many files are checked by several processes."""

    def check(file: tuple[str, bool]) -> Checked | None:
        found = checker.file(*file, alone=alone and not file[1])
        return None if found is None else drawn(found)

    first = list(islice(named, _FEW))
    rest = iter(()) if len(first) < _FEW else named
    if jobs == 1 or len(first) < _FEW or "fork" not in multiprocessing.get_all_start_methods():
        yield from filter(None, map(check, chain(first, rest)))
        return
    _WORK[:] = [check]
    with multiprocessing.get_context("fork").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from filter(None, pool.imap(_work, chain(first, rest), _CHUNK))


def _work(file: tuple[str, bool]) -> Checked | None:
    return _WORK[0](file)


def _list_rules(format_: str) -> None:
    keys = ("id", "severity", "summary", "fix", "source", "docs")
    rows = [
        (one.id, one.severity.value, one.summary, one.edits or None, one.source, formats.address(one.id))
        for one in all_rules()
    ]
    cells = [(id, severity, fix or "", summary) for id, severity, summary, fix, *_ in rows]
    data = {"rules": [dict(zip(keys, row, strict=True)) for row in rows]}
    output.result(format_, data, lambda: table(("id", "severity", "fix", "rule"), cells))
