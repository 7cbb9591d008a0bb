"""`pull --seed-local`: a job that ran elsewhere is in the local Vertex as it ended, and the verbs that look at jobs work on it there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support.recorded import MOBILE_GAMING, UJ11_ENDED
from tests.support.tools import typed
from vertexrig.cloud.vertex import Vertex

NUMBER = "5264408897233354752"
STUDY = {**UJ11_ENDED, "name": f"projects/116/locations/us-central1/hyperparameterTuningJobs/{NUMBER}"}
CURVE = [
    {"stepCount": str(step), "elapsedDuration": f"{60 * step}s", "metrics": [{"metricId": "val_loss", "value": 50.0 / step}]}
    for step in (1, 2, 3)
]  # fmt: skip


def run(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """A verb with --format json in a folder: its exit code, its document, and what it says on stderr."""
    done = typed(*words, "--format=json", cwd=folder)
    return done.exit_code, done.document, done.stderr


def vertex_of(here: server.RunningServer) -> Vertex:
    return Vertex("116", "us-central1", url=f"{here.url}{server.AIPLATFORM}")


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, server.RunningServer]]:
    """A new project with the study of a public notebook, seeded before a local Vertex runs there, and that local Vertex."""
    folder = tmp_path_factory.mktemp("seeded")
    trials = [{**trial, "measurements": CURVE} for trial in STUDY["trials"]]
    (folder / "study.json").write_text(json.dumps({**STUDY, "trials": trials}))
    (folder / "job.yaml").write_text(MOBILE_GAMING)
    code, document, said = run(
        folder, "pull", "study.json", "--into", "vertexrig.yaml", "--as", "boston", "--seed-local"
    )
    assert code == 0 and document["seeded"].endswith(NUMBER), said
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PROJECT", raising=False)
        with server.running(Settings(folder / ".vertexrig", slots=1)) as here:
            for name, value in server.env(here, project="116").items():
                patch.setenv(name, value)
            yield folder, here


def test_a_seeded_study_is_shown_as_it_ended(seeded: tuple[Path, server.RunningServer]) -> None:
    """States, times, trials and measurements that the API gives are those of the description; a restart runs nothing of it."""
    folder, here = seeded
    found = vertex_of(here).lookup(NUMBER).data
    whole = json.loads((folder / "study.json").read_text())
    for key in ("displayName", "state", "createTime", "startTime", "endTime", "updateTime", "maxTrialCount"):
        assert found[key] == whole[key]
    assert found["trials"] == whole["trials"]


def test_the_verbs_work_on_a_seeded_study(seeded: tuple[Path, server.RunningServer]) -> None:
    """trials, best, report, follow-up and promote find it by its sweep's name, as if it had run here."""
    folder, _ = seeded
    before = (folder / "vertexrig.yaml").read_text()
    code, trials, said = run(folder, "trials", "boston")
    assert code == 0 and [row["trial"] for row in trials["trials"]][:2] == ["5", "2"], said
    code, best, said = run(folder, "best", "boston")
    assert code == 0 and best["best"][0]["parameters"] == {"lr": 0.01, "units": 223}, said
    code, report, said = run(folder, "report", "boston")
    assert code == 0 and report["job"]["name"].endswith(NUMBER), said
    code, follow, said = run(folder, "follow-up", "boston")
    assert code == 0 and follow["name"] == "boston-2" and follow["written"], said
    code, job, said = run(folder, "promote", "boston", "--epochs", "50")
    assert code == 0 and job["keys"]["args"]["units"] == 223 and job["keys"]["args"]["epochs"] == 50, said
    code, _, said = run(folder, "promote", "boston", "--as", "warm", "--warm-start")
    assert code == 2 and "saved no model to start from" in said
    (folder / "vertexrig.yaml").write_text(before)


def test_a_custom_job_is_seeded_while_the_server_runs(seeded: tuple[Path, server.RunningServer]) -> None:
    """Without --into the project file that is there decides where; the server shows the job at once, a second seed replaces it."""
    folder, _ = seeded
    for _ in range(2):
        code, document, said = run(folder, "pull", "job.yaml", "--seed-local")
        assert code == 0 and document["seeded"].endswith("/customJobs/1"), said
    code, listed, said = run(folder, "jobs", "--all")
    mine = [job for job in listed["jobs"] if job["name"] == document["seeded"]]
    assert code == 0 and len(mine) == 1 and mine[0]["endTime"] == "2022-05-24T08:59:16Z", said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "JOB_STATE_RUNNING"}, "its state is RUNNING; only a job that has ended can be"),
        ({"state": None}, "it has no state; only a job that has ended can be"),
        ({"createTime": None}, "it has no createTime"),
        ({"createTime": "yesterday"}, "cannot be seeded: "),
        ({"trials": [{"id": "1"}, {"id": "1"}]}, "its trials have no ids, or one id twice"),
        ({"trials": [{"id": "1", "colour": "red"}]}, "colour"),
    ],
)
def test_what_cannot_be_seeded_is_one_sentence(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Exit code 2, and neither a project file nor a local Vertex is written."""
    data = {key: value for key, value in {**STUDY, **change}.items() if value is not None}
    (tmp_path / "study.json").write_text(json.dumps(data))
    code, _, said = run(tmp_path, "pull", "study.json", "--into", "vertexrig.yaml", "--seed-local")
    assert code == 2 and message in said and said.count("error:") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.json"]


def test_a_job_that_ran_here_is_not_replaced(seeded: tuple[Path, server.RunningServer]) -> None:
    """A description of the local Vertex's own job is refused, since the job is there with its logs and its files."""
    folder, here = seeded
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": {"imageUri": "i/i:1"}}
    made = vertex_of(here).create("customJobs", {"displayName": "own", "jobSpec": {"workerPoolSpecs": [pool]}})
    own = {**made.data, "state": "JOB_STATE_SUCCEEDED"}
    (folder / "own.json").write_text(json.dumps(own))
    code, _, said = run(folder, "pull", "own.json", "--seed-local")
    assert code == 2 and "ran on the local Vertex" in said and "so it is not replaced" in said
