"""An image runs in Docker where an engine answers; here a recording program stands in for it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from localvertex.runner import RunOptions, command_line, run_job
from tests.support.jobkit import job

ONE = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": {"imageUri": "img:1", "command": ["sh", "-c"], "args": ["x", "gs://b/$(CLOUD_ML_JOB_ID)"]},
}


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker program with an engine whose containers end with 7; what it was asked for is in the file `record`."""
    fake = tmp_path / "docker"
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"if sys.argv[1] == 'info': sys.exit(os.path.exists({str(tmp_path / 'off')!r}))\n"
        f"open({str(tmp_path / 'record')!r}, 'a').write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
        "sys.exit(7 if sys.argv[1] == 'run' else 0)\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return fake


def _asked(folder: Path) -> list[tuple[list[str], dict[str, Any]]]:
    return [(argv, env) for argv, env in map(json.loads, (folder / "record").read_text().splitlines())]


def _after(argv: list[str], option: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


def test_docker_runs_a_container_spec(docker: Path, tmp_path: Path) -> None:
    """Where an engine answers, the image runs with the contract's variables by name, /gcs mounted and paths below it."""
    result = run_job(job(ONE), root=tmp_path, options=RunOptions(grace=0.5, job_id="77"))
    assert result.error is not None and "non-zero status of 7" in result.error.message
    (run, variables), (cleanup, _) = _asked(tmp_path)
    assert run[:6] == ["run", "--rm", "--name", "vertexrig-77-workerpool0-0", "--network", "host"]
    assert f"{tmp_path}/gs:/gcs" in run and run[-6:] == ["--entrypoint", "sh", "img:1", "-c", "x", "/gcs/b/77"]
    named = _after(run, "--env")
    assert "CLUSTER_SPEC" in named and "PATH" not in named and variables["CLOUD_ML_JOB_ID"] == "77"
    assert cleanup == ["rm", "--force", "vertexrig-77-workerpool0-0"]


def test_the_metric_file_of_a_container_is_on_this_machine(docker: Path, tmp_path: Path) -> None:
    """The folder of CLOUD_ML_HP_METRIC_FILE is mounted at its own path, for what a container writes elsewhere goes with it."""
    run_job(job(ONE), root=tmp_path, options=RunOptions(grace=0.5, job_id="77"))
    run, variables = _asked(tmp_path)[0]
    folder = os.path.dirname(variables["CLOUD_ML_HP_METRIC_FILE"])
    assert f"{folder}:{folder}" in _after(run, "--volume") and os.path.isdir(folder)


def test_docker_runs_on_the_engine_that_answered(docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find the engine by the same variables as the question whether there is one; the container does not get them."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.1.1.1:2376")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/certs")
    run_job(job(ONE), root=tmp_path, options=RunOptions(grace=0.5, job_id="77"))
    for argv, variables in _asked(tmp_path):
        assert (variables["DOCKER_HOST"], variables["DOCKER_CERT_PATH"]) == ("tcp://10.1.1.1:2376", "/certs")
        assert "DOCKER_HOST" not in _after(argv, "--env")


def test_an_engine_that_is_started_later_is_found(docker: Path, tmp_path: Path) -> None:
    """That no engine answered is not remembered: the error asks its reader to start one."""
    (tmp_path / "off").touch()
    assert not command_line.docker()
    (tmp_path / "off").unlink()
    assert command_line.docker() == str(docker)
