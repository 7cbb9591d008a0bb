"""The built wheel holds all that the tool needs: the same tests pass on it with the source tree out of reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tools import REPOSITORY, built_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_tool_and_nothing_else(wheel: Path) -> None:
    """Every module, template and data file is in it, and the function's; tests and the trainer are not."""
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"vertexrig"}
    for file in (REPOSITORY / "vertexrig").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert str(file.relative_to(REPOSITORY)) in names
    for file in (REPOSITORY / "templates").iterdir():
        if file.is_file():
            assert f"vertexrig/templates/{file.name}" in names
    assert {"vertexrig/functions/main.py", "vertexrig/functions/requirements.txt"} <= names


def test_the_tests_pass_on_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Rendering, checks, catalog and command line pass on the installed wheel, away from the source tree."""
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)],
        check=True, timeout=300,
    )  # fmt: skip
    tests = tmp_path / "tests"
    shutil.copytree(
        REPOSITORY / "tests", tests, ignore=shutil.ignore_patterns("__pycache__", "local", "trainer", "trainers")
    )
    chosen = ["test_render.py", "test_config.py", "test_spec.py", "test_cli.py", "test_catalog.py"]
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_MAX_EXAMPLES": "10"}
    code = (
        "import sys, vertexrig; assert vertexrig.__file__.startswith(sys.argv[1]), vertexrig.__file__; "
        "import pytest; sys.exit(pytest.main(sys.argv[2:]))"
    )
    words = ["-q", "-p", "no:cacheprovider", "-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, str(site), *words, *(str(tests / name) for name in chosen), "-k", "not hypothesis and not any_ and not deterministic"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
