"""What verbs show of a region that the catalog's prices are not for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.tools import typed
from tests.vertexrig.studies.test_follow_up import LR, PROJECT, rows, study

JOB = """project: my-project
bucket: gs://my-bucket
jobs:
  job: {machine_type: n1-standard-4, timeout: 600s, container: {image_uri: us-docker.pkg.dev/p/r/i:1}}
"""


def test_candidates_are_shown_in_the_region_that_was_asked_for(tmp_path: Path) -> None:
    """The job as it stands, and a candidate without a region of its own, run there; the other stays where it is."""
    (tmp_path / "vertexrig.yaml").write_text("""project: my-project
bucket: gs://my-bucket
trainer: {package_uris: ["gs://my-bucket/t.tar.gz"]}
jobs:
  base:
    machine_type: n1-standard-4
    candidates: [{machine_type: n1-standard-8}, {region: europe-west4, bucket: gs://my-bucket-eu}]
""")
    for given, regions in (
        ((), ["us-central1", "us-central1", "europe-west4"]),
        (("--region", "asia-east1"), ["asia-east1", "asia-east1", "europe-west4"]),
    ):
        done = typed("explain", "base", *given, "--format", "json", cwd=tmp_path)
        assert [one["region"] for one in done.document["candidates"]] == regions, done


@pytest.mark.parametrize("factor", [None, 1.5])
def test_a_follow_up_costs_what_it_does_where_it_runs(tmp_path: Path, factor: float | None) -> None:
    """With the project's factor for its region, and without one no price that is complete."""
    job = study([LR], rows(0.1, 0.2, 0.3, 0.4), displayName="tune", trialJobSpec={"workerPoolSpecs": []})
    (tmp_path / "study.json").write_text(json.dumps(job))
    words = ("follow-up", "study.json", "--sweep", "tune", "--dry-run", "--format", "json")
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    known = typed(*words, cwd=tmp_path).document["usd_at_most"]
    budget = f"trigger: {{budget: {{price_factor: {factor}}}}}\n" if factor else ""
    (tmp_path / "vertexrig.yaml").write_text(f"{PROJECT}region: europe-west4\n{budget}")
    found = typed(*words, cwd=tmp_path).document["usd_at_most"]
    assert found == (pytest.approx(factor * known, abs=0.01) if factor else None)


@pytest.mark.parametrize("words", [("explain", "job"), ("explain", "job.yaml"), ("quota", "job"), ("quota",)])
def test_a_region_that_is_none_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A mistyped --region is named, with the region that is meant; nothing is shown for it."""
    (tmp_path / "vertexrig.yaml").write_text(JOB)
    typed("render", "job", "--output", "job.yaml", cwd=tmp_path)
    done = typed(*words, "--region", "us-centrall1", cwd=tmp_path)
    said = "--region us-centrall1: 'us-centrall1' is not a training region. Did you mean 'us-central1'?"
    assert done.exit_code == 2 and said in done.stderr and not done.stdout, done


@pytest.mark.parametrize("verb", ["explain", "check"])
def test_an_override_that_a_file_does_not_see_is_refused(tmp_path: Path, verb: str) -> None:
    """--set changes jobs of the project file; a rendered file stays as it is, and the message says so."""
    (tmp_path / "vertexrig.yaml").write_text(JOB)
    typed("render", "job", "--output", "job.yaml", cwd=tmp_path)
    done = typed(verb, "job.yaml", "--set", "jobs.job.timeout=60s", cwd=tmp_path)
    assert done.exit_code == 2 and "changes job of the project file, and job.yaml stays as it is" in done.stderr, done
    assert typed(verb, "job.yaml", "--set", "region=europe-west4", cwd=tmp_path).exit_code == 0
