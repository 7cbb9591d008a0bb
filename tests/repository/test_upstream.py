"""The runner of tests that others wrote, with a checkout that is made here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.upstream import table
from tools.upstream.runners import RUNNERS
from tools.upstream.table import FAILED, NOT_RUN, PASSED, SKIPPED

TESTS = """
import json, os, urllib.request
import pytest

PROJECT = os.environ["BUILD_SPECIFIC_GCLOUD_PROJECT"]


def test_vizier_lifecycle():
    jobs = f"https://us-central1-aiplatform.googleapis.com/v1/projects/{PROJECT}/locations/us-central1/customJobs"
    with urllib.request.urlopen(f"{jobs}/7980906305281851392") as answer:
        assert json.load(answer)["displayName"] == "permanent_custom_job"


def test_vizier_study_deletion():
    raise ValueError("no study\\nand more")


@pytest.mark.skip(reason="not today")
def test_vizier_trial_deletion():
    pass
"""


@pytest.mark.whole
def test_a_file_of_three_tests(tmp_path: Path) -> None:
    """The tests reach the local Vertex and its known jobs by Google's own host; each has its result and its reason."""
    file = tmp_path / "checkout/tests/system/aiplatform/test_vizier.py"
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    words = [sys.executable, "-m", "tools.upstream", "--python-aiplatform", str(tmp_path / "checkout")]
    words += ["--only", "test_vizier", "--only", "vertex_ai_list", "--format", "json", "--work", str(tmp_path / "work")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = {one["test"].rpartition("::")[2].rpartition("/")[2]: one for one in json.loads(done.stdout)["tests"]}
    assert {name: (one["result"], one["reason"]) for name, one in found.items()} == {
        "test_vizier_lifecycle": (PASSED, ""),
        "test_vizier_study_deletion": (FAILED, "ValueError: no study"),
        "test_vizier_trial_deletion": (SKIPPED, "not today"),
        "example_vertex_ai_list_custom_jobs.py": (NOT_RUN, "no checkout is named (--airflow)"),
    }
    assert not list((tmp_path / "checkout").rglob("__pycache__"))


def test_the_table_names_tests_and_groups() -> None:
    """Thirty tests and 23 groups, each once, with needs that are explained, and images whose programs are there."""
    rows, data = table.rows(), table.document()
    assert len({(row.suite.name, row.shown) for row in rows}) == len(rows) == 53
    assert {row.suite.runner for row in rows} <= set(RUNNERS)
    assert {need for row in rows for need in row.needs} == set(data["needs"])
    programs = [one["program"] for one in data["images"].values() if "program" in one]
    assert all((table.HERE / "stand_ins" / program).is_file() for program in programs)
