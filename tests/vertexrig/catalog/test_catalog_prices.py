"""The catalog: what is drawn from quotas, and what it costs."""

from __future__ import annotations

import pytest

from vertexrig.catalog import load
from vertexrig.spec.estimate import hourly, total

CATALOG = load()
PREFIX = "aiplatform.googleapis.com/custom_model_training_"


@pytest.mark.parametrize(
    ("item", "strategy", "metric"),
    [
        ("NVIDIA_TESLA_T4", "STANDARD", PREFIX + "nvidia_t4_gpus"),
        ("NVIDIA_TESLA_T4", "SPOT", PREFIX + "preemptible_nvidia_t4_gpus"),
        ("NVIDIA_L4", "FLEX_START", PREFIX + "preemptible_nvidia_l4_gpus"),
        ("NVIDIA_H100_80GB", "STANDARD", PREFIX + "nvidia_h100_gpus"),
        ("TPU_V2", "STANDARD", PREFIX + "tpu_v2"),
        ("n1", "STANDARD", PREFIX + "cpus"),
        ("e2", "SPOT", PREFIX + "preemptible_cpus"),
        ("c2", "STANDARD", PREFIX + "c2_cpus"),
        ("c2", "SPOT", None),
        ("NVIDIA_B200", "STANDARD", None),
        ("pd-ssd", "STANDARD", PREFIX + "pd_ssd"),
        ("NVIDIA_TESLA_V100", "STANDARD", PREFIX + "nvidia_v100_gpus"),
        ("NVIDIA_TESLA_A100", "SPOT", PREFIX + "preemptible_nvidia_a100_gpus"),
        ("nothing", "STANDARD", None),
    ],
)
def test_quota_metric(item: str, strategy: str, metric: str | None) -> None:
    """A quota metric has the name the service used for it, and none where no source names it."""
    assert CATALOG.quota_metric(item, strategy) == metric


def test_default_quotas() -> None:
    """Default quotas are the documented ones: zero is told from not available."""
    assert CATALOG.default_quota("us-central1", "NVIDIA_TESLA_T4") == 12
    assert CATALOG.default_quota("us-central1", "NVIDIA_L4") == 0
    assert CATALOG.default_quota("us-central1", "TPU_V2_POD") is None
    assert CATALOG.default_quota("africa-south1", "NVIDIA_L4") is None
    assert CATALOG.default_quota("nowhere", "NVIDIA_L4") is None
    assert CATALOG.default_quota("asia-northeast2", "n1") == CATALOG.default_quota("asia-northeast2", "e2") == 20
    assert CATALOG.default_quota("us-east4", "pd-ssd") == 450


def test_quotas_apply_to_known_things() -> None:
    """Every quota is drawn by an accelerator, a machine family or a boot disk type that exists, and by one quota."""
    families = {machine.family for machine in CATALOG.machines.values()}
    things = families | set(CATALOG.accelerators) | set(CATALOG.limits.names("boot_disk.types"))
    drawn = [item for quota in CATALOG.quotas.values() for item in quota.applies_to]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) <= things
    gpus = {row.name for row in CATALOG.accelerators.values() if row.kind == "gpu" and row.machines}
    assert {name for name in gpus if CATALOG.accelerators[name].quota_key is None} == set()


def test_prices() -> None:
    """Listed prices are as listed; derived ones are the Compute Engine price times 1.15 and say so."""
    price = CATALOG.prices["n1-standard-4"]
    assert (price.usd_per_hour, price.basis, price.date) == (0.21849885, "listed", "2026-10-07")
    derived = CATALOG.prices["n1-standard-8"]
    assert derived.basis == "derived"
    assert derived.usd_per_hour == pytest.approx(0.38 * 1.15)
    for row in CATALOG.prices.values():
        assert row.usd_per_hour > 0
        assert (row.basis == "derived") == (row.compute_engine_usd is not None)
        assert row.kind != "machine" or row.item in CATALOG.machines
        assert row.kind != "accelerator" or row.item in CATALOG.accelerators
        assert row.kind != "disk_gb" or row.item in CATALOG.limits.names("boot_disk.types")
    assert "NVIDIA_B200" not in CATALOG.prices


def test_derived_rule_meets_the_listed_price() -> None:
    """The rates of N1 give the listed price of n1-standard-4 exactly, so the rule is the one behind the list."""
    vcpu, memory = CATALOG.prices["n1-vcpu"], CATALOG.prices["n1-memory-gb"]
    assert 4 * vcpu.usd_per_hour + 15 * memory.usd_per_hour == pytest.approx(0.21849885)


def test_hourly_of_a_billed_machine() -> None:
    """The estimate of an a3-highgpu-8g with 2,000 GB of disk is the sum on its bill."""
    lines = hourly(CATALOG, "a3-highgpu-8g", "NVIDIA_H100_80GB", 8, 2000)
    usd, complete = total(lines)
    assert complete
    assert usd == pytest.approx(CATALOG.prices["a3-highgpu-8g on demand, all in"].usd_per_hour, rel=1e-6)
    assert [line.kind for line in lines] == ["machine", "accelerator", "disk_gb"]


def test_hourly_lines() -> None:
    """Replicas multiply every line; prices that hold their GPUs are not charged twice; unknown prices stay unknown."""
    machine, gpu, disk = hourly(CATALOG, "n1-standard-8", "NVIDIA_TESLA_T4", 2, replicas=3)
    assert (machine.quantity, gpu.quantity, disk.quantity, disk.item) == (3, 6, 300, "pd-ssd")
    assert gpu.usd_per_hour == pytest.approx(6 * 0.4025)
    assert machine.basis == "derived" and machine.date and machine.source
    bundled = hourly(CATALOG, "a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)[1]
    assert (bundled.usd_per_hour, bundled.basis) == (0.0, "included")
    by_rate = hourly(CATALOG, "n1-highmem-16")[0]
    assert by_rate.usd_per_hour == pytest.approx((16 * 0.031611 + 104 * 0.004237) * 1.15, rel=1e-6)
    tpu = hourly(CATALOG, "cloud-tpu", "TPU_V3", 8)
    assert [line.usd_per_hour for line in tpu[:2]] == [None, None]
    assert total(tpu)[1] is False
    assert hourly(CATALOG, "no-such-machine")[0].usd_per_hour is None
    assert hourly(CATALOG, "a4-highgpu-8g", "NVIDIA_B200", 8)[2].item == "hyperdisk-balanced"


def test_hourly_knows_on_demand_prices_only() -> None:
    """SPOT and FLEX_START have no sourced prices, and each line says why it has none."""
    for strategy in ("SPOT", "FLEX_START"):
        lines = hourly(CATALOG, "n1-standard-4", "NVIDIA_TESLA_T4", 1, strategy=strategy)
        assert all(line.usd_per_hour is None and strategy in line.note for line in lines)
