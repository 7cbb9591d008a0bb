"""Published programs that run whole: their table, their page, and what the runner does with one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.published import bases, programs
from tests.published.programs import FAILS, TRAINED, WHOLE, Program

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
        (0, MADE.format("FAILED"), FAILS),
    ],
)
def test_what_came_of_a_program(code: int, output: str, came: str) -> None:
    """It is whole with code 0 and jobs that succeeded, trained where these are followed by a refusal, else it failed."""
    assert programs.judged(code, output, 3).came == came


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
