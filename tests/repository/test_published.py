"""The script that runs published code: what it takes from a checkout, and what it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.published.__main__ import take
from tests.published.rows import Row

ROW = Row(
    "S0", "a notebook", "course", "lab.ipynb", "python program.py", cells=("job.run(",), before="import this",
    changes={"[your-project]": "my-project", "K80": "T4"}, fewer={"trials=100": "trials=4"},
)  # fmt: skip
CELLS = [
    "!pip install x",
    "%%writefile trainer/task.py\nK80 = 'K80'",
    "job.run('[your-project]', 'K80', trials=100)",
    "job.delete()",
]


@pytest.fixture
def checkouts(tmp_path: Path) -> Path:
    """A folder with a checkout of one notebook."""
    (tmp_path / "course").mkdir()
    cells = [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in CELLS]
    (tmp_path / "course/lab.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": []}, *cells]}))
    return tmp_path


def test_a_notebook_becomes_a_program_with_its_changes_alone(checkouts: Path, tmp_path: Path) -> None:
    """Named cells make program.py, `%%writefile` cells their files; only what the row names is replaced."""
    take(ROW, checkouts, tmp_path / "S0", False)
    assert (tmp_path / "S0/program.py").read_text() == "import this\n\njob.run('my-project', 'T4', trials=4)"
    assert (tmp_path / "S0/trainer/task.py").read_text() == "T4 = 'T4'"
