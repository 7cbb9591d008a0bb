"""The table of rules as a whole, and valid specs: they give no error."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from tests.vertexrig.checks.job_bases import C0, LATER, TODAY, VALID, edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check, rules
from vertexrig.finding import Finding, Severity


def found(base: str, region: str = "", **edits: str) -> list[Finding]:
    return check(spec.parse(edited(base, edits), file="job.yaml"), Context(load(), region=region, today=TODAY))


def test_the_rows_of_rules_have_one_form() -> None:
    """Ids are unique and written in kebab case; a summary ends in a full stop, and fits the line that the reference page has for it."""
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))
    for rule in rules():
        assert rule.id == rule.id.lower().replace("_", "-")
        assert rule.summary.endswith(".") and len(rule.summary) <= 110


@pytest.mark.parametrize("base", VALID)
def test_valid_specs_give_no_error(base: str) -> None:
    """Each topology as documented gives no error, and no warning but those about dates."""
    findings = found(base)
    loud = {finding.id for finding in findings if finding.severity is not Severity.INFO}
    assert loud <= {"image-availability"}


@pytest.mark.parametrize(
    ("edits", "rule", "words"),
    [
        ({"workerPoolSpecs[0].diskSpec": {"bootDiskType": "pd-balanced"}}, "disk-type", "Choices: pd-ssd"),
        ({f"{C0}.env": [{"name": "HF_TOKEN", "value": "$(HF_TOKEN)"}]}, "env-reference", "refers to itself"),
        ({f"{C0}.env": [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "1"}]}, "env-reference", "move B up"),
        ({f"{C0}.args": ["--out=/gcs/output/x"]}, "stray-uri", "write /gcs/my-bucket/output"),
        ({f"{C0}.args": ["--out=/gcs/output/x", "gs://other/y"]}, "stray-uri", "write /gcs/BUCKET/output"),
    ],
)
def test_a_finding_says_what_was_meant(edits: dict[str, Any], rule: str, words: str) -> None:
    """The message and the fix fit the value: no wrong guess, and the job's only bucket by its name."""
    document = spec.parse(edited("cpu", edits), file="job.yaml")
    (found,) = (one for one in check(document, Context(load())) if one.id == rule)
    assert words in f"{found.message} {found.fix}"


def test_an_unfilled_tensorboard_may_become_empty() -> None:
    """A placeholder in place of the whole TensorBoard does not ask for a service account."""
    document = spec.parse(edited("cpu", {"tensorboard": "${BOARD}"}), file="job.yaml")
    assert [one.id for one in check(document, Context(load())) if one.severity is Severity.ERROR] == ["placeholder"]


def test_pools_come_from_flags_only_where_a_file_is_given_to_gcloud() -> None:
    """A file without pools is a warning that names gcloud's flag; a job as data, or in the API's form, is an error."""
    file = "scheduling: {timeout: 60s}\n"
    documents = [
        spec.parse(file, file="job.yaml"),
        spec.parse(file, file="vertexrig.yaml", for_gcloud=False),
        spec.parse(f"jobSpec: {{{file.strip()}}}\n", file="job.yaml"),
    ]
    found = [one for document in documents for one in check(document, Context(load())) if one.id == "pools-missing"]
    assert [one.severity.value for one in found] == ["warning", "error", "error"]
    assert "--worker-pool-spec" in found[0].message and "--worker-pool-spec" in found[0].fix


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


@pytest.mark.parametrize(
    ("region", "today", "names"),
    [
        ("", TODAY, ["P4", "P100", "T4", "V100"]),
        ("", LATER, ["P4", "T4", "V100"]),
        ("asia-east1", TODAY, ["P100", "T4", "V100"]),
        ("asia-east1", LATER, ["T4", "V100"]),
        ("africa-south1", LATER, ["P4", "T4", "V100"]),
    ],
)
def test_only_accelerators_without_a_fault_are_proposed(region: str, today: date, names: list[str]) -> None:
    """What a machine takes is listed without accelerators that are past their end of support or that the region lacks, if any are left."""
    document = spec.parse(
        edited("l4", {"workerPoolSpecs[0].machineSpec.machineType": "n1-standard-8"}), file="job.yaml"
    )
    found = check(document, Context(load(), region=region, today=today))
    (one,) = (one for one in found if one.id == "accelerator-on-machine")
    assert re.findall(r"NVIDIA_TESLA_(\w+)", one.message) == names
