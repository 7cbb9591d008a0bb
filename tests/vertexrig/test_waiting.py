"""What a command waits for is said once it has waited."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from vertexrig import waiting

LONG = 30.0
"""Seconds that a line may take to come on a busy machine."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[queue.Queue[str]]:
    monkeypatch.setattr(waiting, "FIRST_S", 0.01)
    monkeypatch.setattr(waiting, "AGAIN_S", 0.02)
    told: queue.Queue[str] = queue.Queue()
    waiting.set_wait_printer(told.put)
    yield told
    waiting.set_wait_printer(None)


def test_a_wait_says_what_is_awaited_and_for_how_long(lines: queue.Queue[str]) -> None:
    """A block that lasts names what it waits for, and says again how long it has been; of nested blocks the innermost is named."""
    with waiting.waiting("the outer one"):
        assert lines.get(timeout=LONG).startswith("waiting for the outer one")
        with waiting.waiting("the inner one"):
            while "the inner one" not in (line := lines.get(timeout=LONG)):
                pass
            assert line.endswith("s so far)")


def test_a_short_wait_and_a_library_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that ends before two seconds says nothing, and nothing is said where no command line runs."""
    told: list[str] = []
    waiting.set_wait_printer(told.append)
    with waiting.waiting("a short one"):
        pass
    waiting.set_wait_printer(None)
    monkeypatch.setattr(waiting, "FIRST_S", 0.0)
    with waiting.waiting("the function"):
        pass
    assert told == []
