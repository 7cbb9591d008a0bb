"""Findings, the value that the strict spec and the checks produce and every output format shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum


class Severity(str, Enum):
    """How much a finding matters: `error` stops a launch, `warning` costs or risks something, `info` is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One result of a check.

    Args:
        id: The rule's id, such as `accelerator-count`; the project file ignores findings by it.
        severity: See `Severity`.
        path: Where in the resource, in API camelCase: `workerPoolSpecs[0].machineSpec.acceleratorCount`.
        message: What is wrong: the value, the rule, the choices.
        fix: What to write instead; empty when there is no single answer.
        source: Where the rule comes from, with its date.
        file: The file checked, as the user named it.
        line: The line of `path` in that file, counted from 1; None if the place has no line.
        given: The `KEY=VALUE` of the command line that the value comes from, "" if it comes from the file.
        more_paths: Other places of the same problem, after `folded`.
        key_fix: The fix for a value that a key of the project file gives, "" if it is `fix` with the file's keys for fields.
        value_type: The Python type of the value, for `wrong-type`; None for other rules.
    """

    id: str
    severity: Severity
    path: str
    message: str
    fix: str = ""
    source: str = ""
    file: str = ""
    line: int | None = None
    given: str = ""
    more_paths: tuple[str, ...] = ()
    key_fix: str = ""
    value_type: type | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Every place that the finding is about."""
        return tuple(path for path in (self.path, *self.more_paths) if path)


MOST = 200
"""Findings of one rule, and of one report, at most: a file from elsewhere may have any number of mistakes."""


def limited(found: Sequence[Finding], most: int = MOST) -> list[Finding]:
    """The first of these findings, and one that counts those left out, as severe as the worst of them."""
    rest = found[most:]
    return [*found[:most], *([left_out(rest, len(rest))] if rest else [])]


def left_out(rest: Iterable[Finding], count: int) -> Finding:
    """The finding that takes the place of others: the first of the most severe, with their number as its message."""
    order = list(Severity)
    first = min(rest, key=lambda finding: order.index(finding.severity))
    return replace(first, message=f"{count:,} more findings are left out", fix="", more_paths=())


def folded(found: Iterable[Finding]) -> list[Finding]:
    """Findings with the same message about the same line merged into one with all their paths, as shown and counted."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        key = (finding.file, finding.line, finding.given, finding.id, finding.severity, finding.message)
        groups.setdefault(key, []).append(finding)
    return [_one(group) for group in groups.values()]


def _one(group: Sequence[Finding]) -> Finding:
    paths = tuple(dict.fromkeys(path for finding in group for path in finding.paths))
    return replace(group[0], path=paths[0] if paths else "", more_paths=paths[1:])
