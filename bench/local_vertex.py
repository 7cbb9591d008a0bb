"""The local Vertex: from create to the trainer's first line, a study against its ideal, a full store, a server at rest.

`python bench/local_vertex.py` prints one row a line: what | ours | peer | ratio | bar | ok. The server is a process of
its own on an empty folder; its clients speak HTTP. Wall times want an otherwise idle machine.
"""

from __future__ import annotations

import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import REPOSITORY, row

sys.path.insert(0, str(REPOSITORY))

from localvertex import server
from localvertex.jobs import resources
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore

IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
TASK = "import json, os, sys, time\nexec(sys.argv[1])\n"
SETUP = "from setuptools import setup\nsetup(name='trainer', version='1.0', packages=['trainer'])\n"
FIRST_LINE = "print('at', time.time(), flush=True)"
SLEEP = """
begun = float(sys.argv[2])
time.sleep(begun)
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:
    file.write(json.dumps({'timestamp': time.time(), 'accuracy': '0.5', 'global_step': '1'}) + '\\n')
"""
STUDY = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
    "algorithm": "RANDOM_SEARCH",
}
TRIALS, PARALLEL, LENGTH = 16, 4, 2.0
FINISHED = 1000
MADE = 100_000
PARENT = "/vertex/v1/projects/my-project/locations/us-central1"
ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def call(here: server.RunningServer, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """A request and its JSON; `path` is below the project unless it starts with a slash."""
    data = None if body is None else json.dumps(body).encode()
    url = here.url + (path if path.startswith("/") else f"{PARENT}/{path}")
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def package(path: Path) -> None:
    """A trainer that runs the code of its first argument."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = {"setup.py": SETUP, "trainer/__init__.py": "", "trainer/task.py": TASK}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"trainer-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))


def job(code: str, *args: str) -> dict[str, Any]:
    """A CustomJobSpec of one replica."""
    python = {
        "executorImageUri": IMAGE, "packageUris": ["gs://packages/trainer.tar.gz"], "pythonModule": "trainer.task",
        "args": [code, *args],
    }  # fmt: skip
    return {
        "workerPoolSpecs": [
            {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "pythonPackageSpec": python}
        ]
    }


def create(here: server.RunningServer, code: str, *args: str, name: str = "bench") -> str:
    """Create a job; its resource name."""
    return str(call(here, "POST", "customJobs", {"displayName": name, "jobSpec": job(code, *args)})["name"])


def wait(here: server.RunningServer, name: str) -> dict[str, Any]:
    """A job that has ended, and well."""
    while (found := call(here, "GET", f"/vertex/v1/{name}"))["state"] not in ENDED:
        time.sleep(0.01)
    if found["state"] != "JOB_STATE_SUCCEEDED":
        raise RuntimeError(f"{name}: {found.get('error')}")
    return found


def first_line(here: server.RunningServer) -> float:
    """Seconds from the answer to a create to the trainer's first statement."""
    name = create(here, FIRST_LINE)
    accepted = time.time()
    wait(here, name)
    log = here.root / "jobs" / name.rpartition("/")[2] / "logs" / "workerpool0-0.log"
    return float(log.read_text().partition(" at ")[2].split()[0]) - accepted


def start(here: server.RunningServer) -> list[str]:
    """From create to the first line, the first time and with the package cached."""
    first = first_line(here)
    environments = sorted(path.name for path in (here.root / "envs").iterdir())
    cached = [first_line(here) for _ in range(7)]
    again = sorted(path.name for path in (here.root / "envs").iterdir())
    median = statistics.median(cached)
    return [
        row("create to the trainer's first line, package new", f"{first:.2f} s", "", None, "", None),
        row("create to the trainer's first line, package cached", f"{median:.2f} s", "", None, "≤ 0.2 s", median <= 0.2),
        row("environments built by 7 further submissions", str(len(again) - len(environments)), "", None, "0", again == environments),
    ]  # fmt: skip


def study(here: server.RunningServer) -> list[str]:
    """A study of sleeping trials against trials ÷ parallel × length."""
    ideal, walls = TRIALS / PARALLEL * LENGTH, []
    counts = {"maxTrialCount": TRIALS, "parallelTrialCount": PARALLEL}
    for _ in range(3):
        body = {"displayName": "study", "studySpec": STUDY, "trialJobSpec": job(SLEEP, str(LENGTH)), **counts}
        begun = time.perf_counter()
        done = wait(here, call(here, "POST", "hyperparameterTuningJobs", body)["name"])
        walls.append(time.perf_counter() - begun)
        if [trial["state"] for trial in done["trials"]] != ["SUCCEEDED"] * TRIALS:
            raise RuntimeError(f"not all trials succeeded: {done['trials']}")
    wall = statistics.median(walls)
    what = f"study of {TRIALS} trials of {LENGTH:g} s, {PARALLEL} at a time, against its ideal"
    return [row(what, f"{wall:.2f} s", f"{ideal:.2f} s", wall / ideal, "≤ 1.05", wall / ideal <= 1.05)]


def crowd(here: server.RunningServer) -> list[str]:
    """Twenty creates at once, each kept and run."""
    with ThreadPoolExecutor(20) as threads:
        begun = time.perf_counter()
        names = set(threads.map(lambda _: create(here, "pass", name="crowd"), range(20)))
        seconds = time.perf_counter() - begun
    for name in names:
        wait(here, name)
    listed = call(here, "GET", 'customJobs?filter=display_name="crowd"'.replace('"', "%22"))["customJobs"]
    lost = 20 - len(names & {found["name"] for found in listed})
    return [row("jobs lost of 20 concurrent creates", str(lost), f"all in {seconds:.2f} s", None, "0", lost == 0)]


def fill(root: Path) -> None:
    """Put copies of a job that ended into the store of a server that was stopped, until it holds `FINISHED` jobs."""
    store = ResourceStore(root)
    parent = "projects/" + resources.project_number("my-project") + "/locations/us-central1"
    like = next(iter(store.listed(resources.CUSTOM_JOBS, parent)))
    model = store.get(like.name)
    assert model is not None and model.body["state"] in ENDED
    while store.count(resources.CUSTOM_JOBS) < FINISHED:
        name = resources.new_name(parent, resources.CUSTOM_JOBS)
        store.add(resources.CUSTOM_JOBS, parent, name, {**model.body, "name": name}, model.hidden)
        store.change(name, lambda body, hidden: True)
    store.close()


def suggestions(root: Path) -> list[str]:
    """A suggestion of Vizier for a grid of which 100,000 trials are made, against the first ones of such a grid."""
    rate = {"parameterId": "steps", "integerValueSpec": {"minValue": "1", "maxValue": str(2 * MADE)}}
    grid = {**STUDY, "parameters": [rate], "algorithm": "GRID_SEARCH"}
    with up(root) as here:
        empty, full = (call(here, "POST", "studies", {"displayName": name, "studySpec": grid})["name"] for name in "ab")
    store = ResourceStore(root)
    with store.database.transaction():
        for number in range(1, MADE + 1):
            made = {"id": str(number), "name": f"{full}/trials/{number}", "state": "SUCCEEDED"}
            store.save_trial(full, {**made, "parameters": [{"parameterId": "steps", "value": number}]})
        store.change(full, lambda _, hidden: hidden.update(last=MADE))
    store.close()

    def taken(study: str, count: int) -> float:
        """Median milliseconds of a suggestion, after one that reads the study."""
        seconds = []
        for client in range(21):
            body = {"suggestionCount": count, "clientId": f"{count}-{client}"}
            begun = time.perf_counter()
            call(here, "POST", f"/vertex/v1/{study}/trials:suggest", body)
            seconds.append(time.perf_counter() - begun)
        return 1000 * statistics.median(seconds[1:]) / count

    with up(root) as here:
        first, alone, many = taken(empty, 1), taken(full, 1), taken(full, 100)
    what = f"a suggestion of a grid of which {MADE} trials are made"
    ratio = alone / first
    return [
        row(f"{what}, against the first ones", f"{alone:.2f} ms", f"{first:.2f} ms", ratio, "<= 1.2", ratio <= 1.2),
        row(f"{what}, 100 a call", f"{many:.2f} ms", "", None, "<= 1 ms", many <= 1),
    ]


def listing(here: server.RunningServer) -> list[str]:
    """List and describe with a full store: the slowest of 50."""
    newest = call(here, "GET", "customJobs?pageSize=1")["customJobs"][0]["name"]
    calls = {
        "list, a page of 100": "customJobs",
        "list by display name, all searched": "customJobs?filter=display_name%3Dnone",
        "describe": f"/vertex/v1/{newest}",
    }
    rows_ = []
    for what, path in calls.items():
        taken = []
        for _ in range(50):
            begun = time.perf_counter()
            call(here, "GET", path)
            taken.append(1000 * (time.perf_counter() - begun))
        median, slowest = statistics.median(taken), max(taken)
        what = f"{FINISHED} finished jobs: {what} (slowest of 50)"
        rows_.append(row(what, f"{slowest:.1f} ms", f"median {median:.1f} ms", None, "< 50 ms", slowest < 50))
    return rows_


def rest(here: server.RunningServer, seconds: float = 10.0) -> list[str]:
    """What a server with nothing to do takes."""
    stat = Path(f"/proc/{here.pid}/stat")
    if not stat.is_file():
        return []

    def ticks() -> int:
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(seconds)
    busy = (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds
    status = Path(f"/proc/{here.pid}/status").read_text()
    memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return [
        row("server at rest: memory", f"{memory:.0f} MiB", "", None, "<= 80 MiB", memory <= 80),
        row("server at rest: of one CPU", f"{100 * busy:.1f} %", "", None, "<= 0.5 %", busy <= 0.005),
    ]


def command_line(folder: Path) -> list[str]:
    """What `local run -- true` takes with a server that runs, and with one that it has to start: medians of five, wall and CPU."""
    words = [sys.executable, "-m", "vertexrig", "local"]
    (folder / "vertexrig.yaml").write_text("project: my-project\nregion: us-central1\nbucket: gs://my-bucket\n")

    def taken(*argv: str) -> tuple[float, float]:
        wall, used = [], []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begun = time.perf_counter()
            subprocess.run(argv, cwd=folder, check=True, capture_output=True)
            wall.append(time.perf_counter() - begun)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return statistics.median(wall), statistics.median(used)

    bare, cold = taken("true")[0], taken(*words, "run", "--", "true")
    subprocess.run([*words, "up", "--detach"], cwd=folder, check=True, capture_output=True)
    try:
        warm = taken(*words, "run", "--", "true")
    finally:
        subprocess.run([*words, "down"], cwd=folder, check=True, capture_output=True)
    over = warm[0] - bare
    shown = [f"{seconds:.2f} s ({used:.2f} s CPU)" for seconds, used in ((over, warm[1]), cold)]
    return [
        row("`local run -- true`, server up, over `true`", shown[0], "", None, "<= 0.5 s", over <= 0.5),
        row("`local run -- true`, cold", shown[1], "", None, "<= 3 s", cold[0] <= 3),
    ]


@contextmanager
def up(root: Path) -> Iterator[server.RunningServer]:
    """A server of its own process."""
    try:
        yield server.up(Settings(root, slots=max(PARALLEL, 8)), 0)
    finally:
        server.down(root)


def rows() -> list[str]:
    """All rows, as `common.row` makes them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        package(root / "gs/packages/trainer.tar.gz")
        with up(root) as here:
            found = [*start(here), *study(here), *crowd(here)]
        fill(root)
        with up(root) as here:
            found += [*rest(here), *listing(here)]
        found += suggestions(root)
    with tempfile.TemporaryDirectory() as folder:
        return [*found, *command_line(Path(folder))]


def main() -> None:
    """Print the table."""
    print("local Vertex | ours | peer | ratio | bar |")
    for line in rows():
        print(line, flush=True)


if __name__ == "__main__":
    main()
