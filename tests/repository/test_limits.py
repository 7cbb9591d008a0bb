"""The page of limits says what the code does."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.support.tools import REPOSITORY

ROW = re.compile(r"^\| .* \| ([\d,]+) \| `([\w.]+):(\w+)` \|$", re.MULTILINE)
BOUNDS = ROW.findall((REPOSITORY / "docs/limits.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("number", "module", "name"), BOUNDS)
def test_each_bound_is_the_code_s(number: str, module: str, name: str) -> None:
    """Each number of docs/limits.md is that of the constant beside it."""
    assert getattr(import_module(module), name) == int(number.replace(",", ""))


def test_no_row_is_passed_over() -> None:
    """Each row of the table of numbers is compared."""
    _, _, table = (
        (REPOSITORY / "docs/limits.md").read_text(encoding="utf-8").partition("| bound | number | constant |\n")
    )
    assert len(BOUNDS) == len([line for line in table.splitlines()[1:] if line.startswith("| ")])
