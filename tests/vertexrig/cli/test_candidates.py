"""A job's candidates from the command line, against a local Vertex on which machines are scarce."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex import server
from localvertex.runner import RunOptions
from localvertex.state import AIPLATFORM
from tests.support import clouds
from tests.support.packages import small
from tests.support.tools import said, vertexrig
from vertexrig import times
from vertexrig.cloud.vertex import Vertex
from vertexrig.spec.states import CANCELLED, SUCCEEDED

PROJECT = """\
project: my-project
bucket: gs://my-bucket
trainer: {path: trainer_pkg, module: trainer.task, image: tf-2.17}
jobs:
  train:
    machine_type: n1-standard-8
    timeout: 600s
    wait: 1s
    candidates:
      - {machine_type: n1-standard-4, wait: 1m}
      - {region: europe-west4, bucket: gs://my-bucket-eu, wait: 2m}
"""
TASK = """
import os, pathlib
out = pathlib.Path(os.environ["AIP_MODEL_DIR"])
out.mkdir(parents=True, exist_ok=True)
(out / "model").write_text("made")
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[server.RunningServer]:
    """A local Vertex that has no n1-standard-8 in us-central1, and no quota for n1-standard-4 there."""
    with clouds.cloud(tmp_path / "cloud", options=RunOptions(grace=0.5)) as running:
        (tmp_path / "cloud/vertex/gs/my-bucket-eu").mkdir()
        server.add_fault(running, "stockout:us-central1:n1-standard-8:600s:wait")
        server.add_fault(running, "quota:us-central1:n1-standard-4")
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    small(folder / "trainer_pkg", TASK)
    (folder / "vertexrig.yaml").write_text(PROJECT)
    return folder


def typed(here: server.RunningServer, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Type a command in the project."""
    return vertexrig(*words, cwd=project, env=clouds.variables(here))


@pytest.mark.whole
def test_submit_goes_on_to_what_there_is(here: server.RunningServer, project: Path) -> None:
    """The first waits too long and is cancelled, the second is refused for quota, the third trains: `submit --watch` says so, and
    its JSON has each attempt; one job after the other.
    """
    done = typed(here, project, "submit", "train", "--watch", "--poll", "0.2", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(one["candidate"], one["reason"]) for one in told["attempts"]] == [(1, "waited"), (2, "quota"), (3, "")]
    assert told["candidate"] == 3 and told["state"] == SUCCEEDED and "/europe-west4/" in told["name"]
    assert "candidate 3 writes into another bucket: " in done.stderr
    assert "candidate 2 (machine_type: n1-standard-4, wait: 1m): quota: " in done.stderr
    first = clouds.vertex(here).get(told["attempts"][0]["job"])
    last = Vertex("my-project", "europe-west4", url=f"{here.url}{AIPLATFORM}").get(told["name"])
    assert first is not None and last is not None and first.state == CANCELLED
    assert times.parse(first.data["endTime"]) <= times.parse(last.data["createTime"])
    report = typed(here, project, "report", told["name"], "--format", "json")
    assert [one["reason"] for one in json.loads(report.stdout)["attempts"]] == ["waited", "quota", ""], report.stderr


@pytest.mark.whole
def test_cancel_between_two_rounds_ends_it(here: server.RunningServer, project: Path) -> None:
    """While no candidate has a job, `cancel` of one that was given up has no further one tried, and who follows it is told."""
    text = PROJECT.replace("    wait: 1s", "    wait: 1s\n    retry_for: 1h").rpartition("      - {region")[0]
    (project / "vertexrig.yaml").write_text(text)
    words = [sys.executable, "-m", "vertexrig", "submit", "train", "--watch", "--poll", "0.2"]
    environment = {**os.environ, **clouds.variables(here)}
    with subprocess.Popen(
        words, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as followed:
        assert followed.stdout is not None
        assert any("the first is attempted again in" in line for line in followed.stdout)
        done = typed(here, project, "cancel", "train")
        assert done.returncode == 0 and "no other candidate of train is started" in done.stderr
        followed.communicate(timeout=30)
    assert followed.returncode == 1


def test_explain_names_what_the_budget_leaves_out(project: Path) -> None:
    """A candidate that cannot be held against a budget in dollars gets no job, and `explain` says which and why."""
    file = project / "vertexrig.yaml"
    file.write_text(f"{PROJECT}trigger: {{budget: {{usd_per_run: 100}}}}\n")
    done = vertexrig("explain", "train", cwd=project)
    left = [line for line in done.stdout.splitlines() if "gets no job" in line]
    assert len(left) == 1 and left[0].startswith(
        "candidate 3 gets no job: the price of this region (the catalog's prices are for us-"
    )
    file.write_text(f"{PROJECT}trigger: {{budget: {{usd_per_run: 100, price_factor: 1.2}}}}\n")
    assert "gets no job" not in vertexrig("explain", "train", cwd=project).stdout


@pytest.mark.whole
def test_watch_goes_on_where_submit_left_it(here: server.RunningServer, project: Path) -> None:
    """`submit` returns with the first job; `watch` of that job goes on to the others, and a project that renders another job does not."""
    made = typed(here, project, "submit", "train")
    assert made.returncode == 0, made.stderr
    number = made.stdout.strip().rpartition("/")[2]
    file = project / "vertexrig.yaml"
    file.write_text(PROJECT.replace("600s", "601s"))
    environment = {**os.environ, **clouds.variables(here)}
    other = subprocess.Popen(
        [sys.executable, "-m", "vertexrig", "watch", number, "--poll", "0.2"],
        cwd=project,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert other.stderr is not None
    assert (
        "has changed in this project since this job was submitted" in other.stderr.readline() + other.stderr.readline()
    )
    other.kill()
    other.communicate()
    file.write_text(PROJECT)
    done = typed(here, project, "watch", number, "--poll", "0.2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("SUCCEEDED  candidate 3 of 3: its job has succeeded")


@pytest.mark.whole
def test_a_job_of_another_region_is_followed_by_what_submit_shows(here: server.RunningServer, project: Path) -> None:
    """Where the first job is one of another region, the line that follows it names that by its resource name, and works."""
    server.add_fault(here, "quota:us-central1")
    made = typed(here, project, "submit", "train")
    shown = said(made.stderr)
    words = shown[shown.index("to follow it until it has ended:") + 1].partition("vertexrig ")[2].split()
    assert words == ["watch", made.stdout.strip()] and "/locations/europe-west4/" in made.stdout, made.stderr
    done = typed(here, project, *words, "--poll", "0.2")
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("its job has succeeded"), done.stderr


def test_a_missing_bucket_is_found_before_anything_starts(here: server.RunningServer, project: Path) -> None:
    """The bucket of the last candidate is not there: no job is made, and the line that makes it is shown."""
    file = project / "vertexrig.yaml"
    file.write_text(PROJECT.replace("my-bucket-eu", "my-bucket-xx"))
    done = typed(here, project, "submit", "train")
    assert (
        done.returncode == 3
        and "gcloud storage buckets create gs://my-bucket-xx --location=europe-west4" in done.stderr
    )
    assert not clouds.jobs(here)


@pytest.mark.whole
def test_a_rehearsal_with_faults_goes_on_to_the_candidates(project: Path) -> None:
    """`rehearse --fault` waits for seconds in place of 20 minutes, goes on by the same steps as `submit --watch`, and its record and
    report have each attempt.
    """
    file = project / "vertexrig.yaml"
    file.write_text(PROJECT.replace("wait: 1s", "wait: 20m"))
    faults = ("--fault", "stockout:us-central1:n1-standard-8:10h:wait", "--fault", "quota:us-central1:n1-standard-4")
    done = vertexrig("rehearse", "train", *faults, "--format", "json", cwd=project)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    attempts = [(one["candidate"], one["reason"], one["text"]) for one in told["attempts"]]
    assert [one[:2] for one in attempts] == [(1, "waited"), (2, "quota"), (3, "")] and attempts[2][2] == "SUCCEEDED"
    assert 4 <= told["attempts"][0]["waited_s"] <= 60 and told["attempts"][0]["usd"] == 0
    assert (project / told["model"] / "model").read_text() == "made" and "my-bucket-eu" in told["model"]
    assert "workerpool0-0 | Installing the package" in done.stderr
    assert vertexrig("local", "status", cwd=project).returncode == 1
    report = vertexrig("report", "train", "--local", cwd=project)
    assert f"| 2 | machine_type: n1-standard-4, wait: 1m | none |  |  | quota: {attempts[1][2]} |" in report.stdout
    assert report.stdout.rstrip().endswith("| SUCCEEDED |")
    assert vertexrig("report", "train", "--local", "-o", "train.html", cwd=project).returncode == 0
    page = (project / "train.html").read_text()
    assert 'id="candidates"' in page and "its job waited more than 20 min for machines" in page


def test_none_is_left(here: server.RunningServer, project: Path) -> None:
    """With no machines anywhere the command ends with 1, and says of each attempt what became of it."""
    server.add_fault(here, "quota:europe-west4")
    done = typed(here, project, "submit", "train", "--watch", "--poll", "0.2")
    assert done.returncode == 1
    assert "none of the 3 candidates got machines" in done.stderr
    assert "candidate 3 (region: europe-west4, bucket: gs://my-bucket-eu, wait: 2m): quota: " in done.stdout
