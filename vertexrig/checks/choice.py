"""Which findings are reported: what the command line and the project file select, without those that a baseline lists."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from vertexrig import checks, files
from vertexrig.checks.images import AVAILABILITY
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.finding import Finding, Severity, folded
from vertexrig.project.config import Loaded
from vertexrig.project.model import CheckSettings
from vertexrig.schema import typed
from vertexrig.text import quoted


@dataclass(frozen=True)
class Choice:
    """Which findings are reported.

    Args:
        select: Ids of rules and patterns; all if empty.
        ignore: The same, which are not reported.
        known: How often a finding is known, by file, rule and path: the baseline.
        home: The folder that the baseline's files are seen from.
        strict: Whether any prebuilt image past its end of availability is a warning.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    known: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    home: Path = Path()
    strict: bool = False

    def of(self, found: Iterable[Finding]) -> tuple[list[Finding], int]:
        """Return what is reported of the findings of one file, and how many the baseline has."""
        left, kept = Counter[tuple[str, str, str]](), []
        known = 0
        for one in folded(found):
            if (self.select and not _fits(one.id, self.select)) or _fits(one.id, self.ignore):
                continue
            key = self.key(one) if self.known else ("", "", "")
            left[key] += 1
            if left[key] <= self.known[key]:
                known += 1
            else:
                # of the newest image it is an info otherwise
                past = self.strict and one.id == AVAILABILITY
                kept.append(replace(one, severity=Severity.WARNING) if past else one)
        return kept, known

    def key(self, one: Finding) -> tuple[str, str, str]:
        """Return what the baseline has of a finding: no line and no message, which change by themselves."""
        file = os.path.relpath(one.file, self.home) if one.file not in ("", "-") else one.file
        return Path(file).as_posix(), one.id, f"{one.entry}: {one.path}" if one.entry else one.path


def _fits(rule: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(rule, pattern) for pattern in patterns)


def choice(
    settings: CheckSettings, home: Path, select: Sequence[str], ignore: Sequence[str], baseline: Path | None, *,
    writing: bool, strict: bool,
) -> Choice:  # fmt: skip
    """Return what a command line and the project file select; the command line's selection replaces the file's.

    Raises:
        UsageError: A pattern fits no rule, or there is no such baseline.
    """
    selected, ignored = ([part.strip() for one in given for part in one.split(",")] for given in (select, ignore))
    selected, ignored = selected or list(settings.select), [*settings.ignore, *ignored]
    known = checks.rule_ids() if selected or ignored else ()
    for pattern in (*selected, *ignored):
        if not any(fnmatchcase(rule, pattern) for rule in known):
            raise UsageError(f"no rule matches {quoted(pattern)}. {did_you_mean(pattern, known)}")
    counts = Counter[tuple[str, str, str]]()
    if baseline is not None and not writing:
        if not baseline.exists():
            raise UsageError(f"there is no baseline {baseline}: --write-baseline writes it")
        try:
            for row in json.loads(files.read_text(baseline))["findings"]:
                counts[row["file"], row["id"], row["path"]] = row["count"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{baseline} is not a baseline: {error!r}. --write-baseline writes a new one") from None
    return Choice(tuple(selected), tuple(ignored), counts, baseline.parent if baseline else home, strict)


def baseline_text(counts: Counter[tuple[str, str, str]]) -> str:
    """Return a baseline as JSON, in an order that makes a difference small."""
    rows = [{"file": file, "id": id_, "path": path, "count": n} for (file, id_, path), n in sorted(counts.items())]
    return json.dumps({"findings": rows}, indent=1) + "\n"


def owner(loaded: Loaded, line: int | None, name: str) -> str:
    """Return the entry of the project file that a line belongs to, such as `jobs.a`; `name` without a line."""
    if line is None:
        return name
    above = (path for path, at in loaded.origins.lines.items() if at <= line and len(path) in (1, 2))
    return typed.dotted(max(above, key=lambda path: (loaded.origins.lines[path], len(path)), default=()))
