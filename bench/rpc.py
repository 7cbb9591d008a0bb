"""Calls over gRPC against the same over REST, through `local run`.

`python bench/rpc.py` prints one row a line: what | ours | peer | ratio | bar | ok. Both ways use Google's own client of
JobService, unchanged, in a process with the variables of `local run`; batches of calls take turns. Wall times want an otherwise
idle machine; processor time, of server and client together, does not, and is given beside them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import REPOSITORY, row

sys.path.insert(0, str(REPOSITORY))

PARENT = "projects/my-project/locations/us-central1"
BATCHES, CALLS = 9, 40
"""Batches of each kind of call and way, after one that does not count, and calls in a batch."""
Call = Callable[[Any, int], object]


def job(number: int) -> Any:
    """A job that is refused when it runs, so that none takes the machine's time."""
    from google.cloud.aiplatform_v1.types import CustomJob

    container = {"image_uri": "gcr.io/none/none", "args": [f"--number={number}"]}
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": container}
    return CustomJob(display_name="bench", job_spec={"worker_pool_specs": [pool]})


def processor(pid: int) -> float:
    """Seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def batch(call: Call, client: Any, pid: int) -> tuple[float, float]:
    """Median wall seconds of a call of a batch, and processor seconds of server and client for each."""
    taken, begun = [], processor(pid) + time.process_time()
    for number in range(CALLS):
        start = time.perf_counter()
        call(client, number)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), (processor(pid) + time.process_time() - begun) / CALLS


def client(pid: int) -> None:
    """The program under `local run`: prints what each kind of call took, by way, and the errors of 200 calls at once."""
    from google.api_core.client_options import ClientOptions
    from google.cloud.aiplatform_v1 import JobServiceClient

    options = ClientOptions(api_endpoint="us-central1-aiplatform.googleapis.com")
    both = {way: JobServiceClient(transport=way, client_options=options) for way in ("grpc", "rest")}
    name = both["rest"].create_custom_job(parent=PARENT, custom_job=job(0)).name
    calls: dict[str, Call] = {
        "get a job": lambda client, _: client.get_custom_job(name=name),
        "list 20 jobs": lambda client, _: client.list_custom_jobs(request={"parent": PARENT, "page_size": 20}),
        "create a job": lambda client, number: client.create_custom_job(parent=PARENT, custom_job=job(number)),
    }
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for what, call in calls.items():
        taken: dict[str, list[tuple[float, float]]] = {"grpc": [], "rest": []}
        for _ in range(BATCHES + 1):
            for way, one in both.items():
                taken[way].append(batch(call, one, pid))
        found[what] = {
            way: (statistics.median(wall for wall, _ in rows[1:]), statistics.mean(cpu for _, cpu in rows[1:]))
            for way, rows in taken.items()
        }

    def one_of_many(_: int) -> str | None:
        try:
            both["grpc"].get_custom_job(name=name, timeout=120, retry=None)
        except Exception as error:
            return str(error)
        return None

    with ThreadPoolExecutor(200) as threads:
        errors = [error for error in threads.map(one_of_many, range(200)) if error]
    print(json.dumps({"calls": found, "errors": errors}))


def main() -> None:
    """Print the rows."""
    from localvertex import server
    from localvertex.front.variables import transparent
    from localvertex.jobs.settings import Settings

    print("gRPC beside REST, through local run | gRPC | REST | ratio | bar | ok")
    with tempfile.TemporaryDirectory() as folder:
        here = server.up(Settings(Path(folder) / "state", slots=1), 0)
        try:
            env = transparent(here, os.environ, project="my-project", region="us-central1").over(os.environ)
            words = [sys.executable, __file__, "--client", str(here.pid)]
            done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout)
            for what, taken in found["calls"].items():
                for kind, place in (("", 0), (", processor time", 1)):
                    ours, peer = taken["grpc"][place], taken["rest"][place]
                    ratio = ours / peer
                    cells = (f"{ours * 1e3:.2f} ms", f"{peer * 1e3:.2f} ms")
                    print(row(what + kind, *cells, ratio, "<= 1.2", ratio <= 1.2))
            errors = found["errors"]
            print(row("200 calls at once: errors", str(len(errors)), "", None, "0", not errors))
        finally:
            server.down(here.root)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        client(int(sys.argv[2]))
    else:
        main()
