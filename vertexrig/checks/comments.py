"""Comments in a YAML file that leave findings out: `# vertexrig: ignore[rule] reason`, on the line of the finding or above it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vertexrig.checks.model import IGNORE_MARK
from vertexrig.errors import did_you_mean
from vertexrig.finding import Finding
from vertexrig.spec import strict

RULE = "ignore-comment"
_COMMENT = re.compile(rf"(?:^|\s)#\s*{IGNORE_MARK}\b\s*(?:\[([^\]]*)\])?\s*(.*)$")


@dataclass(frozen=True)
class _Comment:
    line: int  # that it is about
    at: int  # where it is
    rules: tuple[str, ...]
    reason: str


def _comments(text: str) -> list[_Comment]:
    lines, found = text.splitlines(), []
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line) if IGNORE_MARK in line else None
        if match is None:
            continue
        about = number
        # alone on its line, it is about the next one
        while about <= len(lines) and lines[about - 1].lstrip().startswith("#"):
            about += 1
        rules = tuple(name.strip() for name in (match[1] or "").split(",") if name.strip())
        found.append(_Comment(about, number, rules, match[2].strip()))
    return found


def ignored(found: Sequence[Finding], text: str) -> list[Finding]:
    """Return the findings that the comments of their file ignore."""
    named = {(one.line, rule) for one in _comments(text) if one.reason for rule in one.rules}
    return [one for one in found if one.line is not None and not one.given and (one.line, one.id) in named]


def problems(text: str, file: str, known: Collection[str], by_comment: Sequence[Finding] | None) -> list[Finding]:
    """Return what is wrong with the comments of a file. `by_comment` are the findings that they ignore, None if not all of these are known."""
    found = []
    used = {(one.line, one.id) for one in by_comment or ()}
    for one in _comments(text):
        unknown = next((rule for rule in one.rules if rule not in known), None)
        if not one.rules or not one.reason:
            message = "a comment that ignores findings names their rules and gives a reason"
            fix = f"write # {IGNORE_MARK}[RULE] REASON"
        elif unknown is not None:
            message, fix = f"there is no rule {unknown!r}. {did_you_mean(unknown, known)}", ""
        elif by_comment is not None and not any((one.line, rule) in used for rule in one.rules):
            message, fix = f"no finding of {', '.join(one.rules)} is at line {one.line}", "remove the comment"
        else:
            continue
        found.append(strict.finding(RULE, "", message, fix, file=file, line=one.at))
    return found
