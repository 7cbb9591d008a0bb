"""SIGTERM: the process ends with code 143 within seconds, whatever TensorFlow waits for. Imports no TensorFlow.

A process that trains alone saves after the step it is in, and then ends. Vertex AI ends cancelled jobs and servers with
SIGTERM and kills what is left some seconds later. Python runs a signal's handler only between two of its own instructions:
a worker that waits inside TensorFlow for another one would not notice.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

CODE = 143
GRACE_SECONDS = 2.0  # for the main thread to remove what it made; then it is ended from outside
TEMPORARY: set[str] = set()
"""Directories to remove before the process ends."""
_asked = threading.Event()
_last_work = threading.Lock()
_saves = False  # the main thread looks at `asked` after each step, saves and ends


class Terminated(SystemExit):
    """Raised in the main thread on SIGTERM."""


def install() -> None:
    """Handle SIGTERM in the main thread, and watch from another thread that the process really ends."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # C code of the interpreter writes to it when the signal comes, whatever the main thread is in
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    handle()
    # the writer goes along so that it stays open: recv of a closed pair returns at once, again and again
    threading.Thread(target=_watch, args=(reader, writer), daemon=True).start()


def handle() -> None:
    """Take SIGTERM (back). TensorFlow's coordination of a cluster installs a handler that only notes the preemption, so that a
    worker trains on until it is killed: to be called again once the cluster is connected.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)


def asked() -> bool:
    """Tell whether SIGTERM has come."""
    return _asked.is_set()


def saves_after_a_step(value: bool) -> None:
    """Say whether the main thread ends by itself after its present step: SIGTERM then does not break into the step."""
    global _saves
    _saves = value


def last_work() -> threading.Lock:
    """Held while the last save is made: the process is not ended from outside meanwhile."""
    return _last_work


def end(code: int = CODE) -> NoReturn:
    """End now: an orderly exit would wait for the other processes of the cluster."""
    for path in list(TEMPORARY):
        shutil.rmtree(path, ignore_errors=True)
    # os._exit leaves out what an exit does, flushing too
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _leave(*_: object) -> None:
    _asked.set()
    if not _saves:
        raise Terminated(CODE)


def _watch(reader: socket.socket, writer: socket.socket) -> None:
    """Write the signal's number here at once (`set_wakeup_fd`), even while the main thread is inside TensorFlow."""
    while reader.recv(1) != bytes([signal.SIGTERM]):
        pass
    _asked.set()
    time.sleep(GRACE_SECONDS)
    # waits for a save that is being made
    with _last_work:
        end()
