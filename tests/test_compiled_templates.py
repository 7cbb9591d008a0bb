"""Compiled templates are kept between processes, in a folder of the user's own, and never decide what is rendered."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vertexrig.catalog import load as load_catalog
from vertexrig.project.config import load
from vertexrig.render.renderer import Renderer
from vertexrig.render.sandbox import Sandbox

PROJECT = """
project: my-project
region: us-central1
bucket: gs://my-bucket
trainer: {path: trainer, module: task}
jobs:
  one: {topology: mine, machine_type: n1-standard-4}
templates: templates
"""
TEMPLATE = "workerPoolSpecs:\n- machineSpec: {machineType: {{ chief.machine_type }}}\n  replicaCount: 1\n"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where compiled templates of this test are kept."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp" / f"_jinja2-cache-{os.getuid()}"


@pytest.fixture
def render(tmp_path: Path, kept: Path) -> Callable[[], str]:
    """Renders the project's job with a Jinja environment of its own, as a new process would."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/mine.yaml.j2").write_text(TEMPLATE)
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("print('trained')\n")
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    return lambda: Renderer(load(tmp_path / "vertexrig.yaml"), load_catalog()).render("one").text


def test_a_template_is_compiled_once(render: Callable[[], str], kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process renders the same text without parsing anything."""
    text = render()
    assert kept.stat().st_mode & 0o777 == 0o700

    def parsed(*_: object) -> None:
        raise AssertionError("a kept template was parsed again")

    monkeypatch.setattr(Sandbox, "_parse", parsed)
    assert render() == text


@pytest.mark.parametrize("content", [b"", b"j2", b"not a cache", None], ids=["empty", "cut", "other", "half"])
def test_a_broken_file_costs_a_compilation(render: Callable[[], str], kept: Path, content: bytes | None) -> None:
    """A file that is cut off or holds something else is made anew, and the text stays the same."""
    text = render()
    for file in kept.iterdir():
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert render() == text
    assert all(len(file.read_bytes()) > 100 for file in kept.iterdir())


def test_another_text_is_another_template(render: Callable[[], str], tmp_path: Path) -> None:
    """A template that was edited is compiled again."""
    render()
    (tmp_path / "templates/mine.yaml.j2").write_text(TEMPLATE.replace("replicaCount: 1", "replicaCount: 2"))
    assert "replicaCount: 2" in render()


def test_a_folder_that_is_not_safe_is_not_used(render: Callable[[], str], kept: Path) -> None:
    """What lies where the folder belongs, and is none, stays as it is; every process compiles for itself."""
    kept.write_text("mine")
    assert "n1-standard-4" in render()
    assert kept.read_text() == "mine"


def test_nothing_is_kept_in_the_project(render: Callable[[], str], tmp_path: Path, kept: Path) -> None:
    """A project from elsewhere can bring no compiled code: it is neither read from there nor written there."""
    render()
    assert list(kept.iterdir())
    assert not [file for file in tmp_path.rglob("*.cache") if kept not in file.parents]
