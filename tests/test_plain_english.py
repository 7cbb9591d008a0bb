"""Messages, help, docs and comments keep away from words that readers stumbled over."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.tools import REPOSITORY

WORDS = {
    "told": r"\btold\b",
    "stands": r"\b(?:stands?|stood)\b(?! for)",
    "is no X": r"\b(?:is|are|was) no (?!longer|more\b|less\b|other\b)[a-z]+",
    "of its own": r"\bof (?:its|their) own\b",
    "taken for": r"\btaken for\b",
    "kin": r"\bkin\b",
    "hear": r"\bhears?\b",
    "strike": r"\bstrikes?\b",
    "silenced": r"\bsilenced\b",
}
# There is no X: the plain form of an absence.
PLAIN = re.compile(r"\b[Tt]here (?:is|are|was) no\b|if there is no")

# word -> place -> how often it is left; a place that is not named has none
LEFT: dict[str, dict[str, int]] = {
    "told": {
        "checks": 2,
        "cli": 1,
        "docs": 1,
        "local": 8,
        "package": 7,
        "render": 1,
        "spec": 1,
        "submit": 3,
        "trigger": 2,
    },
    "stands": {
        "catalog": 1,
        "checks": 12,
        "cli": 2,
        "docs": 54,
        "local": 27,
        "package": 24,
        "project": 7,
        "render": 4,
        "spec": 16,
        "studies": 1,
        "trigger": 3,
        "yamltext": 3,
    },
    "is no X": {
        "catalog": 1,
        "cli": 1,
        "cloud": 1,
        "docs": 2,
        "local": 8,
        "package": 7,
        "project": 3,
        "render": 1,
        "spec": 3,
        "submit": 2,
        "trigger": 3,
    },
    "of its own": {
        "catalog": 1,
        "checks": 6,
        "cli": 2,
        "docs": 7,
        "local": 4,
        "package": 5,
        "project": 4,
        "render": 1,
        "spec": 2,
        "submit": 3,
        "trigger": 2,
    },
    "taken for": {"local": 1, "spec": 1, "submit": 1},
    "kin": {"docs": 1, "spec": 1},
    "hear": {"local": 5},
    "strike": {"docs": 2, "local": 7},
    "silenced": {"checks": 3, "project": 1},
}


def counted() -> dict[str, Counter[str]]:
    """How often each word is in each room of the tool and in docs/."""
    found: dict[str, Counter[str]] = {word: Counter() for word in WORDS}
    files = [*(REPOSITORY / "vertexrig").rglob("*.py"), *(REPOSITORY / "docs").glob("*.md")]
    for file in files:
        inner = file.relative_to(REPOSITORY).parts
        place = "docs" if inner[0] == "docs" else inner[1].removesuffix(".py")
        text = PLAIN.sub("", file.read_text(encoding="utf-8"))
        for word, pattern in WORDS.items():
            found[word][place] += len(re.findall(pattern, text, re.IGNORECASE))
    return found


@pytest.mark.parametrize("word", WORDS)
def test_no_room_has_more_of_a_word_than_is_left(word: str) -> None:
    """Each room has at most as many of these words as the table says; the table only shrinks."""
    more = {place: count for place, count in counted()[word].items() if count > LEFT.get(word, {}).get(place, 0)}
    assert more == {}


@pytest.mark.parametrize(
    ("word", "text"), [("told", "as it was told"), ("stands", "the value stands here"), ("is no X", "it is no file")]
)
def test_a_word_is_seen(word: str, text: str) -> None:
    """The patterns find the words they are named after."""
    assert re.search(WORDS[word], text)
