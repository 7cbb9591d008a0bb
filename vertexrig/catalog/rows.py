"""The rows of the catalog: what is known of one machine, accelerator, region, image, price, quota or limit.

Every row carries `source` (keys and titles of the documents it comes from), `date` (ISO; when its source said so, or
when it was read if the source has no date) and `note` (a reservation worth telling; empty if none).

Rows are compared by identity, and share one `__repr__`: leaving both out of the generated code halves the import time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


class _Row:
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


@dataclass(frozen=True, eq=False, repr=False)
class Source(_Row):
    """A document facts were taken from.

    Args:
        key: The short name rows cite it by.
        title: Its title.
        urls: Its addresses; empty if it has none.
        date: The date of the copy that was read.
    """

    key: str
    title: str
    urls: tuple[str, ...]
    date: str


@dataclass(frozen=True, eq=False, repr=False)
class TpuSlice(_Row):
    """A TPU slice: how many chips it has and how many VMs carry them."""

    chips: int
    vms: int


@dataclass(frozen=True, eq=False, repr=False)
class Machine(_Row):
    """A machine type of Vertex AI training.

    Args:
        name: The value of `machineType`.
        family: The part of the name before the first dash.
        vcpus: Virtual CPUs per VM; None if not documented.
        memory_gb: Memory per VM in GB; None if not documented.
        accelerators: Accelerator type to the counts one VM may take; empty if it takes none, and for TPU machines that
            are chosen by topology.
        accelerator_required: The machine comes with its accelerators, which must be written out.
        tpu: The catalog's name of the TPU generation (`TPU_V5E`) of machines chosen by topology, else empty.
        tpu_topologies: The values of `tpuTopology` the machine takes.
    """

    name: str
    family: str
    vcpus: int | None
    memory_gb: float | None
    accelerators: Mapping[str, tuple[int, ...]]
    accelerator_required: bool
    tpu: str
    tpu_topologies: Mapping[str, TpuSlice]
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Accelerator(_Row):
    """A GPU or TPU.

    Args:
        name: The value of `acceleratorType`, or the catalog's own name when `api_enum` is False.
        kind: "gpu" or "tpu".
        machines: The machine types that carry it.
        max_per_vm: The most one VM takes; None for TPUs.
        retired: The date support ended, or a reason, if it can no longer be used; else None.
        api_enum: The API has a value of this name. If False, `note` says what to write instead.
        gcloud_enum: gcloud 528 knows the value: without it, gcloud refuses it in a sweep.
        flex_start: May be asked for with `strategy: FLEX_START`.
        quota: The last part of its quota metric (`nvidia_t4_gpus`); None if no source names it.
        quota_key: Its key in `Region.quotas`; None if there is none.
        pod_step: Pods have this many cores or a multiple; None if it has no pods.
        pod_name: What the regions call its pods; empty if it has none.
    """

    name: str
    kind: str
    machines: tuple[str, ...]
    max_per_vm: int | None
    retired: str | None
    api_enum: bool
    gcloud_enum: bool
    flex_start: bool
    quota: str | None
    quota_key: str | None
    pod_step: int | None
    pod_name: str
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Region(_Row):
    """A region.

    Args:
        name: Such as `us-central1`.
        location: The place, if documented, else empty.
        gcloud: gcloud 528 takes it as a training region; it refuses all others before sending anything.
        training: Accelerators documented for training here.
        not_for_training: Accelerators that are here, but not for training.
        quotas: Default quota by quota key; 0 means that quota must be asked for first, a missing key "not available".
    """

    name: str
    location: str
    gcloud: bool
    training: frozenset[str]
    not_for_training: frozenset[str]
    quotas: Mapping[str, int | None]
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Image(_Row):
    """A prebuilt training image.

    Args:
        name: The image's own name, `tf-gpu.2-17.py310`.
        framework: "tf", "pytorch", "sklearn", "xgboost" or "ray".
        version: The framework's version, `2.17`.
        python: The Python version in it.
        kind: "cpu", "gpu", "tpu" or "cpu_or_gpu".
        cuda: CUDA version, `12.x`; None on CPU and TPU images.
        repository_path: All of the URI but the host.
        end_of_support: ISO date after which no new versions are published.
        end_of_availability: ISO date after which the service may refuse it and it cannot be downloaded.
        hypertune: cloudml-hypertune is in its list of packages.
    """

    name: str
    framework: str
    version: str
    python: str
    kind: str
    cuda: str | None
    repository_path: str
    end_of_support: str
    end_of_availability: str
    hypertune: bool
    source: str
    date: str
    note: str = ""

    def uri(self, host: str = "us-docker.pkg.dev") -> str:
        """Return the full URI on one of the three hosts."""
        return f"{host}/{self.repository_path}"

    @property
    def short_name(self) -> str:
        """The name the project file uses, the kind left open: `tf-2.17`."""
        return f"{self.framework}-{'.'.join(self.version.split('.')[:2])}"


@dataclass(frozen=True, eq=False, repr=False)
class Price(_Row):
    """What something costs in Vertex AI training, on demand.

    Args:
        item: A machine type, an accelerator, a boot disk type, or a rate such as `n1-vcpu`.
        kind: "machine", "accelerator", "disk_gb" (per GB), "vcpu", "memory_gb" (per GB) or "example".
        usd_per_hour: US dollars per hour and unit.
        basis: "listed" (a source states it for Vertex AI) or "derived" (Compute Engine price times `price.factor`: an
            estimate).
        compute_engine_usd: The Compute Engine price a derived row starts from, else None.
        includes_accelerators: The machine's price holds its accelerators.
    """

    item: str
    kind: str
    usd_per_hour: float
    basis: str
    compute_engine_usd: float | None
    includes_accelerators: bool
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Quota(_Row):
    """A training quota.

    Args:
        key: Its key in `Region.quotas`.
        unit: "vCPUs", "GPUs", "TPU cores", "TPU chips" or "GB".
        applies_to: The machine families, accelerators or boot disk types that draw it.
        metric: The last part of its metric name; None if no source names it.
        preemptible_metric: The same for SPOT and FLEX_START.
    """

    key: str
    unit: str
    applies_to: tuple[str, ...]
    metric: str | None
    preemptible_metric: str | None
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Limit(_Row):
    """A documented limit or default; `value` is a number, a string, a bool, a list or a mapping of strings."""

    key: str
    value: Any
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class LineItem(_Row):
    """One line of an hourly estimate.

    Args:
        item: What is paid for.
        kind: "machine", "accelerator" or "disk_gb".
        quantity: How many units, over all replicas: VMs, accelerators or GB.
        usd_per_hour: For the whole quantity; None if the catalog has no sourced price.
        basis: "listed", "derived", "included" (in the machine's price), or "" without a price.
        source: Where the price comes from.
        date: Its date.
        note: What to know about it; says why there is no price.
    """

    item: str
    kind: str
    quantity: float
    usd_per_hour: float | None
    basis: str
    source: str = ""
    date: str = ""
    note: str = ""


class Limits(Mapping[str, Limit]):
    """Limits by key; `limits.json` in `vertexrig/catalog/data` lists them.

    The typed readers raise KeyError for an unknown key and TypeError for a value of another type: both are mistakes in
    our code, since an overlay can neither add a limit nor change its type.
    """

    def __init__(self, rows: Mapping[str, Limit]) -> None:
        self._rows = rows

    def __getitem__(self, key: str) -> Limit:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _value(self, key: str, fits: Callable[[Any], bool], what: str) -> Any:
        value = self[key].value
        if not fits(value):
            raise TypeError(f"limit {key} is not {what}")
        return value

    def integer(self, key: str) -> int:
        """Return a whole number."""
        return int(self._value(key, lambda value: type(value) is int, "a whole number"))

    def number(self, key: str) -> float:
        """Return a number."""
        return float(self._value(key, lambda value: type(value) in (int, float), "a number"))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        value = self._value(key, lambda value: isinstance(value, list), "a list of numbers")
        return tuple(map(float, value))

    def text(self, key: str) -> str:
        """Return a string; keys that end in `pattern` hold a regular expression for `re.fullmatch`."""
        return str(self._value(key, lambda value: isinstance(value, str), "a string"))

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(self._value(key, lambda value: isinstance(value, list), "a list"))

    def table(self, key: str) -> Mapping[str, str]:
        """Return a mapping of strings."""
        return dict(self._value(key, lambda value: isinstance(value, dict), "a mapping"))


# Typed rows of raw ones, whose keys are the fields; those that need no more than that are made in `Catalog`.


def machine(row: Mapping[str, Any]) -> Machine:
    """Return a row of `machines`."""
    counts = {name: tuple(counts) for name, counts in row.get("accelerators", {}).items()}
    shapes = {name: TpuSlice(*size) for name, size in row.get("tpu_topologies", {}).items()}
    more = {"accelerators": MappingProxyType(counts), "tpu_topologies": MappingProxyType(shapes)}
    return Machine(**{"accelerator_required": False, "tpu": "", **row, **more})


def accelerator(row: Mapping[str, Any], machines: tuple[str, ...], quota: Quota | None) -> Accelerator:
    """Return a row of `accelerators`, with the machines that carry it and the quota it draws."""
    drawn = {"quota": quota.metric if quota else None, "quota_key": quota.key if quota else None}
    return Accelerator(**{"pod_step": None, "pod_name": "", **row, **drawn, "machines": machines})


def region(row: Mapping[str, Any]) -> Region:
    """Return a row of `regions`."""
    names = {key: frozenset(row[key]) for key in ("training", "not_for_training")}
    return Region(**{**row, **names, "quotas": MappingProxyType(row["quotas"])})


def price(row: Mapping[str, Any], factor: float) -> Price:
    """Return a row of `prices`; a Compute Engine price becomes an estimate by `factor`."""
    found = {"includes_accelerators": False, **row}
    if row.get("usd_per_hour") is not None:
        return Price(**{**found, "basis": "listed", "compute_engine_usd": None})
    # Rounded, so that a product of two decimals does not show as 0.30000000000000004.
    return Price(**{**found, "basis": "derived", "usd_per_hour": round(row["compute_engine_usd"] * factor, 9)})
