"""The table of rules as a whole, and valid specs: they give no error."""

from __future__ import annotations

import pytest

from tests.vertexrig.checks.job_bases import TODAY, VALID, edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check, rules
from vertexrig.finding import Finding, Severity


def found(base: str, region: str = "") -> list[Finding]:
    return check(spec.parse(edited(base, {}), file="job.yaml"), Context(load(), region=region, today=TODAY))


def test_ids_are_unique_and_speak_plainly() -> None:
    """Rule ids are unique and written in kebab case, and every rule has a summary that ends in a full stop."""
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))
    for rule in rules():
        assert rule.id == rule.id.lower().replace("_", "-") and rule.summary.endswith(".") and "20" in rule.source


@pytest.mark.parametrize("base", VALID)
def test_valid_specs_give_no_error(base: str) -> None:
    """Each topology as documented gives no error, and no warning but those about dates."""
    findings = found(base)
    loud = {finding.id for finding in findings if finding.severity is not Severity.INFO}
    assert loud <= {"image-availability"}


@pytest.mark.parametrize("region", ["us-central1", "europe-west4", "asia-southeast1"])
def test_valid_specs_give_no_error_where_they_can_run(region: str) -> None:
    """CPU and T4 jobs give no error in regions that have them."""
    for base in ("cpu", "python", "gpu", "workers", "servers", "sweep"):
        assert [finding for finding in found(base, region) if finding.severity is Severity.ERROR] == []
