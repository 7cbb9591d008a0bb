"""Nothing in the tool branches on the wording of a message: findings, problems and errors carry codes and data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.tools import REPOSITORY

TEXTS = {"message", "fix", "strerror", "reason_phrase"}
"""Attributes that hold a text for a person."""
READERS = {
    "startswith",
    "endswith",
    "find",
    "index",
    "count",
    "partition",
    "rpartition",
    "removeprefix",
    "removesuffix",
}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
SAME = {"strip", "rstrip", "lstrip", "lower", "casefold", "upper", "splitlines", "split"}
"""Methods whose result is still the text."""

# what is left, with the reason: module and expression
ALLOWED = {
    # The same text at several pools is one finding; which text it is makes no difference.
    ("vertexrig/checks/trainer.py", "problem.message not in seen"),
    # sqlite3 of Python 3.10 has no error code for a full disk.
    ("localvertex/http.py", "'disk is full' in str(error)"),
    # The place that begins the message is a field of its own in the answer.
    ("vertexrig/project/caller_overrides.py", "error.message.removeprefix(f'set.{key}: ')"),
}


def _is_text(node: ast.expr, caught: set[str]) -> bool:
    """Whether an expression is the text of a message, or a part of one."""
    if isinstance(node, ast.Attribute):
        return node.attr in TEXTS
    if isinstance(node, ast.Subscript):
        return _is_text(node.value, caught)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr") and len(node.args) == 1:
        inner = node.args[0]
        return isinstance(inner, ast.Name) and (inner.id in caught or inner.id == "error")
    return isinstance(node.func, ast.Attribute) and node.func.attr in SAME and _is_text(node.func.value, caught)


def branches(source: str) -> Iterator[str]:
    """The expressions of a module that look for something in the text of a message."""
    tree = ast.parse(source)
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            against_none = any(isinstance(side, ast.Constant) and side.value in (None, "") for side in sides)
            if not against_none and any(_is_text(side, caught) for side in sides):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            read = node.func.attr in READERS and _is_text(node.func.value, caught)
            if read or (node.func.attr in PATTERNS and any(_is_text(word, caught) for word in node.args)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Match) and _is_text(node.subject, caught):
            yield ast.unparse(node.subject)


def test_nothing_branches_on_wording() -> None:
    """No module compares, searches or cuts the text of a finding, problem or error, but for what ALLOWED names, all of it still there."""
    found = {
        (file.relative_to(REPOSITORY).as_posix(), expression)
        for package in ("vertexrig", "localvertex")
        for file in (REPOSITORY / package).rglob("*.py")
        for expression in branches(file.read_text(encoding="utf-8"))
        if "field_.message" not in expression  # a message of protobuf, not of a person
    }
    assert found == ALLOWED
