"""What findings say: their words, fixes and order, and each mistake once."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import yaml

from tests.vertexrig.checks.job_bases import DROP, IMAGE, PREBUILT, TODAY, edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check
from vertexrig.finding import Finding, Severity

_P0 = "workerPoolSpecs[0]"
_M0 = f"{_P0}.machineSpec"


def _check(text: str, region: str = "", today: date = TODAY) -> list[Finding]:
    return check(spec.parse(text), Context(load(), region=region, today=today))


def test_the_count_message_names_the_allowed_counts() -> None:
    """The finding on a count names the machine, the accelerator and what it takes."""
    (found,) = [f for f in _check(edited("gpu", {f"{_M0}.acceleratorCount": 3})) if f.id == "accelerator-count"]
    assert "NVIDIA_TESLA_T4" in found.message and "1, 2, 4" in found.message and found.path.endswith("acceleratorCount")
    assert found.fix == "write 2 or 4 (the nearest allowed counts)"


FLOWERS = """
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-4, acceleratorType: NVIDIA_TESLA_T4, acceleratorCount: 2}
  replicaCount: 1
  pythonPackageSpec:
    executorImageUri: us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-4:latest
    packageUris: gs://{BUCKET}/flowers-1.0.tar.gz
    pythonModule: flowers.classifier.train
    args: ['--distribute="cpu"', '--job-dir="gs://{BUCKET}/flowers"']
"""


def test_the_mistakes_of_a_published_walk_through_are_found() -> None:
    """Quotes in args, a CPU image on GPUs, a pasted placeholder and a missing timeout in one published file."""
    ids = {finding.id for finding in _check(FLOWERS)}
    assert {"arg-quotes", "image-accelerator", "placeholder", "timeout-unset", "not-a-list"} <= ids


def test_one_mistake_is_told_once() -> None:
    """What the strict reading refused is not told again as missing by a rule."""
    text = f"""
workerPoolSpecs:
- machineSpec: {{machinetype: n1-standard-8, acceleratorType: NVIDIA_T4, acceleratorCount: 1}}
  replicacount: 1
  containerSpec: {{imageUri: {IMAGE}}}
- 7
- machineSpec: {{machineType: g2-standard-8, accelerator_Type: NVIDIA_L4}}
  replicaCount: 1
  containerSpec: {{image_Uri: {IMAGE}}}
scheduling: {{timeout: 3600}}
"""
    errors = [finding.id for finding in _check(text) if finding.severity is not Severity.INFO]
    assert sorted(errors) == ["unknown-enum-value", *4 * ["unknown-field"], "wrong-type", "wrong-type"]


def test_legacy_and_broken_files_give_their_own_finding_only() -> None:
    """A file for AI Platform Training or one that is no YAML is not checked as a job."""
    assert [f.id for f in _check("trainingInput: {scaleTier: CUSTOM}")] == ["legacy-ai-platform"]
    assert [f.id for f in _check("a: [")] == ["yaml-syntax"]


def test_silenced_rules_and_readings_are_left_out() -> None:
    """A silenced id gives no finding, be it a rule's or the strict reading's."""
    text = edited("cpu", {f"{_P0}.replicaCount": 5, "foo": 1})
    document = spec.parse(text)
    context = Context(load(), today=TODAY)
    loud = {f.id for f in check(document, context) if f.severity is Severity.ERROR}
    assert loud == {"chief-replicas", "unknown-field"}
    silenced = {"chief-replicas": "a test", "unknown-field": "a test"}
    assert not [f for f in check(document, context, silenced) if f.severity is Severity.ERROR]


def test_findings_come_in_the_order_of_the_file() -> None:
    """Findings are sorted by line, and each has the line of its path."""
    found = _check(edited("servers", {f"{_P0}.replicaCount": 2, "workerPoolSpecs[3].replicaCount": 2}))
    assert [f.line for f in found] == sorted(f.line or 0 for f in found)


FIXES = [
    ("disk-size", "cpu", {"workerPoolSpecs[0].diskSpec.bootDiskSizeGb": 50}, "write 100"),
    ("disk-size", "cpu", {"workerPoolSpecs[0].diskSpec.bootDiskSizeGb": 99_999}, "write 64000"),
    ("persistent-resource", "cpu", {"persistentResourceId": "projects/p/persistentResources/mine"}, "write mine"),
    ("persistent-resource", "cpu", {"persistentResourceId": "projects/p/Mine"}, ""),
    ("machine-unknown", "cpu", {f"{_M0}.machineType": "n1-standart-8"}, "write n1-standard-8"),
    ("machine-not-for-training", "cpu", {f"{_M0}.machineType": "c3-standard-8"}, "write n2-standard-8, for example"),
    ("accelerator-pair", "l4", {f"{_M0}.acceleratorCount": 0}, "write acceleratorCount: 1"),
    ("tpu-topology", "tpu-v5e", {f"{_M0}.tpuTopology": "2X2"}, "write 2x2"),
    ("image-tag", "python", {f"{_P0}.pythonPackageSpec.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310:1"},
     f"write {PREBUILT}/tf-cpu.2-17.py310:latest"),
    ("image-accelerator", "python-gpu",
     {f"{_P0}.pythonPackageSpec.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310:latest"},
     f"write {PREBUILT}/tf-gpu.2-17.py310:latest"),
    ("image-unknown", "python", {f"{_P0}.pythonPackageSpec.executorImageUri": f"{PREBUILT}/tf-gpu.2-17.py31:latest"},
     f"write {PREBUILT}/tf-gpu.2-17.py310:latest"),
    ("arg-quotes", "python", {f"{_P0}.pythonPackageSpec.args": ["--mode='cpu'"]}, "write --mode=cpu"),
    ("arg-quotes", "cpu", {f"{_P0}.containerSpec.args": ["hyperparameters.epochs='1'"]}, "write hyperparameters.epochs=1"),
    ("arg-glued", "python", {f"{_P0}.pythonPackageSpec.args": ["--mode cpu"]}, "write --mode=cpu, or two items"),
    ("module-form", "python", {f"{_P0}.pythonPackageSpec.pythonModule": "trainer/task.py"}, "write trainer.task"),
    ("package-uri", "python", {f"{_P0}.pythonPackageSpec.packageUris": ["/gcs/my-bucket/t.tar.gz"]},
     "write gs://my-bucket/t.tar.gz"),
    ("output-uri", "cpu", {"baseOutputDirectory.outputUriPrefix": "gs:/my-bucket/x"}, "write gs://my-bucket/x"),
    ("strategy-deprecated", "cpu", {"scheduling.strategy": "ON_DEMAND"}, "write STANDARD"),
    ("service-account", "cpu", {"serviceAccount": "projects/-/serviceAccounts/a@p.iam.gserviceaccount.com"},
     "write a@p.iam.gserviceaccount.com"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "base", "edits", "fix"), FIXES)
def test_a_fix_says_what_to_write(rule: str, base: str, edits: dict[str, Any], fix: str) -> None:
    """The fix of a finding is the text to write, or nothing where there is no single answer."""
    assert [found.fix for found in _check(edited(base, edits)) if found.id == rule] == [fix]


def test_sums_are_told_as_one_reads_them() -> None:
    """A quota finding shows how its amount comes about, in the singular for one."""
    edits = {"parallelTrialCount": 3, "trialJobSpec.workerPoolSpecs[0].machineSpec.machineType": "n1-standard-16"}
    (cpus,) = [f for f in _check(edited("sweep", edits), "us-central1") if "training_cpus" in f.message]
    assert "needs 48 vCPUs" in cpus.message and "(1 replica × 16 × 3 parallel trials)" in cpus.message
    assert "is 2,200" in cpus.message
    (gpus,) = [f for f in _check(edited("gpu", {})) if "t4_gpus" in f.message]
    assert gpus.message.startswith("needs 1 GPU of ") and "default" not in gpus.message


def test_a_timeout_that_is_missing_is_told_in_machine_hours() -> None:
    """Three machines with a T4 each, left alone for seven days, are 504 machine-hours and as many GPU-hours."""
    (found,) = [f for f in _check(edited("workers", {"scheduling": DROP})) if f.id == "timeout-unset"]
    assert "504 machine-hours and 504 GPU-hours" in found.message
    assert "timeout-unset" not in {f.id for f in _check(edited("sweep", {"trialJobSpec.scheduling": DROP}))}


def test_end_dates_are_counted_in_days() -> None:
    """The finding on an image names the date it ended on, and how long ago that is."""
    text = edited("python", {})
    (found,) = [f for f in _check(text, today=date(2026, 11, 20)) if f.id == "image-availability"]
    assert "2026-07-11" in found.message
    # it is the newest there is; of an older one it is a warning
    older = _check(text.replace("2-17.py310", "2-16.py310"), today=date(2026, 11, 20))
    severities = {found.severity, *(f.severity for f in older if f.id == "image-availability")}
    assert found.severity is Severity.INFO and severities == {Severity.INFO, Severity.WARNING}
    last_day = {f.id for f in _check(text, today=date(2026, 7, 10))}
    assert "image-support" in last_day and "image-availability" not in last_day
    assert "image-support" not in {f.id for f in _check(text, today=date(2026, 7, 11))}


@pytest.mark.parametrize(
    ("rule", "today"), [("image-availability", date(2026, 11, 20)), ("image-support", date(2026, 7, 10))]
)
def test_an_image_is_told_of_once(rule: str, today: date) -> None:
    """However many pools have it, an image's end is one finding, at the first of them."""
    pools = yaml.safe_load(edited("python", {}))["workerPoolSpecs"]
    text = edited("python", {"workerPoolSpecs[1]": {**pools[0], "replicaCount": 2}})
    (found,) = [f for f in _check(text, today=today) if f.id == rule]
    assert found.path.startswith("workerPoolSpecs[0].")


def test_a_misspelt_key_excuses_its_own_place_only() -> None:
    """A misspelt machineSpec is told once; a machine type missing elsewhere is told all the same."""
    text = f"""
workerPoolSpecs:
- machinespec: {{machineType: n1-standard-8}}
  replicaCount: 1
  containerSpec: {{imageUri: {IMAGE}}}
- machineSpec: {{acceleratorType: NVIDIA_TESLA_T4, acceleratorCount: 1}}
  replicaCount: 1
  containerSpec: {{imageUri: {IMAGE}, argz: [a]}}
"""
    errors = [(finding.id, finding.path) for finding in _check(text) if finding.severity is Severity.ERROR]
    assert errors == [
        ("unknown-field", "workerPoolSpecs[0].machinespec"),
        ("machine-missing", "workerPoolSpecs[1].machineSpec.machineType"),
        ("unknown-field", "workerPoolSpecs[1].containerSpec.argz"),
    ]
