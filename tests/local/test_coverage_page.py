"""The coverage page and the tables it is made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import coverage_page as coverage
from vertexrig.local.http import Coverage, Endpoint
from vertexrig.local.jobs.coverage import COVERAGE as FIELDS
from vertexrig.local.vertex import COVERAGE as VERTEX
from vertexrig.local.vertex import VertexApi
from vertexrig.spec import descriptors

PAGE = Path(__file__).parents[2] / "docs/local-coverage.md"
OUTPUT_ONLY = {
    "name", "displayName", "labels", "state", "createTime", "startTime", "endTime", "updateTime", "error", "trials",
    "satisfiesPzs", "satisfiesPzi",
}  # fmt: skip


def test_the_committed_page_is_current() -> None:
    """docs/local-coverage.md is what the tables say today; `python -m tools.coverage_page` writes it."""
    assert PAGE.read_text(encoding="utf-8") == coverage.page()


@pytest.mark.parametrize("title, rows", coverage.SECTIONS, ids=[title for title, _ in coverage.SECTIONS])
def test_each_row_stands_once_and_says_what_differs(title: str, rows: tuple[Coverage, ...]) -> None:
    """Each method has one row with a known state, and what is approximated says how."""
    assert rows and len({row.method for row in rows}) == len(rows)
    assert {row.state for row in rows} <= set(coverage.STATES)
    assert [row.method for row in rows if row.state == "approximated" and not row.note] == []


@pytest.mark.parametrize(
    "kind", ["CustomJobSpec", "WorkerPoolSpec", "Scheduling", "HyperparameterTuningJob", "StudySpec"]
)
def test_every_field_of_the_api_has_a_row(kind: str) -> None:
    """The table has a row for each field of Google's own message that a client can set, and no other."""
    ours = {row.method.partition(".")[2] for row in FIELDS if row.method.partition(".")[0] == kind}
    assert ours == set(descriptors.message(kind).json_names) - OUTPUT_ONLY


def methods(prefix: str, table: list[Endpoint]) -> set[str]:
    """The method names that a routing table stands for: `aiplatform.customJobs.cancel`."""
    verbs = {("POST", False): "create", ("GET", False): "list", ("GET", True): "get", ("DELETE", True): "delete"}
    names = set()
    for row in table:
        path = re.sub(r"\(\?P<\w+>.*?\)(?=/|$|\()", "*", row.pattern.pattern.replace("(?:/[^/]+)*?", ""))
        path, _, own = path.partition("(?::|%3A)")
        parts = [part for part in path.split("/") if part]
        one = parts[-1] == "*"
        names.add(f"{prefix}{parts[-2] if one else parts[-1]}.{own or verbs.get((row.method, one), row.method)}")
    return names


def test_what_is_routed_is_listed_and_the_reverse() -> None:
    """The rows of the Vertex AI API that are served are exactly the methods with a route."""
    table = VertexApi(*[None] * 3).table()  # type: ignore[arg-type]
    assert methods("aiplatform.", table) == {row.method for row in VERTEX if row.state != "not served"}
