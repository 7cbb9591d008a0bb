"""`vertexrig.library`: what the verbs do, as values, and as a notebook shows them."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebook import cells
from tests.support.tools import REPOSITORY, typed
from vertexrig.errors import FindingsError, UsageError
from vertexrig.library import check, rehearse, render

NOTEBOOK = REPOSITORY / "examples/notebook"
JOB = "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-8}\n  replicaCount: 2\n  containerSpec: {imageUri: <b>a/b:1}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("train.py", "vertexrig.yaml"):
        shutil.copy(NOTEBOOK / name, tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_check_is_what_the_verb_finds(folder: Path) -> None:
    """A file, its data and a project file give the verb's findings, as a sequence, text and HTML that shows foreign text as text."""
    found = check("job.yaml", project="vertexrig.yaml")
    rows = typed("check", "job.yaml", "--format", "json").document["findings"]
    assert [(one.id, one.path, one.line) for one in found] == [(row["id"], row["path"], row["line"]) for row in rows]
    assert not found.ok and str(found) + "\n" == typed("check", "job.yaml", "--info").stdout
    shown = found._repr_html_()
    assert "chief-replicas" in shown and "&lt;b&gt;" in shown and "<b>" not in shown
    assert check({"workerPoolSpecs": []})[0].id == "pools-missing"
    whole = check("vertexrig.yaml")
    assert whole.ok and {one.file for one in whole} == {"vertexrig.yaml"}
    with pytest.raises(UsageError):
        check("nothing.yaml")


def test_a_job_is_rendered_as_the_verb_writes_it(folder: Path) -> None:
    """The text is the verb's, with overrides; a job that would fail is not rehearsed."""
    made = render("vertexrig.yaml", "one", set=["args.rate=0.25"])
    typed("render", "one", "--set", "args.rate=0.25")
    assert made.yaml == (folder / "build/jobs/one.yaml").read_text() and made.findings.ok
    assert made.data["workerPoolSpecs"][0]["pythonPackageSpec"]["args"] == ["--rate=0.25"]
    with pytest.raises(FindingsError):
        rehearse("vertexrig.yaml", "one", set=["machine_type=n1-standard-9"])


@pytest.mark.whole
def test_the_notebook_shows_findings_and_the_rehearsal(folder: Path) -> None:
    """Each cell of the example runs, and the value at its end is a table."""
    names: dict[str, Any] = {}
    shown = []
    for cell in cells(NOTEBOOK / "jobs.ipynb"):
        tree = ast.parse(cell)
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        exec(compile(tree, "cell", "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names)._repr_html_())
    assert (
        "accelerator-count" in shown[0]
        and "JOB_STATE_SUCCEEDED" in shown[2]
        and "<th>loss</th><td>0.25</td>" in shown[2]
    )


def test_a_project_file_is_checked_with_its_settings_and_candidates(folder: Path) -> None:
    """What `check:` ignores is not reported, and what is wrong with a candidate is, as the verb has it."""
    file = folder / "vertexrig.yaml"
    text = file.read_text()
    file.write_text(f"{text}\ncheck: {{ignore: [accelerator-count]}}\n")
    job = "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-8, acceleratorType: NVIDIA_TESLA_T4, acceleratorCount: 3}\n  replicaCount: 1\n  containerSpec: {imageUri: a/b:1}\n"
    (folder / "job.yaml").write_text(job)
    assert "accelerator-count" in {one.id for one in check("job.yaml")}
    assert "accelerator-count" not in {one.id for one in check("job.yaml", project="vertexrig.yaml")}
    file.write_text(text.replace("args: {rate: 0.5}", "candidates: [{machine_type: n1-standard-9}]"))
    found = check("vertexrig.yaml")
    rows = typed("check", "vertexrig.yaml", "--format", "json").document["findings"]
    assert not found.ok and [one.id for one in found] == [row["id"] for row in rows]
