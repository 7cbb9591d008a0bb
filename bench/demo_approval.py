"""Show approval and rollback on this machine: a scheduled sweep is evaluated against the registered model, waits, is approved over HTTP, gets
the alias, and is rolled back.

`python bench/demo_approval.py` works in a temporary folder with the local Vertex, the staged function under functions-framework, the
local Cloud Scheduler, and the trainer of this repository.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests
from demo_trigger import REPOSITORY, function, vertexrig, watched

from localvertex import server
from localvertex.jobs.settings import Settings
from vertexrig.waiting import set_wait_printer, waiting

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
    set_wait_printer(lambda line: print(line, file=sys.stderr, flush=True))
    with tempfile.TemporaryDirectory(prefix="vertexrig-demo-") as name:
        folder = Path(name)
        (folder / "vertexrig.yaml").write_text(PROJECT)
        shutil.copytree(REPOSITORY / "trainer_pkg", folder / "trainer_pkg")
        with server.running(Settings(folder / ".vertexrig")) as here:
            env = {**os.environ, **server.env(here, project="demo-project"), "PYTHONPATH": str(REPOSITORY)}
            requests.post(f"{here.url}/storage/v1/b", params={"project": "demo-project"}, json={"name": "demo-bucket"})
            vertexrig(folder, env, "function", "package")
            with function(folder, env, PORT):
                vertexrig(folder, env, "schedule", "apply")
                vertexrig(folder, env, "schedule", "run", "first")
                first = ticked(folder, env, "the first model", lambda rows: next(iter(rows["ended"]), None))
                vertexrig(folder, env, "schedule", "run", "nightly")
                watched(folder, env)
                asked = ticked(folder, env, "the sweep and its evaluation", lambda rows: next((row for row in rows["open"] if row.get("approval")), None))  # fmt: skip
                print(f"\n{asked['approval']}", flush=True)
                assert aliases(here.url, first["end"]["model"], 2) == {"1": ["champion", "default"], "2": []}
                print(f"\n$ curl --json '{{}}' http://127.0.0.1:{PORT}/runs/nightly/approve", flush=True)
                answer = requests.post(f"http://127.0.0.1:{PORT}/runs/nightly/approve", json={}, timeout=60)
                print(answer.status_code, answer.text, flush=True)
                assert aliases(here.url, first["end"]["model"], 2)["2"] == ["champion", "default"]
                vertexrig(folder, env, "schedule", "steps")
                vertexrig(folder, env, "register", "digits", "--rollback")
                found = aliases(here.url, first["end"]["model"], 2)
                assert found["1"] == ["champion", "default"], found
                print(f"aliases of the versions: {found}", flush=True)


def ticked(folder: Path, env: dict[str, str], what: str, wanted: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Fire the tick, which comes once a minute otherwise, until `schedule steps` has a row."""
    until = time.monotonic() + 240
    with waiting(what):
        while (row := wanted(json.loads(vertexrig(folder, env, "schedule", "steps", "--format=json", quiet=True)))) is None:  # fmt: skip
            assert time.monotonic() < until, f"{what} did not come"
            vertexrig(folder, env, "schedule", "run", "tick", quiet=True)
            time.sleep(1)
    return dict(row)


def aliases(url: str, model: str, count: int) -> dict[str, list[str]]:
    """Return the aliases of each version of a model."""
    name = f"{url}{server.AIPLATFORM}/v1/{model.partition('@')[0]}"
    rows = [requests.get(f"{name}@{number}", timeout=60).json() for number in range(1, count + 1)]
    return {row["versionId"]: sorted(row.get("versionAliases", ())) for row in rows}


if __name__ == "__main__":
    main()
