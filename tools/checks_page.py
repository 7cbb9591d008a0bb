"""The reference page of the checks, `docs/checks.md`, made from the rules themselves.

`python -m tools.checks_page > docs/checks.md` writes it; a test holds the committed page against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby

from vertexrig.checks.model import Rule
from vertexrig.spec.strict import READING_RULES, ReadingRule

_HEAD = """\
# Checks

<!-- Made by `python -m tools.checks_page`; change the rules, not this page. -->

`vertexrig check` applies these rules, and `vertexrig check --list-rules` prints them. An **error** stops a launch, a
**warning** costs or risks something, an **info** is good to know. Each rule is written as what holds when nothing is
found. A single finding may be milder than its rule.

To ignore a rule, name its id under `silence` in the project file, with the reason. Rules about the trainer read its
source and never run it; where the source does not show something clearly, they find nothing.

Findings link to these headings: `docs` in JSON, `helpUri` in SARIF.
"""
_READING = "The strict reading"


def page(rules: Iterable[Rule], reading: Iterable[ReadingRule] = READING_RULES) -> str:
    """The whole page as Markdown.

    Args:
        rules: Every rule, those of one topic together.
        reading: The rules of the strict reading.
    """
    parts = [_HEAD, _section(_READING, reading)]
    for module, group in groupby(rules, key=lambda rule: rule.run.__module__):
        parts.append(_section(_title(module), group))
    return "\n".join(parts)


def _title(module: str) -> str:
    """A topic's heading: the first sentence of its module's docstring."""
    doc = sys.modules[module].__doc__ or module.rpartition(".")[2]
    return doc.strip().splitlines()[0].split(". ")[0].rstrip(".")


def _section(title: str, rules: Iterable[Rule | ReadingRule]) -> str:
    entries = [
        f"### {rule.id}\n\n**{rule.severity.value}**: {_line(rule.summary)}<br>\nSource: {_line(rule.source)}.\n"
        for rule in rules
    ]
    return "\n".join([f"## {title}\n", *entries])


def _line(text: str) -> str:
    return " ".join(text.replace("<", "&lt;").split())


if __name__ == "__main__":
    from vertexrig.checks import RULES

    sys.stdout.write(page(RULES))
