"""A few valid specs, and edits of them.

A path such as `workerPoolSpecs[0].machineSpec.machineType` is set to the value beside it; `DROP` removes it.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import yaml

DROP = object()
TODAY = date(2026, 6, 1)  # before the newest prebuilt images end: a valid spec gives no warning
LATER = date(2026, 11, 20)

IMAGE = "us-docker.pkg.dev/my-project/trainers/digits:v1"
PREBUILT = "us-docker.pkg.dev/vertex-ai/training"
REDUCER = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
SCHEDULING = {"timeout": "3600s"}
OUTPUT = {"outputUriPrefix": "gs://my-bucket/digits"}


def pool(machine: str, count: int = 1, image: str = IMAGE, **spec: Any) -> dict[str, Any]:
    return {
        "machineSpec": {"machineType": machine, **spec},
        "replicaCount": count,
        "containerSpec": {"imageUri": image, "args": ["--epochs=3"]},
    }


def job(*pools: dict[str, Any]) -> dict[str, Any]:
    return {"workerPoolSpecs": list(pools), "scheduling": dict(SCHEDULING), "baseOutputDirectory": dict(OUTPUT)}


def python_pool(machine: str, image: str, **spec: Any) -> dict[str, Any]:
    return {
        "machineSpec": {"machineType": machine, **spec},
        "replicaCount": 1,
        "pythonPackageSpec": {
            "executorImageUri": f"{PREBUILT}/{image}",
            "packageUris": ["gs://my-bucket/packages/trainer-0.1.0.tar.gz"],
            "pythonModule": "trainer.task",
            "args": ["--epochs=3"],
        },
    }


T4: dict[str, Any] = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}
L4: dict[str, Any] = {"acceleratorType": "NVIDIA_L4", "acceleratorCount": 1}
H100: dict[str, Any] = {"acceleratorType": "NVIDIA_H100_80GB", "acceleratorCount": 8}
STUDY = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [
        {
            "parameterId": "learning_rate",
            "doubleValueSpec": {"minValue": 0.001, "maxValue": 1},
            "scaleType": "UNIT_LOG_SCALE",
        }
    ],
}


def sweep(trial_job: dict[str, Any]) -> dict[str, Any]:
    return {
        "studySpec": copy.deepcopy(STUDY),
        "maxTrialCount": 20,
        "parallelTrialCount": 2,
        "maxFailedTrialCount": 5,
        "trialJobSpec": trial_job,
    }


TRAINER_IMAGE = f"{PREBUILT}/tf-cpu.2-17.py310:latest"
TRAINER_POOL: dict[str, Any] = {
    "machineSpec": {"machineType": "n1-standard-8"},
    "replicaCount": 1,
    "pythonPackageSpec": {
        "executorImageUri": TRAINER_IMAGE,
        "packageUris": ["gs://bucket/trainer-0.1.0.tar.gz"],
        "pythonModule": "trainer.task",
        "args": [],
    },
}
TRAINER_JOB: dict[str, Any] = {
    "workerPoolSpecs": [TRAINER_POOL],
    "scheduling": {"timeout": "3600s"},
    "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/out"},
}
TRAINER_STUDY: dict[str, Any] = {
    "displayName": "study",
    "maxTrialCount": 40,
    "parallelTrialCount": 4,
    "maxFailedTrialCount": 4,
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {
                "parameterId": "learning_rate",
                "doubleValueSpec": {"minValue": 0.001, "maxValue": 1},
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterId": "num_units", "discreteValueSpec": {"values": [64, 128, 512]}},
        ],
    },
    "trialJobSpec": TRAINER_JOB,
}

BASES: dict[str, dict[str, Any]] = {
    "cpu": job(pool("n1-standard-8")),
    "python": job(python_pool("n1-standard-8", "tf-cpu.2-17.py310:latest")),
    "gpu": job(pool("n1-standard-8", **T4)),
    "python-gpu": job(python_pool("n1-standard-8", "tf-gpu.2-17.py310:latest", **T4)),
    "l4": job(pool("g2-standard-8", **L4)),
    "h100": job(pool("a3-highgpu-8g", **H100)),
    "workers": job(pool("n1-standard-8", **T4), pool("n1-standard-8", 2, **T4)),
    "servers": job(pool("n1-standard-8"), pool("n1-standard-8", 2), pool("n1-standard-8"), pool("n1-standard-8")),
    "reduction": job(pool("n1-standard-8", **T4), pool("n1-standard-8", 2, **T4), pool("n1-highcpu-16", 2, REDUCER)),
    "tpu-v3": job(pool("cloud-tpu", acceleratorType="TPU_V3", acceleratorCount=8)),
    "tpu-v5e": job(pool("ct5lp-hightpu-4t", tpuTopology="2x2")),
    "tpu-v6e": job(pool("ct6e-standard-8t", tpuTopology="2x4")),
    "tpu-image": job(
        python_pool("cloud-tpu", "tf-tpu.2-15.cp310:latest", acceleratorType="TPU_V2", acceleratorCount=8)
    ),
    "sweep": sweep(job(pool("n1-standard-8"))),
    "sweep-gpu": sweep(job(pool("n1-standard-8", **T4))),
}
VALID = tuple(BASES)
BASES |= {"job": TRAINER_JOB, "study": TRAINER_STUDY}
"""With a trainer's package, for rules that read its source."""

M0 = "workerPoolSpecs[0].machineSpec"
M1 = "workerPoolSpecs[1].machineSpec"
C0 = "workerPoolSpecs[0].containerSpec"
P0 = "workerPoolSpecs[0].pythonPackageSpec"
D0 = "workerPoolSpecs[0].diskSpec"
T = "trialJobSpec."


def edited(base: str, edits: Mapping[str, Any]) -> str:
    """The YAML text of a base after edits."""
    return yaml.safe_dump(changed(BASES[base], edits), sort_keys=False)


def changed(base: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `base` with the value at each path (`a.b[0].c`) set, added or removed."""
    data: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in edits.items():
        steps: list[Any] = [
            int(step[1:-1]) if step.startswith("[") else step for step in re.findall(r"\[\d+\]|[^.\[\]]+", path)
        ]
        place: Any = data
        for step, following in itertools.pairwise(steps):
            if isinstance(place, dict):
                place = place.setdefault(step, [] if isinstance(following, int) else {})
            else:
                place = place[step]
        last = steps[-1]
        if value is DROP:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(copy.deepcopy(value))
        else:
            place[last] = copy.deepcopy(value)
    return data
