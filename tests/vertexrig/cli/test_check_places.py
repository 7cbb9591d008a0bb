"""Which files `check` opens and writes by itself: those of the checkout, and none that was saved meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import Done, typed
from tests.vertexrig.cli.test_check_choice import GOOD
from vertexrig import files
from vertexrig.bring import fix
from vertexrig.cli import find_files
from vertexrig.errors import ConfigError, UsageError
from vertexrig.library import check

MENDED = GOOD.replace("timeout: 60s", "timeout: 60")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with one job, beside what is the user's."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/mine").write_text(MENDED)
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/job.yaml").write_text(MENDED)
    return tmp_path / "checkout"


def bounded(*words: str, cwd: Path) -> Done:
    """A verb in a process of its own, which ends also if it waits for a pipe."""
    done = subprocess.run(
        [sys.executable, "-m", "vertexrig", *words], cwd=cwd, capture_output=True, text=True, timeout=20, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("kind", ["absolute", "..", "link"])
def test_a_baseline_that_the_project_file_names_stays_in_the_checkout(folder: Path, kind: str) -> None:
    """It is neither read nor written elsewhere, unless it is typed."""
    mine = folder.parent / "own/mine"
    if kind == "link":
        (folder / "known.json").symlink_to(mine)
    name = {"absolute": str(mine), "..": "../own/mine", "link": "known.json"}[kind]
    (folder / "vertexrig.yaml").write_text(f"project: my-project\ncheck: {{baseline: {name}}}\n")
    for words in (("--write-baseline",), ()):
        done = typed("check", "job.yaml", *words, cwd=folder)
        assert done.exit_code and "is outside the project's checkout" in done.stderr, done
        assert mine.read_text() == MENDED
    with pytest.raises(ConfigError, match="outside"):
        check(folder / "job.yaml", project=folder / "vertexrig.yaml")
    for words in (("--baseline", name), ("--set", f"check.baseline={mine}")):
        mine.write_text(MENDED)
        done = typed("check", "job.yaml", "--write-baseline", *words, cwd=folder)
        assert done.exit_code == 0 and '"findings"' in mine.read_text(), done


def test_a_baseline_is_no_link_and_no_pipe(folder: Path) -> None:
    """A link in its place is not written through, and a pipe is not opened."""
    (folder / "known.json").symlink_to("job.yaml")
    (folder / "vertexrig.yaml").write_text("project: my-project\ncheck: {baseline: known.json}\n")
    assert typed("check", "job.yaml", "--write-baseline", cwd=folder).exit_code == 2
    assert (folder / "job.yaml").read_text() == MENDED
    (folder / "known.json").unlink()
    os.mkfifo(folder / "known.json")
    done = bounded("check", "job.yaml", cwd=folder)
    assert done.exit_code and "neither a file nor a folder" in done.stderr


@pytest.mark.parametrize("words", [(".",), ("*.yaml",), ("**/*.yaml",)], ids=" ".join)
def test_a_folder_is_walked_no_further_than_its_checkout(folder: Path, words: tuple[str, ...]) -> None:
    """Links that lead out are left out and named, links inside are taken, and what is typed is read and mended anywhere."""
    mine = folder.parent / "own/mine"
    (folder / "far.yaml").symlink_to(mine)
    (folder / "near.yaml").symlink_to("job.yaml")
    (folder / "away").symlink_to(mine.parent)
    (mine.parent / "more.yaml").write_text(MENDED)
    done = typed("check", *words, "--fix", cwd=folder)
    assert "far.yaml: it is a symbolic link to " in done.stderr, done
    assert mine.read_text() == (mine.parent / "more.yaml").read_text() == MENDED
    assert (folder / "job.yaml").read_text() == GOOD and (folder / "near.yaml").is_symlink()
    assert typed("check", "far.yaml", "--fix", cwd=folder).exit_code == 0 and mine.read_text() == GOOD


def test_no_pipe_below_a_folder_is_opened(folder: Path) -> None:
    """Whoever opens a pipe waits for ever: it is left out and named, and refused where it is typed."""
    os.mkfifo(folder / "x.yaml")
    for words in ((".",), ("*",)):
        done = bounded("check", *words, cwd=folder)
        assert "x.yaml" not in done.stdout and ("x.yaml: not a regular file" in done.stderr or words == ("*",)), done
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        files.read_text(folder / "x.yaml")


def test_a_gitignore_that_is_a_pipe_ends_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git waits for the pipe, and is ended."""
    monkeypatch.setattr(find_files, "GIT_SECONDS", 1)
    os.mkfifo(folder / ".gitignore")
    done = typed("check", ".", cwd=folder)
    assert done.exit_code == 2 and "git needs more than 1 s" in done.stderr, done


def test_a_gitignore_that_leads_out_is_not_read(folder: Path) -> None:
    """What is the user's decides nothing of a folder that came from elsewhere."""
    (folder.parent / "own/ignore").write_text("*\n")
    (folder / ".gitignore").symlink_to(folder.parent / "own/ignore")
    done = typed("check", ".", "--fix", cwd=folder)
    assert done.exit_code == 0 and (folder / "job.yaml").read_text() == GOOD


def test_what_a_shell_passes_as_a_pipe_is_read(folder: Path) -> None:
    """`<(...)` is a pipe below /dev/fd."""
    line = f"{sys.executable} -m vertexrig check <(cat job.yaml)"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "error[wrong-type]: 60 is" in done.stdout, done


def test_a_file_that_was_saved_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person saves between the look and the fix is kept and named, and the verb does not end well."""
    saved, look = f"{MENDED}# mine\n", fix.fixed

    def late(*args: object, **options: object) -> fix.Fixed:
        (folder / "job.yaml").write_text(saved)
        return look(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fix, "fixed", late)
    done = typed("check", "job.yaml", "--fix", cwd=folder)
    assert done.exit_code == 1 and "was saved by another program" in done.stderr, done
    assert (folder / "job.yaml").read_text() == saved and "fixed in" not in done.stderr
