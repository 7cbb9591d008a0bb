"""A shell completes verbs, options, names of jobs and keys of --set, by what `vertexrig completion` prints."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.support.tools import need, typed
from vertexrig.cli import vertexrig

PROJECT = "project: my-project\njobs: {alpha: {machine_type: n1-standard-8}, beta: {machine_type: n1-standard-8}}\nsweeps: {}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ren", {"render"}),
        ("render ", {"alpha", "beta"}),
        ("check --unsa", {"--unsafe-fixes"}),
        ("explain al", {"alpha"}),
        ("render alpha --set machine_t", {"machine_type="}),
        ("render alpha --set trials.machine_type=a3-ultra", {"trials.machine_type=a3-ultragpu-8g"}),
    ],
)
def test_what_is_proposed(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, wanted: set[str]) -> None:
    """Verbs, names of the project file, options, keys, and behind `machine_type=` the machine types of the catalog."""
    monkeypatch.chdir(folder)
    *words, last = line.split(" ")
    found = ShellComplete(vertexrig, {}, "vertexrig", "_VERTEXRIG_COMPLETE").get_completions(words, last)
    assert {one.value for one in found} == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("vertexrig render alpha --set machine_t", "--set machine_type="),
        ("vertexrig render alpha --set machine_type=a3-ultra", "--set machine_type=a3-ultragpu-8g "),
        ("vertexrig render al", "vertexrig render alpha "),
    ],
)
def test_bash_completes_at_the_tab_key(folder: Path, line: str, wanted: str) -> None:
    """What stands in the line of an interactive bash after the key, although bash ends words at `=`."""
    (folder / "script").write_text(typed("completion", "bash").stdout)
    mine, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    bash = subprocess.Popen(
        [need("bash"), "--norc", "--noprofile", "-i"], cwd=folder, env={**os.environ, "PATH": path, "TERM": "dumb", "PS1": "> "},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(mine, f'bind "set enable-bracketed-paste off"; . ./script\n{line}\t'.encode())
    said = ""
    try:
        while wanted not in said.rpartition("> ")[2] and select.select([mine], [], [], 60)[0]:
            said += os.read(mine, 4096).decode()
    finally:
        bash.kill()
        bash.wait()
        os.close(mine)
    assert wanted in said.rpartition("> ")[2], said


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_lines(shell: str) -> None:
    """Zsh and fish read what is printed for them."""
    if shutil.which(shell) is None:  # not worth failing for where a machine cannot install it
        pytest.skip(f"{shell} is not installed")
    script = typed("completion", shell).stdout
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
