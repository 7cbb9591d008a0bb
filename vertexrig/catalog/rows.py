"""The rows of the catalog: what is known of one machine, accelerator, region, image, price, quota or limit.

Each table is declared here once. The shipped `data/TABLE.json` and the user's overlay have the fields made by `given`; one
without a default is required in a new row. `computed` fields are the row's name, and what the catalog works out.

Rows are compared by identity, and share one `__repr__`: leaving both out of the generated code halves the import time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from vertexrig.schema.typed import computed, given

_DAY = r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?"
_TEXT: dict[str, Any] = {"pattern": (r"(?s)\s*\S.*", "a text that says something")}
_DATE: dict[str, Any] = {"pattern": (_DAY, "a date such as 2026-11-20")}
_ACCELERATOR: dict[str, Any] = {"names": "accelerators"}  # the name of a row of that table


class _Shown:
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


@dataclass(frozen=True, eq=False, repr=False)
class Source(_Shown):
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


class TpuSlice(NamedTuple):
    """A TPU slice: how many chips it has and how many VMs carry them."""

    chips: int
    vms: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Row(_Shown):
    """What every row of a table has."""

    source: str = given("Keys and titles of the documents it comes from.", "", **_TEXT)
    date: str = given("When its source said so, or when the source was read if it has no date.", "", **_DATE)
    note: str = given("A caveat; empty if there is none.", "")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Machine(Row):
    """A machine type of Vertex AI training."""

    name: str = computed("The value of `machineType`.")
    family: str = given("The part of the name before the first dash.", **_TEXT)
    vcpus: int | None = given("Virtual CPUs per VM; null if not known.", least=0)
    memory_gb: float | None = given("Memory per VM; null if not known.", least=0)
    accelerators: Mapping[str, tuple[int, ...]] = given(
        "The counts one VM may take, by accelerator; empty for TPU machines that are chosen by topology.",
        factory=dict,
        least=1,
        **_ACCELERATOR,
    )
    accelerator_required: bool = given("It comes with its accelerators, which must be written out.", False)
    tpu: str = given("TPU generation (`TPU_V5E`) of a machine chosen by topology.", "", **_ACCELERATOR)
    tpu_topologies: Mapping[str, TpuSlice] = given(
        "[chips, VMs] by value of `tpuTopology`.", factory=dict, least=1, items=2
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Accelerator(Row):
    """A GPU or TPU."""

    name: str = computed("The value of `acceleratorType`, or the catalog's own name without `api_enum`.")
    kind: Literal["gpu", "tpu"] = given("gpu or tpu.")
    machines: tuple[str, ...] = computed("The machine types that carry it.")
    max_per_vm: int | None = given("The most one VM takes; null for TPUs.", None, least=0)
    retired: str | None = given("When or why it can no longer be used.", None, **_TEXT)
    api_enum: bool = given("The API has a value of this name; if not, `note` says what to write instead.", True)
    gcloud_enum: bool = given("gcloud 528 knows the value; if not, it refuses it in a sweep.", False)
    flex_start: bool = given("May be asked for with `strategy: FLEX_START`.", False)
    quota: str | None = computed("The last part of its quota metric (`nvidia_t4_gpus`); None if no source names it.")
    quota_key: str | None = computed("Its key in `Region.quotas`; None if there is none.")
    pod_step: int | None = given("Pods have this many cores or a multiple; null if it has no pods.", None, least=1)
    pod_name: str = given("What regions call its pods.", "", **_ACCELERATOR)

    @property
    def series(self) -> str:
        """The series of machines that carry it, such as `n1-highmem, n1-standard`; "" if none does."""
        # n1-standard of n1-standard-4: the series is shorter than its sizes
        return ", ".join(sorted({machine.rpartition("-")[0] or machine for machine in self.machines}))

    @property
    def obsolete(self) -> bool:
        """Whether no machine for training has it any more."""
        return bool(self.retired) and not self.machines


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Region(Row):
    """A region."""

    name: str = computed("Such as `us-central1`.")
    location: str = given("Where it is; empty if not documented.", "")
    gcloud: bool = given("gcloud 528 takes it as a training region; it refuses all others before sending anything.")
    training: tuple[str, ...] = given("Accelerators documented for training.", factory=tuple, **_ACCELERATOR)
    not_for_training: tuple[str, ...] = given("Accelerators for other uses.", factory=tuple, **_ACCELERATOR)
    quotas: Mapping[str, int | None] = given(
        'Default quota by key; 0: it must be asked for first; no key: "not available".',
        factory=dict,
        least=0,
        names="quotas",
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Image(Row):
    """A prebuilt training image."""

    name: str = computed("The image's own name, `tf-gpu.2-17.py310`.")
    framework: Literal["tf", "pytorch", "sklearn", "xgboost", "ray"] = given("Its framework.")
    version: str = given("The framework's version, `2.17`.", **_TEXT)
    python: str = given("Its Python version.", **_TEXT)
    kind: Literal["cpu", "gpu", "tpu", "cpu_or_gpu"] = given("The machines it is for.")
    cuda: str | None = given("CUDA version, `12.x`; null on CPU and TPU images.", None, **_TEXT)
    repository_path: str = given("The URI without its host.", **_TEXT)
    end_of_support: str = given("No new versions are published after this day.", **_DATE)
    end_of_availability: str = given("The service may refuse it after this day.", **_DATE)
    hypertune: bool = given("cloudml-hypertune is in it.")
    packages: tuple[str, ...] = given("What its page lists in addition to the framework, as requirements.", (), **_TEXT)

    def uri(self, host: str = "us-docker.pkg.dev") -> str:
        """Return the full URI on one of the three hosts."""
        return f"{host}/{self.repository_path}"

    @property
    def short_name(self) -> str:
        """The name the project file uses, the kind left open: `tf-2.17`."""
        return f"{self.framework}-{'.'.join(self.version.split('.')[:2])}"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Price(Row):
    """What something costs in Vertex AI training, on demand."""

    item: str = computed("A machine type, an accelerator, a boot disk type, or a rate such as `n1-vcpu`.")
    kind: Literal["machine", "accelerator", "disk_gb", "vcpu", "memory_gb", "example"] = given("What is paid for.")
    usd_per_hour: float = given("US dollars per hour and unit in Vertex AI.", None, least=0)
    basis: str = computed(
        '"listed" (a source states it for Vertex AI) or "derived" (Compute Engine price times `price.factor`: an estimate).'
    )
    compute_engine_usd: float | None = given("The Compute Engine price of a derived one.", None, least=0)
    includes_accelerators: bool = given("The accelerators are in the machine's price.", False)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Quota(Row):
    """A training quota."""

    key: str = computed("Its key in `Region.quotas`.")
    unit: str = given("vCPUs, GPUs, TPU cores, TPU chips or GB.", **_TEXT)
    applies_to: tuple[str, ...] = given("Machine families, accelerators or disk types that draw it.", **_TEXT)
    metric: str | None = given("Last part of its metric's name; null if no source names it.", None, **_TEXT)
    preemptible_metric: str | None = given("The same for SPOT and FLEX_START.", None, **_TEXT)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Limit(Row):
    """A documented limit or default."""

    key: str = computed("Its name.")
    value: Any = given("A number, a text, a boolean, a list or a mapping of texts, as the shipped one.")


TABLES: Mapping[str, type[Row]] = MappingProxyType(
    {
        "machines": Machine,
        "accelerators": Accelerator,
        "regions": Region,
        "images": Image,
        "prices": Price,
        "quotas": Quota,
        "limits": Limit,
    }
)
"""The tables that an overlay may correct."""


@dataclass(frozen=True, eq=False, repr=False)
class LineItem(_Shown):
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
    return Machine(**{**row, "accelerators": MappingProxyType(counts), "tpu_topologies": MappingProxyType(shapes)})


def region(row: Mapping[str, Any]) -> Region:
    """Return a row of `regions`."""
    names = {key: tuple(sorted(row.get(key, ()))) for key in ("training", "not_for_training")}
    return Region(**{**row, **names, "quotas": MappingProxyType(row.get("quotas", {}))})


def price(row: Mapping[str, Any], factor: float) -> Price:
    """Return a row of `prices`; a Compute Engine price becomes an estimate by `factor`."""
    if row.get("usd_per_hour") is not None:
        return Price(**{**row, "basis": "listed", "compute_engine_usd": None})
    # Rounded, so that a product of two decimals does not show as 0.30000000000000004.
    return Price(**{**row, "basis": "derived", "usd_per_hour": round(row["compute_engine_usd"] * factor, 9)})
