"""What an overlay may hold: the fields of each table as dataclasses, read by `vertexrig.schema.typed`.

A field without a default is required in a new row; the others get theirs. The order of the fields is that of the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vertexrig.schema.typed import option

_DAY = r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?"
_TEXT: dict[str, Any] = {"pattern": (r"(?s)\s*\S.*", "a text that says something")}
_DATE: dict[str, Any] = {"pattern": (_DAY, "a date such as 2026-11-20")}
_ACCELERATOR: dict[str, Any] = {"names": "accelerators"}  # the name of a row of that table


@dataclass(frozen=True)
class OverlayRow:
    """What every row may have."""

    source: str = option("Where the value comes from.", "", **_TEXT)
    date: str = option("When its source said so.", "", **_DATE)
    note: str = option("A reservation worth knowing.", "")


@dataclass(frozen=True, kw_only=True)
class MachineRow(OverlayRow):
    family: str = option("The part of the name before the first dash.", **_TEXT)
    vcpus: int | None = option("Virtual CPUs per VM; null if not known.", least=0)
    memory_gb: float | None = option("Memory per VM; null if not known.", least=0)
    accelerators: Mapping[str, tuple[int, ...]] = option(
        "Counts by accelerator.", factory=dict, least=1, **_ACCELERATOR
    )
    accelerator_required: bool = option("It comes with its accelerators.", False)
    tpu: str = option("TPU generation of a machine chosen by topology.", "", **_ACCELERATOR)
    tpu_topologies: Mapping[str, tuple[int, ...]] = option("[chips, vms] by topology.", factory=dict, least=1, items=2)


@dataclass(frozen=True, kw_only=True)
class AcceleratorRow(OverlayRow):
    kind: Literal["gpu", "tpu"] = option("gpu or tpu.")
    max_per_vm: int | None = option("The most one VM takes.", None, least=0)
    retired: str | None = option("When or why it can no longer be used.", None, **_TEXT)
    api_enum: bool = option("The API has a value of this name.", True)
    gcloud_enum: bool = option("gcloud knows the value.", False)
    flex_start: bool = option("May be asked for with FLEX_START.", False)
    pod_step: int | None = option("Pods have a multiple of so many cores.", None, least=1)
    pod_name: str = option("What regions call its pods.", "", **_ACCELERATOR)


@dataclass(frozen=True, kw_only=True)
class RegionRow(OverlayRow):
    location: str = option("The place.", "")
    gcloud: bool = option("gcloud takes it as a training region.")
    training: tuple[str, ...] = option("Accelerators for training.", factory=list, **_ACCELERATOR)
    not_for_training: tuple[str, ...] = option("Accelerators for other uses.", factory=list, **_ACCELERATOR)
    quotas: Mapping[str, int | None] = option("Default quota by key.", factory=dict, least=0, names="quotas")


@dataclass(frozen=True, kw_only=True)
class ImageRow(OverlayRow):
    framework: Literal["tf", "pytorch", "sklearn", "xgboost", "ray"] = option("Its framework.")
    version: str = option("The framework's version.", **_TEXT)
    python: str = option("Its Python version.", **_TEXT)
    kind: Literal["cpu", "gpu", "tpu", "cpu_or_gpu"] = option("What it is for.")
    cuda: str | None = option("CUDA version.", None, **_TEXT)
    repository_path: str = option("The URI without its host.", **_TEXT)
    end_of_support: str = option("No new versions after it.", **_DATE)
    end_of_availability: str = option("The service may refuse it after this day.", **_DATE)
    hypertune: bool = option("cloudml-hypertune is in it.")


@dataclass(frozen=True, kw_only=True)
class PriceRow(OverlayRow):
    kind: Literal["machine", "accelerator", "disk_gb", "vcpu", "memory_gb", "example"] = option("What is paid for.")
    usd_per_hour: float = option("Price in Vertex AI.", None, least=0)
    compute_engine_usd: float = option("Price in Compute Engine.", None, least=0)
    includes_accelerators: bool = option("The accelerators are in the machine's price.", False)


@dataclass(frozen=True, kw_only=True)
class QuotaRow(OverlayRow):
    unit: str = option("vCPUs, GPUs, TPU cores, TPU chips or GB.", **_TEXT)
    applies_to: tuple[str, ...] = option("What draws it.", **_TEXT)
    metric: str | None = option("Last part of its metric's name.", None, **_TEXT)
    preemptible_metric: str | None = option("The same for SPOT and FLEX_START.", None, **_TEXT)


@dataclass(frozen=True, kw_only=True)
class LimitRow(OverlayRow):
    value: Any = option("A number, a text, a list or a mapping, as the shipped one.")


SCHEMA: Mapping[str, type[OverlayRow]] = {
    "machines": MachineRow,
    "accelerators": AcceleratorRow,
    "regions": RegionRow,
    "images": ImageRow,
    "prices": PriceRow,
    "quotas": QuotaRow,
    "limits": LimitRow,
}
"""The tables that an overlay may name."""
