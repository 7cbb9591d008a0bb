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

from tests.support.tools import need, typed

PROJECT = "project: my-project\njobs: {alpha: {machine_type: n1-standard-8}, beta: {machine_type: n1-standard-8}}\nsweeps: {}\n"
TYPED = [
    ("vertexrig ren", {"render"}),
    ("vertexrig render ", {"alpha", "beta"}),
    ("vertexrig check --unsa", {"--unsafe-fixes"}),
    ("vertexrig explain al", {"alpha"}),
    ("vertexrig render alpha --set machine_t", {"machine_type="}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    return tmp_path


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(("line", "wanted"), TYPED, ids=[line for line, _ in TYPED])
def test_bash_completes(folder: Path, line: str, wanted: set[str]) -> None:
    """What the real bash proposes after the printed lines are read."""
    words = line.split(" ")
    script = f"""
        eval "$(vertexrig completion bash)"
        COMP_WORDS=({" ".join(words)}{" ''" if not words[-1] else ""}); COMP_CWORD={len(words) - 1}
        complete -p vertexrig > /dev/null
        _vertexrig_completion vertexrig; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [need("bash"), "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == wanted, done


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("vertexrig render alpha --set machine_t", "--set machine_type="),
        ("vertexrig render alpha --set machine_type=a3-ultra", "--set machine_type=a3-ultragpu-8g "),
        ("vertexrig render alpha --set trials.machine_type=a3-ultra", "--set trials.machine_type=a3-ultragpu-8g "),
        ("vertexrig render al", "vertexrig render alpha "),
    ],
)
def test_bash_completes_at_the_tab_key(folder: Path, line: str, wanted: str) -> None:
    """What stands in the line of an interactive bash after the key, although bash ends words at `=`."""
    mine, theirs = pty.openpty()
    env = {**environment(), "TERM": "dumb", "PS1": "> "}
    bash = subprocess.Popen(
        [need("bash"), "--norc", "--noprofile", "-i"], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(mine, f'bind "set enable-bracketed-paste off"; eval "$(vertexrig completion bash)"\n{line}\t'.encode())
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
def test_other_shells_take_the_lines(folder: Path, shell: str) -> None:
    """Zsh and fish read what is printed for them."""
    if shutil.which(shell) is None:  # not worth failing for where a machine cannot install it
        pytest.skip(f"{shell} is not installed")
    script = typed("completion", shell).stdout
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_values_follow_a_key() -> None:
    """Behind `machine_type=` are the machine types of the catalog."""
    env = {
        **environment(),
        "_VERTEXRIG_COMPLETE": "fish_complete",
        "COMP_WORDS": "vertexrig render x --set ",
        "COMP_CWORD": "machine_type=a3-ultra",
    }
    done = subprocess.run(["vertexrig"], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,machine_type=a3-ultragpu-8g"], done
