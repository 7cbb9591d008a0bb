"""The quota a job needs: exact metrics and amounts."""

from __future__ import annotations

from typing import Any

from tests.vertexrig.checks.job_bases import edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.spec.quota import QuotaNeed, quota_needs

_PREFIX = "aiplatform.googleapis.com/custom_model_training_"


def needed(base: str, edits: dict[str, Any] | None = None, region: str = "us-central1") -> dict[str, QuotaNeed]:
    document = spec.parse(edited(base, edits or {}))
    return {need.item: need for need in quota_needs(document, load(), region)}


def test_gpus_are_counted_over_replicas_and_pools() -> None:
    """One chief and two workers with a T4 each need three T4 and 24 vCPUs, against the region's defaults."""
    found = needed("workers")
    gpus, cpus, disks = found["NVIDIA_TESLA_T4"], found["n1"], found["pd-ssd"]
    assert (gpus.metric, gpus.amount, gpus.unit, gpus.default) == (_PREFIX + "nvidia_t4_gpus", 3, "GPUs", 12)
    assert (cpus.metric, cpus.amount, cpus.default) == (_PREFIX + "cpus", 24, 2200)
    assert (disks.amount, disks.unit, disks.default) == (300, "GB", 75000)
    assert gpus.path == "workerPoolSpecs[0].machineSpec.acceleratorType"


def test_parallel_trials_multiply() -> None:
    """Three parallel trials of one T4 need three; never more than there are trials."""
    assert needed("sweep-gpu", {"parallelTrialCount": 3})["NVIDIA_TESLA_T4"].amount == 3
    assert needed("sweep-gpu", {"parallelTrialCount": 30, "maxTrialCount": 5})["NVIDIA_TESLA_T4"].amount == 5
    assert "3 parallel trials" in needed("sweep-gpu", {"parallelTrialCount": 3})["NVIDIA_TESLA_T4"].needed_by


def test_machine_families_that_share_a_quota_are_added() -> None:
    """N1 and E2 vCPUs need one metric."""
    found = needed("servers", {"workerPoolSpecs[1].machineSpec.machineType": "e2-standard-4"})
    assert found["n1 and e2"].amount == 8 + 2 * 4 + 8 + 8


def test_spot_draws_the_preemptible_metric() -> None:
    """SPOT needs preemptible vCPUs, of which a new project has 1 in every region; its disks are needed as ever."""
    found = needed("cpu", {"scheduling.strategy": "SPOT"})
    assert (found["n1"].metric, found["n1"].default) == (_PREFIX + "preemptible_cpus", 1)
    assert needed("cpu", {"scheduling.strategy": "SPOT"}, region="")["n1"].default is None
    assert found["pd-ssd"].default == 75000 and not found["pd-ssd"].preemptible


def test_tpu_slices_draw_cores_or_chips() -> None:
    """v3 needs cores by count, v5e chips by topology, and neither needs machines."""
    v3 = needed("tpu-v3")
    assert [(need.amount, need.unit) for need in v3.values()] == [(8, "TPU cores")]
    v5e = needed("tpu-v5e", {"workerPoolSpecs[0].machineSpec.tpuTopology": "4x8"})
    assert [(need.item, need.amount, need.unit) for need in v5e.values()] == [("TPU_V5E", 32, "TPU chips")]


def test_disks_follow_their_type_and_size() -> None:
    """A boot disk needs its own type's quota, the default size where none is written."""
    edits = {"workerPoolSpecs[0].diskSpec": {"bootDiskType": "pd-standard", "bootDiskSizeGb": 300}}
    assert needed("cpu", edits)["pd-standard"].amount == 300
    assert needed("cpu", {"workerPoolSpecs[0].diskSpec": {"bootDiskType": "pd-ssd"}})["pd-ssd"].amount == 100


def test_a_persistent_resource_draws_nothing() -> None:
    """A job on a persistent resource takes no machines of its own."""
    assert needed("workers", {"persistentResourceId": "cluster"}) == {}


def test_without_a_region_there_is_no_default() -> None:
    """Amounts are known without a region, defaults are not."""
    assert needed("gpu", region="")["NVIDIA_TESLA_T4"].default is None
