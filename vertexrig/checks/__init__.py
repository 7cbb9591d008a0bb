"""The checks: small functions over a document, one module per topic, each with a `RULES` table at its end.

A rule's row says what holds; its function yields a problem for every place where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from vertexrig.checks import (
    cluster,
    commands,
    container,
    disks,
    gcloud,
    hardware,
    identity,
    images,
    naming,
    network,
    program,
    quotas,
    regions,
    saving,
    scheduling,
    storage,
    strategy,
    study,
    tpu,
    trainer,
)
from vertexrig.checks._arguments import with_command
from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.finding import Finding
from vertexrig.spec.document import READING_RULES, Document, ReadingRule

__all__ = ["RULES", "Context", "Problem", "Rule", "all_rules", "check", "findings", "rule_ids"]

_TOPICS = (
    hardware, tpu, regions, quotas, cluster, images, program, scheduling, storage, disks,
    identity, network, naming, gcloud, study, trainer, strategy,
    commands, saving, container,
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(rule for topic in _TOPICS for rule in topic.RULES)
_RULE = {rule.id: rule for rule in RULES}

_LONGEST = 1000  # characters of a message

# A text that cannot be taken for a job has nothing in it to check.
_UNREADABLE = {"yaml-syntax", "legacy-ai-platform"}


def check(document: Document, context: Context, silenced: Mapping[str, str] = {}) -> list[Finding]:
    """Everything there is to say about a job spec: what its strict reading found, and what the rules find.

    Args:
        document: The job spec as read by `vertexrig.spec.document`.
        context: What is known beside it.
        silenced: Ids of rules to leave out, each with the reason.

    Returns:
        Findings by line, then path, then id.
    """
    found = list(document.findings)
    if document.data or not any(finding.id in _UNREADABLE for finding in found):
        if context.trainer is not None:
            context = replace(context, trainer=with_command(document, context.trainer))
        for rule in RULES:
            if rule.id not in silenced:
                found += findings(rule, rule.run(document, context), document)
    kept = [finding for finding in found if finding.id not in silenced]
    return sorted(kept, key=lambda finding: (finding.line or 0, finding.path, finding.id))


def findings(rule: Rule | str, problems: Iterable[Problem], document: Document | None = None) -> list[Finding]:
    """Problems as findings of a rule, with file and line if they were found in a document.

    Args:
        rule: The rule, or its id.
        problems: What it found.
        document: Where it was found; None for what stands outside the spec, such as labels.
    """
    rule = _RULE[rule] if isinstance(rule, str) else rule
    return [
        Finding(
            rule.id, problem.severity or rule.severity, problem.path,
            _short(problem.message), _short(problem.fix), rule.source,
            document.file if document else "", document.line(problem.path) if document else None,
        )
        for problem in problems
    ]  # fmt: skip


def _short(text: str) -> str:
    """A message of bearable length: the value it names may be of any."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def all_rules() -> tuple[Rule | ReadingRule, ...]:
    """Every rule, those of the strict reading first."""
    return (*READING_RULES, *RULES)


def rule_ids() -> tuple[str, ...]:
    """The id of every rule, those of the strict reading included: what can be silenced."""
    return (*(rule.id for rule in READING_RULES), *_RULE)
