"""Messages, help, docs and comments keep away from words that readers stumbled over."""

from __future__ import annotations

import re

import pytest

from tests.tools import REPOSITORY

WORDS = {
    "told": r"\btold\b",
    "stands": r"\b(?:stands?|stood)\b(?! for|-ins?\b)",
    "is no X": r"\b(?:is|are|was) no (?!longer|more\b|less\b|other\b)[a-z]+",
    "taken for": r"\btaken for\b",
    "kin": r"\bkin\b",
    "hear": r"\bhears?\b",
    "strike": r"\bstrikes?\b",
    "silenced": r"\bsilenced\b",
}
# There is no X: the plain form of an absence.
PLAIN = re.compile(r"\b[Tt]here (?:is|are|was) no\b|if there is no")


def found(word: str) -> list[str]:
    """Where the word is in the tool's code and in the pages: `file: the words around it`."""
    files = [
        *(REPOSITORY / "vertexrig").rglob("*.py"),
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ]
    places: list[str] = []
    for file in files:
        text = PLAIN.sub("", file.read_text(encoding="utf-8"))
        for match in re.finditer(WORDS[word], text, re.IGNORECASE):
            around = " ".join(text[max(0, match.start() - 30) : match.end() + 30].split())
            places.append(f"{file.relative_to(REPOSITORY)}: {around}")
    return places


@pytest.mark.parametrize("word", WORDS)
def test_no_page_and_no_module_has_the_word(word: str) -> None:
    """None of these words is in a message, a help text, a page, a docstring or a comment."""
    assert found(word) == []


@pytest.mark.parametrize(
    ("word", "text"), [("told", "as it was told"), ("stands", "the value stands here"), ("is no X", "it is no file")]
)
def test_a_word_is_seen(word: str, text: str) -> None:
    """The patterns find the words they are named after."""
    assert re.search(WORDS[word], text)
