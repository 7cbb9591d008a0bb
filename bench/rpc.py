"""A call over gRPC against the same call over REST, and what gRPC costs a server at rest.

`python bench/rpc.py` prints one row a line: what | ours | peer | ratio | bar | ok. Both ways use Google's own client of
JobService on one server in a process of its own; the calls take turns. Wall times want an otherwise idle machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from common import REPOSITORY, row
from google.auth.credentials import AnonymousCredentials
from google.cloud.aiplatform_v1 import JobServiceClient
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport, JobServiceRestTransport
from google.cloud.aiplatform_v1.types import CustomJob

sys.path.insert(0, str(REPOSITORY))

from vertexrig.local import server
from vertexrig.local.jobs.settings import Settings

PARENT = "projects/my-project/locations/us-central1"
ROUNDS = 300
"""Calls of each kind that count."""


def clients(here: server.RunningServer) -> dict[str, Any]:
    """Google's client over gRPC and over REST."""
    channel = grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}")
    host = f"{here.url}{server.AIPLATFORM}"
    rest = JobServiceRestTransport(host=host, url_scheme="http", credentials=AnonymousCredentials())
    return {
        "grpc": JobServiceClient(transport=JobServiceGrpcTransport(channel=channel)),
        "rest": JobServiceClient(transport=rest),
    }


def job(number: int) -> CustomJob:
    """A job that is refused when it runs, so that none takes the machine's time."""
    container = {"image_uri": "gcr.io/none/none", "args": [f"--number={number}"]}
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": container}
    return CustomJob(display_name="bench", job_spec={"worker_pool_specs": [pool]})


def medians(here: server.RunningServer) -> dict[str, dict[str, float]]:
    """Median seconds of a call by what is called and over what."""
    both = clients(here)
    name = both["rest"].create_custom_job(parent=PARENT, custom_job=job(0)).name
    calls = {
        "get a job": lambda client, _: client.get_custom_job(name=name),
        "list 20 jobs": lambda client, _: client.list_custom_jobs(request={"parent": PARENT, "page_size": 20}),
        "create a job": lambda client, number: client.create_custom_job(parent=PARENT, custom_job=job(number)),
    }
    found: dict[str, dict[str, float]] = {}
    for what, call in calls.items():
        taken: dict[str, list[float]] = {"grpc": [], "rest": []}
        for number in range(ROUNDS // (3 if what.startswith("create") else 1) + 20):
            for way, client in both.items():
                begun = time.perf_counter()
                call(client, number)
                taken[way].append(time.perf_counter() - begun)
        found[what] = {way: statistics.median(times[20:]) for way, times in taken.items()}
    return found


def main() -> None:
    """Print the rows."""
    print("gRPC beside REST | gRPC | REST | ratio | bar | ok")
    with tempfile.TemporaryDirectory() as folder:
        here = server.up(Settings(Path(folder) / "state", slots=1), 0)
        try:
            status = Path(f"/proc/{here.pid}/status")
            if status.exists():
                time.sleep(1)
                resident = int(status.read_text().partition("VmRSS:")[2].split()[0]) / 1024
                print(row("a server with gRPC at rest", f"{resident:.0f} MiB", "", None, "<= 90 MiB", resident <= 90))
            for what, taken in medians(here).items():
                ours, peer = taken["grpc"], taken["rest"]
                ratio = ours / peer
                print(row(what, f"{ours * 1e3:.2f} ms", f"{peer * 1e3:.2f} ms", ratio, "<= 1.2", ratio <= 1.2))
        finally:
            server.down(here.root)


if __name__ == "__main__":
    main()
