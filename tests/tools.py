"""Helpers that tests call by name."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vertexrig as package

REPOSITORY = Path(__file__).parent.parent
INSTALLED = Path(package.__file__).parent.parent
"""Where the vertexrig under test is imported from: the checkout, or the installed wheel."""


LONG = os.environ.get("ATTACK") == "long"
"""Whether properties are tried at length: `make attack`, or `ATTACK=long make test TESTS=...` of any other test."""


def examples(brief: int, long: int) -> int:
    """How many examples of a property are tried: `brief` on every run, `long` by ATTACK=long."""
    return long if LONG else brief


def brief(rows: Sequence[Any], quick: int) -> list[Any]:
    """Parameters of a test of which `make test` runs the first `quick`; the others are marked `whole`."""
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=[pytest.mark.whole] * (place >= quick))
        for place, row in enumerate(rows)
    ]


def need(program: str) -> str:
    """The path of a program that users may not have: without it a test skips here and fails in CI."""
    found = shutil.which(program)
    if found is None:
        message = f"{program} is not installed"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def module(name: str) -> ModuleType:
    """A library that users may not have: without it the test module skips here and fails in CI."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} is not installed", allow_module_level=True)


@dataclass(frozen=True)
class Done:
    """What a verb printed, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """What --format json printed; {} if nothing."""
        return json.loads(self.stdout or "{}")


def typed(*words: str, cwd: Path | None = None) -> Done:
    """The command line in this process, in a folder if one is given; it never gives a traceback."""
    from vertexrig import cli  # the trainer's tests run on a container's Python, which has no click

    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(cwd or before)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.run(list(words))
    finally:
        os.chdir(before)
    assert "Traceback" not in err.getvalue()
    return Done(code, out.getvalue(), err.getvalue())


def vertexrig(
    *args: str, cwd: Path, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command line as a real process."""
    return subprocess.run(
        [sys.executable, "-m", "vertexrig", *args],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(INSTALLED), **(env or {})},
        input=stdin, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
