"""Logs of jobs, and the part of Cloud Logging v2 that reads them.

`CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING=http://127.0.0.1:PORT/logging/`.
"""

from __future__ import annotations

from vertexrig.local.logs.api import LoggingApi
from vertexrig.local.logs.coverage import COVERAGE
from vertexrig.local.logs.store import LogStore

__all__ = ["COVERAGE", "LogStore", "LoggingApi"]
