"""Run the trigger end to end on this machine, without a cloud account: a scheduled sweep, whose best trial is promoted, evaluated and
registered, and at the same time a sweep that is started over HTTP.

`python bench/demo_trigger.py` works in a temporary folder with the local Vertex, the staged function under functions-framework, the
local Cloud Scheduler, and the trainer of this repository.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from localvertex import server  # noqa: E402
from localvertex.jobs.settings import Settings  # noqa: E402
from vertexrig.waiting import set_wait_printer, waiting  # noqa: E402

PORT = 8644
PROJECT = f"""\
project: demo-project
bucket: gs://demo-bucket
trainer: {{path: trainer_pkg, image: tf-2.17}}
jobs:
  cpu: {{machine_type: n1-standard-4, timeout: 1800s, args: {{epochs: 3}}}}
  measure: {{machine_type: n1-standard-4, timeout: 1800s, args: {{evaluate: true}}}}
sweeps:
  sweep:
    job: cpu
    max_trial_count: 6
    parallel_trial_count: 2
    study:
      metrics: {{accuracy: MAXIMIZE}}
      parameters: {{learning_rate: {{double_value_spec: {{min_value: 0.001, max_value: 0.1}}, scale_type: UNIT_LOG_SCALE}}}}
schedules:
  nightly:
    run: sweep
    cron: "0 3 * * 1-5"
    time_zone: Europe/Berlin
    set: {{max_trial_count: 2}}
    args: {{epochs: 1}}
    then: [promote: {{epochs: 2}}, evaluate: {{job: measure}}, register]
trigger:
  uri: http://127.0.0.1:{PORT}
  tick: "* * * * *"
  allow: {{max_trial_count: {{min: 1, max: 10}}}}
  allow_args: {{epochs: {{min: 1, max: 20}}}}
  budget: {{usd_per_run: 5, usd_per_day: 20, live_jobs: 3}}
"""


def main() -> None:
    """Run the demo."""
    set_wait_printer(lambda line: print(line, file=sys.stderr, flush=True))
    with tempfile.TemporaryDirectory(prefix="vertexrig-demo-") as name:
        folder = Path(name)
        (folder / "vertexrig.yaml").write_text(PROJECT)
        shutil.copytree(REPOSITORY / "trainer_pkg", folder / "trainer_pkg")
        with server.running(Settings(folder / ".vertexrig", at_least_twice=True)) as here:
            env = {**os.environ, **server.env(here, project="demo-project"), "PYTHONPATH": str(REPOSITORY)}
            requests.post(f"{here.url}/storage/v1/b", params={"project": "demo-project"}, json={"name": "demo-bucket"})
            vertexrig(folder, env, "function", "package")
            with function(folder, env):
                scheduled(folder, env)
                over_http(folder, env)
                registered(folder, env, here.url)


def scheduled(folder: Path, env: dict[str, str]) -> None:
    """Create a schedule and its tick, fire it (twice, as may happen), and watch its one sweep until it has ended."""
    vertexrig(folder, env, "schedule", "plan")
    vertexrig(folder, env, "schedule", "apply")
    vertexrig(folder, env, "schedule", "list", "--next=2")
    vertexrig(folder, env, "schedule", "run", "nightly")
    watched(folder, env)


def watched(folder: Path, env: dict[str, str]) -> None:
    """Watch the sweep, once Cloud Scheduler has started it, until it has ended."""
    until = time.monotonic() + 60
    with waiting("Cloud Scheduler, which calls the function"):
        while not vertexrig(folder, env, "jobs", quiet=True).count("sweep"):
            assert time.monotonic() < until, "the schedule started nothing"
            time.sleep(0.3)
    vertexrig(folder, env, "watch", "sweep", "--poll=1")


def over_http(folder: Path, env: dict[str, str]) -> None:
    """Request a sweep over HTTP, repeat the request, send a wrong one, and watch the sweep until it has ended."""
    bodies: tuple[dict[str, Any], ...] = (
        {"run": "sweep", "set": {"max_trial_count": 2}, "args": {"epochs": 8}, "request_id": "demo-1"},
        {"run": "sweep", "set": {"max_trial_count": 2}, "args": {"epochs": 8}, "request_id": "demo-1"},
        {"run": "sweep", "set": {"image": "mine"}},
    )
    for body in bodies:
        print(f"\n$ POST / {body}", flush=True)
        answer = requests.post(f"http://127.0.0.1:{PORT}/", json=body, timeout=60)
        told = answer.json()
        keys = ("name", "state", "duplicate", "estimate", "detail", "findings")
        print(answer.status_code, {key: told[key] for key in keys if key in told}, flush=True)
    vertexrig(folder, env, "watch", "sweep", "--poll=1")
    vertexrig(folder, env, "best", "sweep")
    vertexrig(folder, env, "jobs")


def registered(folder: Path, env: dict[str, str], url: str) -> None:
    """Fire the tick, which comes once a minute otherwise, until the scheduled sweep's best trial is promoted and its model registered."""
    until, before = time.monotonic() + 240, ""
    with waiting("the job of the next step of the nightly sweep"):
        while True:
            told = json.loads(vertexrig(folder, env, "schedule", "steps", "--format=json", quiet=True))
            if ends := told["ended"]:
                break
            if (step := told["open"][0]["step"]) != before:
                before = step
                vertexrig(folder, env, "schedule", "steps")
            assert time.monotonic() < until, "the steps of the nightly sweep did not end"
            vertexrig(folder, env, "schedule", "run", "tick", quiet=True)
            time.sleep(1)
    vertexrig(folder, env, "schedule", "steps")
    end = ends[0]["end"]
    model = requests.get(f"{url}{server.AIPLATFORM}/v1/{end['model']}", timeout=60).json()
    keys = ("displayName", "versionId", "versionAliases", "versionDescription", "artifactUri", "labels")
    print(
        f"\nthe model that ticks registered: {json.dumps({key: model.get(key) for key in keys}, indent=1)}", flush=True
    )
    assert end["outcome"] == "registered" and "champion" in model["versionAliases"], ends


@contextmanager
def function(folder: Path, env: dict[str, str], port: int = PORT) -> Iterator[None]:
    """Serve the staged function."""
    words = [sys.executable, "-m", "vertexrig", "function", "serve", f"--port={port}"]
    print(f"\n$ vertexrig function serve --port={port}", flush=True)
    process = subprocess.Popen(words, cwd=folder, env=env)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                requests.get(f"http://127.0.0.1:{port}/", timeout=5)
                break
            except requests.ConnectionError:
                assert process.poll() is None and time.monotonic() < until, "the function did not start"
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


def vertexrig(folder: Path, env: dict[str, str], *words: str, quiet: bool = False) -> str:
    """Run a command of vertexrig, printed as it would be typed."""
    if not quiet:
        print(f"\n$ vertexrig {shlex.join(words)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "vertexrig", *words], cwd=folder, env=env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None, timeout=900,
    )  # fmt: skip
    if not quiet:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(f"vertexrig {shlex.join(words)} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
