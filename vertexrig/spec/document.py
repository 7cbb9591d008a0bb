"""A job spec as data: its kind, its worker pools, its study, and what the strict reading (`vertexrig.spec.reading`) found.

The functions at the end derive what is not written: the hardware of its pools, how many trials run at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vertexrig.catalog import Catalog
from vertexrig.errors import meant
from vertexrig.finding import Finding, Severity
from vertexrig.spec.strict import stem
from vertexrig.yamltext import FileKey

if TYPE_CHECKING:
    from vertexrig.spec.parameters import Parameter

Kind = Literal["CustomJobSpec", "HyperparameterTuningJob"]
KINDS: tuple[Kind, ...] = ("CustomJobSpec", "HyperparameterTuningJob")


@dataclass(frozen=True)
class Pool:
    """One worker pool of a CustomJobSpec, with the fields that checks and runners read.

    Args:
        index: Its position, which decides the role (0 chief, 1 worker, 2 parameter server or Reduction Server, 3 evaluator).
        path: `workerPoolSpecs[1]`, with `trialJobSpec.` in front in a HyperparameterTuningJob.
        data: The pool's canonical data.
    """

    index: int
    path: str
    data: Mapping[str, Any]

    @property
    def machine(self) -> Mapping[str, Any]:
        return self.data.get("machineSpec") or {}

    @property
    def affinity(self) -> Mapping[str, Any]:
        """Its reservationAffinity; empty if it has none."""
        return self.machine.get("reservationAffinity") or {}

    @property
    def reserved(self) -> bool:
        """Whether its machines come from a reservation."""
        return self.affinity.get("reservationAffinityType") in ("ANY_RESERVATION", "SPECIFIC_RESERVATION")

    @property
    def disk(self) -> Mapping[str, Any]:
        return self.data.get("diskSpec") or {}

    @property
    def machine_type(self) -> str:
        return str(self.machine.get("machineType", ""))

    @property
    def accelerator_type(self) -> str:
        """The accelerator's enum name, "" if none."""
        name = str(self.machine.get("acceleratorType", ""))
        return "" if name == "ACCELERATOR_TYPE_UNSPECIFIED" else name

    @property
    def accelerator_count(self) -> int:
        return int(self.machine.get("acceleratorCount", 0))

    @property
    def tpu_topology(self) -> str:
        return str(self.machine.get("tpuTopology", ""))

    @property
    def replica_count(self) -> int:
        """Replicas as written; 1 when a pool that is not empty leaves it out."""
        return int(self.data.get("replicaCount", 0 if self.empty else 1))

    @property
    def container(self) -> Mapping[str, Any] | None:
        return self.data.get("containerSpec")

    @property
    def python_package(self) -> Mapping[str, Any] | None:
        return self.data.get("pythonPackageSpec")

    @cached_property
    def program(self) -> Mapping[str, Any]:
        """The container or Python package spec, whichever is there."""
        return self.python_package or self.container or {}

    @property
    def program_path(self) -> str:
        return f"{self.path}.{'pythonPackageSpec' if self.python_package is not None else 'containerSpec'}"

    @property
    def image(self) -> str:
        if self.python_package is not None:
            return str(self.python_package.get("executorImageUri", ""))
        return str((self.container or {}).get("imageUri", ""))

    @property
    def named_reduction_server(self) -> bool:
        """Whether its image is called a Reduction Server, Google's own (`Catalog.is_reduction_server`) or another."""
        return "reductionserver" in self.image.replace("_", "").replace("-", "").casefold()

    @property
    def module(self) -> str:
        return str((self.python_package or {}).get("pythonModule", ""))

    @property
    def package_uris(self) -> list[str]:
        return list((self.python_package or {}).get("packageUris", ()))

    @property
    def args(self) -> list[str]:
        return list(self.program.get("args", ()))

    @property
    def command(self) -> list[str]:
        """The words of its container's command."""
        return list(self.program.get("command", ()))

    @property
    def words(self) -> list[str]:
        """The words of its container's command, and of its args."""
        return [*self.command, *self.args]

    @property
    def env(self) -> list[Mapping[str, Any]]:
        return list(self.program.get("env", ()))

    def items(self, key: str) -> Iterator[tuple[str, Any]]:
        """Yield the items of a list of its program (`args`, `command`, `env`, `packageUris`), each with its path."""
        for number, item in enumerate(self.program.get(key, ())):
            yield f"{self.program_path}.{key}[{number}]", item

    @cached_property
    def empty(self) -> bool:
        """Whether the pool is left out: `{}` keeps the positions of the pools after it."""
        return not self.data or (not self.program and not self.machine and not self.data.get("replicaCount"))

    @property
    def makes_machines(self) -> bool:
        """Whether it makes machines: an empty pool does not, nor one after the first with a program but no machine and no replicas."""
        return not self.empty and bool(self.index == 0 or self.data.get("machineSpec") or self.data.get("replicaCount"))


class _Refused(NamedTuple):
    """What the strict reading refused.

    Args:
        whole_file_refused: Whether there is an error about the file as a whole.
        paths: The path of each error.
        unknown_keys: Unknown keys, wherever they are.
        unknown_below: The unknown keys below each path.
    """

    whole_file_refused: bool
    paths: set[str]
    unknown_keys: set[str]
    unknown_below: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Document:
    """A job spec as read.

    Args:
        kind: Which of the two resources it is read as.
        data: Canonical data: camelCase keys, enums as names, integers as int; what was refused is left out.
        findings: What the strict reading refused or warns about.
        file: The file's name as the user gave it, "" if it did not come from one.
        lines: Line of each value by its canonical path.
        placeholders: What is still to be filled in, by its canonical path.
        paths: Canonical path of each value by its keys in the file.
        for_gcloud: Whether it is a file that a person wrote for gcloud, which may complete it with flags.
    """

    kind: Kind
    data: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    placeholders: Mapping[str, list[str]] = field(default_factory=dict)
    paths: Mapping[FileKey, str] = field(default_factory=dict)
    for_gcloud: bool = False

    @cached_property
    def locations(self) -> dict[str, FileKey]:
        """Keys in the file of each value by its canonical path."""
        found = {path: location for location, path in self.paths.items()}
        # for a single value in place of a list, only item [0] has a location; it is also the list's
        return {path.removesuffix("[0]"): keys for path, keys in found.items() if not isinstance(keys[-1], int)} | found

    @property
    def job(self) -> dict[str, Any]:
        """The CustomJobSpec: the document itself, or a study's `trialJobSpec`."""
        return self.data if self.kind == "CustomJobSpec" else self.data.get("trialJobSpec", {})

    @property
    def job_path(self) -> str:
        return "" if self.kind == "CustomJobSpec" else "trialJobSpec."

    @property
    def output_folder(self) -> str:
        """gs:// URI of the output folder, without a slash at its end; "" if the job has none."""
        return str((self.job.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")).rstrip("/")

    @property
    def study(self) -> dict[str, Any] | None:
        return None if self.kind == "CustomJobSpec" else self.data.get("studySpec", {})

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter of the study, in the order of the file, conditional ones after their parent."""
        if not (self.study or {}).get("parameters"):
            return ()
        from vertexrig.spec.parameters import everywhere, top  # a custom job has none

        return tuple(everywhere(top((self.study or {}).get("parameters", ()))))

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        pools = self.job.get("workerPoolSpecs", [])
        return tuple(Pool(i, f"{self.job_path}workerPoolSpecs[{i}]", data) for i, data in enumerate(pools))

    @cached_property
    def running(self) -> tuple[Pool, ...]:
        """Its pools that make machines."""
        return tuple(pool for pool in self.pools if pool.makes_machines)

    def refused_at(self, path: str) -> bool:
        """Whether the strict reading refused the value at `path`, a mapping around it, or a misspelt key that is meant for it.

        A check for a missing value then finds nothing, so that one mistake is reported once.
        """
        around = [path]
        while "." in around[-1]:
            around.append(around[-1].rpartition(".")[0])
        errors = self._errors
        # if `path` is a single key, an unknown key of the same name elsewhere in the file may be meant for it
        if path in errors.unknown_keys:
            return True
        if errors.whole_file_refused or not errors.paths.isdisjoint(around):
            return True
        return self._is_unknown_key(around)

    def _is_unknown_key(self, around: Sequence[str]) -> bool:
        """Whether an unknown key, misspelt or a level too high, may be meant for one of `around`: a path and the mappings around it."""
        unknown = self._errors.unknown_below
        for parent in ("", *around[1:]):
            # an unknown key of `parent` may be meant for any path inside `parent`
            inside = [one for one in around if not parent or one.startswith(f"{parent}.")]
            if any(_is_among(one.rpartition(".")[2], unknown.get(parent, ())) for one in inside):
                return True
        return False

    @cached_property
    def _errors(self) -> _Refused:
        paths: set[str] = set()
        unknown: dict[str, tuple[str, ...]] = {}
        for finding in self.findings:
            if finding.severity is not Severity.ERROR:
                continue
            paths.add(finding.path)
            if finding.id == "unknown-field":
                parent, _, key = finding.path.rpartition(".")
                unknown[parent] = (*unknown.get(parent, ()), key)
        return _Refused("" in paths, paths, {key for keys in unknown.values() for key in keys}, unknown)

    def refused_in(self, path: str) -> bool:
        """Whether `refused_at` holds for `path`, or the strict reading refused something inside its value."""
        if self.refused_at(path):
            return True
        inside = (f"{path}.", f"{path}[")
        errors = (found.path for found in self.findings if found.severity is Severity.ERROR)
        return any(found.startswith(inside) for found in errors)

    def line(self, path: str) -> int | None:
        """Return the line of `path`, or of the nearest value around it that has one."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: path.rfind("[")] if path.endswith("]") else path.rpartition(".")[0]
        return self.lines.get("")


@lru_cache(maxsize=1024)
def _is_among(key: str, written: tuple[str, ...]) -> bool:
    return any(stem(one) == stem(key) or meant(one, [key]) is not None for one in written)


def machine_path(pool: Pool, key: str) -> str:
    """Return the path of a field of the pool's machineSpec."""
    return f"{pool.path}.machineSpec.{key}"


def job_part(document: Document, key: str) -> Mapping[str, Any]:
    """Return a mapping of the CustomJobSpec, such as `scheduling`; empty if it is not there."""
    part = document.job.get(key)
    return part if isinstance(part, dict) else {}


def tpu_name(pool: Pool, catalog: Catalog) -> str:
    """Return the name under which regions list the pool's TPU (`TPU_V3`, `TPU_V3_POD`, `TPU_V5E`), "" if it has none."""
    machine = catalog.machines.get(pool.machine_type)
    accelerator = catalog.accelerators.get(pool.accelerator_type)
    if (machine is not None and machine.tpu) or (accelerator is not None and accelerator.kind == "tpu"):
        return catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count) or ""
    return "TPU_V3" if pool.machine_type == "cloud-tpu" else ""


def has_gpu(pool: Pool, catalog: Catalog) -> bool:
    """Whether the pool's machines carry GPUs, written out or fixed to the machine type."""
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
    """Return how many trials a study has at most; 1 where the file leaves that to gcloud's flag, whose default it is."""
    return int(document.data.get("maxTrialCount", 1))


def parallel_trials(document: Document) -> int:
    """Return how many trials run at once: 1 for a job that is not a study."""
    if document.kind == "CustomJobSpec":
        return 1
    parallel, most = int(document.data.get("parallelTrialCount", 1)), int(document.data.get("maxTrialCount", 0))
    return max(1, min(parallel, most) if most > 0 else parallel)
