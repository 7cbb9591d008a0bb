"""TPU jobs: how the slice is written, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.catalog import Machine
from vertexrig.checks.model import FLEX_DOC, SPOT_DOC, TPU_DOC, TRAIN_COMPUTE, TUNING_DOC, Context, Problem, Rule
from vertexrig.errors import meant
from vertexrig.finding import REMOVE, Act, Edit, Severity, write
from vertexrig.spec.document import Document, Pool, machine_path, scheduling_strategy, tpu_name


def _tpus(document: Document, context: Context) -> Iterator[tuple[Pool, str, Machine | None]]:
    """Yield the running pools on TPUs: the pool, the TPU's name, and the machine's row if it is known."""
    for pool in document.running:
        # a machine type of GKE, such as cloud-tpu-v4-podslice, asks for a TPU that has no name here
        name = tpu_name(pool, context.catalog) or (pool.machine_type if "tpu" in pool.machine_type else "")
        if name:
            yield pool, name, context.catalog.machines.get(pool.machine_type)


def _is_pod(pool: Pool, name: str, row: Machine | None) -> bool:
    """Whether the slice spans several VMs."""
    topology = row.tpu_topologies.get(pool.tpu_topology) if row is not None else None
    return name.endswith("_POD") or (topology is not None and topology.vms > 1)


def topology_missing(document: Document, context: Context) -> Iterator[Problem]:
    for pool, _, row in _tpus(document, context):
        path = machine_path(pool, "tpuTopology")
        if row is not None and row.tpu_topologies and not pool.tpu_topology and not document.refused_at(path):
            choices = ", ".join(row.tpu_topologies)
            edits = write(next(iter(row.tpu_topologies)), path)
            yield Problem(
                path, f"{row.name} needs a tpuTopology, and none is set; the choices are {choices}", edits=edits
            )


def topology_unknown(document: Document, context: Context) -> Iterator[Problem]:
    for pool, _, row in _tpus(document, context):
        wanted = pool.tpu_topology
        if row is None or not wanted or not row.tpu_topologies or wanted in row.tpu_topologies:
            continue
        best = meant(wanted, row.tpu_topologies)
        text = f"{wanted!r} is not a topology of {row.name}: the choices are {', '.join(row.tpu_topologies)}"
        yield Problem(machine_path(pool, "tpuTopology"), text, edits=write(best))


def topology_on_machine(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.running:
        row = context.catalog.machines.get(pool.machine_type)
        if row is None or not pool.tpu_topology or row.tpu_topologies:
            continue
        is_tpu = tpu_name(pool, context.catalog)
        how = "acceleratorType and acceleratorCount choose its slice" if is_tpu else "it has no TPU"
        text = f"{row.name} takes no tpuTopology: {how}"
        yield Problem(machine_path(pool, "tpuTopology"), text, edits=REMOVE)


def accelerator_fields(document: Document, context: Context) -> Iterator[Problem]:
    for pool, name, row in _tpus(document, context):
        # in the row of cloud-tpu, `tpu` is empty: these two fields choose its slice
        if row is None or not row.tpu or not (pool.accelerator_type or pool.accelerator_count):
            continue
        key = "acceleratorType" if pool.accelerator_type else "acceleratorCount"
        # Documented examples for v5e omit the name TPU_V5_LITEPOD, though the API has it: warn only.
        unsure = name == "TPU_V5E" and pool.accelerator_type in ("TPU_V5_LITEPOD", "")
        given = [name for name in ("acceleratorType", "acceleratorCount") if name in pool.machine]
        are_set = f"{' and '.join(given)} {'are' if len(given) > 1 else 'is'} set"
        text = f"{row.name} is chosen by machineType and tpuTopology only, and {are_set}"
        edits = tuple(Edit(Act.REMOVE, machine_path(pool, name)) for name in given)
        yield Problem(machine_path(pool, key), text, "", Severity.WARNING if unsure else None, edits=edits)


def one_pool(document: Document, context: Context) -> Iterator[Problem]:
    pools = document.running
    found = next(_tpus(document, context), None)
    if found is not None and len(pools) > 1:
        text = f"a TPU job has exactly one worker pool; this one has {len(pools)}"
        yield Problem(
            f"{document.job_path}workerPoolSpecs", text, "keep one pool; the TPU slice determines the number of VMs"
        )


def one_replica(document: Document, context: Context) -> Iterator[Problem]:
    for pool, _, _ in _tpus(document, context):
        if pool.replica_count > 1:
            text = f"a TPU pool has one replica, even for a slice of many hosts; replicaCount is {pool.replica_count}"
            yield Problem(f"{pool.path}.replicaCount", text, "write replicaCount: 1 and choose a larger slice")


def in_study(document: Document, context: Context) -> Iterator[Problem]:
    if document.kind != "HyperparameterTuningJob":
        return
    for pool, name, _ in _tpus(document, context):
        text = f"hyperparameter tuning jobs cannot use TPUs, and pool {pool.index} asks for {name}"
        yield Problem(machine_path(pool, "machineType"), text, "tune on GPUs or CPUs, then train on the TPU")


def spot_pod(document: Document, context: Context) -> Iterator[Problem]:
    if scheduling_strategy(document) != "SPOT":
        return
    for pool, name, row in _tpus(document, context):
        if _is_pod(pool, name, row):
            path = f"{document.job_path}scheduling.strategy"
            yield Problem(path, "Spot VMs are not supported for TPU pods", "use STANDARD, or a slice of one host")


def flex_start(document: Document, context: Context) -> Iterator[Problem]:
    if scheduling_strategy(document) == "FLEX_START" and next(_tpus(document, context), None) is not None:
        path = f"{document.job_path}scheduling.strategy"
        yield Problem(
            path,
            "FLEX_START is for L4, A100, H100, H200 and B200 GPUs, not for TPUs",
            "use STANDARD",
            edits=write("STANDARD"),
        )


def v5e_environment(document: Document, context: Context) -> Iterator[Problem]:
    wanted = context.catalog.limits.table("tpu.v5e_tensorflow_env")
    for pool, name, _ in _tpus(document, context):
        given = {str(variable.get("name", "")) for variable in pool.env}
        missing = [f"{key}={value}" for key, value in wanted.items() if key not in given]
        if name == "TPU_V5E" and missing:
            text = f"TensorFlow on v5e needs {' and '.join(missing)} in its environment"
            yield Problem(f"{pool.program_path}.env", text, "write them under env, or set them in the image")


def pod_command(document: Document, context: Context) -> Iterator[Problem]:
    for pool, name, row in _tpus(document, context):
        if _is_pod(pool, name, row) and pool.command:
            text = "on an image made from tf-tpu-pod-base, command replaces the entry point that starts every host"
            yield Problem(f"{pool.program_path}.command", text, "use args instead, if the image is one of those")


RULES = (
    Rule("tpu-topology-missing", Severity.ERROR, "A v5e, v6e or 7x machine is given with its tpuTopology.",
         TRAIN_COMPUTE, topology_missing, "unsafe"),
    Rule("tpu-topology", Severity.ERROR, "tpuTopology is one the machine type has.", TRAIN_COMPUTE, topology_unknown, "safe"),
    Rule("tpu-topology-machine", Severity.ERROR, "tpuTopology is set only with machines that take one.",
         TRAIN_COMPUTE, topology_on_machine, "unsafe"),
    Rule("tpu-accelerator-fields", Severity.ERROR, "A machine type that takes a tpuTopology has neither acceleratorType nor acceleratorCount.",
         TRAIN_COMPUTE, accelerator_fields, "unsafe"),
    Rule("tpu-one-pool", Severity.ERROR, "A TPU job has one worker pool.", TRAIN_COMPUTE, one_pool),
    Rule("tpu-one-replica", Severity.ERROR, "A TPU pool has one replica.", TRAIN_COMPUTE, one_replica),
    Rule("tpu-in-study", Severity.ERROR, "No study runs on TPUs.", TUNING_DOC, in_study),
    Rule("tpu-spot-pod", Severity.ERROR, "No TPU pod runs on Spot VMs.", SPOT_DOC, spot_pod),
    Rule("tpu-flex-start", Severity.ERROR, "No TPU is requested with FLEX_START.", FLEX_DOC, flex_start, "unsafe"),
    Rule("tpu-v5e-environment", Severity.INFO, "TensorFlow on v5e finds its PJRT settings.", TPU_DOC, v5e_environment),
    Rule("tpu-pod-command", Severity.INFO, "A TPU pod on tf-tpu-pod-base keeps the image's entry point.",
         TPU_DOC, pod_command),
)  # fmt: skip
