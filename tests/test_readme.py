"""What the README and the other pages show is what happens."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.tools import REPOSITORY, vertexrig

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_the_screen_of_the_readme_is_real(tmp_path: Path) -> None:
    """The project file shown gives the findings shown; with both mended it gives the commands shown."""
    (project,) = blocks("yaml")
    (screen,) = [text for text in blocks("console") if "accelerator-count" in text]
    (command,) = [text for text in blocks("console") if text.startswith("vertexrig package")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # vertexrig is typed by its name
    (tmp_path / "trainer_pkg").symlink_to(REPOSITORY / "trainer_pkg")
    (tmp_path / "vertexrig.yaml").write_text(project)
    done = vertexrig("render", "multi-gpu", cwd=tmp_path)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert [line for line in screen.splitlines() if line not in said] == []
    mended = project.replace("accelerator_count: 3", "accelerator_count: 4").replace("learning_rat:", "learning_rate:")
    (tmp_path / "vertexrig.yaml").write_text(mended)
    assert vertexrig("render", "multi-gpu", cwd=tmp_path, env={"PATH": path}).stdout == command


def test_commands_named_in_the_readme_are_there(tmp_path: Path) -> None:
    """Every `vertexrig VERB` that the README names has a help page."""
    verbs = set(re.findall(r"`vertexrig ([a-z]+)", README)) | set(
        re.findall(r"^\$ vertexrig ([a-z]+)", README, re.MULTILINE)
    )
    for verb in sorted(verbs):
        assert vertexrig(verb, "--help", cwd=tmp_path).returncode == 0, verb


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that is there."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_make_without_a_verb_prints_the_verbs() -> None:
    """`make` alone prints its verbs, the README's two among them."""
    import subprocess

    done = subprocess.run(
        shlex.split("make --no-print-directory"), cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "demo" in done.stdout and "test" in done.stdout
