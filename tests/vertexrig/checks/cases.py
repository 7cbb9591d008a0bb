"""The one form of a case: a rule, edits of a valid spec that break it and that keep it, and what must be found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import Any

from tests.support.packages import trainer_with
from tests.vertexrig.checks.job_bases import LATER, TODAY, changed, edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, Rule, all_rules, check, rules
from vertexrig.finding import Finding, Severity
from vertexrig.trainer_source.trainer_model import TrainerSource

RULE = {rule.id: rule for rule in rules()}
EDITS = {rule.id: rule.edits for rule in all_rules()}


@dataclass(frozen=True)
class Case:
    """A rule, and the edits of a base that break and keep it.

    Args:
        rule: The rule's id.
        base: The name of a valid spec in `BASES`.
        bad: Edits after which the rule finds something.
        good: Edits, close to the bad ones, after which it finds nothing; the base itself if empty.
        at: Where its only finding must be; "" if any place will do.
        trainer: Source of `trainer/task.py` beside the bad spec, for rules that read it.
        better: The same beside the good spec, if it differs.
        also: Ids of other errors and warnings that the bad edits cannot do without.
        severity: What the finding's severity must be, the rule's own if empty.
        region: Where the bad spec runs.
        ok_region: Where the good spec runs.
        today: The day the bad spec is checked.
        ok_today: The day the good spec is checked.
    """

    rule: str
    base: str
    bad: Mapping[str, Any]
    good: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    trainer: str = ""
    better: str = ""
    also: tuple[str, ...] = ()
    severity: str = ""
    region: str = ""
    ok_region: str = ""
    today: date = TODAY
    ok_today: date = TODAY


def names(cases: Iterable[Case]) -> list[str]:
    """What pytest calls the cases."""
    return [f"{case.rule}-{number}" for number, case in enumerate(cases)]


@cache
def findings_of(text: str, source: str, region: str, today: date) -> list[Finding]:
    """What a check of a job's YAML finds, with a trainer of this source if there is one."""
    context = Context(load(), region=region, today=today, trainer=trainer_with(source) if source else None)
    return check(spec.parse(text, file="job.yaml"), context)


def must_find(case: Case, *, alone: bool = False) -> None:
    """The bad edits give the rule's finding with its place and source; `alone`: with its severity, and no other."""
    found = findings_of(edited(case.base, case.bad), case.trainer, case.region, case.today)
    mine = [finding for finding in found if finding.id == case.rule]
    assert mine, [finding.id for finding in found]
    if case.at:
        assert [finding.path for finding in mine] == [case.at]
    for finding in mine:
        assert finding.file == "job.yaml" and finding.line is not None and finding.source and finding.message
    for finding in found:  # the rule's row says what edits there are
        assert not finding.edits or EDITS[finding.id], finding
        assert finding.fixable != "safe" or EDITS[finding.id] == "safe", finding
    if alone:
        assert {finding.severity.value for finding in mine} == {case.severity or RULE[case.rule].severity.value}
        loud = {finding.id for finding in found if finding.severity is not Severity.INFO}
        assert loud - {case.rule} == set(case.also)


def must_accept(case: Case, *, alone: bool = False) -> None:
    """The good edits give nothing of the rule; `alone`: no error of any other."""
    source = case.better or case.trainer
    found = findings_of(edited(case.base, case.good), source, case.ok_region, case.ok_today)
    assert case.rule not in {finding.id for finding in found}
    if alone:
        assert [finding for finding in found if finding.severity is Severity.ERROR] == []


def document(base: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> spec.Document:
    """`base` with changes, as the strict reading gives it."""
    return spec.from_data(changed(base, changes or {}))


def context(trainer: TrainerSource | None = None) -> Context:
    """A context on a fixed day, with the shipped catalog."""
    return Context(catalog=load(), region="us-central1", today=LATER, trainer=trainer)


def found(
    rules: Iterable[Rule], checked: spec.Document, around: Context | None = None
) -> dict[str, list[tuple[str, str, str]]]:
    """Severity, path and message of what each rule finds, by rule id; rules that find nothing are left out."""
    result: dict[str, list[tuple[str, str, str]]] = {}
    for rule in rules:
        for problem in rule.run(checked, around or context()):
            severity = (problem.severity or rule.severity).value
            result.setdefault(rule.id, []).append((severity, problem.path, problem.message))
    return result
