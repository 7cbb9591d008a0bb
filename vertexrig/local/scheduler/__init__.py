"""Cloud Scheduler v1 of the local Vertex: really fires HTTP targets on this machine.

`CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER=http://127.0.0.1:PORT/scheduler/`; google-cloud-scheduler takes the REST
transport with `api_endpoint="http://127.0.0.1:PORT/scheduler"`.
"""

from __future__ import annotations

from vertexrig.local.scheduler.api import SchedulerApi
from vertexrig.local.scheduler.coverage import COVERAGE
from vertexrig.local.scheduler.engine import SchedulerEngine
from vertexrig.local.scheduler.store import JobStore

__all__ = ["COVERAGE", "JobStore", "SchedulerApi", "SchedulerEngine"]
