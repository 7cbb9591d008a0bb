"""The JSON Schema of the project file takes what the tool takes, and refuses what a schema can tell."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from tests.support.tools import REPOSITORY
from tests.vertexrig.project.test_config import WRONG
from vertexrig import yamltext
from vertexrig.project.model import Project
from vertexrig.schema.json_schema import json_schema

SCHEMA = json_schema(Project)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FILES = [
    REPOSITORY / "vertexrig.yaml",
    REPOSITORY / "vertexrig/render/starter.yaml",
    REPOSITORY / "tests/golden/project.yaml",
    *sorted(REPOSITORY.glob("examples/**/vertexrig.yaml")),
]
# not YAML, or wrong only in what several values say together, or in what a variable holds
BEYOND = r"there twice|there is no job|a job has the same name|not valid YAML|is not a name|finite|a reason|is not \\\$|is not set"


def test_it_is_a_schema() -> None:
    """It is valid by its own draft, and each of its descriptions says something, in lines that no editor takes for code."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for one in SCHEMA["$defs"].values():
        assert one["description"] and "\n " not in one["description"]
        assert all(value["description"] for value in one.get("properties", {}).values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_project_files_fit(file: Path) -> None:
    """The examples, the starter and the golden project are valid."""
    VALIDATOR.validate(yamltext.read(file.read_text()).data)


@pytest.mark.parametrize("text", [text for text, words in WRONG if not re.search(BEYOND, words)])
def test_wrong_files_are_refused(text: str) -> None:
    """So is no file that the tool refuses for a value or a key by itself."""
    assert not VALIDATOR.is_valid(yamltext.read(text).data)


@pytest.mark.parametrize(
    "text",
    [
        "jobs: {c: {strategy: '${S:-SPOT}', replica_count: '${N}', args: [--x], labels: }}",
        "jobs: {c: , d: {args: {x: , y: 1.5}, spec: {a: [1, {}]}}}",
        "local: {slots: , allow_hosts: ['*.example.com', '${HOST}'], public_buckets: [tensorflow]}",
        "schedules: {n: {run: c, cron: '* * * * *', then: [promote, register: {min_gain: 0.1}]}}",
    ],
)
def test_what_the_tool_takes_is_valid(text: str) -> None:
    """Variables, keys with nothing behind them, and values of several types are valid."""
    VALIDATOR.validate(yamltext.read(f"project: p\n{text}").data)


@pytest.mark.parametrize(
    "text",
    [
        "jobs: {c: {strategy: spot}}",
        "jobs: {c: {nfs_mounts: [{server: a, path: b}]}}",
        "local: {allow_hosts: [storage.googleapis.com]}",
        "local: {public_buckets: ['gs://tensorflow']}",
        "schedules: {n: {run: c, cron: '* * * * *', then: [register: {min_gain: -1}]}}",
        "schedules: {n: {run: c, cron: '* * * * *', retry_config: {retry_count: 6}}}",
        "trigger: {budget: {usd_per_run: -5}}",
        "sweeps: {s: }",
    ],
)
def test_rules_of_values_are_in_it(text: str) -> None:
    """Choices, required keys, patterns, smallest and largest numbers are held."""
    assert not VALIDATOR.is_valid(yamltext.read(f"project: p\n{text}").data)
