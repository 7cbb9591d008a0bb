"""`vertexrig check` loses nothing: reports are whole, a mistake in a project file hides no other, a folder is all its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.tools import typed
from vertexrig.checks import formats
from vertexrig.finding import Finding, Severity

POOL = "- machineSpec: {{machineType: {machine}}}\n  replicaCount: 1\n  containerSpec: {{imageUri: a/b}}\n"
BAD = "workerPoolSpecs:\n" + POOL.format(machine="n1-standard-4") + "wrong: 1\n"
PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-bucket
what: 1
trainer: {custom_image: i/i:1}
jobs:
  good: {topology: cpu, machine_type: n1-standard-4, image: i/i:1}
  ugly: {topology: gpu, machine_type: n1-standard-4, image: i/i:1, accelerator_type: NVIDIA_TESLA_T4, accelerator_count: 3}
  bad:
    topology: cpu
    machine_typ: n1-standard-4
sweeps:
  of_bad: {job: bad, max_trial_count: 3, parallel_trial_count: 1}
silence: {no-such-rule: why}
"""


def test_a_report_over_many_files_is_whole(tmp_path: Path) -> None:
    """Each of 230 files has its error in JSON and SARIF, in order from one process and from two; as text, a file's errors come
    before what is left out of it.
    """
    for number in range(230):
        (tmp_path / f"{number:03}.yaml").write_text(BAD)
    one, two = (typed("check", ".", "--format", "json", "--jobs", jobs, cwd=tmp_path) for jobs in ("1", "2"))
    found = one.document["findings"]
    assert [each["file"] for each in found if each["id"] == "unknown-field"] == [f"./{n:03}.yaml" for n in range(230)]
    assert two.stdout == one.stdout and "read as" not in one.stderr
    results = typed("check", ".", "--format", "sarif", cwd=tmp_path).document["runs"][0]["results"]
    assert sum(one["ruleId"] == "unknown-field" for one in results) == 230
    assert typed("check", ".", cwd=tmp_path).stdout.count("error[unknown-field]") == 230
    crowd = [Finding("quota-draw", Severity.INFO, f"a[{n}]", f"info {n}", file="a.yaml", line=n) for n in range(250)]
    last = Finding("wrong-type", Severity.ERROR, "b", "wrong", file="a.yaml", line=300)
    shown = formats.text([*crowd, last], {})
    assert shown.startswith("a.yaml:300: error[wrong-type]: wrong") and "51 more findings are left out" in shown


def test_a_folder_is_every_job_and_project_below_it(tmp_path: Path) -> None:
    """YAML and JSON of Vertex AI at any depth are checked; other YAML, hidden folders and environments are passed over."""
    files = {
        "a/job.yaml": BAD,
        "a/b/job.json": json.dumps({"workerPoolSpecs": [], "wrong": 1}),
        "a/compose.yaml": "services: {}\n",
        "a/.git/job.yaml": BAD,
        "a/env/job.yaml": BAD,
        "a/env/pyvenv.cfg": "",
        "a/vertexrig.yaml": PROJECT,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = typed("check", "a", "--verbose", "--format", "json", cwd=tmp_path)
    found = done.document["findings"]
    assert {one["file"] for one in found} == {"a/job.yaml", "a/b/job.json", "a/vertexrig.yaml"}
    assert "a/job.yaml: read as a CustomJobSpec" in done.stderr


@pytest.mark.parametrize("words", [(), ("vertexrig.yaml",), ("good", "bad", "ugly")])
def test_mistakes_of_a_project_file_are_findings_beside_those_of_its_other_jobs(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Every mistake has a finding with its line, jobs without one are checked, and the exit code stays that of a wrong file."""
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    done = typed("check", *words, "--format", "sarif", cwd=tmp_path)
    assert done.exit_code == 2
    results = done.document["runs"][0]["results"]
    mistakes = [
        one["locations"][0]["physicalLocation"]["region"]["startLine"]
        for one in results
        if one["ruleId"] == "project-file"
    ]
    assert mistakes == [4, 11, 14]
    (tmp_path / "vertexrig.yaml").write_text(PROJECT.replace("silence: {no-such-rule: why}\n", ""))
    done = typed("check", *words, "--format", "json", cwd=tmp_path)
    document = done.document
    assert document["error"]["code"] == "config" and done.exit_code == 2
    assert {"project-file", "accelerator-count", "timeout-unset"} <= {one["id"] for one in document["findings"]}
    text = typed("check", *words, cwd=tmp_path)
    assert "error[accelerator-count]" in text.stdout and "vertexrig.yaml:11: jobs.bad.machine_typ" in text.stderr


def test_a_project_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    """SARIF has a result, not nothing, where the file is no YAML, and where a value that all jobs need is wrong."""
    for text in ("jobs: [\n", PROJECT.replace("us-central1", "[1]")):
        (tmp_path / "vertexrig.yaml").write_text(text)
        done = typed("check", "--format", "sarif", cwd=tmp_path)
        results = done.document["runs"][0]["results"]
        assert done.exit_code == 2 and {one["ruleId"] for one in results} == {"project-file"}
