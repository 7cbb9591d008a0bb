"""The reference page of the checks, `docs/checks.md`, made from the rules themselves.

`python -m tools.checks_page > docs/checks.md` writes it; a test holds the committed page against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby

from vertexrig.checks.model import Rule
from vertexrig.checks.output import Described
from vertexrig.spec.document import READING_RULES

_HEAD = """\
# Checks

<!-- Made by `python -m tools.checks_page`; change the rules, not this page. -->

`vertexrig check` finds the following. An **error** stops a launch, a **warning** costs or risks something, an **info**
is good to know. The third column says what holds when nothing is found. A single finding may be milder than its rule.

A rule is silenced in the project file by its id, with the reason. Rules about the trainer go by its source, which is
read and never run; where the source does not say something plainly, they stay silent.
"""
_READING = "The strict reading"


def page(rules: Iterable[Rule], reading: Iterable[Described] = READING_RULES) -> str:
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


def _section(title: str, rules: Iterable[Described]) -> str:
    rows = [
        f'| <a id="{rule.id}"></a>`{rule.id}` | {rule.severity.value} | {_cell(rule.summary)} | {_cell(rule.source)} |'
        for rule in rules
    ]
    return "\n".join(
        [f"## {title}", "", "| id | severity | what holds | source |", "| --- | --- | --- | --- |", *rows, ""]
    )


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


if __name__ == "__main__":
    from vertexrig.checks import RULES

    sys.stdout.write(page(RULES))
