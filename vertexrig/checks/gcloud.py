"""What gcloud 528 cannot read in a tuning job's file, though the API takes it."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import GCLOUD, Context, Problem, Rule
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, machine_path

_FIX = "submit it through the API, or leave the field out"


def unknown_accelerator(document: Document, context: Context) -> Iterator[Problem]:
    # a custom job's file is sent as it is; a tuning job's is read into gcloud's own messages, which refuse what they
    # lack
    if document.kind != "HyperparameterTuningJob":
        return
    for pool in document.pools:
        row = context.catalog.accelerators.get(pool.accelerator_type)
        if row is not None and row.api_enum and not row.gcloud_enum:
            text = f"gcloud 528 does not know {row.name} and refuses a tuning job with it"
            yield Problem(machine_path(pool, "acceleratorType"), text, "submit it through the API")


def unknown_field(document: Document, context: Context) -> Iterator[Problem]:
    if document.kind != "HyperparameterTuningJob":
        return
    paths = [f"{document.job_path}pscInterfaceConfig"] if "pscInterfaceConfig" in document.job else []
    for pool in document.pools:
        if "gpuPartitionSize" in (pool.data.get("machineSpec") or {}):
            paths.append(machine_path(pool, "gpuPartitionSize"))
        if "lustreMounts" in pool.data:
            paths.append(f"{pool.path}.lustreMounts")
    for path in paths:
        name = path.rpartition(".")[2]
        yield Problem(path, f"gcloud 528 does not know {name} and refuses a tuning job with it", _FIX)


RULES = (
    Rule(
        "gcloud-accelerator",
        Severity.ERROR,
        "gcloud knows the accelerator of a tuning job.",
        GCLOUD,
        unknown_accelerator,
    ),
    Rule("gcloud-field", Severity.ERROR, "gcloud knows every field of a tuning job.", GCLOUD, unknown_field),
)
