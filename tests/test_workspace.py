"""A project at work: what the checks are given, and where their findings are placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import REPOSITORY
from vertexrig.checks.workspace import Workspace
from vertexrig.finding import Severity
from vertexrig.project import config
from vertexrig.project.origins import origin

TRAINER = f"trainer: {{path: '{REPOSITORY / 'trainer_pkg'}', image: custom, custom_image: us-docker.pkg.dev/p/r/i:1}}\n"


def workspace(jobs: str) -> Workspace:
    text = f"project: p\nbucket: gs://my-bucket\n{TRAINER}{jobs}"
    return Workspace(config.loads(text, file=Path("vertexrig.yaml"), environment={}))


def test_a_custom_image_is_held_against_the_trainer_it_runs() -> None:
    """A job in the project's own image is checked against the trainer's flags; one in another container is not."""
    job = "machine_type: n1-standard-4, timeout: 60s, args: {learning_rat: 1}"
    other = "container: {image_uri: us-docker.pkg.dev/p/r/other:1}"
    work = workspace(f"jobs:\n  ours: {{{job}}}\n  theirs: {{{job}, {other}}}\n")
    ids = {name: [finding.id for finding in work.prepare(name).findings] for name in ("ours", "theirs")}
    assert "argument-unknown" in ids["ours"] and "argument-unknown" not in ids["theirs"]


def test_the_key_of_a_job_is_checked() -> None:
    """A Cloud KMS key, which is no part of the YAML, is held against its form and the job's region, at its line."""
    job = "machine_type: n1-standard-4, timeout: 60s, args: {epochs: 1}"
    key = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
    study = "{metrics: {accuracy: MAXIMIZE}, parameters: {epochs: {integer_value_spec: {min_value: 1, max_value: 9}}}}"
    sweep = f"s: {{job: j, max_trial_count: 2, study: {study}}}"
    work = workspace(f"jobs:\n  j:\n    {{{job},\n     kms_key_name: {key}}}\nsweeps:\n  {sweep}\n")
    for name in ("j", "s"):
        (found,) = (one for one in work.prepare(name).findings if one.id == "kms-key")
        assert (found.severity, found.line) == (Severity.ERROR, 7) and "europe-west4" in found.message, name


def test_findings_stand_at_the_line_the_user_edits() -> None:
    """A finding on the rendered YAML points at the nearest key of the project file: job, role, study, label."""
    jobs = (
        "labels: {Bad: x}\n"  # line 4
        "jobs:\n"
        "  j:\n"
        "    topology: multi-worker\n"
        "    machine_type: n1-standard-4\n"
        "    timeout: 60s\n"
        "    worker:\n"
        "      machine_type: foo-bar-1\n"  # line 11
        "sweeps:\n"
        "  s:\n"
        "    job: j\n"
        "    max_trial_count: 3\n"
        "    study:\n"
        "      metrics: {accuracy: MAXIMIZE}\n"
        "      parameters:\n"
        "        learning_rate:\n"
        "          double_value_spec:\n"
        "            min_value: 2\n"
        "            max_value: 1\n"
    )
    work = workspace(jobs)
    lines = {finding.id: finding.line for finding in work.prepare("s").findings}
    assert lines["labels"] == 4
    assert lines["machine-unknown"] == 11
    assert lines["parameter-bounds"] == 21


def test_a_bound_left_out_because_it_is_0_is_no_error() -> None:
    """Clients of the REST API leave out a bound of 0: one missing bound is a warning, two are an error."""
    work = workspace("jobs: {}\n")
    text = "studySpec: {{metrics: [{{metricId: a, goal: MAXIMIZE}}], parameters: [{{parameterId: x, doubleValueSpec: {}}}]}}\nmaxTrialCount: 10\n"
    for spec, severity in (("{maxValue: 1}", Severity.WARNING), ("{}", Severity.ERROR)):
        _, findings = work.check_text(text.format(spec), file="f.yaml")
        assert [finding.severity for finding in findings if finding.id == "parameter-bounds"] == [severity]


POSITIONS = """\
project: p
bucket: gs://my-bucket
trainer:
  package_uris: [gs://my-bucket/t.tar.gz]
  image: tf-2.17
jobs:
  j:
    topology: multi-worker
    machine_type: n1-standard-4
    enable_web_access: true
    args:
      rate: 0.1
    env:
      MODE: fast
    worker:
      replica_count: 2
      machine_type: n1-standard-8
      args: [--plain, --other=1]
    evaluator:
      machine_type: n1-standard-16
    spec:
      scheduling:
        restart_job_on_worker_restart: true
sweeps:
  s:
    job: j
    max_trial_count: 3
    args:
      depth: 2
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters:
        rate:
          double_value_spec:
            min_value: 0.001
            max_value: 0.1
        kind:
          categorical_value_spec:
            values: [a, b]
"""
POOL = "workerPoolSpecs[{}].pythonPackageSpec"


@pytest.mark.parametrize(
    ("name", "path", "line"),
    [
        ("j", "workerPoolSpecs[0].machineSpec.machineType", 9),
        ("j", "workerPoolSpecs[1].machineSpec.machineType", 17),
        ("j", "workerPoolSpecs[1].machineSpec.acceleratorCount", 15),  # missing: the role it would be in
        ("j", "workerPoolSpecs[0].machineSpec.acceleratorCount", 7),
        ("j", "workerPoolSpecs[1].replicaCount", 16),
        ("j", "workerPoolSpecs[1]", 15),
        ("j", f"{POOL.format(0)}.args[0]", 12),
        ("j", f"{POOL.format(1)}.args[1]", 18),
        ("j", f"{POOL.format(3)}.args[0]", 12),  # inherited from the job
        ("j", f"{POOL.format(0)}.args", 12),
        ("j", f"{POOL.format(0)}.env[0].value", 14),
        ("j", f"{POOL.format(0)}.env[0].name", 14),
        ("j", f"{POOL.format(0)}.executorImageUri", 5),
        ("j", f"{POOL.format(0)}.packageUris[0]", 4),
        ("j", f"{POOL.format(0)}.pythonModule", 3),  # a default: the mapping it would be in
        ("j", "enableWebAccess", 10),
        ("j", "scheduling.restartJobOnWorkerRestart", 23),
        ("j", "baseOutputDirectory.outputUriPrefix", 2),
        ("j", "network", 7),
        ("s", "maxTrialCount", 27),
        ("s", "trialJobSpec.network", 7),
        ("s", f"trialJobSpec.{POOL.format(0)}.args[0]", 29),
        ("s", "studySpec.metrics[0].goal", 31),
        ("s", "studySpec.parameters[0]", 33),
        ("s", "studySpec.parameters[0].doubleValueSpec", 34),
        ("s", "studySpec.parameters[0].doubleValueSpec.maxValue", 36),
        ("s", "studySpec.parameters[1].categoricalValueSpec.values[1]", 39),
        ("s", "studySpec.algorithm", 30),
        ("s", "parallelTrialCount", 25),
    ],
)  # fmt: skip
def test_a_value_comes_from_the_key_that_gives_it(name: str, path: str, line: int) -> None:
    """Each value of a rendered job leads to the line of the project file that it was made of, whatever its key is called."""
    loaded = config.loads(POSITIONS, file=Path("vertexrig.yaml"), environment={})
    renderer = Workspace(loaded).renderer
    found = loaded.source(origin(renderer.origins(name), path)) or loaded.source(
        ("jobs" if name == "j" else "sweeps", name)
    )
    assert found == line


def test_a_value_comes_from_the_override_that_gives_it() -> None:
    """A value of the command line leads to its --set."""
    loaded = config.loads(
        POSITIONS, file=Path("vertexrig.yaml"), environment={}, target="j", overrides=["args.rate=3", "worker.replica_count=4"]
    )  # fmt: skip
    origins = Workspace(loaded).renderer.origins("j")
    assert loaded.source(origin(origins, f"{POOL.format(0)}.args[0]")) == "args.rate=3"
    assert loaded.source(origin(origins, "workerPoolSpecs[1].replicaCount")) == "worker.replica_count=4"


def test_every_value_of_the_examples_has_an_origin_or_is_of_the_template() -> None:
    """Rendering with tags gives the very text that is rendered without them, for every job and sweep there is."""
    for file in [REPOSITORY / "vertexrig.yaml", *sorted((REPOSITORY / "examples").glob("*/vertexrig.yaml"))]:
        loaded = config.load(file, environment={"PROJECT": "p", "BUCKET": "gs://b-b", "GOOGLE_CLOUD_PROJECT": "p"})
        for name in (*loaded.project.jobs, *loaded.project.sweeps):
            assert Workspace(loaded).renderer.origins(name), (file, name)
