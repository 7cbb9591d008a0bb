"""Loopback ports for replicas, taken from below the range the system gives to outgoing connections."""

from __future__ import annotations

import random
import socket
import threading

from vertexrig.errors import JobFailedError

# Linux gives 32768 to 60999 to outgoing connections (ip_local_port_range, kernel's ip-sysctl).
_LOW, _HIGH = 20000, 32000
_lock = threading.Lock()
_taken: set[int] = set()


def _is_free(port: int) -> bool:
    # 127.0.0.1 is free while a server listens on another address of this machine, but TensorFlow's server binds 0.0.0.0
    for host in ("127.0.0.1", "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # a port in TIME_WAIT, after a replica that has just ended, is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def take(count: int) -> list[int]:
    """Return `count` ports on which no program listens and that no other job of this process has.

    Raises:
        JobFailedError: There are not that many.
    """
    ports: list[int] = []
    with _lock:
        # At random, because another process cannot see what is taken here but not yet listened on.
        for port in random.sample(range(_LOW, _HIGH), _HIGH - _LOW):
            if len(ports) == count:
                break
            if port not in _taken and _is_free(port):
                ports.append(port)
        if len(ports) < count:
            raise JobFailedError(f"{count} loopback ports are needed and {len(ports)} are free")
        _taken.update(ports)
    return ports


def give_back(ports: list[int]) -> None:
    """Let other jobs use them."""
    with _lock:
        _taken.difference_update(ports)
