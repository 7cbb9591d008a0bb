"""Logs of jobs, and the part of Cloud Logging v2 that reads them.

`CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING=http://127.0.0.1:PORT/logging/`.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from vertexrig.local.http import mount
from vertexrig.local.logs.api import LoggingApi
from vertexrig.local.logs.coverage import COVERAGE
from vertexrig.local.logs.store import LogLine, LogStore

__all__ = ["COVERAGE", "LogLine", "LogStore", "routes"]


def routes(store: LogStore, prefix: str = "/logging") -> list[BaseRoute]:
    """The Cloud Logging API over a store.

    Args:
        store: Where the entries are.
        prefix: Where it is mounted.
    """
    return [mount(prefix, LoggingApi(store).table())]
