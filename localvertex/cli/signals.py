"""Signals that end a program, and handlers of them for the time of a block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

# What ends a program from outside: the terminal's Ctrl-C, `kill`, a terminal that closes.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def not_ignored() -> list[signal.Signals]:
    """Return the signals that end a program, without those that are ignored, as nohup and a shell's background job want it."""
    return [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handled(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call a handler for these signals while the block lasts; afterwards they have their former handlers again."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
