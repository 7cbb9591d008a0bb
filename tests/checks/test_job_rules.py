"""Every rule on jobs: it finds what it is for, and nothing else does; valid specs give no error."""

from __future__ import annotations

import importlib
from datetime import date
from pathlib import Path

import pytest
from cases import Case, must_accept, must_find, names
from job_bases import TODAY, VALID, edited
from job_cases import CASES

from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import RULES, Context, check
from vertexrig.finding import Finding, Severity

ALL = [case for cases in CASES.values() for case in cases]


def found(base: str, edits: dict[str, object], region: str = "", today: date = TODAY) -> list[Finding]:
    document = spec.parse(edited(base, edits), file="job.yaml")
    return check(document, Context(load(), region=region, today=today))


@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_a_broken_rule_is_found_and_nothing_else(case: Case, tmp_path: Path) -> None:
    """The failing edits give the rule's finding with its severity, a place in the file and a source; no other error."""
    must_find(case, tmp_path, alone=True)


@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_a_kept_rule_is_silent(case: Case, tmp_path: Path) -> None:
    """The passing edits, or the base itself, give nothing of the rule, and no error."""
    must_accept(case, tmp_path, alone=True)


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
