"""The manifest of what the service was seen to do, and `make fidelity`, which tries it."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.tools import REPOSITORY
from tests.support.web import http
from tools.fidelity import manifest, mutation, score
from tools.fidelity.breakages import ASKED, BREAKAGES, CONTROL
from tools.fidelity.command import command, starting
from tools.fidelity.manifest import (
    AREAS,
    ManifestError,
)
from vertexrig import cli
from vertexrig.project.local import LocalImage

OURS = manifest.load()
GOOD: dict[str, Any] = {
    "id": "a-row", "area": "answer", "holds": "It holds", "source": "page-1", "tried": "REST",
    "ask": {"api": "vertex", "path": "/v1"}, "probe": "status", "expect": {"const": 200},
}  # fmt: skip
SOURCE = {"id": "page-1", "kind": "page", "where": "example.com", "date": "2026-11-21"}


def written(folder: Path, *rows: dict[str, Any], sources: list[dict[str, Any]] | None = None) -> Path:
    """A manifest of these rows."""
    (folder / "rows").mkdir(parents=True)
    (folder / "rows/some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sources.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sources or [SOURCE]))
    return folder


# the manifest


def test_there_are_enough_rows_of_every_area() -> None:
    """At least 150 rows, and some of each area; every one is tried in a known way."""
    assert len(OURS.rows) >= 150
    assert {row.area for row in OURS.rows} == set(AREAS)


def test_rows_hold_facts_and_nothing_personal() -> None:
    """A row is short, on one line, and has no id, project, address or e-mail of anybody."""
    for file in sorted((OURS.folder / "rows").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            assert len(row["holds"]) < 200, row["id"]
            request = json.dumps(row.get("ask", ""))
            assert not re.search(r"ya29|@(?!type)|qwiklabs|\b(?!1234567890123456789|123456789012)\d{12,}\b", request), (
                row["id"]
            )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": ""}, "it has no source"),
        ({"expect": {}}, "so that the row cannot fail"),
        ({"expect": {"pattern": "^job"}}, "pattern '^job' is not of a whole text"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The refusal names the file, the line and the rule."""
    folder = written(tmp_path / "m", {**GOOD, "id": "first"}, {**GOOD, **change})
    with pytest.raises(ManifestError, match=f"some.jsonl:2: .*{re.escape(said)}"):
        manifest.load(folder)


# the whole


def call(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any, str]:
    """`make fidelity` with these words: exit code, its JSON document, stderr."""
    capsys.readouterr()
    code = cli.run([*words, "--format", "json"], command=command)
    out, err = capsys.readouterr()
    return code, json.loads(out), err


@pytest.mark.whole
def test_every_row_is_tried_counted_recorded_and_its_difference_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows that differ are those of fidelity/score.json, each with a decision (`make fidelity ACCEPT=1`); each row counts once; each
    request of each script and row is recorded with its answer, without bucket, project and ids.
    """
    code, document, _ = call(["--recording", str(tmp_path / "seen.jsonl")], capsys)
    rows = {row["id"]: row for row in document["rows"]}
    known = {one["id"] for one in score.kept(OURS)["differs"]}
    assert {id for id, row in rows.items() if row["result"] == "differs"} == {
        id for id in known if rows[id]["result"] != "not tried"
    }
    assert [id for id in known if not OURS.decided(id)] == []
    assert code == 0

    *areas, all_ = document["areas"]
    assert all_["rows"] == len(OURS.rows) == sum(one["rows"] for one in areas)
    assert all_["percent"] == round(100 * all_["same"] / (all_["same"] + all_["differs"]), 1)

    text = (tmp_path / "seen.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert {"run", "step", "request", "answer"} == set(lines[0])
    assert {row.id for row in OURS.rows if row.ask} <= {line["run"] for line in lines}
    assert not re.search(r"my-project|fidelity-bucket|/tmp/|customJobs/\d|127\.0\.0\.1", text)


@pytest.mark.whole
def test_rows_notice_a_breakage_of_the_local_vertex() -> None:
    """A deliberate breakage is noticed, and the control is not; the CI job of breakages tries all of them."""
    (chosen,) = (one for one in BREAKAGES if one.name == "an operation is below the location")
    with starting() as target:
        found = mutation.noticed(OURS, [chosen], target)
    assert found.pop(CONTROL.name) == [] and found[chosen.name]


def test_the_breakages_are_those_of_the_accepted_result() -> None:
    """Every breakage names something that is there and scripts of the manifest; the accepted result is of all of them."""
    for one in (*BREAKAGES, CONTROL):
        with mutation.broken(one):
            assert set(one.scripts) <= {*OURS.scripts, ASKED}, one.name
    names = [one.name for one in BREAKAGES]
    assert len(set(names)) == len(names) == OURS.mutation["tried"] >= 60
    assert set(OURS.mutation["missed"]) <= set(names)
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["breakages"]["steps"][-1]["run"] == "make fidelity MUTATE=1"  # all of them


# the command


def test_a_wrong_row_is_shown_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that differs and has no decision is shown with what was expected and seen, and the exit code is 1."""
    folder = tmp_path / "manifest"
    shutil.copytree(OURS.folder, folder)
    file = folder / "rows/scheduler.jsonl"
    file.write_text(file.read_text().replace('"const": "180s"', '"const": "181s"'))
    code = cli.run(["--manifest", str(folder), "--row", "deadline-default", "--row", "enabled"], command=command)
    out, err = capsys.readouterr()
    assert code == 1 and "decisions.jsonl says nothing about them: deadline-default" in err
    assert re.search(r"deadline-default \(scheduler, REST\): .*\n  expected  181s\n  seen      180s", out)
    assert re.search(r"^scheduler +2 +1 +1 +0 +50.0 %$", out, re.MULTILINE)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[server.RunningServer]:
    """A local Vertex that gcloud's endpoint overrides put in the place of the cloud."""
    image = tmp_path / "image"
    image.mkdir()
    run = RunOptions(grace=0.5, images={"*/vertex-ai/training/tf-*": LocalImage(str(image), ())})
    with server.running(Settings(tmp_path / "state", slots=8, options=run)) as here:
        server.make_bucket(here, "my-own-bucket")
        for name, value in server.env(here, project="somebodys-project").items():
            if name.startswith("CLOUDSDK_"):
                monkeypatch.setenv(name, value)
        yield here


@pytest.mark.whole
def test_the_rows_run_against_the_cloud(
    cloud: server.RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same rows with a project and a bucket; faults are not tried there, and the recording names neither of the two."""
    rows = [
        "name-form",
        "trial-id",
        "created-once",
        "quota-429",
        "accelerator-both",
        "enabled",
        "in-order",
        "cancel-state",
    ]
    words = ["--against", "cloud", "--project", "somebodys-project", "--bucket", "gs://my-own-bucket"]
    chosen = [word for row in rows for word in ("--row", row)]
    code, document, _ = call([*words, *chosen, "--recording", str(tmp_path / "seen.jsonl")], capsys)
    found = {row["id"]: row["result"] for row in document["rows"]}
    differing = found.pop("accelerator-both")
    assert found == {**{row: "same" for row in rows if row != "accelerator-both"}, "quota-429": "not tried"}
    assert code == (1 if differing == "differs" else 0)  # there a difference is always a finding
    text = (tmp_path / "seen.jsonl").read_text()
    assert "somebodys-project" not in text and "my-own-bucket" not in text and "<project>" in text


def test_a_recording_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a server recorded comes again from a fresh one; what has changed since is shown with its line and place."""
    file = tmp_path / "seen.jsonl"
    image = tmp_path / "image"
    image.mkdir()
    (image / "main.py").write_text("print('trained')")
    run = RunOptions(images={"*training/tf-*": LocalImage(str(image), (sys.executable, "main.py"))})
    body = {"displayName": "a job", "jobSpec": job_of_one()}
    with server.running(Settings(tmp_path / "state", options=run), record=file) as here:
        root = f"{here.url}{server.AIPLATFORM}/v1"
        name = http.post(f"{root}/projects/some-project/locations/us-central1/customJobs", json=body).json()["name"]
        while not http.get(f"{root}/{name}").json()["state"].endswith(("SUCCEEDED", "FAILED")):
            time.sleep(0.02)
        http.delete(f"{root}/{name}")
        http.get(f"{root}/{name}")
    lines = file.read_text().splitlines()
    first = next(line for line in lines if '"a job"' in line)
    wanted = [first, *(line for line in lines[-3:] if "<id 1>" in line)]
    file.write_text("\n".join(wanted) + "\n")
    code, document, _ = call(["--replay", str(file)], capsys)
    assert (code, document["made"], document["left_out"], document["differs"]) == (0, len(wanted), [], [])
    file.write_text(first.replace("n1-standard-4", "n1-standard-8", 1).replace('"status": 200', '"status": 201') + "\n")
    code, document, _ = call(["--replay", str(file)], capsys)
    assert code == 1
    assert next((one["line"], one["place"], one["recorded"], one["seen"]) for one in document["differs"]) == (
        1,
        "status",
        201,
        200,
    )


def job_of_one() -> dict[str, Any]:
    """A job's spec with a container."""
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1",
        "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest", "command": ["true"]},
    }  # fmt: skip
    return {"scheduling": {"timeout": "600s"}, "workerPoolSpecs": [pool]}
