"""What is run: the rows of tests.yaml, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PROJECT = "system-tests"
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"


@dataclass(frozen=True)
class Suite:
    """The tests of one repository.

    Args:
        name: Its name, and the name of its option.
        repository: Where it is on GitHub.
        runner: What runs its tests, a key of `runners.RUNNERS`.
        env: Variables that its tests read.
    """

    name: str
    repository: str
    runner: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One test.

    Args:
        suite: Its suite.
        folder: Where it is run, below the checkout.
        file: Its file (a class, for Java), below that folder.
        test: Its name in the file, "" where the file has one test; for a group of tests, how their names begin.
        needs: What it needs, keys of `needs` in tests.yaml.
        least: How many tests of a group pass at least; the group passes then.
    """

    suite: Suite
    folder: str
    file: str
    test: str
    needs: tuple[str, ...]
    least: int = 0

    @property
    def shown(self) -> str:
        """Its name in the table."""
        return f"{self.file}::{self.test}" if self.test else self.file


@dataclass(frozen=True)
class Result:
    """What came of one test.

    Args:
        row: The test.
        result: `PASSED`, `FAILED`, `SKIPPED` or `NOT_RUN`.
        reason: Why it did not pass, one line.
        seconds: How long it took, None where it was not run.
    """

    row: Row
    result: str
    reason: str = ""
    seconds: float | None = None


def document() -> dict[str, Any]:
    """tests.yaml."""
    found: dict[str, Any] = yaml.safe_load((HERE / "tests.yaml").read_text(encoding="utf-8"))
    return found


def rows() -> list[Row]:
    """Return the tests, in the order of the file."""
    data = document()
    suites = {
        name: Suite(
            name,
            one["repository"],
            one["runner"],
            {key: str(v).format(project=PROJECT) for key, v in one["env"].items()},
        )
        for name, one in data["suites"].items()
    }
    return [
        Row(
            suites[one["suite"]],
            one["folder"],
            one["file"],
            one.get("test", ""),
            tuple(one["needs"]),
            one.get("least", 0),
        )
        for one in data["tests"]
    ]


def text(results: Sequence[Result], *, markdown: bool = False) -> str:
    """Return the table: test, result, reason, seconds."""
    head = ("suite", "test", "result", "seconds", "why it did not pass")
    cells = [head, *(_cells(one) for one in results)]
    if markdown:
        lines = [f"| {' | '.join(row)} |" for row in cells]
        return "\n".join([lines[0], f"|{' --- |' * len(head)}", *lines[1:]])
    widths = [max(len(row[i]) for row in cells) for i in range(len(head) - 1)]
    return "\n".join("  ".join([*(row[i].ljust(width) for i, width in enumerate(widths)), row[-1]]) for row in cells)


def _cells(one: Result) -> tuple[str, ...]:
    seconds = "" if one.seconds is None else f"{one.seconds:.0f}"
    place = one.row.file.rpartition("/")[2]
    return one.row.suite.name, f"{place}::{one.row.test}" if one.row.test else place, one.result, seconds, one.reason


def counts(results: Sequence[Result]) -> str:
    """Return how many passed, and how many did not."""
    found = {kind: sum(one.result == kind for one in results) for kind in (PASSED, FAILED, SKIPPED, NOT_RUN)}
    return ", ".join([f"of {len(results)} tests", *(f"{count} {kind}" for kind, count in found.items() if count)])


def as_json(results: Sequence[Result], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return the table for programs."""
    tests = [
        {"suite": one.row.suite.name, "test": one.row.shown, "result": one.result, "reason": one.reason,
         "seconds": one.seconds, "needs": list(one.row.needs)}
        for one in results
    ]  # fmt: skip
    return {"tests": tests, "versions": dict(versions)}
