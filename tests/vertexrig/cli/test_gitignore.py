"""Patterns of .gitignore and check.exclude: git reads them, whatever they are, and no pattern takes long."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.support.tools import typed
from vertexrig.cli import find_files

JOB = "displayName: a\nworkerPoolSpecs: []\n"


def checked(folder: Path, *words: str) -> set[str]:
    """The files that have a finding."""
    done = typed("check", *words, "--format", "json", cwd=folder)
    assert done.exit_code == 1, done
    return {one["file"] for one in done.document["findings"]}


SLOW = {
    "stars": ["*a" * 499 + "*b"],
    "stars in a path": ["x/" + "*a" * 490 + "*b/y"],
    "folders": ["**/a" * 240 + "/b"],
    "brackets": ["[ab]*" * 190 + "c"],
}


@pytest.mark.parametrize("lines", SLOW.values(), ids=SLOW)
def test_no_pattern_hangs_a_check(lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With patterns that make a matcher try many ways a check ends, or says that git takes too long."""
    monkeypatch.setattr(find_files, "GIT_SECONDS", 1)
    deep = tmp_path.joinpath(*["a"] * 100)
    deep.mkdir(parents=True)
    for number in range(20):
        (deep / f"{'a' * 200}{number}.yaml").write_text(JOB)
    (tmp_path / ".gitignore").write_text("\n".join(lines))
    (tmp_path / "vertexrig.yaml").write_text(f"project: my-project\ncheck: {{exclude: {lines[:100]}}}\n")
    began = time.monotonic()
    done = typed("check", ".", "--format", "json", "--jobs", "1", cwd=tmp_path)
    assert time.monotonic() - began < 20, done
    assert done.exit_code == 1 or "git needs more than 1 s" in done.stderr, done


def test_a_wrong_line_ignores_nothing(tmp_path: Path) -> None:
    """Lines that can match nothing end nothing, and the other lines hold."""
    wrong = ["!", "/", "\\", "[/]", "[a", "[z-a]", "[[:nope:]]", "x" * 1001]
    (tmp_path / ".gitignore").write_text("\n".join(["# ours", *wrong, "skipped.yaml", ""]))
    for name in ("skipped.yaml", "job.yaml"):
        (tmp_path / name).write_text(JOB)
    assert checked(tmp_path, ".", ".") == {"./job.yaml"}


@pytest.mark.parametrize(
    ("pattern", "left"),
    [("old", {"b.yaml", "deep/old.yaml"}), ("/old", {"b.yaml", "deep/old/c.yaml", "deep/old.yaml"}), ("deep/*.yaml", {"b.yaml", "deep/old/c.yaml", "old/a.yaml"})],
)  # fmt: skip
def test_what_a_project_excludes_begins_at_its_folder(pattern: str, left: set[str], tmp_path: Path) -> None:
    """In a repository around the project's folder, whatever that is called, check.exclude is read as a .gitignore of the folder."""
    home = tmp_path / "all [1]" / "mine"
    for name in ("old/a.yaml", "b.yaml", "deep/old/c.yaml", "deep/old.yaml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(JOB)
    (home / "vertexrig.yaml").write_text(f"project: my-project\ncheck: {{exclude: [{pattern}]}}\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert {name.removeprefix("./") for name in checked(home, ".")} == left
    assert checked(home, "**/*.yaml") == left
    listed = sorted(str(one.relative_to(home)) for one in home.rglob("*.yaml") if one.name != "vertexrig.yaml")
    assert checked(home, *listed, "--skip-others") == left


def test_what_function_build_wrote_is_not_checked(tmp_path: Path) -> None:
    """The copy of the project file has no trainer beside it: a folder, a pattern and a hook leave it out."""
    text = "project: my-project\nbucket: gs://my-bucket\ntrainer: {path: pkg, module: task}\njobs: {cpu: {topology: cpu}}\n"
    (tmp_path / "vertexrig.yaml").write_text(text)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/task.py").write_text("")
    (tmp_path / "job.yaml").write_text(JOB)
    assert typed("function", "build", cwd=tmp_path).exit_code == 0
    staged = "build/function/vertexrig.yaml"
    for words in ((".",), ("**/*.yaml",), ("job.yaml", staged, "--skip-others")):
        found = {name.removeprefix("./") for name in checked(tmp_path, *words)}
        assert "job.yaml" in found <= {"job.yaml", "vertexrig.yaml"}
    assert "trainer.path" in typed("check", staged, cwd=tmp_path).stderr


def test_a_hook_s_own_repository_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that git sets for a hook do not change what is ignored."""
    (tmp_path / ".gitignore").write_text("old.yaml\n")
    for name in ("old.yaml", "job.yaml"):
        (tmp_path / name).write_text(JOB)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    assert checked(tmp_path, ".") == {"./job.yaml"}


def test_without_git_every_file_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stderr says that nothing is skipped."""
    (tmp_path / ".gitignore").write_text("old.yaml\n")
    (tmp_path / "old.yaml").write_text(JOB)
    monkeypatch.setenv("PATH", "")
    done = typed("check", ".", "--format", "json", cwd=tmp_path)
    assert {one["file"] for one in done.document["findings"]} == {
        "./old.yaml"
    } and "git is not installed" in done.stderr
