"""An image runs in Docker where an engine answers; here a recording program stands in for it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.jobkit import job
from vertexrig.local.runner import RunOptions, command_line, run_job


def test_docker_runs_a_container_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an engine answers, the image runs with the contract's variables by name, /gcs mounted and paths below it."""
    record = tmp_path / "record"
    fake = tmp_path / "docker"
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "if sys.argv[1] == 'info': print('ID')\n"
        f"else: open({str(record)!r}, 'a').write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
        "sys.exit(7 if sys.argv[1] == 'run' else 0)\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    command_line.docker.cache_clear()
    container = {"imageUri": "img:1", "command": ["sh", "-c"], "args": ["x", "gs://b/$(CLOUD_ML_JOB_ID)"]}
    one = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": container}
    try:
        result = run_job(job(one), root=tmp_path, options=RunOptions(grace=0.5, job_id="77"))
    finally:
        command_line.docker.cache_clear()
    assert result.error is not None and "non-zero status of 7" in result.error.message
    (run, variables), (cleanup, _) = map(json.loads, record.read_text().splitlines())
    assert run[:6] == ["run", "--rm", "--name", "vertexrig-77-workerpool0-0", "--network", "host"]
    assert f"{tmp_path}/gs:/gcs" in run and run[-6:] == ["--entrypoint", "sh", "img:1", "-c", "x", "/gcs/b/77"]
    named = [run[i + 1] for i, word in enumerate(run) if word == "--env"]
    assert "CLUSTER_SPEC" in named and "PATH" not in named and variables["CLOUD_ML_JOB_ID"] == "77"
    assert cleanup == ["rm", "--force", "vertexrig-77-workerpool0-0"]
