"""The coverage page and the tables it is made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from localvertex import bindings
from localvertex.services import projects
from tools import coverage_page as coverage
from tools.coverage import FIELDS, NOTES, Coverage
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


def test_what_is_noted_is_served() -> None:
    """What differs from the service is said of methods that are served, and of no others."""
    served = {name for one in coverage.services() for name in one.methods} | {"TailLogEntries"}
    assert set(NOTES) - served == set()


def test_every_method_served_has_a_route() -> None:
    """Each method of each service has a REST route of Google's own table, and the routes of one service are its methods'."""
    for one in coverage.services():
        if one.name != projects.SERVICE:
            assert one.methods.keys() <= bindings.of_service(one.name).keys() and len(one.routes()) >= len(one.methods)
