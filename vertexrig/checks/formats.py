"""Findings as text for a person, as JSON for a program, as SARIF for a code host. Pure functions: nothing is printed.

`text` shows each finding with its line, as compilers do. `rows` is the interface that stays:
`{"file", "id", "severity", "path", "paths", "message", "fix", "fixable", "source", "line", "set", "docs"}`. `sarif` is SARIF 2.1.0. All of
them fold equal findings first, so that their counts agree.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from vertexrig import variables
from vertexrig.checks.model import Rule
from vertexrig.errors import SOURCE
from vertexrig.finding import Finding, Severity, folded, limited
from vertexrig.spec.masking import masked
from vertexrig.spec.strict import ReadingRule
from vertexrig.text import clean
from vertexrig.text import sarif as escaped

WIDTH = 110
"""Longest piece of a line that is shown, in characters."""
_SEARCHED = 20_000
"""Characters of a line that are searched for a finding's value: a program may write a whole file as one line."""

_ITEM = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^,\[\]{}"'\s][^,\[\]{}]*?)\s*([,\]])""")


def snippet(line: str, path: str, *, width: int = WIDTH) -> tuple[str, str]:
    """Return one source line, cut to `width`, and the marks (`^^^`) to print below it: those of the path's last key, or of the item of a list."""
    line = clean(variables.shown(line[:_SEARCHED]))
    start, end = _span(line, path)
    if len(line) > width:
        # a quarter of the room is left in front of the marked part, so that its key is seen too
        left = max(0, min(start - width // 4, len(line) - width))
        head, tail = "…" if left else "", "…" if left + width < len(line) else ""
        line = head + line[left : left + width] + tail
        start, end = start - left + len(head), min(end - left + len(head), width + len(head))
    line = line.rstrip()
    return line, " " * _columns(line[:start]) + "^" * max(1, _columns(line[start:end]))


def _span(line: str, path: str) -> tuple[int, int]:
    """Return where in the line the value at `path` is; the line's whole content if that is not clear."""
    key = re.split(r"[.\[]", re.sub(r"(\[[0-9]+\])+$", "", path))[-1]
    # a path is in camelCase, a project file in snake_case
    snake = re.sub(r"([A-Z])", r"_\1", key).lower()
    names = "|".join(re.escape(name) for name in sorted({key, snake}) if name)
    found = re.search(rf"""(?<![\w-])["']?(?:{names})["']?\s*:\s*""", line) if names else None
    if found is not None:
        if path.endswith("]") and line[found.end() : found.end() + 1] == "[":
            return _item(line, found.end(), int(path.rpartition("[")[2].rstrip("]")))
        return found.start(), _value_end(line, found.end(), flow=bool(re.search(r"[{[]", line[: found.start()])))
    content = re.match(r"(\s*(?:-\s+)*)(.*?)\s*(?:\s#.*)?$", line)
    if content is None or not content.group(2):
        return 0, len(line)
    return content.start(2), content.end(2)


def _value_end(line: str, start: int, *, flow: bool) -> int:
    """Return where the value ends that begins at `start`: at its closing bracket, a comma of a `{a: 1, b: 2}`, a comment."""
    depth, quoted, at = 0, "", start
    before = ""  # the last character that is no white space
    while at < len(line):
        char = line[at]
        if quoted:
            quoted = "" if char == quoted else quoted
        # a quote opens a text only at the beginning of a value; in `it's` it is a letter
        elif char in "\"'" and before in {"", ",", "[", "{", ":"}:
            quoted = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
            if depth < 0:
                break
        elif (char == "," and flow and not depth) or (char == "#" and line[at - 1] == " "):
            break
        before = before if char.isspace() else char
        at += 1
    end = start + len(line[start:at].rstrip().removesuffix(",").rstrip())  # JSON ends its lines with a comma
    return end if end > start else len(line[:start].rstrip())


def _item(line: str, start: int, index: int) -> tuple[int, int]:
    """Return where item `index` of the one-line list at `start` is; the whole list if its items are not plain."""
    at = start + 1
    for number in range(index + 1):
        found = _ITEM.match(line, at)
        if found is None or (found.group(2) == "]" and number < index):
            break
        if number == index:
            return found.span(1)
        at = found.end()
    return start, _value_end(line, start, flow=False)


def _columns(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    # a wide character takes two columns and a combining one none, or the marks would not be below the value
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


PAGE = f"{SOURCE}/blob/main/docs/checks.md"
"""The published reference of the rules, with a heading for each."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_COLORS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m", Severity.INFO: "\x1b[1;36m"}
_DIM, _BOLD, _OFF = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_MOST_PATHS = 8
"""Paths of one finding that a person is shown; JSON and SARIF have all."""
_PLURAL = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "infos"}


def text(
    findings: Iterable[Finding], texts: Mapping[str, str], *, color: bool = False, info: bool = True, width: int = WIDTH
) -> str:
    """Return findings for a person: file and line, severity, id and message; the line itself; the fix; at the end the count.

    `texts` is the content of each file by the name the findings have. Findings of severity info are counted, also where they are not shown.
    """
    findings = folded(findings)
    parts = blocks(findings, texts, color=color, info=info, width=width)
    return "\n\n".join([*parts, total(Counter(one.severity for one in findings), info=info)]) + "\n"


def blocks(
    findings: Iterable[Finding], texts: Mapping[str, str], *, color: bool = False, info: bool = True, width: int = WIDTH
) -> list[str]:
    """Return each finding that is shown as `text` shows it."""
    lines = {name: masked(content).splitlines() for name, content in texts.items()}
    by_file: dict[str, list[Finding]] = {}
    for finding in folded(findings):
        if info or finding.severity is not Severity.INFO:
            by_file.setdefault(finding.file, []).append(finding)
    order = list(Severity)
    # the worst of each file come first, and not all where there are more than a person reads
    files = [limited(sorted(own, key=lambda one: order.index(one.severity))) for own in by_file.values()]
    return [_block(finding, lines.get(finding.file, ()), color, width) for own in files for finding in own]


def _block(finding: Finding, lines: Sequence[str], color: bool, width: int) -> str:
    paint = _COLORS[finding.severity] if color else ""
    bold, dim, off = (_BOLD, _DIM, _OFF) if color else ("", "", "")
    number = "" if finding.line is None or finding.given else str(finding.line)
    where = ":".join(part for part in (clean(finding.file), number) if part)
    head = f"{paint}{finding.severity.value}{off}[{finding.id}]: {bold}{clean(finding.message)}{off}"
    shown = [f"{bold}{where}{off}: {head}" if where else head]
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
    """Return what the finding is about, with marks below it: the `--set` that gives the value, or the line of the file."""
    if finding.given:
        option, given = "--set ", clean(finding.given)
        return option + given, " " * len(option) + "^" * len(given)
    if not _in_sight(finding, lines):
        return None
    return snippet(lines[(finding.line or 1) - 1], finding.path, width=width)


def _in_sight(finding: Finding, lines: Sequence[str]) -> bool:
    """Whether the finding's line shows something of it."""
    if finding.line is None or not 0 < finding.line <= len(lines):
        return False
    # If the top of a file lacks a key, the finding usually has line 1, and the key as its path: line 1 is shown only if it has the key.
    return finding.line > 1 or not finding.path.isalnum() or finding.path in lines[0]


def summary(findings: Iterable[Finding]) -> str:
    """Return the number of findings as text: `2 errors, 1 warning`."""
    return total(Counter(finding.severity for finding in folded(findings)), info=True)


def total(counts: Mapping[Severity, int], *, info: bool) -> str:
    """Return counts as text, as `summary` does; without `info` it adds that infos are not shown."""
    found = [(severity, counts.get(severity, 0)) for severity in Severity]
    parts = [f"{count} {severity.value if count == 1 else _PLURAL[severity]}" for severity, count in found if count]
    hidden = 0 if info else counts.get(Severity.INFO, 0)
    hint = f" (--info shows {'them' if hidden > 1 else 'it'})" if hidden else ""
    return (", ".join(parts) or "no findings") + hint


def address(rule: str) -> str:
    """Return where a rule is described: its heading on the published page."""
    return f"{PAGE}#{rule}"


def rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as the JSON that stays the same between versions."""
    return [
        {
            "file": finding.file,
            "id": finding.id,
            "severity": finding.severity.value,
            "path": finding.path,
            "paths": list(finding.paths),
            "message": finding.message,
            "fix": finding.fix,
            "fixable": finding.fixable or None,
            "source": finding.source,
            "line": finding.line,
            "set": finding.given or None,
            "docs": address(finding.id),
        }
        for finding in folded(findings)
    ]


def sarif(findings: Iterable[Finding], rules: Iterable[Rule | ReadingRule], *, version: str) -> str:
    """Return findings as one SARIF 2.1.0 run, with every rule in its table.

    Each rule carries its text, source and date in addition to the address of its heading: a report may be read offline.

    Args:
        findings: What was found.
        rules: The rules that were run; a finding of another id gets its own row.
        version: The tool's version.
    """
    findings = folded(findings)
    table = {rule.id: _descriptor(rule) for rule in rules}
    for finding in findings:
        # SARIF refers to rules by their index in the table
        table.setdefault(finding.id, {"id": finding.id, "shortDescription": {"text": finding.id}})
    index = {name: number for number, name in enumerate(table)}
    driver = {"name": "vertexrig", "rules": list(table.values()), "version": version}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [result(finding, index[finding.id]) for finding in findings],
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


def with_fix(finding: Finding) -> str:
    """Return message and fix as one text."""
    return f"{finding.message.rstrip('.')}. Fix: {finding.fix}" if finding.fix else finding.message


def result(finding: Finding, index: int) -> dict[str, Any]:
    """Return a finding as SARIF has it, with the index of its rule in the table."""
    location: dict[str, Any] = {}
    if finding.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
        if finding.line is not None and finding.line > 0:
            physical["region"] = {"startLine": finding.line}
        location["physicalLocation"] = physical
    if finding.paths:
        location["logicalLocations"] = [{"fullyQualifiedName": path, "kind": "member"} for path in finding.paths]
    return {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": escaped(with_fix(finding)) or finding.id},
        "locations": [location] if location else [],
        "properties": {"fix": finding.fix, "source": finding.source},
    }


def _uri(file: str) -> str:
    """Return a file's name as a URI: absolute ones as file://, the others relative, so that a code host finds them."""
    path = PurePath(file)
    if path.is_absolute():
        return "file://" + quote(path.as_posix(), errors="replace")
    uri = quote(path.as_posix(), errors="replace")
    # a colon in the first part would make it a scheme (RFC 3986, 4.2)
    return f"./{uri}" if ":" in uri.split("/")[0] else uri
