"""The rules of the strict reading: what gcloud refuses is an error, what it takes a warning, and a fix is what was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vertexrig import spec
from vertexrig.cli import run
from vertexrig.finding import Finding

JOB = """workerPoolSpecs:
- machineSpec: {machineType: n1-standard-4}
  replicaCount: 1
  containerSpec: {imageUri: us-docker.pkg.dev/p/r/i:1}
"""
STUDY = """studySpec:
  metrics: [{metricId: accuracy, goal: MAXIMIZE}]
  parameters: [{parameterId: x, doubleValueSpec: {minValue: 0.1, maxValue: 1}}]
maxTrialCount: 2
"""


def only(text: str) -> Finding:
    (found,) = spec.parse(text, file="job.yaml").findings
    return found


FIXES = [
    (JOB, "machineSpec: {machineType", "machineSpec: {machinetype", "unknown-field", "write machineType"),
    (JOB, "machineSpec: {machineType: n1-standard-4}", "machineType: n1-standard-4", "unknown-field",
     "move machineType under machineSpec"),
    (JOB, "containerSpec: {imageUri: us-docker.pkg.dev/p/r/i:1}", "imageUri: us-docker.pkg.dev/p/r/i:1",
     "unknown-field", "move imageUri under containerSpec"),
    (JOB, "  replicaCount", "  args: [a]\n  replicaCount", "unknown-field", ""),
    (JOB, "workerPoolSpecs", "timeout: 60s\nworkerPoolSpecs", "unknown-field", "move timeout under scheduling"),
    (JOB, "workerPoolSpecs", "displayName: x\nworkerPoolSpecs", "unknown-field", "remove it, and add --display-name"),
    (JOB, "n1-standard-4}", "n1-standard-4, accelerator: NVIDIA_L4}", "unknown-field", ""),
    (JOB, "workerPoolSpecs", "experiment_name: x\nworkerPoolSpecs", "unknown-field", ""),
    (STUDY, "1}}]", "1}, scaleType: LOG}]", "unknown-enum-value", "write UNIT_LOG_SCALE"),
    (JOB, "n1-standard-4}", "g2-standard-4, acceleratorType: NVIDIA_TESLA_L4}", "unknown-enum-value", "write NVIDIA_L4"),
    (JOB, "n1-standard-4}", "n1-standard-4, acceleratorType: NVIDIA_TESLA_L4}", "unknown-enum-value",
     "write NVIDIA_L4, and a machine of g2-standard"),
    (JOB, "n1-standard-4}", "cloud-tpu, acceleratorType: TPU_V4}", "unknown-enum-value", "choose another accelerator"),
    (JOB, "n1-standard-4}", "cloud-tpu, acceleratorType: TPU_V6E}", "unknown-enum-value", ""),
    (JOB, "n1-standard-4}", "n1-standard-4, acceleratorType: NVIDIA_TESLA_X9}", "unknown-enum-value", ""),
    (JOB, "n1-standard-4}", "n1-standard-4, acceleratorType: nvidia-tesla-p4}", "unknown-enum-value",
     "write NVIDIA_TESLA_P4"),
    (JOB, "n1-standard-4}", "n1-standard-4, acceleratorType: NVIDIA_A100_40GB}", "unknown-enum-value",
     "write NVIDIA_TESLA_A100, and a machine of a2-highgpu, a2-megagpu"),
    (JOB, "n1-standard-4}", "n1-standard-4, acceleratorType: NVIDIA_A100}", "unknown-enum-value", ""),
    (STUDY, "  parameters", "  parameterSpec", "unknown-field", "write parameters"),
    (JOB, "workerPoolSpecs", "projectId: x\nworkerPoolSpecs", "unknown-field", "remove it, and add --project"),
    (STUDY, "minValue: 0.1", "minValue: 1e-5", "yaml-two-readings", "quote it if it is text, or write 1.0e-05"),
    (STUDY, "  parameters: [", "parameterSpec: [", "unknown-field", "move parameters under studySpec"),
    (STUDY, "maxTrialCount: 2", "  maxTrialCount: 2", "unknown-field", "move maxTrialCount to the top of the file"),
    (STUDY, "maxTrialCount: 2", "workerPoolSpecs: []", "unknown-field", "move workerPoolSpecs under trialJobSpec"),
    (STUDY, "maxTrialCount", "max_trial_count", "snake-case-key", "write maxTrialCount"),
    (STUDY, "doubleValueSpec", "double_value_spec", "snake-case-key", "write doubleValueSpec"),
    (STUDY, "minValue: 0.1", "minValue: '0.1'", "quoted-number", "write it without quotes"),
    (STUDY, "minValue: 0.1", "minValue: 'low'", "wrong-type", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "rule", "fix"), FIXES)
def test_a_fix_is_what_was_meant_or_none(text: str, old: str, new: str, rule: str, fix: str) -> None:
    """A misspelt or misplaced key and a wrong value get the right thing to write, or nothing where it is not plain."""
    assert not spec.parse(text).findings
    found = only(text.replace(old, new, 1))
    assert (found.id, found.fix) == (rule, fix)


def test_no_choice_of_an_accelerator_is_one_that_another_rule_refuses() -> None:
    """A list of accelerators has none that no machine takes any more, and a deprecated strategy is proposed by its new name."""
    listed = only(JOB.replace("n1-standard-4}", "n1-standard-4, acceleratorType: GPU}")).message
    assert "NVIDIA_TESLA_T4" in listed and "K80" not in listed and "TPU_V4_POD" not in listed
    tpu = only(JOB.replace("n1-standard-4}", "cloud-tpu, acceleratorType: TPU_V6E}")).message
    assert "ct6e-" in tpu and "Choices" not in tpu
    assert only(JOB + "scheduling: {strategy: LOWCOST}\n").fix == "write SPOT"


@pytest.mark.parametrize(
    ("around", "flags"),
    [
        ("displayName: x", "; give --display-name to gcloud in place of displayName"),
        (
            "labels: {a: b}\nencryptionSpec: {kmsKeyName: k}",
            "; give --labels and --kms-key to gcloud in place of labels and encryptionSpec",
        ),
        ("state: x", ""),
    ],
)
def test_the_fix_of_a_wrapped_job_names_the_flag_of_each_key_around_it(around: str, flags: str) -> None:
    """What is beside jobSpec is a flag of gcloud, and the fix names those that the file needs."""
    inner = "".join(f"  {line}\n" for line in JOB.splitlines())
    assert only(f"{around}\njobSpec:\n{inner}").fix == f"move what is under jobSpec to the top{flags}"


def test_no_choice_is_a_field_that_only_the_service_writes() -> None:
    """A list of fields to choose from has none of the output fields, such as createTime or trials."""
    found = only(STUDY + "zzz: 1\n")
    assert "createTime" not in found.message and "trials" not in found.message and "studySpec" in found.message


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (JOB.replace("replicaCount", "replica_count"), "warning"),
        (STUDY.replace("maxTrialCount", "max_trial_count"), "error"),
        (STUDY.replace("minValue", "min_value"), "error"),
        (STUDY.replace("0.1", '"1e-1"'), "warning"),
    ],
)
def test_what_gcloud_refuses_is_an_error(text: str, severity: str) -> None:
    """Gcloud sends a custom job's snake_case keys on and refuses a tuning job's; it makes a number of a quoted one."""
    document = spec.parse(text)
    assert [one.severity.value for one in document.findings] == [severity]
    if document.findings[0].id == "quoted-number":
        (parameter,) = document.data["studySpec"]["parameters"]
        assert parameter["doubleValueSpec"] == {"minValue": 0.1, "maxValue": 1}


FOREIGN = [
    ("services: {web: {image: x}}", "a Docker Compose file"),
    ("apiVersion: batch/v1\nkind: Job\nspec: {}", "a Kubernetes manifest"),
    ("pipelineInfo: {name: x}\nroot: {}", "a compiled Vertex AI or Kubeflow pipeline"),
    ("pipelineSpec: {}\nruntimeConfig: {}", "a compiled Vertex AI or Kubeflow pipeline"),
    ("steps:\n- name: gcr.io/cloud-builders/docker\nimages: [x]", "a Cloud Build config"),
    ("defaults:\n- model: cnn\nlr: 0.1", "a Hydra config"),
    ("on: [push]\njobs: {test: {runs-on: x}}", "a workflow of GitHub Actions"),
    ("taskGroups: []", "a Cloud Batch job"),
    ("name: x\ndependencies: [python]", "a conda environment"),
    ("epochs: 3\nlr: 0.1", "none of its keys belongs to one: epochs, lr"),
]


@pytest.mark.parametrize(("text", "looks"), FOREIGN)
@pytest.mark.parametrize("kind", [None, *spec.KINDS])
def test_a_file_for_something_else_is_named(text: str, looks: str, kind: spec.Kind | None) -> None:
    """A file without any key of a job spec is one finding that says what it looks like."""
    (found,) = spec.parse(text, kind=kind).findings
    assert (found.id, found.severity.value) == ("not-vertex", "error")
    assert "not a Vertex AI config" in found.message and looks in found.message


@pytest.mark.parametrize("key", ["workerPoolSpec", "studySpecs", "max_trial_counts", "jobSpec", "baseOutputDirectory"])
def test_a_job_spec_with_a_typo_is_still_one(key: str) -> None:
    """One key near a field of the API is enough to read the file as a job spec."""
    assert "not-vertex" not in {found.id for found in spec.parse(f"{key}: {{}}\nsteps: 3").findings}


@pytest.mark.parametrize("line", ["${GPU}      replicaCount: 1\n  ", "      $GPU\n    "])
def test_a_placeholder_for_whole_lines_is_one(line: str) -> None:
    """A file that is no YAML because a placeholder stands where lines belong is still to be rendered; a broken script is not."""
    found = only(JOB.replace("  replicaCount: 1\n  ", line, 1))
    assert (found.id, found.line) == ("placeholder", 3)
    assert only("a: [\nb: |\n  x\n  y\n  $GPU\n").id == "yaml-syntax"


def test_a_source_file_is_no_configuration() -> None:
    """A Python file gets no advice on YAML, but which file to name."""
    (found,) = spec.parse("import os\na = {}\nif a:\n    main()\n", file="submit.py").findings
    assert found.id == "yaml-syntax" and found.fix.startswith("name a job's YAML or JSON")


def test_a_tab_is_named() -> None:
    """A tab in the indentation is said to be one, at its line, and what to do."""
    found = only(JOB + "scheduling:\n\ttimeout: 60s\n")
    assert (found.id, found.line, found.fix) == ("yaml-syntax", 6, "replace the tab with spaces")
    assert "tab" in found.message
    assert only("a: [\n").fix == ""
    assert not spec.parse(JOB.replace("containerSpec:", "containerSpec:\t")).findings


def test_a_bare_list_of_pools_is_told_where_it_belongs() -> None:
    """The SDK's list of worker pools in a file gets the key to write above it."""
    assert "workerPoolSpecs" in only("- machineSpec: {machineType: n1-standard-4}\n").fix
    assert only("- a\n").fix == ""


PROJECT = """
project: p
bucket: gs://my-bucket
trainer: {package_uris: [gs://my-bucket/t-1.0.tar.gz]}
jobs:
  one: {machine_type: n1-standard-4, timeout: 60s}
  two: {machine_type: n1-unknown-3, timeout: 60s}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(JOB)
    (tmp_path / "bad.yaml").write_text(JOB.replace("replicaCount: 1", "replicaCount: x"))
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "other.yaml").write_text("services: {}\n")
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    return tmp_path


def test_an_unreadable_file_among_many_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are no text and a file that is not there are findings on them; the others are checked; JSON is JSON."""
    assert run(["check", "bytes.yaml", "good.yaml", "gone.yaml", "bad.yaml", "--format", "json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    errors = {(one["file"], one["id"]) for one in findings if one["severity"] == "error"}
    assert errors == {("bytes.yaml", "file-unreadable"), ("gone.yaml", "file-unreadable"), ("bad.yaml", "wrong-type")}
    assert "good.yaml" in {one["file"] for one in findings}


@pytest.mark.parametrize("file", ["bytes.yaml", "gone.yaml"])
def test_one_unreadable_file_is_bad_usage(file: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone, such a file is a usage error."""
    assert run(["check", file]) == 2
    assert file in capsys.readouterr().err


def test_a_project_file_is_checked_as_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check vertexrig.yaml` says what it is, and checks its jobs at their lines."""
    assert run(["check", "vertexrig.yaml", "good.yaml"]) == 0
    out, err = capsys.readouterr()
    assert "vertexrig.yaml: a project file: checked one, two" in err
    assert "vertexrig.yaml:7: warning[machine-unknown]" in out and "not-vertex" not in out
    (folder / "mine.yml").write_text(PROJECT.replace("n1-unknown-3", "n1-standard-1"))
    assert run(["check", "mine.yml"]) == 1
    assert "mine.yml:7: error[machine-not-for-training]" in capsys.readouterr().out
