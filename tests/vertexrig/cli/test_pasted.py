"""What render and rehearse print, pasted into a shell after `eval "$(vertexrig local env)"`, trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support.tools import need, typed
from vertexrig.cloud.vertex import Vertex
from vertexrig.studies import report

TRAINER = """
import argparse
import hypertune

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--learning_rate", type=float, default=0.1)
args = parser.parse_args()
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", 1 - args.learning_rate, args.epochs)
"""
PROJECT = """
project: my-project
bucket: gs://my-bucket/folder
trainer: {path: train.py, module: train}
jobs:
  cpu: {machine_type: n1-standard-4, timeout: 600s, args: {epochs: 2}}
  other: {machine_type: n1-standard-8, timeout: 600s}
sweeps:
  sweep:
    job: other
    max_trial_count: 2
    study: {metrics: {accuracy: MAXIMIZE}, parameters: {learning_rate: {double_value_spec: {min_value: 0.1, max_value: 0.5}, scale_type: UNIT_LINEAR_SCALE}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a trainer of a few lines."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAINER)
    (work / "vertexrig.yaml").write_text(PROJECT)
    return work


def succeeded(vertex: Vertex, name: str) -> None:
    """The job of that name trains to its end."""
    *_, last = report.follow(vertex, vertex.lookup(name).name, poll_s=0.2)
    assert last.state == "JOB_STATE_SUCCEEDED", last.error


@pytest.mark.whole
def test_what_render_prints_is_the_whole_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Package, upload into the bucket that the server made, creation: a job and a sweep that share a package train."""
    need("gcloud")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder.parent / "gcloud"))
    printed = typed("render", "cpu", "sweep", cwd=folder).stdout
    assert [line.split()[:3] for line in printed.splitlines()] == [
        ["vertexrig", "package", "cpu"], ["gcloud", "ai", "custom-jobs"], ["gcloud", "ai", "hp-tuning-jobs"],
    ]  # fmt: skip
    script = f'set -e\nvertexrig local up --detach --port 0\neval "$(vertexrig local env)"\n{printed}'
    try:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "gs://my-bucket/folder/packages/train-0" in done.stdout
        here = server.find(folder / ".vertexrig")
        assert here is not None
        vertex = Vertex("my-project", "us-central1", url=f"{here.url}{server.AIPLATFORM}")
        succeeded(vertex, "cpu")
        succeeded(vertex, "sweep")
    finally:
        server.down(folder / ".vertexrig")


@pytest.mark.whole
def test_what_rehearse_prints_is_what_ran(folder: Path) -> None:
    """A rehearsal leaves the YAML that its last lines name, with the keys it was called with, in place of an older one."""
    old = folder / "build/jobs/cpu.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("of another day")
    done = typed("rehearse", "cpu", "--set", "args.epochs=3", cwd=folder)
    assert done.exit_code == 0, done.stderr
    assert "--epochs=3" in old.read_text()
    package, create = done.stderr.partition("on Vertex AI:\n")[2].splitlines()
    assert package.endswith("vertexrig package cpu --upload --set args.epochs=3")
    assert create.startswith("gcloud ai custom-jobs create ") and "--config=build/jobs/cpu.yaml" in create


def test_package_upload_does_nothing_twice_and_tells_a_missing_bucket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload is skipped where the object is there; without the bucket the error is the command that makes it."""
    words = ("package", "cpu", "--no-verify", "--upload")
    with server.running(Settings(folder / ".vertexrig")) as here:
        server.make_bucket(here, "my-bucket")
        for name, value in server.env(here, project="my-project").items():
            monkeypatch.setenv(name, value)
        first, second = (typed(*words, cwd=folder).stdout for _ in range(2))
        assert first == second and "gs://my-bucket/folder/packages/" in first
        (folder / "other.yaml").write_text(PROJECT.replace("my-bucket", "your-other-bucket"))
        done = typed(*words, "--file", "other.yaml", cwd=folder)
        make = "gcloud storage buckets create gs://your-other-bucket --location=us-central1"
        assert done.exit_code == 3 and f"there is no bucket gs://your-other-bucket: {make}" in done.stderr


def test_upload_goes_with_the_projects_own_package_only(folder: Path) -> None:
    """--upload with another trainer's folder would upload what no job names: it is refused."""
    done = typed("package", "--upload", "--trainer", "elsewhere", cwd=folder)
    assert done.exit_code == 2 and "leave out --trainer and --tf-version" in done.stderr
