"""Studies made by a formula: tuning jobs as the API lists them, for tests of what is said about a study afterwards."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from vertexrig import times
from vertexrig.cloud.vertex import RemoteJob

NAME = "projects/352495983800/locations/us-central1/hyperparameterTuningJobs/4242"
BEGAN = 1_795_000_000.0
LEARNING_RATE = {
    "parameterId": "learning_rate",
    "doubleValueSpec": {"minValue": 0.0001, "maxValue": 0.1},
    "scaleType": "UNIT_LOG_SCALE",
}
BATCH = {"parameterId": "batch_size", "discreteValueSpec": {"values": [16, 32, 64, 128]}}
UNITS = {"parameterId": "units", "integerValueSpec": {"minValue": 8, "maxValue": 256}, "scaleType": "UNIT_LINEAR_SCALE"}
OPTIMIZER = {
    "parameterId": "optimizer",
    "categoricalValueSpec": {"values": ["adam", "sgd"]},
    "conditionalParameterSpecs": [
        {
            "parentCategoricalValues": {"values": ["sgd"]},
            "parameterSpec": {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0, "maxValue": 0.99}},
        }
    ],
}
TRIAL_SPEC = {
    "workerPoolSpecs": [
        {
            "machineSpec": {
                "machineType": "n1-standard-8",
                "acceleratorType": "NVIDIA_TESLA_T4",
                "acceleratorCount": 1,
            },
            "replicaCount": "1",
            "pythonPackageSpec": {
                "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest",
                "packageUris": ["gs://my-bucket/packages/trainer-0123.tar.gz"],
                "pythonModule": "trainer.task",
                "args": ["--epochs=15"],
            },
        }
    ],
    "scheduling": {"timeout": "3600s"},
    "baseOutputDirectory": {"outputUriPrefix": "gs://my-bucket/runs/sweep"},
}


def tuning_job(
    trials: int = 40, *, parallel: int = 4, points: int = 12, seed: int = 1, two_goals: bool = False, running: int = 0
) -> dict[str, Any]:
    """A study of `trials` trials, of which every eleventh is infeasible and the last `running` still run."""
    rng = random.Random(seed)
    free = [BEGAN + 176.0] * parallel
    listed = []
    for number in range(1, trials + 1):
        slot = min(range(parallel), key=free.__getitem__)
        start = free[slot]
        values = _values(rng)
        length = 240 + values["units"] + rng.gauss(0, 12)
        free[slot] = start + length + rng.choice([142, 145, 148, 167, 204])
        listed.append(_trial(number, values, start, start + length, points, rng, two_goals))
    for trial in listed[trials - running :]:
        trial["state"] = "ACTIVE"
        for key in ("endTime", "finalMeasurement", "infeasibleReason"):
            trial.pop(key, None)
    metrics = [{"metricId": "accuracy", "goal": "MAXIMIZE"}]
    metrics += [{"metricId": "latency_ms", "goal": "MINIMIZE"}] if two_goals else []
    state = "JOB_STATE_RUNNING" if running else "JOB_STATE_SUCCEEDED"
    return {
        "name": NAME,
        "displayName": "sweep",
        "state": state,
        "createTime": times.rfc3339(BEGAN),
        "startTime": times.rfc3339(BEGAN, 0),
        **({} if running else {"endTime": times.rfc3339(max(free), 0)}),
        "maxTrialCount": trials,
        "parallelTrialCount": parallel,
        "studySpec": {"metrics": metrics, "parameters": [LEARNING_RATE, BATCH, UNITS, OPTIMIZER]},
        "trialJobSpec": TRIAL_SPEC,
        "trials": listed,
    }


def _values(rng: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {
        "learning_rate": 10 ** rng.uniform(-4, -1),
        "batch_size": float(rng.choice([16, 32, 64, 128])),
        "units": rng.randint(8, 256),
        "optimizer": rng.choice(["adam", "sgd"]),
    }
    if values["optimizer"] == "sgd":
        values["momentum"] = rng.uniform(0, 0.99)
    return values


def _trial(
    number: int, values: dict[str, Any], start: float, end: float, points: int, rng: random.Random, two_goals: bool
) -> dict[str, Any]:
    peak = 0.95 - 0.09 * (math.log10(values["learning_rate"]) + 2.5) ** 2
    peak += 0.02 * (values["optimizer"] == "sgd") * values.get("momentum", 0) + 0.0001 * values["units"]
    peak = min(0.99, max(0.1, peak + rng.gauss(0, 0.01)))
    curve = [peak * (1 - math.exp(-3.5 * (step + 1) / points)) + rng.gauss(0, 0.004) for step in range(points)]

    def measured(step: int) -> dict[str, Any]:
        metrics = [{"metricId": "accuracy", "value": curve[step]}]
        metrics += [{"metricId": "latency_ms", "value": 2 + values["units"] / 20}] if two_goals else []
        elapsed = times.duration((end - start) * (step + 1) / points)
        return {"stepCount": str(step + 1), "elapsedDuration": elapsed, "metrics": metrics}

    trial = {
        "id": str(number),
        "state": "SUCCEEDED",
        "parameters": [{"parameterId": name, "value": value} for name, value in values.items()],
        "startTime": times.rfc3339(start),
        "endTime": times.rfc3339(end, 0),
        "measurements": [measured(step) for step in range(points)],
        "finalMeasurement": measured(points - 1),
    }
    if number % 11 == 0:
        del trial["finalMeasurement"]
        reason = "Replicas low on memory: workerpool0. Specify a machine with larger memory and try again."
        trial |= {"state": "INFEASIBLE", "infeasibleReason": reason}
    return trial


def remote(**more: Any) -> RemoteJob:
    """The same as a job of Vertex AI."""
    return RemoteJob(tuning_job(**more))


def keep(folder: Path, job: dict[str, Any], *, name: str = "sweep") -> None:
    """Put a job into the history of the project in `folder`, as if it had been rehearsed there."""
    record = {"name": name, "resource": job, "run": "", "output": "", "metrics": {}, "differences": []}
    history = folder / ".vertexrig/history"
    history.mkdir(parents=True, exist_ok=True)
    (history / f"{job['name'].rpartition('/')[2]}.json").write_text(json.dumps(record), encoding="utf-8")
