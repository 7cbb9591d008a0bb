"""The checks: small functions over a document, one module per topic, each with a `RULES` table at its end.

A rule's row has the sentence that must hold; its function yields a problem for every place where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vertexrig.checks import (
    built,
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
    processes,
    program,
    pytorch,
    quotas,
    reading,
    regions,
    saving,
    scheduling,
    secrets,
    slips,
    storage,
    strategy,
    study,
    tpu,
    trainer,
)
from vertexrig.checks._arguments import with_command
from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.finding import Finding, limited
from vertexrig.spec.document import Document
from vertexrig.spec.masking import masked
from vertexrig.spec.strict import READING_RULES, ReadingRule

__all__ = ["RULES", "Context", "Problem", "Rule", "all_rules", "check", "findings", "rule_ids"]

_TOPICS = (
    hardware, tpu, regions, quotas, cluster, images, program, scheduling, storage, disks,
    identity, network, naming, secrets, gcloud, study, trainer, slips, strategy, pytorch,
    processes, commands, saving, reading, container, built,
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(rule for topic in _TOPICS for rule in topic.RULES)
_RULE = {rule.id: rule for rule in RULES}

_LONGEST = 1000  # characters of a message

# A text that is not a job has nothing to check.
_UNREADABLE = {"yaml-syntax", "legacy-ai-platform", "not-vertex", "placeholder"}


def check(document: Document, context: Context, ignored: Mapping[str, str] = {}) -> list[Finding]:
    """All findings of a job spec: those of its strict reading, and those of the rules.

    Args:
        document: The job spec as read by `vertexrig.spec.reading`.
        context: What is known beside it.
        ignored: Ids of rules to leave out, each with the reason.

    Returns:
        Findings by line, then path, then id.
    """
    found = list(document.findings)
    if document.data or not any(finding.id in _UNREADABLE for finding in found):
        if context.trainer is not None:
            # once for all rules: which flags are valid depends on the sub-command that the pools choose
            context = replace(context, trainer=with_command(document, context.trainer))
        for rule in RULES:
            if rule.id not in ignored:
                problems = [one for one in rule.run(document, context) if not _unfilled(document, one.path)]
                found += limited(findings(rule, problems, document))
    # Of the whole document, not of one rule: any message may quote a value.
    hidden = frozenset(secret for _, _, secret in secrets.found(document))
    kept = [_safe(finding, hidden) for finding in found if finding.id not in ignored]
    return sorted(kept, key=lambda finding: (finding.line or 0, finding.path, finding.id))


def _unfilled(document: Document, path: str) -> bool:
    """Whether the value at `path`, around it or right below it is a placeholder, so that nothing is known of it."""
    for place in document.placeholders:
        rest = place.removeprefix(path)
        # right below only: a placeholder deep inside of a pool does not silence what is said of the pool
        below = bool(path) and rest != place and re.fullmatch(r"(?:\.\w+|\[\d+\])?", rest) is not None
        if below or path.startswith((f"{place}.", f"{place}[")) or _flag_of(document, place) == path:
            return True
    return False


def _flag_of(document: Document, path: str) -> str:
    """The path of the flag whose value is the separate item at `path`, "" if there is none."""
    found = re.fullmatch(r"(.*)\.args\[(\d+)\]", path)
    if found is None or found[2] == "0":
        return ""
    args = next((pool.args for pool in document.pools if pool.program_path == found[1]), [])
    number = int(found[2])
    return f"{found[1]}.args[{number - 1}]" if number < len(args) and not args[number].startswith("-") else ""


def _safe(finding: Finding, hidden: frozenset[str]) -> Finding:
    """A finding without the secrets that its message or fix may quote."""
    old = (finding.message, finding.fix, finding.key_fix)
    message, fix, key_fix = (masked(text, hidden) for text in old)
    return finding if (message, fix, key_fix) == old else replace(finding, message=message, fix=fix, key_fix=key_fix)


def findings(rule: Rule | str, problems: Iterable[Problem], document: Document | None = None) -> list[Finding]:
    """Problems as findings of a rule, with file and line if they were found in a document.

    Args:
        rule: The rule, or its id.
        problems: What it found.
        document: Where it was found; None for values outside the spec, such as labels.
    """
    rule = _RULE[rule] if isinstance(rule, str) else rule
    return [
        Finding(
            rule.id, problem.severity or rule.severity, problem.path,
            _short(problem.message), _short(problem.fix), rule.source,
            document.file if document else "", document.line(problem.path) if document else None,
            key_fix=_short(problem.key_fix),
        )
        for problem in problems
    ]  # fmt: skip


def _short(text: str) -> str:
    """A message cut to a bearable length, since it may quote a long value."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def all_rules() -> tuple[Rule | ReadingRule, ...]:
    """Every rule, those of the strict reading first."""
    return (*READING_RULES, *RULES)


def rule_ids() -> tuple[str, ...]:
    """The id of every rule, those of the strict reading included; each can be ignored."""
    return (*(rule.id for rule in READING_RULES), *_RULE)
