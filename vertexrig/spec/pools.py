"""What a job spec comes to, beyond what is written: the pools that run, what they carry, how many trials at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vertexrig.catalog import Catalog
from vertexrig.spec.document import Document, Pool


def machine_path(pool: Pool, key: str) -> str:
    """Return the path of a field of the pool's machineSpec."""
    return f"{pool.path}.machineSpec.{key}"


def job_part(document: Document, key: str) -> Mapping[str, Any]:
    """Return a mapping of the CustomJobSpec, such as `scheduling`; empty if it is not there."""
    part = document.job.get(key)
    return part if isinstance(part, dict) else {}


def tpu_name(pool: Pool, catalog: Catalog) -> str:
    """Return the name regions list the pool's TPU under (`TPU_V3`, `TPU_V3_POD`, `TPU_V5E`), "" if it has none."""
    machine = catalog.machines.get(pool.machine_type)
    accelerator = catalog.accelerators.get(pool.accelerator_type)
    if (machine is not None and machine.tpu) or (accelerator is not None and accelerator.kind == "tpu"):
        return catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count) or ""
    return "TPU_V3" if pool.machine_type == "cloud-tpu" else ""


def has_gpu(pool: Pool, catalog: Catalog) -> bool:
    """Tell whether the pool's machines carry GPUs, written out or fixed to the machine type."""
    if pool.accelerator_type:
        row = catalog.accelerators.get(pool.accelerator_type)
        return row is None or row.kind == "gpu"
    machine = catalog.machines.get(pool.machine_type)
    return machine is not None and machine.accelerator_required and not tpu_name(pool, catalog)


def scheduling_strategy(document: Document) -> str:
    """Return the scheduling strategy as the service takes it: the deprecated names under their new ones."""
    written = str(job_part(document, "scheduling").get("strategy", ""))
    renamed = {"ON_DEMAND": "STANDARD", "LOW_COST": "SPOT", "STRATEGY_UNSPECIFIED": "STANDARD", "": "STANDARD"}
    return renamed.get(written, written)


def most_trials(document: Document) -> int:
    """Tell how many trials a study has at most; 1 where the file leaves that to gcloud's flag, whose default it is."""
    return int(document.data.get("maxTrialCount", 1))


def parallel_trials(document: Document) -> int:
    """Tell how many trials run at once: 1 for a job that is not a study."""
    if document.kind == "CustomJobSpec":
        return 1
    parallel, most = int(document.data.get("parallelTrialCount", 1)), int(document.data.get("maxTrialCount", 0))
    return max(1, min(parallel, most) if most > 0 else parallel)
