"""Reports that are printed file by file: a code host's annotations, its quality report, a test report, and those of `formats`.

`github` is the workflow commands of GitHub Actions, `gitlab` the Code Quality report (a list of issues), `junit` the XML that CI servers read; their forms are those of
the documents of GitHub, GitLab and Jenkins' JUnit plugin of 2026-11-22.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vertexrig.checks import formats
from vertexrig.checks.formats import with_fix
from vertexrig.finding import Finding, Severity, folded
from vertexrig.text import command, markup


@dataclass(frozen=True)
class Report:
    """A report whose text grows file by file.

    Args:
        piece: Returns the text for the findings of one file, "" for none.
        start: What comes before the first piece.
        between: What comes between two.
        end: What comes after the last.
    """

    piece: Callable[[str, Sequence[Finding]], str]
    start: str = ""
    between: str = "\n"
    end: str = "\n"


_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning"}
"""GitHub shows ten annotations of each kind in a step: findings of severity info are left to other reports."""


def _github(file: str, found: Sequence[Finding]) -> str:
    lines = []
    for one in (one for one in folded(found) if one.severity in _COMMANDS):
        title = f"{one.id}: {one.paths[0]}" if one.paths else one.id
        location = {"file": one.file, "line": one.line or 1, "title": title} if one.file else {"title": title}
        given = ",".join(f"{key}={command(str(value), inside=True)}" for key, value in location.items())
        lines.append(f"::{_COMMANDS[one.severity]} {given}::{command(with_fix(one))}")
    return "\n".join(lines)


_LEVELS = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


def _gitlab(file: str, found: Sequence[Finding]) -> str:
    seen: dict[str, int] = {}
    rows = []
    for one in folded(found):
        # without its line: the same mistake stays the same when lines come above it
        what = "\0".join((one.file, one.id, one.path))
        seen[what] = seen.get(what, 0) + 1
        rows.append(
            {
                "description": with_fix(one),
                "check_name": one.id,
                "fingerprint": hashlib.sha256(f"{what}\0{seen[what]}".encode("utf-8", "replace")).hexdigest(),
                "severity": _LEVELS[one.severity],
                "location": {"path": one.file, "lines": {"begin": one.line or 1}},
                "content": {"body": f"{one.source}. {formats.address(one.id)}"},
            }
        )
    return ",\n".join(json.dumps(row) for row in rows)


def _junit(file: str, found: Sequence[Finding]) -> str:
    cases = []
    for one in folded(found):
        name, where = f"{one.id} {one.path}".strip(), f"{one.file}:{one.line}" if one.line else one.file
        # an info is no failure: it is the output of a test that passed
        tag, kind = "failure", f" type={_attribute(one.severity.value)} message={_attribute(with_fix(one))}"
        if one.severity is Severity.INFO:
            tag, kind = "system-out", ""
        body = markup(f"{where}: {with_fix(one)}")
        cases.append(
            f"<testcase classname={_attribute(file)} name={_attribute(name)}><{tag}{kind}>{body}</{tag}></testcase>"
        )
    failures = sum(one.severity is not Severity.INFO for one in folded(found))
    cases = cases or [f'<testcase classname={_attribute(file)} name="check"/>']
    suite = f'<testsuite name={_attribute(file)} tests="{len(cases)}" failures="{failures}">'
    return "\n".join([suite, *cases, "</testsuite>"])


def _attribute(text: str) -> str:
    return f'"{markup(text)}"'


FILED = {
    "github": Report(_github, end="\n"),
    "gitlab": Report(_gitlab, start="[\n", between=",\n", end="\n]\n"),
    "junit": Report(_junit, start='<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="vertexrig check">\n', end="\n</testsuites>\n"),
}  # fmt: skip
"""By the name of a format."""


def sarif(version: str) -> Report:
    """Return SARIF whose results come one file after the other."""
    from vertexrig.checks import all_rules

    rules = all_rules()
    head, _, tail = formats.sarif((), rules, version=version).partition('"results": []')
    index = {rule.id: number for number, rule in enumerate(rules)}

    def piece(file: str, found: Sequence[Finding]) -> str:
        return ",\n".join(json.dumps(formats.result(one, index[one.id])) for one in folded(found))

    return Report(piece, f'{head}"results": [\n', ",\n", f"\n]{tail}")
