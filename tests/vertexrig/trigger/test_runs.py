"""Each run of a job gets an output folder of its own on Vertex AI, and keeps it however often its request is delivered."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from localvertex import server
from tests.support import clouds
from vertexrig import cli
from vertexrig.errors import UsageError
from vertexrig.project import run_ids
from vertexrig.submit.claims import Claims, request_key
from vertexrig.submit.submission import Request, Submitted, Submitter

PROJECT: dict[str, Any] = {**clouds.PROJECT, "trainer": {"package_uris": ["gs://my-bucket/packages/trainer.tar.gz"]}}


@pytest.fixture
def folder(tmp_path: Path, here: server.RunningServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as working directory whose verbs talk to a local Vertex."""
    (tmp_path / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    monkeypatch.chdir(tmp_path)
    for name, value in clouds.variables(here).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def run(*words: str, fails: bool = False) -> Result:
    done = CliRunner().invoke(cli.vertexrig, list(words))
    assert (isinstance(done.exception, UsageError)) if fails else done.exit_code == 0, (done.output, done.exception)
    return done


def output(here: clouds.Cloud, name: str) -> str:
    job = clouds.vertex(here).get(name)
    assert job is not None
    return job.output


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(timezone.utc)))
def test_names_of_runs(now: datetime) -> None:
    """A run's name is recognised at the end of its output folder, and sorts by time."""
    name = run_ids.new_run_id(now)
    assert (
        run_ids.GENERATED.fullmatch(name)
        and run_ids.run_id_of(f"{run_ids.output_folder('gs://b/x/', 'cpu', name)}/") == name
    )
    assert name.startswith(f"{now:%Y%m%d-%H%M%S}-") and run_ids.run_id_of("gs://b/runs/cpu") == ""


def test_submit_tells_the_folder(folder: Path, here: server.RunningServer) -> None:
    """Two submissions write to two folders, told on stderr and in JSON; a sweep's run holds its trials' folders."""
    made = [run("submit", name, "--format=json") for name in ("cpu", "cpu", "sweep")]
    folders = [json.loads(one.stdout)["output"] for one in made]
    assert len(set(folders)) == 3
    for name, one, uri in zip(("cpu", "cpu", "sweep"), made, folders, strict=True):
        assert uri.startswith(f"gs://my-bucket/runs/{name}/") and run_ids.run_id_of(uri)
        assert f"output folder: {uri}\n" in one.stderr and output(here, json.loads(one.stdout)["name"]) == uri


def test_the_same_request_keeps_its_folder(folder: Path, here: server.RunningServer) -> None:
    """Submitted again with its request id, a job is the first one, in the first one's folder."""
    first, again = (json.loads(run("submit", "cpu", "--request-id=same", "--format=json").stdout) for _ in range(2))
    assert again["duplicate"] and again["output"] == first["output"] and again["name"] == first["name"]


def test_a_healed_claim_keeps_its_folder(tmp_path: Path) -> None:
    """A job made by another delivery than the one that claimed the request has the folder that the first one chose."""
    here, body, key = clouds.MemoryCloud(), Request("cpu").digest, request_key("healed-folder")
    claims = Claims(here.storage, lease_s=1.0)
    claims.take(key, body, "cpu", lambda _: None, lambda _: {})
    stored = here.storage.read_json(key.path)
    assert stored is not None and run_ids.GENERATED.fullmatch(stored["run_id"])
    here.clock.at += 2
    submitter = clouds.submitter(here, tmp_path, claims=claims)
    made = submitter.submit(submitter.prepare_candidates(Request("cpu"))[0], key, body)
    assert not made.duplicate and made.output == f"gs://my-bucket/runs/cpu/{stored['run_id']}"
    assert output(here, made.name) == made.output


def test_resume_by_name(folder: Path, here: server.RunningServer) -> None:
    """--resume takes the folder of an earlier run of the job; one that still runs, or is not there, is refused."""
    first = json.loads(run("submit", "cpu", "--format=json").stdout)
    name = run_ids.run_id_of(first["output"])
    living = run("submit", "cpu", f"--resume={name}", fails=True)
    assert f"still writes into {first['output']}" in str(living.exception)
    vertex = clouds.vertex(here)
    vertex.cancel(first["name"])
    until = time.monotonic() + 30
    while not (vertex.get(first["name"]) or pytest.fail("gone")).ended:
        assert time.monotonic() < until
    resumed = json.loads(run("submit", "cpu", f"--resume={name}", "--format=json").stdout)
    assert resumed["output"] == first["output"] and resumed["name"] != first["name"]
    sweep = run("submit", "sweep", f"--resume={name}", fails=True)
    assert "sweep is a sweep, which cannot be resumed" in str(sweep.exception)
    missing = run("submit", "cpu", "--resume=20200101-000000-0000", fails=True)
    assert "cpu has no run '20200101-000000-0000'. Its runs: " in str(missing.exception) and name in str(
        missing.exception
    )


def test_a_folder_in_the_project_file_stays(tmp_path: Path) -> None:
    """A base_output_directory of the project file is used by every run as it is written there."""
    jobs = {**clouds.PROJECT["jobs"], "fixed": {"machine_type": "n1-standard-4", "base_output_directory": "gs://my-bucket/f"}}  # fmt: skip
    here = clouds.MemoryCloud()
    submitter: Submitter = clouds.submitter(here, tmp_path, {**clouds.PROJECT, "jobs": jobs})
    request = Request("fixed")
    made: Submitted = submitter.submit(
        submitter.prepare_candidates(request)[0], request_key("fixed-folder"), request.digest
    )
    assert made.output == "gs://my-bucket/f" == output(here, made.name)


def test_render_is_stable_and_names_runs_on_demand(folder: Path) -> None:
    """Render writes the same bytes each time, with a folder for all runs; --run gives the YAML the folder of one run."""
    file = folder / "build/jobs/cpu.yaml"
    texts = []
    for _ in range(2):
        said = run("render", "cpu").stderr
        texts.append(file.read_bytes())
        assert "output folder: gs://my-bucket/runs/cpu. Every job created from this file writes there; " in said
    assert texts[0] == texts[1] and b'"gs://my-bucket/runs/cpu"' in texts[0]
    run("render", "cpu", "--run=mine")
    assert '"gs://my-bucket/runs/cpu/mine"' in file.read_text()
    said = run("render", "cpu", "--run=new").stderr
    uri = said.partition("output folder: ")[2].splitlines()[0]
    assert run_ids.run_id_of(uri) and f'"{uri}"' in file.read_text()
    run("render", "cpu", "--run=../up", fails=True)
    shutil.rmtree(folder / "build")


def test_a_dry_run_shows_a_run(folder: Path) -> None:
    """The dry run prints what would be sent, with the folder of a run."""
    body = json.loads(run("submit", "cpu", "--dry-run").stdout)
    assert run_ids.run_id_of(body["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"])
