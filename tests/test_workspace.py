"""A project at work: what the checks are given, and where their findings are placed."""

from __future__ import annotations

from pathlib import Path

from tests.tools import REPOSITORY
from vertexrig.checks.workspace import Workspace
from vertexrig.finding import Severity
from vertexrig.project import config

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
