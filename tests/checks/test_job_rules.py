"""Every rule on jobs: it finds what it is for, and nothing else does; valid specs give no error."""

from __future__ import annotations

import importlib
from datetime import date

import pytest
from job_bases import TODAY, VALID, edited
from job_cases import CASES, Case

from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import RULES, Context, check
from vertexrig.finding import Finding, Severity

ALL = [case for cases in CASES.values() for case in cases]
RULE = {rule.id: rule for rule in RULES}


def found(base: str, edits: dict[str, object], region: str = "", today: date = TODAY) -> list[Finding]:
    document = spec.parse(edited(base, edits), file="job.yaml")
    return check(document, Context(load(), region=region, today=today))


def name(case: Case) -> str:
    return f"{case.rule}-{case.base}"


@pytest.mark.parametrize("case", ALL, ids=name)
def test_a_broken_rule_is_found_and_nothing_else(case: Case) -> None:
    """The failing edits give the rule's finding with its severity, a place in the file and a source; no other error."""
    findings = found(case.base, case.fail, case.region, case.today)
    mine = [finding for finding in findings if finding.id == case.rule]
    assert mine, [finding.id for finding in findings]
    wanted = case.severity or RULE[case.rule].severity.value
    assert {finding.severity.value for finding in mine} == {wanted}
    for finding in mine:
        assert finding.file == "job.yaml" and finding.line is not None and finding.source and finding.message
    loud = {finding.id for finding in findings if finding.severity is not Severity.INFO}
    assert loud - {case.rule} == set(case.also)


@pytest.mark.parametrize("case", ALL, ids=name)
def test_a_kept_rule_is_silent(case: Case) -> None:
    """The passing edits, or the base as it stands, give nothing of the rule, and no error."""
    findings = found(case.base, case.ok, case.ok_region, case.ok_today)
    assert case.rule not in {finding.id for finding in findings}
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []


@pytest.mark.parametrize("topic", CASES)
def test_every_rule_of_a_topic_has_a_case(topic: str) -> None:
    """No rule of a job-level topic is without a failing and a passing case."""
    module = importlib.import_module(f"vertexrig.checks.{topic}")
    assert {case.rule for case in CASES[topic]} == {rule.id for rule in module.RULES}


def test_ids_are_unique_and_speak_plainly() -> None:
    """Rule ids are unique and written in kebab case, and every rule has a summary that ends in a full stop."""
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    for rule in RULES:
        assert rule.id == rule.id.lower().replace("_", "-") and rule.summary.endswith(".") and "20" in rule.source


@pytest.mark.parametrize("base", VALID)
def test_valid_specs_give_no_error(base: str) -> None:
    """Each topology as documented gives no error, and no warning but those about dates."""
    findings = found(base, {})
    loud = {finding.id for finding in findings if finding.severity is not Severity.INFO}
    assert loud <= {"image-availability"}


@pytest.mark.parametrize("region", ["us-central1", "europe-west4", "asia-southeast1"])
def test_valid_specs_give_no_error_where_they_can_run(region: str) -> None:
    """CPU and T4 jobs give no error in regions that have them."""
    for base in ("cpu", "python", "gpu", "workers", "servers", "sweep"):
        assert [finding for finding in found(base, {}, region) if finding.severity is Severity.ERROR] == []
