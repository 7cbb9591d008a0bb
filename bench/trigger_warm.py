"""The warm trigger: latency that it adds to the bare API call, 200 concurrent requests, size of the staged folder.

`python bench/trigger_warm.py` prints one row each (bars: 15 ms added at the median; none of 200 failed).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from localvertex import server
from tests.support import clouds, functions
from vertexrig.submit.submission import Request
from vertexrig.trigger import stage

ROUNDS, WARM_UP = 100, 10


def main() -> None:
    """Print the rows."""
    with tempfile.TemporaryDirectory() as name, clouds.cloud(Path(name)) as here:
        root = Path(name)
        staged = stage.stage(clouds.loaded(root), root / "build/function")
        with functions.serving(staged.folder, clouds.variables(here)) as url:
            added, bare = latency(here, url, root)
            failed, seconds = concurrent(url)
    print(f"added to the bare call ({bare:.1f} ms) at the median | {added:.1f} ms | bar 15 ms")
    print(f"200 concurrent different requests | {failed} failed in {seconds:.1f} s | bar 0")
    print(
        f"staged folder | {staged.size / 1024:.0f} KiB, {staged.files} files | {staged.requirements} packages installed"
    )


def latency(here: server.RunningServer, url: str, root: Path) -> tuple[float, float]:
    """Milliseconds that the trigger adds, and those of the bare call, in turns."""
    prepared = clouds.submitter(here, root).prepare_candidates(Request("cpu"))[0]
    create = f"{here.url}{server.AIPLATFORM}/v1/projects/my-project/locations/us-central1/customJobs"
    session = requests.Session()
    calls: dict[str, Callable[[int], requests.Response]] = {
        "bare": lambda n: session.post(create, json={"displayName": "cpu", "jobSpec": prepared.document.data}),
        "ours": lambda n: session.post(url, json={"run": "cpu", "request_id": f"warm-{n}"}),
    }
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    for number in range(ROUNDS + WARM_UP):
        for name, call in calls.items():
            begun = time.perf_counter()
            assert call(number).status_code in (200, 201)
            times[name].append((time.perf_counter() - begun) * 1000)
    bare, ours = (statistics.median(rows[WARM_UP:]) for rows in times.values())
    return ours - bare, bare


def concurrent(url: str) -> tuple[int, float]:
    """How many of 200 concurrent different requests failed, and how long they took."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(200) as pool:
        answers = list(
            pool.map(lambda n: functions.deliver(url, {"run": "cpu", "request_id": f"many-{n}"}), range(200))
        )
    return sum(answer is None or answer.status_code != 201 for answer in answers), time.perf_counter() - begun


if __name__ == "__main__":
    main()
