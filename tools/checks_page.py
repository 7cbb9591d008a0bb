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

`vertexrig check` applies these rules. `vertexrig check --list-rules` prints them.

- An **error** stops a launch. A **warning** names a cost or a risk. An **info** is good to know. A single
  finding may be milder than its rule.
- The text of a rule says what is true of a correct file. The numbers behind it lead to its [sources](#sources).
- `check --fix` makes a **safe fix**, and `--unsafe-fixes` also an **unsafe** one. A rule with safe fixes may have single fixes that are unsafe.
- Rules about the trainer read its source and never run it. If the source does not show a fact clearly, they report nothing.

[Check](check.md) explains fixes, and how to leave out a finding. Each finding links to its rule on this page: `docs` in JSON, `helpUri` in SARIF.
"""
READING = "The strict reading"


def page(rules: Iterable[Rule], reading: Iterable[ReadingRule] = READING_RULES) -> str:
    """Return the whole page as Markdown.

    Args:
        rules: Every rule, those of one topic together.
        reading: The rules of the strict reading.
    """
    sources: dict[str, int] = {}
    parts = [_HEAD, _section(READING, reading, sources)]
    for module, group in groupby(rules, key=lambda rule: rule.run.__module__):
        parts.append(_section(title(module), group, sources))
    parts.append("## Sources\n")
    parts += [f"{number}. {source}" for source, number in sources.items()]
    return "\n".join(parts) + "\n"


def title(module: str) -> str:
    """Return a topic's heading: the first sentence of its module's docstring."""
    doc = sys.modules[module].__doc__ or module.rpartition(".")[2]
    return doc.strip().splitlines()[0].split(". ")[0].rstrip(".")


def _section(title: str, rules: Iterable[Rule | ReadingRule], sources: dict[str, int]) -> str:
    """Return a topic's part of the page; sources that are new get the next numbers."""
    entries = []
    for rule in rules:
        numbers = [sources.setdefault(one, len(sources) + 1) for one in escaped(rule.source).split("; ")]
        shown = ", ".join(f"[{number}](#sources)" for number in numbers)
        fix = f" *Fix: {rule.edits}.*" if rule.edits else ""
        entries.append(f"### {rule.id}\n\n**{rule.severity.value}**: {escaped(rule.summary)}{fix} ({shown})\n")
    return "\n".join([f"## {title}\n", *entries])


def escaped(text: str) -> str:
    """Return a text as one line of Markdown."""
    return " ".join(text.replace("<", "&lt;").split())


if __name__ == "__main__":
    from vertexrig.checks import rules

    sys.stdout.write(page(rules()))
