"""How far the links of a folder may lead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vertexrig import files
from vertexrig.errors import UsageError


def test_outputs_stay_below_the_folder(tmp_path: Path) -> None:
    """A link on the way that leads out, one in the output's place, and a pipe are refused and named; one that stays is taken."""
    own, outside = tmp_path / "own", tmp_path / "outside"
    for folder in (own / "other", outside):
        folder.mkdir(parents=True)
    (own / "build").symlink_to(outside)
    (own / "inner").symlink_to("other")
    (own / "last").symlink_to("other/x")
    os.mkfifo(own / "pipe")
    for name in ("build/x", "build/deep/x", "last", "pipe", "build"):
        with pytest.raises(UsageError, match=str(own / name)):
            files.write_text(own / name, "x", below=own)
        with pytest.raises(UsageError):
            files.must_stay(own / name, own)
    files.write_text(own / "inner/deep/x", "text", below=own)
    assert (own / "other/deep/x").read_text() == "text" and list(outside.iterdir()) == []
    assert [path.name for path in (own / "other/deep").iterdir()] == ["x"]


def test_a_path_that_a_person_typed_may_be_anywhere(tmp_path: Path) -> None:
    """Without `below` a link stays a link, and what it leads to is written."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to("outside/x")
    files.write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "outside/x").read_text() == "text"


def test_a_checkout_ends_at_its_work_tree_and_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the work tree of git around a project is inside; the user's home is no checkout, whatever is in it."""
    project, beside = tmp_path / "home/repository/jobs", tmp_path / "home/repository/code"
    for folder in (project, beside, tmp_path / "home/.git", tmp_path / "home/repository/.git"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert files.is_inside(beside, project) and not files.is_inside(tmp_path / "home/.ssh", project)
    files.checkout.cache_clear()
    (tmp_path / "home/repository/.git").rmdir()
    assert not files.is_inside(beside, project) and files.is_inside(project / "x", project)
