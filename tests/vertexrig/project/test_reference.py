"""The reference page of the project file is what the dataclasses say, and its examples work."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tools import project_file_page as reference
from vertexrig.project import config
from vertexrig.project.model import Job, Project
from vertexrig.project.study import StudyParameter
from vertexrig.project.triggered import TriggerSettings
from vertexrig.workspace import Workspace

PAGE = Path(__file__).resolve().parents[3] / "docs" / "project-file.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(project:.*?)```", TEXT, re.DOTALL)


def test_page_is_up_to_date() -> None:
    """docs/project-file.md is the page the code makes (`python -m tools.project_file_page > docs/project-file.md`)."""
    assert reference.page() == TEXT


@pytest.mark.parametrize("cls", [Project, Job, StudyParameter, TriggerSettings])
def test_every_key_is_there(cls: type) -> None:
    """Every key of a mapping has a row with a sentence."""
    for item in dataclasses.fields(cls):
        assert re.search(rf"\| `{item.name}` \| [^|]+ \| [^|]*\| .+\. \|", TEXT), item.name


def test_every_link_leads_somewhere() -> None:
    """Every mapping that a type names has a section, and every section but the first tells where it stands."""
    headings = {name.lower() for name in re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", TEXT)) <= headings
    assert TEXT.count("\nPlace: ") == TEXT.count("\n### ") - 1


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_load(text: str) -> None:
    """Every project file on the page loads, and its silenced findings exist."""
    loaded = config.loads(text, file=Path("vertexrig.yaml"), environ={})
    assert loaded.project.jobs
    for name in loaded.project.jobs:
        Workspace(loaded).silenced(name)


def test_there_are_examples() -> None:
    """The page shows a whole file, `spec` and `silence`."""
    assert len(EXAMPLES) == 3


def test_types_in_words() -> None:
    """Scalars, unions, literals and nested mappings read as words."""
    assert "| `args` | mapping of scalar or list of text |" in TEXT
    assert "| `strategy` | `STANDARD` or `SPOT` or `FLEX_START` |" in TEXT
    assert "| `metrics` | mapping of `MAXIMIZE` or `MINIMIZE` or [MetricSettings](#metricsettings) | required |" in TEXT
    assert "| `over` | mapping of list of scalar |" in TEXT
