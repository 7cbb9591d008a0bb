"""A sweep on a local Vertex, and its picture in the console: a logistic regression whose rate and penalty are searched."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import httpx

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.browser import chromium
from vertexrig.project.local import LocalImage

IMAGE = "us-docker.pkg.dev/my-project/images/logistic:1"
PLACE = "projects/my-project/locations/us-central1"
TRAINER = """
import argparse, math, random
import hypertune

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--penalty", type=float, default=0.01)
parser.add_argument("--batch_size", type=lambda text: int(float(text)), default=16)
args = parser.parse_args()
source = random.Random(1)
points = [[source.gauss(0, 1) for _ in range(6)] for _ in range(600)]
answers = [int(x[0] - 0.7 * x[1] + 0.4 * x[2] * x[2] + source.gauss(0, 0.4) > 0.3) for x in points]
rows = [(1.0, *x, *(one * one for one in x)) for x in points]
weights = [0.0] * len(rows[0])

def chance(row):
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, sum(w * x for w, x in zip(weights, row))))))

order = random.Random(2)
for epoch in range(1, 4):
    for _ in range(400 // args.batch_size):
        batch = [order.randrange(400) for _ in range(args.batch_size)]
        for at in range(len(weights)):
            slope = sum((chance(rows[i]) - answers[i]) * rows[i][at] for i in batch) / len(batch)
            weights[at] -= args.learning_rate * (slope + args.penalty * weights[at])
    right = sum((chance(rows[i]) > 0.5) == bool(answers[i]) for i in range(400, 600)) / 200
    print(f"epoch {epoch}: accuracy {right:.3f}", flush=True)
    hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", right, epoch)
"""
SPACE = [
    {
        "parameterId": "learning_rate",
        "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0},
        "scaleType": "UNIT_LOG_SCALE",
    },
    {"parameterId": "penalty", "doubleValueSpec": {"minValue": 0.0001, "maxValue": 0.3}, "scaleType": "UNIT_LOG_SCALE"},
    {"parameterId": "batch_size", "discreteValueSpec": {"values": [8, 16, 32, 64]}},
]
TRIALS = 16
SIZE = {"width": 1360, "height": 1290}
LONGEST_WAIT = 300


def photograph(target: Path) -> None:
    """Run the sweep on a separate server, and write the first screen of its page as PNG.

    Args:
        target: The picture's file.
    """
    with tempfile.TemporaryDirectory(prefix="vertexrig-console-") as folder:
        image = Path(folder) / "image"
        image.mkdir()
        (image / "main.py").write_text(TRAINER, encoding="utf-8")
        images = {"*logistic*": LocalImage(str(image), (sys.executable, "main.py"))}
        settings = Settings(Path(folder) / ".vertexrig", slots=4, options=RunOptions(images=images))
        with server.running(settings) as here, httpx.Client(base_url=f"{here.url}/vertex/v1", timeout=60) as client:
            pools = {"workerPoolSpecs": [_pool()]}
            _ended(client, _create(client, "customJobs", {"displayName": "baseline", "jobSpec": pools}))
            study = {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}], "parameters": SPACE}
            counts = {"maxTrialCount": TRIALS, "parallelTrialCount": 4}
            body = {"displayName": "sweep", "studySpec": study, "trialJobSpec": pools, **counts}
            name = _create(client, "hyperparameterTuningJobs", body)
            _ended(client, name)
            with chromium() as browser:
                page = browser.new_page(viewport=SIZE, color_scheme="light")
                page.goto(f"{here.url}/#/jobs/{name}")
                page.locator("#chart-history-0 svg").wait_for()
                page.locator("#chart-parallel svg").wait_for()
                page.screenshot(path=str(target))


def _pool() -> dict[str, object]:
    container = {"imageUri": IMAGE, "command": [], "args": []}
    return {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": container}


def _create(client: httpx.Client, collection: str, body: dict[str, object]) -> str:
    answer = client.post(f"/{PLACE}/{collection}", json=body)
    if answer.status_code != 200:
        raise SystemExit(f"the local Vertex refused the {collection} of the picture: {answer.text}")
    return str(answer.json()["name"])


def _ended(client: httpx.Client, name: str) -> None:
    until = time.monotonic() + LONGEST_WAIT
    while not (state := str(client.get(f"/{name}").json()["state"])).endswith(("SUCCEEDED", "FAILED", "CANCELLED")):
        if time.monotonic() > until:
            raise SystemExit(f"{name} is still {state} after {LONGEST_WAIT} s")
        time.sleep(0.1)
    if not state.endswith("SUCCEEDED"):
        raise SystemExit(f"{name} ended as {state}: it is not drawn")
