"""The checks: small functions over a document, one module per topic, each with a `RULES` table at its end.

Modules without a `RULES` table are helpers. A rule's row has the sentence that must hold; its function yields a problem for each value that breaks it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module

from vertexrig import variables
from vertexrig.checks import secrets
from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.finding import Finding, fix_text, limited
from vertexrig.spec.document import Document, tpu_name
from vertexrig.spec.masking import masked
from vertexrig.spec.strict import READING_RULES, ReadingRule

__all__ = ["Context", "Problem", "Rule", "all_rules", "check", "rule_ids", "rules", "rules_for"]


# Whether a topic of rules may find something (`_TOPICS`); the rules themselves are in the topic's module.


def _always(document: Document, context: Context) -> bool:
    return True


def _has_trainer(document: Document, context: Context) -> bool:
    return context.trainer is not None


def _has_study(document: Document, context: Context) -> bool:
    return document.study is not None


def _may_name_strategy(document: Document, context: Context) -> bool:
    # an argument may name the strategy, as in --distribution-strategy=multi_worker
    words = ("strategy", "distribut")
    return context.trainer is not None or any(
        word in arg for pool in document.pools for arg in pool.args for word in words
    )


def _has_command(document: Document, context: Context) -> bool:
    # args may name a shell
    shells = any(pool.args and pool.args[0].endswith("sh") for pool in document.pools)
    commands = shells or any(pool.command for pool in document.pools)
    return commands or bool(context.trainer_unused) or context.trainer is not None


def _has_tpu(document: Document, context: Context) -> bool:
    return any(
        pool.tpu_topology or "tpu" in pool.machine_type or tpu_name(pool, context.catalog) for pool in document.pools
    )


def _has_disk(document: Document, context: Context) -> bool:
    # a finding on a machine's default disk is advice
    return context.advice or any("diskSpec" in pool.data for pool in document.pools)


def _has_identity(document: Document, context: Context) -> bool:
    keys = {"serviceAccount", "tensorboard", "experiment", "experimentRun", "persistentResourceId"}
    affinity = any("reservationAffinity" in pool.machine for pool in document.pools)
    encrypted = "encryptionSpec" in document.data or "encryptionSpec" in context.flags
    return not keys.isdisjoint(document.job) or affinity or encrypted


def _has_network(document: Document, context: Context) -> bool:
    keys = {"network", "reservedIpRanges", "pscInterfaceConfig"}
    mounts = {"nfsMounts", "lustreMounts"}
    return not keys.isdisjoint(document.job) or any(not mounts.isdisjoint(pool.data) for pool in document.pools)


_TOPICS: dict[str, Callable[[Document, Context], bool]] = {
    "hardware": _always,
    "tpu": _has_tpu,
    "regions": _always,
    "quotas": lambda document, context: context.advice,
    "cluster": _always,
    "images": _always,
    "program": _always,
    "scheduling": _always,
    "storage": _always,
    "disks": _has_disk,
    "identity": _has_identity,
    "network": _has_network,
    "naming": _always,
    "secrets": _always,
    "study": _has_study,
    # arguments that are also tuned are found without the source
    "trainer": lambda document, context: context.trainer is not None or document.study is not None,
    "defects": _has_trainer,
    "strategy": _may_name_strategy,
    "pytorch": _has_trainer,
    "commands": _has_command,
    "trainer_files": _has_trainer,
}
"""Rule modules, each with a test; `check` imports a module only if its test says that a rule may apply.

All 21 take 45 ms to load; a job that the trigger starts, whose trainer is not at hand, needs half of them.
"""

_LONGEST = 1000  # characters of a message

# Findings of the strict reading that say that a text is no job spec.
_UNREADABLE = {"yaml-syntax", "legacy-ai-platform", "not-vertex", "placeholder"}


def check(document: Document, context: Context, silenced: Container[str] = ()) -> list[Finding]:
    """Return all findings of a job spec, by line, then path, then id: those of its strict reading, and those of the rules.

    `silenced` are the ids of rules to leave out.
    """
    found = list(document.findings)
    unreadable = not document.data and any(finding.id in _UNREADABLE for finding in found)
    if not unreadable:
        if context.trainer is not None:
            # here: without a trainer it is not needed
            from vertexrig.checks._arguments import with_command

            # once for all rules: which flags are valid depends on the sub-command that the pools choose
            context = replace(context, trainer=with_command(document, context.trainer))
        for rule in rules_for(document, context):
            if rule.id not in silenced:
                problems = [
                    one for one in rule.run(document, context) if one.sure or not _unfilled(document, context, one.path)
                ]
                if problems:  # most rules find nothing in most files
                    found += limited(_findings(rule, problems, document))
    # the secrets of the whole document, since a message of any rule may quote one
    hidden = frozenset(secret for _, _, secret in secrets.found(document))
    kept = [_safe(finding, hidden) for finding in found if finding.id not in silenced]
    return sorted(kept, key=lambda finding: (finding.line or 0, finding.path, finding.id))


def _unfilled(document: Document, context: Context, path: str) -> bool:
    """Whether the value at `path`, around it or right below it is a placeholder, so that nothing is known of it."""
    for placeholder in document.placeholders:
        rest = placeholder.removeprefix(path)
        # right below only: a placeholder deep inside of a pool does not silence the findings on the pool
        below = bool(path) and rest != placeholder and re.fullmatch(r"(?:\.\w+|\[\d+\])?", rest) is not None
        # what the image runs is known from the trainer's source, whatever its name will be
        below = below and not (rest == ".imageUri" and context.trainer is not None)
        if below or path.startswith((f"{placeholder}.", f"{placeholder}[")) or _flag_of(document, placeholder) == path:
            return True
    return False


def _flag_of(document: Document, path: str) -> str:
    """Return the path of the flag whose value is the separate item at `path`, "" if there is none."""
    found = re.fullmatch(r"(.*)\.args\[(\d+)\]", path)
    if found is None or found[2] == "0":
        return ""
    args = next((pool.args for pool in document.pools if pool.program_path == found[1]), [])
    number = int(found[2])
    return f"{found[1]}.args[{number - 1}]" if number < len(args) and not args[number].startswith("-") else ""


def _safe(finding: Finding, hidden: frozenset[str]) -> Finding:
    """Return a finding without the secrets that its message or fix may quote, and with `${NAME}` for the values of variables."""
    old = (finding.message, finding.fix, finding.key_fix)
    message, fix, key_fix = (_masked(variables.shown(text), hidden) for text in old)
    return finding if (message, fix, key_fix) == old else replace(finding, message=message, fix=fix, key_fix=key_fix)


_masked = lru_cache(4096)(masked)  # many files have the same findings


def _findings(rule: Rule, problems: Iterable[Problem], document: Document) -> list[Finding]:
    """Return problems of a document as findings of a rule, with file and line."""
    return [
        Finding(
            rule.id,
            problem.severity or rule.severity,
            problem.path,
            _short(problem.message),
            _short(problem.fix or fix_text(problem.edits, problem.path)),
            rule.source,
            document.file,
            document.line(problem.path),
            key_fix=_short(problem.key_fix),
            edits=tuple(
                replace(edit, path=edit.path or problem.path, safe=edit.safe and rule.edits == "safe")
                for edit in problem.edits
            ),
        )
        for problem in problems
    ]


def _short(text: str) -> str:
    """Return a message cut to `_LONGEST`, since it may quote a long value."""
    if len(text) <= _LONGEST:
        return text
    text = variables.shown(text)  # before a value is cut
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


@cache
def _rules(topic: str) -> tuple[Rule, ...]:
    return import_module(f"{__name__}.{topic}").RULES  # type: ignore[no-any-return]


def rules_for(document: Document, context: Context) -> Iterator[Rule]:
    """Yield the rules of the topics that may find something in a document."""
    for topic, applies in _TOPICS.items():
        if applies(document, context):
            yield from _rules(topic)


def rules() -> tuple[Rule, ...]:
    """Return the rules of every topic, which are all but those of the strict reading (`all_rules`)."""
    return tuple(rule for topic in _TOPICS for rule in _rules(topic))


def all_rules() -> tuple[Rule | ReadingRule, ...]:
    """Return every rule, those of the strict reading first."""
    return (*READING_RULES, *rules())


def rule_ids() -> tuple[str, ...]:
    """Return the id of every rule, those of the strict reading included; each can be silenced."""
    return tuple(rule.id for rule in all_rules())
