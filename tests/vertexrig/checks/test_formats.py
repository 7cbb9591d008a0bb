"""Findings as text, JSON and SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vertexrig import spec
from vertexrig.checks import all_rules, formats
from vertexrig.checks.formats import WIDTH, snippet
from vertexrig.finding import Finding, Severity, folded

TEXT = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-8, acceleratorCount: 3}  # the chief
  replicaCount: 1
"""
COUNT = Finding(
    "accelerator-count",
    Severity.ERROR,
    "workerPoolSpecs[0].machineSpec.acceleratorCount",
    "n1-standard-8 takes 1, 2 or 4 of NVIDIA_TESLA_T4, not 3",
    "write 4",
    "configure-compute page",
    "job.yaml",
    2,
)
NOTE = Finding("quota", Severity.INFO, "", "draws 3 GPUs", file="job.yaml")


def test_text_shows_place_line_marks_and_fix() -> None:
    """The whole text of two findings, as a person sees it."""
    shown = formats.text([COUNT, NOTE], {"job.yaml": TEXT})
    assert shown == (
        "job.yaml:2: error[accelerator-count]: n1-standard-8 takes 1, 2 or 4 of NVIDIA_TESLA_T4, not 3\n"
        "  |\n"
        "2 | - machineSpec: {machineType: n1-standard-8, acceleratorCount: 3}  # the chief\n"
        "  |                                             ^^^^^^^^^^^^^^^^^^^\n"
        "  = at:  workerPoolSpecs[0].machineSpec.acceleratorCount\n"
        "  = fix: write 4\n"
        "\n"
        "job.yaml: info[quota]: draws 3 GPUs\n"
        "\n"
        "1 error, 1 info\n"
    )


def test_errors_come_first_in_text() -> None:
    """Of one file the worst is shown first, those alike in the order of their lines."""
    found = [NOTE, replace(COUNT, severity=Severity.WARNING), replace(COUNT, line=3), replace(COUNT, line=4)]
    shown = re.findall(r"^\S+: (\w+)\[", formats.text(found, {}), re.MULTILINE)
    assert shown == ["error", "error", "warning", "info"]
    assert [block.split(": ")[0] for block in formats.blocks(found, {})][:2] == ["job.yaml:3", "job.yaml:4"]


@pytest.mark.parametrize(
    ("line", "path", "marked"),
    [
        ("  replicaCount: 1  # chief", "workerPoolSpecs[0].replicaCount", "replicaCount: 1"),
        ("  - metricId: accuracy", "studySpec.metrics[0].metricId", "metricId: accuracy"),
        ("  - metricId: accuracy", "studySpec.metrics[0]", "metricId: accuracy"),
        ("{a: 1, maxTrialCount: 4, b: 2}", "maxTrialCount", "maxTrialCount: 4"),
        ('  "maxTrialCount": 4,', "maxTrialCount", '"maxTrialCount": 4'),
        ("  max_trial_count: 4", "maxTrialCount", "max_trial_count: 4"),
        ("    values: [64, 32, 128]", "a.discreteValueSpec.values[1]", "32"),
        ("    args: [\"--a=1,2\", '--b', c]  # d", "a.args[1]", "'--b'"),
        ("    args: [\"--a=1,2\", '--b', c]  # d", "a.args[0]", '"--a=1,2"'),
        ("    env: [{name: a}, {name: b}]", "a.env[1]", "[{name: a}, {name: b}]"),
        (
            "- {parameterId: x, categoricalValueSpec: {values: [a, b]}}",
            "p[0].categoricalValueSpec",
            "categoricalValueSpec: {values: [a, b]}",
        ),
        ("  message: one, two", "x.message", "message: one, two"),
        ("  message: it's # here", "x.message", "message: it's"),
        ("    - --epochs=ten", "a.args[0]", "--epochs=ten"),
        ("  msg: 'a, b # c' # d", "x.msg", "msg: 'a, b # c'"),
        ("notreplicaCount: 1", "replicaCount", "notreplicaCount: 1"),
        ("studySpec:", "studySpec.metrics", "studySpec:"),
        ("  日本: {replicaCount: 2}", "replicaCount", "replicaCount: 2"),
    ],
)
def test_the_marks_stand_under_what_the_path_names(line: str, path: str, marked: str) -> None:
    """The marks cover the key with its value, or the item of a list."""
    shown, marks = snippet(line, path)
    # Wide characters take two columns: so does the space that stands for them under the line.
    columns = "".join(char * 2 if char in "日本" else char for char in shown)
    assert columns[marks.index("^") : len(marks)] == marked


def test_a_long_line_is_cut_around_the_marks() -> None:
    """A line of thousands of characters shows only the part that matters."""
    line = "{" + "a: 1, " * 2000 + "maxTrialCount: 4, " + "b: 2, " * 2000 + "}"
    shown, marks = snippet(line, "maxTrialCount")
    assert len(shown) <= WIDTH + 2 and shown[marks.index("^") : len(marks)] == "maxTrialCount: 4"


def test_control_characters_never_reach_the_terminal() -> None:
    """Escape sequences in a file or its name cannot move the cursor or colour the screen."""
    bad = Finding("x", Severity.ERROR, "a.\x1b[2J", "m\x1b]0;title\x07", "f\u202e", "", "file\x1b[31m.yaml", 1)
    shown = formats.text([bad], {bad.file: "a: \x1b[5m\x00"})
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)


def test_colour_changes_no_word() -> None:
    """Coloured text without its escape sequences is the plain text."""
    plain, colored = (formats.text([COUNT], {"job.yaml": TEXT}, color=color) for color in (False, True))
    assert "\x1b" not in plain and re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_summary_counts() -> None:
    """Singular and plural, nothing found, and the same words about the same line once."""
    assert formats.summary([COUNT, replace(COUNT, line=3), COUNT, NOTE]) == "2 errors, 1 info"
    assert formats.summary([]) == "no findings"


def test_json_has_exactly_the_keys_that_stay() -> None:
    """The JSON interface: twelve keys in each finding."""
    assert formats.rows([COUNT]) == [
        {
            "file": "job.yaml",
            "id": "accelerator-count",
            "severity": "error",
            "path": "workerPoolSpecs[0].machineSpec.acceleratorCount",
            "paths": ["workerPoolSpecs[0].machineSpec.acceleratorCount"],
            "message": "n1-standard-8 takes 1, 2 or 4 of NVIDIA_TESLA_T4, not 3",
            "fix": "write 4",
            "fixable": None,
            "source": "configure-compute page",
            "line": 2,
            "set": None,
            "docs": "https://github.com/vertexrig/vertexrig/blob/main/docs/checks.md#accelerator-count",
        }
    ]


def test_every_form_has_the_same_count() -> None:
    """Two places with the same words about one line are one finding with two paths, in text, JSON, SARIF and count."""
    other = replace(COUNT, path="workerPoolSpecs[1].machineSpec.acceleratorCount")
    found = [COUNT, other, NOTE, replace(NOTE, message="draws 1 CPU")]
    text = formats.text(found, {"job.yaml": TEXT}, info=False)
    assert text.endswith(f"\n\n{formats.summary(found)} (--info shows them)\n") and "1 error, 2 infos" in text
    assert "n1-standard-8" in text and f"= at:  {COUNT.path}, {other.path}\n" in text
    assert "^^^^^^^^^^^^^^^^^^^\n" in text and text.count("error[") == 1
    assert [row["paths"] for row in formats.rows(found)] == [[COUNT.path, other.path], [], []]
    (error, *_) = hold_sarif(json.loads(formats.sarif(found, [], version="0.1.0")))
    assert len(error["locations"][0]["logicalLocations"]) == 2


def test_the_snippet_of_an_overridden_value_is_the_override() -> None:
    """What --set gives is shown as it was typed; the file's old line is not."""
    text = formats.text([replace(COUNT, line=None, given="accelerator_count=3")], {"job.yaml": TEXT})
    assert text.splitlines()[:4] == [
        "job.yaml: error[accelerator-count]: n1-standard-8 takes 1, 2 or 4 of NVIDIA_TESLA_T4, not 3",
        "  |",
        "  | --set accelerator_count=3",
        "  |       ^^^^^^^^^^^^^^^^^^^",
    ]


def hold_sarif(log: dict[str, Any]) -> list[dict[str, Any]]:
    """Holds a log against what SARIF 2.1.0 requires; its results."""
    assert log["version"] == "2.1.0" and urlparse(log["$schema"]).scheme == "https"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] and driver.get("version", "1")
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert "helpUri" not in rule or urlparse(rule["helpUri"]).scheme  # 3.49.12: absolute
        assert rule.get("defaultConfiguration", {}).get("level", "warning") in {"none", "note", "warning", "error"}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        for location in result["locations"]:
            assert location
            physical = location.get("physicalLocation")
            if physical is not None:
                uri = physical["artifactLocation"]["uri"]
                assert re.fullmatch(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+", uri)  # RFC 3986
                assert physical.get("region", {"startLine": 1})["startLine"] >= 1
            for logical in location.get("logicalLocations", ()):
                assert logical["fullyQualifiedName"]
    results: list[dict[str, Any]] = run["results"]
    return results


def test_sarif_of_real_findings() -> None:
    """Findings of a real check, with every rule in the table, have all that SARIF requires."""
    checked = spec.parse("studySpec: {metricz: []}\nmaxTrialCount: 0\n", file="a b/study.yaml")
    results = hold_sarif(json.loads(formats.sarif([*checked.findings, COUNT, NOTE], all_rules(), version="0.1.0")))
    first = results[0]
    assert first["ruleId"] == "unknown-field" and "Fix: write metrics" in first["message"]["text"]
    place = first["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a%20b/study.yaml"}, "region": {"startLine": 1}}
    assert [result["level"] for result in results] == ["error", "error", "note"]


def test_sarif_of_nothing() -> None:
    """No findings and no rules still make a valid log."""
    assert hold_sarif(json.loads(formats.sarif([], [], version="0.1.0"))) == []


_TEXT = st.text(max_size=12)
_FINDINGS = st.lists(
    st.builds(
        Finding,
        _TEXT.filter(bool),
        st.sampled_from(Severity),
        _TEXT,
        _TEXT,
        _TEXT,
        _TEXT,
        _TEXT,
        st.none() | st.integers(-1, 9),
    ),
    max_size=4,
)


@given(_FINDINGS, st.dictionaries(_TEXT, _TEXT, max_size=2), st.booleans())
def test_any_finding_can_be_shown(findings: list[Finding], texts: dict[str, str], color: bool) -> None:
    """Whatever a finding holds: text that UTF-8 can carry, JSON that reads back, SARIF that is valid."""
    texts |= {finding.file: "a: {b: [1, 2]}\n\t- c" for finding in findings[:1]}
    formats.text(findings, texts, color=color).encode()
    counted = folded(findings)
    rows = json.loads(json.dumps(formats.rows(findings)))
    assert [row["message"] for row in rows] == [finding.message for finding in counted]
    results = hold_sarif(json.loads(formats.sarif(findings, [], version="0.1.0")))
    for result, finding in zip(results, counted, strict=True):
        if finding.file and not finding.file.startswith("/"):
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert unquote(uri)


@given(st.text(max_size=40), st.text(max_size=10))
def test_any_line_and_path_give_marks(line: str, path: str) -> None:
    """Marks are always there, and never without the line."""
    assert set(snippet(line, path)[1]) <= {" ", "^"} and "^" in snippet(line, path)[1]
