"""Published programs that run whole: their table, their page, and what the runner does with one."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.published import bases, programs
from tests.published.programs import CONTAINER, FAILS, STAND_IN, TRAINED, WHOLE, Container, Program

NOTEBOOK = {"cells": [{"cell_type": "code", "source": ['PROJECT = "[your-project]"\n', "!echo $PROJECT"]}]}
MADE = "\ncreated: custom job 1  iris  {}\n"
REFUSAL = "MethodNotImplemented: 501 The local Vertex does not serve google.cloud.aiplatform.v1.EndpointService/CreateEndpoint."


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    """Snapshots of one repository with a notebook and a folder."""
    work = tmp_path / "work"
    (work / "job").mkdir(parents=True)
    (work / "lab.ipynb").write_text(json.dumps(NOTEBOOK))
    (work / "job/submit.py").write_text("print('[your-project]')\n")
    name = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "--quiet"], ["add", "."], [*name, "commit", "--quiet", "-m", "lab"]):
        subprocess.run(["git", *words], cwd=work, check=True)
    subprocess.run(["git", "clone", "--quiet", "--bare", work, tmp_path / "snapshots/me+lab/repo"], check=True)
    return tmp_path / "snapshots"


@pytest.fixture
def program(snapshots: Path) -> Program:
    """The notebook of the snapshots, at their commit, with a change."""
    head = ["git", "--git-dir", snapshots / "me+lab/repo", "rev-parse", "HEAD"]
    commit = subprocess.run(head, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return Program("lab", "me/lab", commit, "lab.ipynb", "none", "SDK", changes={'"[your-project]"': '"p"'})


def test_a_program_is_taken_with_its_changes_alone(program: Program, snapshots: Path, tmp_path: Path) -> None:
    """A notebook comes out with the text of its cells replaced, and nothing else."""
    assert programs.take(program, snapshots, tmp_path / "lab")
    assert [path.name for path in (tmp_path / "lab/program").iterdir()] == ["lab.ipynb"]
    text = json.dumps(NOTEBOOK).replace(r"\"[your-project]\"", r"\"p\"")
    assert (tmp_path / "lab/program/lab.ipynb").read_text() == text


@pytest.mark.parametrize(
    ("code", "output", "came"),
    [
        (0, MADE.format("SUCCEEDED"), WHOLE),
        (1, REFUSAL + MADE.format("SUCCEEDED"), TRAINED),
        (1, "ValueError: no\nrefused: example.com:443 is not served" + MADE.format("SUCCEEDED"), FAILS),
        (0, "STUDY_ID: projects/1/locations/us-central1/studies/7", WHOLE),
        (0, MADE.format("FAILED"), FAILS),
        (0, "nothing was made", FAILS),
        (1, REFUSAL, FAILS),
    ],
)
def test_what_came_of_a_program(code: int, output: str, came: str) -> None:
    """It is whole with code 0 and jobs that succeeded, trained where these are followed by a refusal, else it failed."""
    assert programs.judged(code, output, 3).came == came


def test_a_program_with_a_container_maps_nothing(program: Program) -> None:
    """With an engine, its own command and changes count, and no image has a folder in place of it."""
    mapped = replace(
        program, images={"gcr.io/*": {"path": "."}}, container=Container(("python:3.10",), "sh go.sh", {"a": "b"})
    )
    assert mapped.by(STAND_IN) is mapped
    own = mapped.by(CONTAINER)
    assert (own.command, own.images, own.changes) == ("sh go.sh", {}, {**program.changes, "a": "b"})


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
        ("pytorch/pytorch", "docker.io/pytorch/pytorch:latest"),
        ("gcr.io/a/tf2-cpu.2-9", "gcr.io/a/tf2-cpu.2-9:latest"),
        ("localhost:5000/one", "localhost:5000/one:latest"),
    ],
)
def test_base_images_have_the_names_that_docker_completes(name: str, full: str) -> None:
    """A FROM line finds an image of its short name."""
    assert bases.full(name) == full


def test_every_base_image_can_be_made() -> None:
    """What the programs' Dockerfiles begin with is in bases.yaml, each name once."""
    names = [name for base in bases.table() for name in base.names]
    asked = {name for one in programs.table() if one.container for name in one.container.bases}
    assert len(names) == len(set(names)) and asked == set(names)


def test_the_page_shows_the_table_and_its_outcomes() -> None:
    """docs/published.md is what --accept writes, and every program has an outcome of each of its ways."""
    outcomes = yaml.safe_load(programs.OUTCOMES.read_text(encoding="utf-8"))
    every = programs.table()
    assert programs.PAGE.read_text(encoding="utf-8") == programs.page(every, outcomes)
    assert {one.name: set(one.ways) for one in every} == {name: set(ways) for name, ways in outcomes.items()}
