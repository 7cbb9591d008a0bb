"""Findings: the results of strict reading and of the checks, which every output format shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class Severity(str, Enum):
    """How much a finding matters: `error` stops a launch, `warning` costs or risks something, `info` is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Act(Enum):
    """The kinds of edits that do not write a value."""

    REMOVE = "remove"
    QUOTE = "put it in quotes"
    MAKE_LIST = "write it as a list, one item after a dash"


@dataclass(frozen=True)
class Edit:
    """A change of the file that a finding is about.

    Args:
        value: What to write, or what else to do; ignored with `key`.
        path: Where, in API camelCase; the finding's path by default.
        key: The right spelling of the key there, whose value stays.
        safe: Whether it is surely meant: it changes no job that works, and no other answer is as likely.
        location: Where in the file, by its own keys, once that is known.
    """

    value: Any = None
    path: str = ""
    key: str = ""
    safe: bool = True
    location: tuple[str | int, ...] = ()


def fix_text(edits: Sequence[Edit], path: str) -> str:
    """Return edits as the text of a finding's fix: `write acceleratorType: NVIDIA_L4 and acceleratorCount: 1`."""
    parts = []
    for edit in edits:
        name = edit.path.rpartition(".")[2]
        if edit.key:
            parts.append(("write", edit.key))
        elif edit.value is Act.REMOVE:
            parts.append(("remove", name or path.rpartition(".")[2]))
        elif isinstance(edit.value, Act):
            parts.append(("", edit.value.value))
        else:
            value = str(edit.value).lower() if isinstance(edit.value, bool) else str(edit.value)
            parts.append(("write", f"{name}: {value}" if name else value))
    verb = parts[0][0] if parts else ""
    return f"{verb} {' and '.join(text for _, text in parts)}".lstrip()


def write(value: Any, path: str = "", *, safe: bool = True) -> tuple[Edit, ...]:
    """Return the edit that writes a value; an empty tuple if there is no value."""
    return () if value is None or value == "" else (Edit(value, path, safe=safe),)


REMOVE = (Edit(Act.REMOVE),)
"""The edit that removes the value of a finding."""


@dataclass(frozen=True)
class Finding:
    """One result of a check.

    Args:
        id: The rule's id, such as `accelerator-count`; the project file ignores findings by it.
        path: Where in the resource, in API camelCase: `workerPoolSpecs[0].machineSpec.acceleratorCount`.
        message: What is wrong: the value, the rule, the choices.
        fix: What to write instead; empty when there is no single answer.
        source: Where the rule comes from, with its date.
        file: The file checked, as the user named it.
        line: The line of `path` in that file, counted from 1; None if the place has no line.
        given: The `KEY=VALUE` of the command line that the value comes from, "" if it comes from the file.
        more_paths: Other places of the same problem.
        key_fix: The fix in project-file terms; "" if replacing API names by file keys in `fix` is enough.
        value_type: The Python type of the value, for `wrong-type`; None for other rules.
        edits: Changes of the file that end it; none where only a person can.
        entry: Whose line of a project file it is, such as `jobs.a`; "" in any other file, and where single jobs are prepared, as by
            `render`.
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
    edits: tuple[Edit, ...] = ()
    entry: str = ""

    @property
    def fixable(self) -> str:
        """`safe` or `unsafe` if it has edits, else empty."""
        return ("safe" if all(edit.safe for edit in self.edits) else "unsafe") if self.edits else ""

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths of the finding."""
        return tuple(path for path in (self.path, *self.more_paths) if path)


MOST = 200
"""Most findings of one rule in a file, and of a file as text: a file from elsewhere may have any number of mistakes."""


def limited(found: Sequence[Finding]) -> list[Finding]:
    """Return the first findings, and one that counts the others, as severe as the worst of these."""
    rest = found[MOST:]
    return [*found[:MOST], *([left_out(rest, len(rest))] if rest else [])]


def left_out(rest: Iterable[Finding], count: int) -> Finding:
    """Return one finding that replaces several: the first of the most severe, with their number as its message."""
    order = list(Severity)
    first = min(rest, key=lambda finding: order.index(finding.severity))
    return replace(first, message=f"{count:,} more findings are left out", fix="", more_paths=(), edits=())


def folded(found: Iterable[Finding]) -> list[Finding]:
    """Return findings as they are shown and counted: those with the same message about the same line are one, with all their paths."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        place = (finding.file, finding.line, finding.entry if finding.line is None else "", finding.given)
        key = (*place, finding.id, finding.severity, finding.message)
        groups.setdefault(key, []).append(finding)
    return [_one(group) if len(group) > 1 else group[0] for group in groups.values()]


def _one(group: Sequence[Finding]) -> Finding:
    paths = tuple(dict.fromkeys(path for finding in group for path in finding.paths))
    return replace(group[0], path=paths[0] if paths else "", more_paths=paths[1:])
