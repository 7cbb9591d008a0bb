"""What the service fills in of a job where the request has nothing, so that it shows in every answer.

Source: public recordings of 2021 and 2022 (create and get of custom and tuning jobs) show the boot disk filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vertexrig.catalog import load

Json = dict[str, Any]

_PROGRAMS = ("containerSpec", "pythonPackageSpec")
"""The service shows them after the disk."""


def filled(job: Mapping[str, Any]) -> Json:
    """A CustomJobSpec in REST form with the boot disk of every pool that makes machines."""
    pools = [_pool(pool) if pool.get("machineSpec") else pool for pool in job.get("workerPoolSpecs", ())]
    return {**job, "workerPoolSpecs": pools} if pools else dict(job)


def filled_tuning(job: Mapping[str, Any]) -> Json:
    """A HyperparameterTuningJob in REST form with its trials' job filled in."""
    return {**job, "trialJobSpec": filled(job["trialJobSpec"])} if job.get("trialJobSpec") else dict(job)


def _pool(pool: Mapping[str, Any]) -> Json:
    catalog = load()
    disk = {
        "bootDiskType": catalog.default_boot_disk(str(pool["machineSpec"].get("machineType", ""))),
        "bootDiskSizeGb": catalog.limits.integer("boot_disk.default_gb"),
    }
    program = {key: pool[key] for key in _PROGRAMS if key in pool}
    before = {key: value for key, value in pool.items() if key not in program}
    return {**before, "diskSpec": {**disk, **(pool.get("diskSpec") or {})}, **program}
