"""Say what a command waits for, once it has waited for two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_S, AGAIN_S, MOST_S = 2.0, 15.0, 600.0
"""Seconds before the first line, and from the first line to the second. Each further pause is twice as long, but at most MOST_S."""
_printer: Callable[[str], None] | None = None


class _Waits(threading.local):
    """What a thread waits for, from the outside in."""

    def __init__(self) -> None:
        self.stack: list[str] = []


_waits = _Waits()


def set_wait_printer(printer: Callable[[str], None] | None) -> None:
    """Set the function that prints `waiting for …` lines; None, the default, prints nothing."""
    global _printer
    _printer = printer


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Print "waiting for WHAT" if the block lasts for two seconds, and again later; of nested blocks, the innermost is named."""
    stack, tell = _waits.stack, _printer
    if tell is None:
        yield
        return
    stack.append(what)
    done = threading.Event()

    def lines() -> None:
        begun, pause = time.monotonic(), FIRST_S
        while not done.wait(pause):
            first, seconds = pause == FIRST_S, time.monotonic() - begun
            pause = AGAIN_S if first else min(2 * pause, MOST_S)
            inner = stack[-1:] or [what]  # the stack is empty if the block has just ended
            tell(f"waiting for {inner[0]}" + ("" if first else f" ({seconds:.0f} s so far)"))

    try:
        if len(stack) == 1:  # the outermost: one thread prints for all
            threading.Thread(target=lines, daemon=True).start()
        yield
    finally:
        done.set()
        stack.pop()
