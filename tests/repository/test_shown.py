"""What an installed vertexrig shows refers to nothing that only its repository has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.tools import REPOSITORY, typed

ONLY_HERE = re.compile(
    r"(?<![\w/:.-])(?:docs|tests|bench|examples|tools|trainer_pkg)/[\w.*/-]*|\b(?:README|CONTRIBUTING|CHANGELOG|Makefile)\b|`make [a-z-]+`"
)
SHIPPED = sorted(
    file
    for folder in ("vertexrig", "functions", "templates")
    for file in (REPOSITORY / folder).rglob("*")
    if file.is_file() and "__pycache__" not in file.parts and file.suffix in {".py", ".yaml", ".json", ".j2", ".txt"}
)


def strings(file: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module, docstrings too, since help shows them; any other file as a whole."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        yield 1, text
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_shipped_string_names_a_file_of_the_repository() -> None:
    """No message, help text, docstring or shipped file refers to a page, test or verb that an installed user lacks."""
    assert len(SHIPPED) > 150
    found = [
        f"{file.relative_to(REPOSITORY)}:{line}: {match[0]}"
        for file in SHIPPED
        for line, text in strings(file)
        for match in ONLY_HERE.finditer(text)
    ]
    assert found == []


def test_every_key_is_listed(tmp_path: Path) -> None:
    """`vertexrig keys` lists the keys of every mapping, for a person and as JSON."""
    rows = typed("keys", "--format", "json", cwd=tmp_path).document["keys"]
    by_key = {row["key"]: row for row in rows}
    assert by_key["project"] == {
        "key": "project", "type": "text", "default": "required", "meaning": "Google Cloud project id. Must be a project id such as my-project.",
    }  # fmt: skip
    assert by_key["Job.worker"]["type"] == "Role" and by_key["Role.replica_count"]
    shown = typed("keys", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in shown[2:]] == list(by_key)
