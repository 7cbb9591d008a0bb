"""The reference page of the checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools import checks_page as reference
from vertexrig.checks import all_rules, formats, rules
from vertexrig.finding import Finding

SETUP = Path(__file__).parents[3] / "setup.py"
PAGE = Path(__file__).parents[3] / "docs/checks.md"


def test_the_committed_page_is_current() -> None:
    """docs/checks.md is what the rules say today; `python -m tools.checks_page > docs/checks.md` writes it."""
    assert PAGE.read_text(encoding="utf-8") == reference.page(rules())


def test_every_rule_has_an_anchor_and_a_dated_source() -> None:
    """Each rule can be linked to on the page, and says where it comes from and of when."""
    page = reference.page(rules())
    for rule in all_rules():
        assert len(re.findall(rf"^### {rule.id}$", page, flags=re.MULTILINE)) == 1
        assert re.search(r"20\d\d-\d\d-\d\d", rule.source), rule.id


def test_findings_link_to_headings_of_the_published_page() -> None:
    """The address of each rule, in JSON and SARIF, is that of its heading, and the page is one that setup.py names."""
    headings = re.findall(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    anchors = [
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    ]  # as GitHub makes them
    assert len(anchors) == len(set(anchors))
    assert f'{{URL}}{formats.PAGE.removeprefix("https://github.com/vertexrig/vertexrig")}"' in SETUP.read_text()
    described = json.loads(formats.sarif([], all_rules(), version="0.1.0"))["runs"][0]["tool"]["driver"]["rules"]
    for rule, sarif in zip(all_rules(), described, strict=True):
        (row,) = formats.rows([Finding(rule.id, rule.severity, "", "wrong")])
        page, _, anchor = row["docs"].partition("#")
        assert (page, anchor) == (formats.PAGE, rule.id) and anchor in anchors and sarif["helpUri"] == row["docs"]


def test_a_topic_has_one_section() -> None:
    """Rules of one module stand under one heading."""
    headings = re.findall(r"^## (.+)$", reference.page(rules()), flags=re.MULTILINE)
    assert len(headings) == len(set(headings)) > 3
