"""Cloud Scheduler v1 of the local Vertex: really fires HTTP targets on this machine.

`CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER=http://127.0.0.1:PORT/scheduler/`; google-cloud-scheduler takes the REST
transport with `api_endpoint="http://127.0.0.1:PORT/scheduler"`.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from vertexrig.local.http import mount
from vertexrig.local.scheduler.api import SchedulerApi
from vertexrig.local.scheduler.coverage import COVERAGE
from vertexrig.local.scheduler.delivery import Options
from vertexrig.local.scheduler.engine import SchedulerEngine
from vertexrig.local.scheduler.store import JobStore

__all__ = ["COVERAGE", "JobStore", "Options", "SchedulerEngine", "routes"]


def routes(engine: SchedulerEngine, prefix: str = "/scheduler") -> list[BaseRoute]:
    """The Cloud Scheduler API over an engine, whose `running()` the application's lifespan enters.

    Args:
        engine: The engine and, through it, the store.
        prefix: Where it is mounted.
    """
    return [mount(prefix, SchedulerApi(engine).table())]
