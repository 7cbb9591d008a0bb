"""What the rows create on the real service, and what that costs at most by the catalog's prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tools.fidelity.manifest import Manifest, ManifestRow, Script
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.spec import estimate as prices

_WORK: Mapping[str, Literal["CustomJobSpec", "HyperparameterTuningJob"]] = {
    "customJobs": "CustomJobSpec",
    "hyperparameterTuningJobs": "HyperparameterTuningJob",
    "trainingPipelines": "CustomJobSpec",
}


@dataclass(frozen=True)
class Creation:
    """One thing that a script creates.

    Args:
        script: The script.
        what: Such as `customJobs`.
        jobs: Jobs at most: trials of a study.
        usd: What it costs at most, each job until its timeout.
        complete: Whether everything has a price.
    """

    script: str
    what: str
    jobs: int
    usd: float
    complete: bool


def creations(manifest: Manifest, rows: Sequence[ManifestRow], region: str) -> list[Creation]:
    """Return what rows create in the cloud; scripts that only run here create nothing there."""
    names = dict.fromkeys(row.run for row in rows if row.run)
    scripts = [manifest.scripts[name] for name in names if not manifest.scripts[name].only_local]
    return [made for script in scripts for made in _of(script, region)]


def _of(script: Script, region: str) -> list[Creation]:
    found = []
    for step in script.steps.values():
        path = str(step.get("path", ""))
        collection = path.rpartition("/")[2]
        if collection in _WORK and "body" in step:
            found.append(_priced(script.name, collection, step["body"], region))
        elif "config" in step and "hp-tuning-jobs" in step["gcloud"]:
            counts = {"maxTrialCount": 2, "parallelTrialCount": 1}
            found.append(_priced(script.name, "hyperparameterTuningJobs", {**counts, **step["config"]}, region))
        elif "config" in step:
            found.append(_priced(script.name, "customJobs", {"jobSpec": step["config"]}, region))
        # sdk.py runs three jobs at most, such as a pipeline and a study of two trials; its requests are not in the script.
        elif "sdk" in step:
            pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}
            job = {"jobSpec": {"scheduling": {"timeout": "600s"}, "workerPoolSpecs": [pool]}}
            found += [_priced(script.name, kind, job, region) for kind in ("trainingPipelines", "trial", "trial")]
        elif collection.startswith("o?uploadType"):
            found.append(Creation(script.name, "an object of a few bytes", 0, 0.0, True))
        elif collection == "jobs" and "body" in step:
            found.append(Creation(script.name, "a schedule, deleted at once", 0, 0.0, True))
    return found


def _priced(script: str, collection: str, body: Mapping[str, Any], region: str) -> Creation:
    kind = _WORK.get(collection, "CustomJobSpec")
    # A custom job, a pipeline, or a tuning job, which is its own spec.
    inner = body.get("jobSpec") or body.get("trainingTaskInputs") or body
    document = spec.from_data(
        {key: value for key, value in inner.items() if key not in ("displayName", "labels")}, kind=kind
    )
    price = prices.elsewhere(prices.estimate(document, load()), region, None)
    return Creation(script, collection, price.trials or 1, price.usd_at_most, price.complete)
