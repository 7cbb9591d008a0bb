"""Run the trigger end to end on this machine, without a cloud account: a scheduled sweep, whose best trial is promoted, evaluated and
registered, and at the same time a sweep that is started over HTTP.

`python bench/demo_trigger.py` works in a temporary folder with the local Vertex, the staged function under functions-framework, the
local Cloud Scheduler, and the trainer of this repository.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import requests
from _demos import REPOSITORY, function, stack, vertexrig

from localvertex.server import AIPLATFORM
from vertexrig.waiting import waiting

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
    with stack(PROJECT, at_least_twice=True) as (folder, here):
        shutil.copytree(REPOSITORY / "trainer_pkg", folder / "trainer_pkg")
        vertexrig("function", "package")
        with function(PORT):
            scheduled()
            over_http()
            registered(here.url)


def scheduled() -> None:
    """Create a schedule and its tick, fire it (twice, as may happen), and watch its one sweep until it has ended."""
    vertexrig("schedule", "plan")
    vertexrig("schedule", "apply")
    vertexrig("schedule", "list", "--next=2")
    vertexrig("schedule", "run", "nightly")
    watched()


def watched() -> None:
    """Watch the sweep, once Cloud Scheduler has started it, until it has ended."""
    until = time.monotonic() + 60
    with waiting("Cloud Scheduler, which calls the function"):
        while not vertexrig("jobs", quiet=True).count("sweep"):
            assert time.monotonic() < until, "the schedule started nothing"
            time.sleep(0.3)
    vertexrig("watch", "sweep", "--poll=1")


def over_http() -> None:
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
    vertexrig("watch", "sweep", "--poll=1")
    vertexrig("best", "sweep")
    vertexrig("jobs")


def registered(url: str) -> None:
    """Fire the tick, which comes once a minute otherwise, until the scheduled sweep's best trial is promoted and its model registered."""
    until, before = time.monotonic() + 240, ""
    with waiting("the job of the next step of the nightly sweep"):
        while True:
            told = json.loads(vertexrig("schedule", "steps", "--format=json", quiet=True))
            if ends := told["ended"]:
                break
            if (step := told["open"][0]["step"]) != before:
                before = step
                vertexrig("schedule", "steps")
            assert time.monotonic() < until, "the steps of the nightly sweep did not end"
            vertexrig("schedule", "run", "tick", quiet=True)
            time.sleep(1)
    vertexrig("schedule", "steps")
    end = ends[0]["end"]
    model = requests.get(f"{url}{AIPLATFORM}/v1/{end['model']}", timeout=60).json()
    keys = ("displayName", "versionId", "versionAliases", "versionDescription", "artifactUri", "labels")
    print(
        f"\nthe model that ticks registered: {json.dumps({key: model.get(key) for key in keys}, indent=1)}", flush=True
    )
    assert end["outcome"] == "registered" and "champion" in model["versionAliases"], ends


if __name__ == "__main__":
    main()
