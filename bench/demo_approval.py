"""Show approval and rollback on this machine: a scheduled sweep is evaluated against the registered model, waits, is approved over HTTP, gets
the alias, and is rolled back.

`python bench/demo_approval.py` works in a temporary folder with the local Vertex, the staged function under functions-framework, the
local Cloud Scheduler, and the trainer of this repository.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests
from _demos import REPOSITORY, function, stack, vertexrig
from demo_trigger import watched

from localvertex.server import AIPLATFORM
from vertexrig.waiting import waiting

PORT = 8646
PROJECT = f"""\
project: demo-project
bucket: gs://demo-bucket
trainer: {{path: trainer_pkg, image: tf-2.17}}
jobs:
  cpu: {{machine_type: n1-standard-4, timeout: 1800s, args: {{epochs: 2}}}}
  weak: {{machine_type: n1-standard-4, timeout: 1800s, args: {{epochs: 1, learning_rate: 0.0001}}}}
  measure: {{machine_type: n1-standard-4, timeout: 1800s, args: {{evaluate: true}}}}
sweeps:
  sweep:
    job: cpu
    max_trial_count: 2
    parallel_trial_count: 2
    study:
      metrics: {{accuracy: MAXIMIZE}}
      parameters: {{learning_rate: {{double_value_spec: {{min_value: 0.001, max_value: 0.003}}, scale_type: UNIT_LOG_SCALE}}}}
schedules:
  first:
    run: weak
    cron: "0 2 1 * *"
    then: [register: {{display_name: digits, metric: accuracy, goal: MAXIMIZE}}]
  nightly:
    run: sweep
    cron: "0 3 * * 1-5"
    then: [evaluate: {{job: measure}}, register: {{display_name: digits, approval: required}}]
trigger:
  uri: http://127.0.0.1:{PORT}
  tick: "* * * * *"
  approvers: ["*"]
"""


def main() -> None:
    """Run the demo."""
    with stack(PROJECT) as (folder, here):
        shutil.copytree(REPOSITORY / "trainer_pkg", folder / "trainer_pkg")
        vertexrig("function", "package")
        with function(PORT):
            vertexrig("schedule", "apply")
            vertexrig("schedule", "run", "first")
            first = ticked("the first model", lambda rows: next(iter(rows["ended"]), None))
            vertexrig("schedule", "run", "nightly")
            watched()
            asked = ticked("the sweep and its evaluation", lambda rows: next((row for row in rows["open"] if row.get("approval")), None))  # fmt: skip
            print(f"\n{asked['approval']}", flush=True)
            assert aliases(here.url, first["end"]["model"], 2) == {"1": ["champion", "default"], "2": []}
            print(f"\n$ curl --json '{{}}' http://127.0.0.1:{PORT}/runs/nightly/approve", flush=True)
            answer = requests.post(f"http://127.0.0.1:{PORT}/runs/nightly/approve", json={}, timeout=60)
            print(answer.status_code, answer.text, flush=True)
            assert aliases(here.url, first["end"]["model"], 2)["2"] == ["champion", "default"]
            vertexrig("schedule", "steps")
            vertexrig("register", "digits", "--rollback")
            found = aliases(here.url, first["end"]["model"], 2)
            assert found["1"] == ["champion", "default"], found
            print(f"aliases of the versions: {found}", flush=True)


def ticked(what: str, wanted: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Fire the tick, which comes once a minute otherwise, until `schedule steps` has a row."""
    until = time.monotonic() + 240
    with waiting(what):
        while (row := wanted(json.loads(vertexrig("schedule", "steps", "--format=json", quiet=True)))) is None:  # fmt: skip
            assert time.monotonic() < until, f"{what} did not come"
            vertexrig("schedule", "run", "tick", quiet=True)
            time.sleep(1)
    return dict(row)


def aliases(url: str, model: str, count: int) -> dict[str, list[str]]:
    """Return the aliases of each version of a model."""
    name = f"{url}{AIPLATFORM}/v1/{model.partition('@')[0]}"
    rows = [requests.get(f"{name}@{number}", timeout=60).json() for number in range(1, count + 1)]
    return {row["versionId"]: sorted(row.get("versionAliases", ())) for row in rows}


if __name__ == "__main__":
    main()
