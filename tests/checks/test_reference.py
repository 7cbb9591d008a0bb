"""The reference page of the checks."""

from __future__ import annotations

import re
from pathlib import Path

from tools import checks_page as reference
from vertexrig.checks import RULES, all_rules

PAGE = Path(__file__).parents[2] / "docs/checks.md"


def test_the_committed_page_is_current() -> None:
    """docs/checks.md is what the rules say today; `python -m tools.checks_page > docs/checks.md` writes it."""
    assert PAGE.read_text(encoding="utf-8") == reference.page(RULES)


def test_every_rule_has_an_anchor_and_a_dated_source() -> None:
    """Each rule can be linked to on the page, and says where it comes from and of when."""
    page = reference.page(RULES)
    for rule in all_rules():
        assert page.count(f'<a id="{rule.id}"></a>') == 1
        assert re.search(r"20\d\d-\d\d-\d\d", rule.source), rule.id


def test_a_topic_has_one_section() -> None:
    """Rules of one module stand under one heading."""
    headings = re.findall(r"^## (.+)$", reference.page(RULES), flags=re.MULTILINE)
    assert len(headings) == len(set(headings)) > 3
