"""The table of rules as a whole, and valid specs: they give no error."""

from __future__ import annotations

import pytest

from tests.vertexrig.checks.job_bases import C0, TODAY, VALID, edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check, rules
from vertexrig.finding import Finding, Severity


def found(base: str, region: str = "", **edits: str) -> list[Finding]:
    return check(spec.parse(edited(base, edits), file="job.yaml"), Context(load(), region=region, today=TODAY))


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


@pytest.mark.parametrize(
    ("image", "place"),
    [
        ("eu.gcr.io/my-project/trainer:1", "europe-docker.pkg.dev/my-project/REPOSITORY/trainer:TAG"),
        ("gcr.io/my_project/team/trainer", "us-docker.pkg.dev/PROJECT/REPOSITORY/trainer:TAG"),
        ("gcr.io/example.com/my/trainer:1", "us-docker.pkg.dev/example.com/my/REPOSITORY/trainer:TAG"),
        ("gcr.io/us-docker.pkg.dev/my-project/r/trainer:1", ""),
    ],
)
def test_an_image_of_container_registry_moves_to_a_project_that_may_exist(image: str, place: str) -> None:
    """The fix names the project as it is written where it is one; the image of another registry does not move."""
    fixes = [one.fix for one in found("cpu", **{f"{C0}.imageUri": image}) if one.id == "image-gcr"]
    assert fixes == ([f"push it to Artifact Registry: {place}"] if place else [])
