"""What render and rehearse print, pasted into a shell after `eval "$(vertexrig local env)"`, trains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex import server
from tests.support.tools import need, vertexrig
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a trainer of a few lines; vertexrig is on the PATH."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAINER)
    (work / "vertexrig.yaml").write_text(PROJECT)
    yield work
    server.down(work / ".vertexrig")


def paste(lines: str, folder: Path) -> str:
    """Paste lines into a shell that was pointed at the local Vertex; what they printed."""
    script = f'set -e\neval "$(vertexrig local env)"\n{lines}'
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def up(folder: Path) -> Vertex:
    assert vertexrig("local", "up", "--detach", "--port", "0", cwd=folder).returncode == 0
    here = server.find(folder / ".vertexrig")
    assert here is not None
    return Vertex("my-project", "us-central1", url=f"{here.url}{server.AIPLATFORM}")


def succeeded(vertex: Vertex, name: str) -> None:
    """The job of that name trains to its end."""
    *_, last = report.follow(vertex, vertex.lookup(name).name, poll_s=0.2)
    assert last.state == "JOB_STATE_SUCCEEDED", last.error


@pytest.mark.whole
def test_what_render_prints_is_the_whole_way(folder: Path) -> None:
    """Package, upload into the bucket that the server made, creation: a job and a sweep that share a package train."""
    need("gcloud")
    printed = vertexrig("render", "cpu", "sweep", cwd=folder).stdout
    assert [line.split()[:3] for line in printed.splitlines()] == [
        ["vertexrig", "package", "cpu"], ["gcloud", "ai", "custom-jobs"], ["gcloud", "ai", "hp-tuning-jobs"],
    ]  # fmt: skip
    vertex = up(folder)
    assert "gs://my-bucket/folder/packages/train-0" in paste(printed, folder)
    succeeded(vertex, "cpu")
    succeeded(vertex, "sweep")


@pytest.mark.whole
def test_what_rehearse_prints_is_what_ran(folder: Path) -> None:
    """A rehearsal leaves the YAML that its last lines name, with the keys it was called with, in place of an older one."""
    need("gcloud")
    old = folder / "build/jobs/cpu.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("of another day")
    done = vertexrig("rehearse", "cpu", "--set", "args.epochs=3", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "--epochs=3" in old.read_text()
    lines = done.stderr.partition("on Vertex AI:\n")[2]
    assert "vertexrig package cpu --upload --set args.epochs=3" in lines
    vertex = up(folder)
    paste(lines, folder)
    succeeded(vertex, "cpu")


@pytest.mark.whole
def test_package_upload_does_nothing_twice_and_tells_a_missing_bucket(folder: Path) -> None:
    """The upload is skipped where the object is there; without the bucket the error is the command that makes it."""
    up(folder)
    first, second = paste("vertexrig package --upload; vertexrig package --upload", folder).split("build/packages")[1:]
    assert first == second and "gs://my-bucket/folder/packages/" in first
    text = (folder / "vertexrig.yaml").read_text().replace("my-bucket", "your-other-bucket")
    (folder / "other.yaml").write_text(text)
    script = 'eval "$(vertexrig local env)"; vertexrig package cpu --upload --file other.yaml'
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 3
    make = "gcloud storage buckets create gs://your-other-bucket --location=us-central1"
    assert f"there is no bucket gs://your-other-bucket: {make}" in done.stderr
    paste(f"{make}\nvertexrig package cpu --upload --file other.yaml", folder)


def test_upload_goes_with_the_projects_own_package_only(folder: Path) -> None:
    """--upload with another trainer's folder would upload what no job names: it is refused."""
    done = vertexrig("package", "--upload", "--trainer", "elsewhere", cwd=folder)
    assert done.returncode == 2 and "leave out --trainer and --tf-version" in done.stderr
