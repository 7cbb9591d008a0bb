"""Findings as text for a person, as JSON for a program, as SARIF for a code host. Pure functions: nothing is printed.

`text` shows each finding with its line, as compilers do. `rows` is the interface that stays:
`{"file", "id", "severity", "path", "paths", "message", "fix", "source", "line", "set", "docs"}`. `sarif` is SARIF 2.1.0. Each of
them, and `summary`, folds what is found first: so that their counts agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from vertexrig.checks._snippet import WIDTH, snippet
from vertexrig.checks.model import Rule
from vertexrig.finding import Finding, Severity, folded, limited
from vertexrig.spec.masking import masked
from vertexrig.spec.strict import ReadingRule
from vertexrig.text import clean

PAGE = "https://github.com/vertexrig/vertexrig/blob/main/docs/checks.md"
"""The published reference of the rules, with a heading for each."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_COLORS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m", Severity.INFO: "\x1b[1;36m"}
_DIM, _BOLD, _OFF = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_MOST_PATHS = 8
"""Places of one finding that a person is shown; JSON and SARIF have all."""
_PLURAL = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "infos"}


def text(
    findings: Iterable[Finding], texts: Mapping[str, str], *, color: bool = False, info: bool = True, width: int = WIDTH
) -> str:
    """Findings for a person: place, severity, id and message; the line itself; the fix; at the end the count.

    Args:
        findings: In the order to show them.
        texts: The content of each file by the name the findings have, to show the lines from.
        color: Use terminal colours.
        info: Show those of severity info, too; they are counted either way.
        width: Longest piece of a line to show, in characters.
    """
    findings = folded(findings)
    lines = {name: masked(content).splitlines() for name, content in texts.items()}
    seen = [finding for finding in findings if info or finding.severity is not Severity.INFO]
    blocks = [_block(finding, lines.get(finding.file, ()), color, width) for finding in limited(seen)]
    hidden = len(findings) - len(seen)
    hint = f" (--info shows {'them' if hidden > 1 else 'it'})" if hidden else ""
    return "\n\n".join([*blocks, summary(findings) + hint]) + "\n"


def _block(finding: Finding, lines: Sequence[str], color: bool, width: int) -> str:
    paint = _COLORS[finding.severity] if color else ""
    bold, dim, off = (_BOLD, _DIM, _OFF) if color else ("", "", "")
    number = "" if finding.line is None or finding.given else str(finding.line)
    place = ":".join(part for part in (clean(finding.file), number) if part)
    head = f"{paint}{finding.severity.value}{off}[{finding.id}]: {bold}{clean(finding.message)}{off}"
    shown = [f"{bold}{place}{off}: {head}" if place else head]
    margin = "  "
    source = _source(finding, lines, width)
    if source is not None:
        line, marks = source
        margin = " " * (len(number) + 1) if number else margin
        before = f"{number} " if number else margin
        shown += [f"{dim}{margin}|{off}", f"{dim}{before}|{off} {line}", f"{dim}{margin}|{off} {paint}{marks}{off}"]
    if finding.paths:
        more = f", … ({len(finding.paths)} in all)" if len(finding.paths) > _MOST_PATHS else ""
        shown.append(f"{dim}{margin}= at:{off}  {clean(', '.join(finding.paths[:_MOST_PATHS]))}{more}")
    if finding.fix:
        shown.append(f"{dim}{margin}= fix:{off} {clean(finding.fix)}")
    return "\n".join(shown)


def _source(finding: Finding, lines: Sequence[str], width: int) -> tuple[str, str] | None:
    """What the finding is about, with marks below it: the `--set` that gives the value, or the line of the file."""
    if finding.given:
        option, given = "--set ", clean(finding.given)
        return option + given, " " * len(option) + "^" * len(given)
    if not _in_sight(finding, lines):
        return None
    return snippet(lines[(finding.line or 1) - 1], finding.path, width=width)


def _in_sight(finding: Finding, lines: Sequence[str]) -> bool:
    """Whether the finding's line shows something of it: a key missing at the top of the file has no line."""
    if finding.line is None or not 0 < finding.line <= len(lines):
        return False
    return finding.line > 1 or not finding.path.isalnum() or finding.path in lines[0]


def summary(findings: Iterable[Finding]) -> str:
    """How many findings there are: `2 errors, 1 warning`."""
    found = [finding.severity for finding in folded(findings)]
    counts = [(severity, found.count(severity)) for severity in Severity]
    parts = [f"{count} {severity.value if count == 1 else _PLURAL[severity]}" for severity, count in counts if count]
    return ", ".join(parts) or "no findings"


def address(rule: str) -> str:
    """Where a rule is described: its heading on the published page."""
    return f"{PAGE}#{rule}"


def rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as the JSON that stays the same between versions."""
    return [
        {
            "file": finding.file,
            "id": finding.id,
            "severity": finding.severity.value,
            "path": finding.path,
            "paths": list(finding.paths),
            "message": finding.message,
            "fix": finding.fix,
            "source": finding.source,
            "line": finding.line,
            "set": finding.given or None,
            "docs": address(finding.id),
        }
        for finding in limited(folded(findings))
    ]


def sarif(findings: Iterable[Finding], rules: Iterable[Rule | ReadingRule], *, version: str) -> str:
    """Findings as one SARIF 2.1.0 run, with every rule in its table.

    Each rule carries its text, source and date besides the address of its heading: a report may be read offline.

    Args:
        findings: What was found.
        rules: The rules that were run; a finding of another id gets its own row.
        version: The tool's version.
    """
    findings = limited(folded(findings))
    table = {rule.id: _descriptor(rule) for rule in rules}
    for finding in findings:
        # SARIF refers to rules by their place in the table
        table.setdefault(finding.id, {"id": finding.id, "shortDescription": {"text": finding.id}})
    index = {name: place for place, name in enumerate(table)}
    driver = {"name": "vertexrig", "rules": list(table.values()), "version": version}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, index[finding.id]) for finding in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _descriptor(rule: Rule | ReadingRule) -> dict[str, Any]:
    more = f"Source: {rule.source}. `vertexrig check --list-rules` lists all rules."
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.summary},
        "helpUri": address(rule.id),
        "help": {"text": f"{rule.summary} {more}", "markdown": f"**{rule.summary}** {more}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"source": rule.source},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    message = f"{finding.message.rstrip('.')}. Fix: {finding.fix}" if finding.fix else finding.message
    location: dict[str, Any] = {}
    if finding.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
        if finding.line is not None and finding.line > 0:
            place["region"] = {"startLine": finding.line}
        location["physicalLocation"] = place
    if finding.paths:
        location["logicalLocations"] = [{"fullyQualifiedName": path, "kind": "member"} for path in finding.paths]
    return {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": message or finding.id},
        "locations": [location] if location else [],
        "properties": {"fix": finding.fix, "source": finding.source},
    }


def _uri(file: str) -> str:
    """A file's name as a URI: absolute ones as file://, the others relative, so that a code host finds them."""
    path = PurePath(file)
    if path.is_absolute():
        return "file://" + quote(path.as_posix(), errors="replace")
    uri = quote(path.as_posix(), errors="replace")
    # a colon in the first part would make it a scheme (RFC 3986, 4.2)
    return f"./{uri}" if ":" in uri.split("/")[0] else uri
