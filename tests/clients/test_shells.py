"""`eval` and `source` of what `local env --transparent` prints, in shells: bash, zsh and fish."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localvertex.front.variables import transparent
from localvertex.state import RunningServer
from tests.clients.conftest import PROJECT, REGION
from tests.clients.kit import folder
from tests.support.tools import INSTALLED

ENV = f"{sys.executable} -m vertexrig local env --transparent"
SHOW = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
SOURCED = {
    "bash": f'eval "$({ENV} --root "$ROOT")"; {SHOW}',
    "zsh": f'eval "$({ENV} --root "$ROOT")"; {SHOW}',
    "fish": f"{ENV} --shell fish --root $ROOT | source; {SHOW}",
}
OPTIONS = '--title="it\'s \\\\ a $HOME" --trace-warnings'
"""The user's own NODE_OPTIONS, which stay beside ours: every character that a shell could take for its own."""


@pytest.mark.parametrize("shell", SOURCED)
def test_a_shell_has_the_variables(shell: str, here: RunningServer, tmp_path: Path) -> None:
    """A program of the shell sees what `local run` gives a command, and nothing of what is in the way."""
    (tmp_path / "vertexrig.yaml").write_text(f"project: {PROJECT}\nregion: {REGION}\nbucket: gs://staging-bucket\n")
    user = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(INSTALLED), "ROOT": str(here.root)}
    user |= {"NODE_OPTIONS": OPTIONS, "STORAGE_EMULATOR_HOST": "http://elsewhere", "ALL_PROXY": "http://elsewhere"}
    program = shutil.which(shell)
    if program is None:
        root = folder("shells", "root")
        program = str(next(path for path in (root / "usr/bin" / shell, root / "bin" / shell) if path.exists()))
        user["LD_LIBRARY_PATH"] = ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))
    done = subprocess.run([program, "-c", SOURCED[shell]], env=user, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    wanted = transparent(here, user, project=PROJECT, region=REGION).over(user)
    seen = json.loads(done.stdout)
    assert {name: seen.get(name) for name in wanted} == wanted, done.stderr
    assert OPTIONS in seen["NODE_OPTIONS"] and "STORAGE_EMULATOR_HOST" not in seen and "ALL_PROXY" not in seen
