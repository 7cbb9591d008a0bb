"""The queue of jobs: a job starts when all its replicas have a slot, and not before those that came earlier."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_PATIENCE_S = 30.0
"""How long `close` waits for a job: three times the default grace between SIGTERM and SIGKILL. The queue's threads are
daemons: a job that takes longer does not keep the process."""


class Queue:
    """First come, first served, so that no large job starves; each job runs in a thread of its own."""

    def __init__(self, slots: int, run: Callable[[str], None]) -> None:
        self.slots, self._run = max(1, slots), run
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, int]] = deque()
        self._threads: dict[str, tuple[threading.Thread, int]] = {}
        self._closed = False

    def submit(self, name: str, replicas: int) -> bool:
        """Queue a job, and return whether it starts at once. All its replicas start or none; a job with more replicas than there are slots runs alone."""
        with self._lock:
            self._waiting.append((name, min(max(replicas, 1), self.slots)))
            self._pump()
            return name in self._threads

    def withdraw(self, name: str) -> bool:
        """Remove a job from the queue; False if it is not in it."""
        with self._lock:
            found = next((entry for entry in self._waiting if entry[0] == name), None)
            if found is not None:
                self._waiting.remove(found)
                self._pump()
            return found is not None

    def state(self) -> dict[str, int]:
        """Numbers for the status page."""
        with self._lock:
            used = sum(need for _, need in self._threads.values())
            return {"slots": self.slots, "used": used, "running": len(self._threads), "waiting": len(self._waiting)}

    def close(self) -> None:
        """Start nothing more, and wait for what runs."""
        with self._lock:
            self._closed = True
            threads = [thread for thread, _ in self._threads.values()]
        for thread in threads:
            thread.join(_PATIENCE_S)

    def _pump(self) -> None:
        used = sum(need for _, need in self._threads.values())
        # Only the first is looked at: a small job that overtakes would keep a large one waiting for ever.
        while self._waiting and not self._closed and used + self._waiting[0][1] <= self.slots:
            name, need = self._waiting.popleft()
            used += need
            thread = threading.Thread(target=self._work, args=(name,), name=f"job {name}", daemon=True)
            self._threads[name] = (thread, need)
            thread.start()

    def _work(self, name: str) -> None:
        try:
            self._run(name)
        finally:
            with self._lock:
                # Several small jobs may fit where a large one was.
                self._threads.pop(name, None)
                self._pump()
