"""`vertexrig check`: the project's jobs, or any YAML for gcloud from anywhere; and the list of rules."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from vertexrig import __version__, files
from vertexrig.checks import choice
from vertexrig.checks import output as reports
from vertexrig.checks.reports import FILED, Report, sarif
from vertexrig.cli import checked, options, output, show, streams, targets
from vertexrig.cli.arguments import complete_names
from vertexrig.cli.checked import Checked, Checker
from vertexrig.cli.tables import table
from vertexrig.cli.walk import walk
from vertexrig.errors import ConfigError, ConfigErrors, FindingsError, UsageError
from vertexrig.finding import Severity
from vertexrig.spec.masking import masked
from vertexrig.spec.strict import finding

_CHUNK = 25  # files that a process checks at a time
_FEW = 200  # files that one process checks sooner than several


@dataclass(frozen=True)
class CheckOptions:
    """How to check, and what to do with what is found."""

    info: bool = options.shared(options.info_option)
    kind: str | None = options.option(
        "--kind", type=click.Choice(list(targets.KINDS)), help="Kind of the files; by default their keys decide."
    )
    region: str | None = options.option(
        "--region", metavar="REGION", help="Region the files are for; the project's by default."
    )
    trainer: Path | None = options.option(
        "--trainer", type=click.Path(path_type=Path), help="Trainer folder that the files must fit."
    )
    format_: str = options.shared(options.format_option("text", "json", "sarif", *FILED))
    strict: bool = options.option(
        "--strict",
        is_flag=True,
        help="Exit with 1 for warnings, too, and for any prebuilt image past its end of availability.",
    )
    select: tuple[str, ...] = options.option(
        "--select", multiple=True, metavar="RULES", help="Report these rules only: ids and patterns such as image-*."
    )
    ignore: tuple[str, ...] = options.option(
        "--ignore", multiple=True, metavar="RULES", help="Do not report these rules."
    )
    baseline: Path | None = options.option(
        "--baseline", type=click.Path(path_type=Path), help="File of findings that are known and not reported."
    )
    write_baseline: bool = options.option(
        "--write-baseline", is_flag=True, help="Write what is found to the file of --baseline."
    )
    skip_others: bool = options.option(
        "--skip-others", is_flag=True, help="Pass over files that are nothing of Vertex AI, as in a folder."
    )
    fix: bool = options.option("--fix", is_flag=True, help="Make the fixes that are surely meant, in the files.")
    unsafe_fixes: bool = options.option("--unsafe-fixes", is_flag=True, help="Make the others, too.")
    diff: bool = options.option(
        "--diff",
        is_flag=True,
        help="Show what --fix would change and change nothing; exit with 1 if there is anything.",
    )
    jobs: int = options.option(
        "--jobs",
        "-j",
        type=options.Integer(min=1, max=256),
        default=os.cpu_count() or 1,
        show_default="one per processor",
        help="Processes that check many files.",
    )
    verbose: bool = options.option("--verbose", "-v", is_flag=True, help="Say of each file what it was read as.")
    list_rules: bool = options.option(
        "--list-rules", is_flag=True, help="Print every rule: id, severity, what holds; check nothing."
    )


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
@options.group("given", CheckOptions)
def command(wanted: tuple[str, ...], project: options.ProjectOptions, given: CheckOptions) -> None:
    """Check jobs and sweeps by NAME, or any YAML FILE that gcloud would take; without either, all of the project.

    The keys of a file decide whether it is a custom job or a tuning job; --verbose says which. Of a project file,
    such as vertexrig.yaml, all jobs and sweeps are checked, and of a FOLDER, or a pattern such as 'jobs/**/*.yaml', each
    file that is one of these and that no .gitignore leaves out. `-` reads stdin. The exit code is 1 if anything of severity
    error is found.
    """
    if given.list_rules:
        if wanted or given.format_ not in ("text", "json"):
            raise UsageError("--list-rules checks nothing: leave out NAME and FILE, and print it as text or json")
        _list_rules(given.format_)
        return
    fixes = "unsafe" if given.unsafe_fixes else "safe" if given.fix or given.diff else ""
    if fixes and "-" in wanted:
        raise UsageError("stdin cannot be mended: name a file")
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
    checker = Checker(workspace, project, given.region, given.trainer, given.kind, given.verbose, chosen, fixes)
    known = checked.all_names(workspace)
    places = [target for target in wanted if target not in named or (target not in known and Path(target).is_dir())]
    names = [target for target in named if target not in places]
    if not wanted and not known and not mistakes:
        streams.note(f"{workspace.loaded.file} has no jobs and no sweeps: nothing is checked")
    run = _Report(given, checker, baseline)
    if names or not wanted:
        run.add(run.told(checker.named(names or None, mistakes)))
    files_ = walk(places, settings.exclude, home, listed=given.skip_others)
    for told in _told(files_, run.told, checker, given.jobs, len(wanted) == 1):
        run.add(told)
    run.end()


@dataclass(frozen=True)
class _Told:
    """What is said of one file, with what is counted of it; what is long is text already."""

    checked: Checked
    piece: str
    rows: Sequence[dict[str, object]]
    counts: Counter[Severity]
    known: Sequence[tuple[str, str, str]]


class _Report:
    """A run of the verb: prints what is said of each file, and ends as the worst of them asks."""

    def __init__(self, given: CheckOptions, checker: Checker, baseline: Path | None) -> None:
        self.given, self.checker, self.baseline = given, checker, baseline
        self.counts = Counter[Severity]()
        self.known = Counter[tuple[str, str, str]]()
        self.mistakes: dict[str, ConfigError] = {}
        self.held = self.fixed = self.files = 0
        self.pieces = 0
        self.late = False
        plain = Report(lambda file, found: "", end="")
        self.report = FILED.get(given.format_) or (sarif(__version__) if given.format_ == "sarif" else plain)
        self.is_text = given.format_ == "text"

    def text(self, one: Checked) -> str:
        """Return the findings of a file for a person."""
        width = streams.width(sys.stdout)
        return "\n\n".join(
            reports.blocks(
                one.found,
                {one.file: one.text},
                color=streams.wants_color(sys.stdout, os.environ),
                info=self.given.info,
                width=reports.WIDTH if width is None else max(20, width - show.MARGIN),
            )
        )

    def told(self, one: Checked) -> _Told:
        """Return what is said of a file, without printing it."""
        wrong = [
            finding("project-file", "", each.message, file=each.file or "", line=each.line) for each in one.mistakes
        ]
        found = [*one.found, *wrong]
        # as text, the error at the end tells the mistakes
        piece = self.text(one) if self.is_text else self.report.piece(one.file, found)
        rows = reports.rows(found) if self.given.format_ == "json" else ()
        counts = Counter(each.severity for each in (one.found if self.is_text else found))
        known = [self.checker.choice.key(each) for each in one.found] if self.given.write_baseline else ()
        short = Checked(
            one.file, (), one.text if one.before is not None else "", one.mistakes, one.held, one.fixed, one.before
        )
        return _Told(short, "" if self.given.diff else piece, () if self.given.diff else rows, counts, known)

    def add(self, told: _Told) -> None:
        """Print what is said of a file, and write it if fixes changed it."""
        one = told.checked
        self.counts += told.counts
        self.known.update(told.known)
        self.held += one.held
        self.mistakes.update({str(each): each for each in one.mistakes})
        if one.before is not None:
            from vertexrig.bring import edit

            path = Path(one.file)
            if self.given.diff:
                output.say(masked(edit.difference(one.before, one.text, one.file)))
                self.fixed, self.files = self.fixed + one.fixed, self.files + 1
            else:
                with files.locked(path.resolve().parent):
                    now = edit.read(path)
                    if now == one.before:
                        files.write_bytes(path, one.text.encode("utf-8"), path.stat().st_mode & 0o777)
                if now in (one.before, one.text):
                    self.fixed, self.files = self.fixed + one.fixed, self.files + 1
                else:
                    self.late = True
                    streams.note(f"{path} was saved while it was checked, and stays as it is: check it again")
        if told.rows:
            output.document().stream("findings", told.rows)
        if told.piece:
            between = "\n\n" if self.is_text else self.report.between
            output.say((between if self.pieces else self.report.start) + told.piece, nl=False)
            self.pieces += 1

    def end(self) -> None:
        """Print what comes last; ConfigError if a project file has mistakes, else FindingsError if the findings ask for it."""
        mistakes = list(self.mistakes.values())
        if self.given.diff:
            self._said()
        elif self.is_text:
            if self.counts or not mistakes:
                total = reports.total(self.counts, info=self.given.info)
                output.say(("\n\n" if self.pieces else "") + total)
            self._said()
        elif self.given.format_ == "json":
            if not output.document().streamed:
                output.document().data["findings"] = []
        else:
            output.say(("" if self.pieces else self.report.start) + self.report.end, nl=False)
        if self.given.write_baseline and self.baseline is not None:
            loaded = self.checker.workspace.loaded
            below = None if self.given.baseline or ("check", "baseline") in loaded.given else loaded.folder
            files.write_text(self.baseline, choice.baseline_text(self.known), below=below)
            streams.note(f"wrote {sum(self.known.values())} findings to {self.baseline}")
            if not mistakes:
                return
        if mistakes:
            raise mistakes[0] if len(mistakes) == 1 else ConfigErrors(mistakes)
        if self.given.diff:
            if self.files:
                raise FindingsError("")
            return
        if self.late or self.counts[Severity.ERROR] or (self.given.strict and self.counts[Severity.WARNING]):
            raise FindingsError("" if self.is_text else reports.total(self.counts, info=True))

    def _said(self) -> None:
        if self.files:
            done = "would be" if self.given.diff else "are"
            streams.note(f"{self.fixed} findings {done} fixed in {self.files} file{'s' * (self.files > 1)}")
        if self.held:
            streams.note(f"{self.held} findings are in {self.baseline} and not shown")


_AT_WORK: list[Callable[[tuple[str, bool]], _Told | None]] = []
"""In a process of its own: how it checks a file."""


def _told(
    listed: Iterator[tuple[str, bool]], told: Callable[[Checked], _Told], checker: Checker, jobs: int, alone: bool
) -> Iterator[_Told]:
    """Yield what is said of each file; of many by several processes, in the order of the files."""

    def one(named: tuple[str, bool]) -> _Told | None:
        found = checker.file(*named, alone=alone and not named[1])
        return None if found is None else told(found)

    first = list(islice(listed, _FEW))
    rest = iter(()) if len(first) < _FEW else listed
    if jobs == 1 or len(first) < _FEW or "fork" not in multiprocessing.get_all_start_methods():
        yield from (found for named in chain(first, rest) if (found := one(named)) is not None)
        return
    _AT_WORK[:] = [one]
    with multiprocessing.get_context("fork").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        for found in pool.imap(_at_work, chain(first, rest), _CHUNK):
            if found is not None:
                yield found


def _at_work(named: tuple[str, bool]) -> _Told | None:
    return _AT_WORK[0](named)


def _list_rules(format_: str) -> None:
    rules = show.rules()
    rows = [(rule["id"], rule["severity"], rule["fix"] or "", rule["summary"]) for rule in rules]
    output.result(format_, {"rules": rules}, lambda: table(("id", "severity", "fix", "what holds"), rows))
