"""Worker pools: how many, which roles, how many replicas, and one program in each."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import DISTRIBUTED, GCLOUD, REST, SERVER, Context, Problem, Rule, join
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document, Pool, has_gpu


def pools_missing(document: Document, context: Context) -> Iterator[Problem]:
    path = f"{document.job_path}workerPoolSpecs"
    if document.pools or document.refused_at(path):
        return
    if document.kind == "HyperparameterTuningJob" and "trialJobSpec" not in document.data:
        yield Problem(
            "trialJobSpec", "the file has no trialJobSpec, which describes the job of each trial", "write trialJobSpec"
        )
    elif _completed_by_flags(document):
        text = "the file has no worker pools: gcloud takes them from its flag --worker-pool-spec, and refuses the file alone"
        yield Problem(path, text, "add --worker-pool-spec to the command, or write workerPoolSpecs", Severity.WARNING)
    else:
        yield Problem(path, "the job has no worker pool; it needs at least one", "write workerPoolSpecs")


def _completed_by_flags(document: Document) -> bool:
    """Whether the document is a file for `gcloud ai custom-jobs create --config` that leaves its pools to another flag."""
    wrapped = any(found.id == "custom-job-wrapper" for found in document.findings)
    alone = document.kind == "CustomJobSpec" and bool(document.data) and "workerPoolSpecs" not in document.data
    return document.for_gcloud and alone and not wrapped


def chief_empty(document: Document, context: Context) -> Iterator[Problem]:
    if document.pools and document.pools[0].empty and not document.refused_at(document.pools[0].path):
        text = "the first pool is the chief and cannot be empty"
        yield Problem(document.pools[0].path, text, "write machineSpec, replicaCount: 1 and a program")


def chief_replicas(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools[:1]:
        count = pool.data.get("replicaCount", 0)
        if count > context.catalog.limits.integer("pools.chief_replicas"):
            text = f"replicaCount of the first pool is {count}: there is one chief"
            yield Problem(f"{pool.path}.replicaCount", text, "write replicaCount: 1, and the others as pool 1")


def replicas_negative(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        count = pool.data.get("replicaCount", 0)
        if count < 0:
            yield Problem(f"{pool.path}.replicaCount", f"replicaCount is {count}: write 0 or more")


def machine_and_replicas(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        machine, replicas = bool(pool.machine), bool(pool.data.get("replicaCount"))
        if machine == replicas:
            continue
        missing = "replicaCount" if machine else "machineSpec"
        path = f"{pool.path}.{missing}"
        if not document.refused_at(path):
            given = "machineSpec" if machine else "replicaCount"
            text = f"pool {pool.index} has {given} but no {missing}; give both or neither"
            edits = write(1, path, safe=pool.index == 0) if machine else ()
            yield Problem(path, text, "" if machine else "write machineSpec.machineType", edits=edits)


def refused_by_gcloud(document: Document) -> list[Pool]:
    """Return the pools for which gcloud refuses a file that the API takes."""
    if document.kind != "CustomJobSpec":
        return []  # gcloud ai hp-tuning-jobs does not look
    # gcloud's words: "Exactly one of fields [pythonPackageSpec, containerSpec] is required for a [workerPoolSpecs]"
    return [pool for pool in document.pools[1:] if pool.empty]


def pool_empty_gcloud(document: Document, context: Context) -> Iterator[Problem]:
    for pool in refused_by_gcloud(document):
        if not document.refused_at(pool.path):
            text = f"gcloud refuses the empty pool {pool.index} in a --config file, though the API takes it"
            if context.submit:  # which sends a job of the project through the API
                yield Problem(pool.path, text, f"send it through the API: {context.submit}", Severity.WARNING)
            else:
                yield Problem(pool.path, text, "submit it through the API; or, if no pool follows it, leave it out")


def pool_placeholder(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        if pool.program and not pool.makes_machines and not document.refused_at(f"{pool.path}.machineSpec"):
            text = f"pool {pool.index} has a program but no machines: gcloud accepts that, Vertex AI may not"
            yield Problem(pool.path, text, "write machineSpec and replicaCount, or {} for a pool left out")


def pool_program(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        if pool.empty or pool.container is not None or pool.python_package is not None:
            continue
        kinds = ("containerSpec", "pythonPackageSpec")
        if not any(document.refused_at(f"{pool.path}.{kind}") for kind in kinds):
            text = f"pool {pool.index} has no program: it needs containerSpec or pythonPackageSpec, one of them"
            yield Problem(pool.path, text, "write containerSpec or pythonPackageSpec")


def evaluators(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools[3:4]:
        if pool.replica_count > 1:
            text = f"TensorFlow expects at most one evaluator; pool 3 has {pool.replica_count}"
            yield Problem(f"{pool.path}.replicaCount", text, edits=write(1))


def _reducers(document: Document, context: Context) -> list[Pool]:
    """Return the running pools on Google's image of the Reduction Server."""
    return [pool for pool in document.running if context.catalog.is_reduction_server(pool.image)]


def reduction_image(document: Document, context: Context) -> Iterator[Problem]:
    limits = context.catalog.limits
    for pool in document.running:
        if pool.named_reduction_server and not context.catalog.is_reduction_server(pool.image):
            name = f"{limits.names('images.hosts')[0]}/{limits.names('reduction_server.images')[0]}"
            text = f"{pool.image!r} is not the image of the Reduction Server"
            yield Problem(f"{pool.program_path}.imageUri", text, edits=write(name))


def reduction_pool(document: Document, context: Context) -> Iterator[Problem]:
    position = context.catalog.limits.integer("reduction_server.pool")
    for pool in _reducers(document, context):
        if pool.index != position:
            text = f"a Reduction Server belongs in pool {position}; in pool {pool.index} it takes the role of that pool"
            yield Problem(pool.path, text, f"move it to workerPoolSpecs[{position}]")


def reduction_gpu(document: Document, context: Context) -> Iterator[Problem]:
    for pool in _reducers(document, context):
        if has_gpu(pool, context.catalog):
            best = context.catalog.limits.text("reduction_server.machine")
            text = f"a Reduction Server uses no GPU; the GPUs of {pool.machine_type} would be idle and billed"
            yield Problem(f"{pool.path}.machineSpec", text, f"write machineType: {best} without accelerators")


def reduction_workers(document: Document, context: Context) -> Iterator[Problem]:
    reducers = _reducers(document, context)
    # a Reduction Server in a wrong pool is reduction-pool's finding, and no worker
    workers = [pool for pool in document.running if pool.index < 2 and pool not in reducers]
    for pool in reducers[:1]:
        bare = [str(worker.index) for worker in workers if not has_gpu(worker, context.catalog)]
        if bare:
            text = f"a Reduction Server serves GPU workers; pool {' and pool '.join(bare)} has no GPU"
            yield Problem(pool.path, text, "give the workers GPUs, or remove the Reduction Server")
        elif sum(worker.replica_count for worker in workers) < 2:
            text = "a Reduction Server adds up the gradients of several machines; there is one"
            yield Problem(pool.path, text, "add workers as pool 1, or remove the Reduction Server")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def reduction_framework(document: Document, context: Context) -> Iterator[Problem]:
    if not _reducers(document, context):
        return
    oldest = context.catalog.limits.table("reduction_server.min_framework")
    for pool in document.running[:2]:
        image = context.catalog.image(pool.image)
        if image is None:
            continue
        least = oldest.get(image.framework)
        if least is None or _version(image.version) < _version(least):
            wanted = " or ".join(f"{name} {version}" for name, version in oldest.items())
            text = f"the Reduction Server works with {wanted} or later; pool {pool.index} has {image.name}"
            yield Problem(pool.program_path, text, "use a newer image")


def reduction_machine(document: Document, context: Context) -> Iterator[Problem]:
    best = context.catalog.limits.text("reduction_server.machine")
    for pool in _reducers(document, context):
        if pool.machine_type != best and not has_gpu(pool, context.catalog):
            text = (
                f"pool {pool.index} has {pool.machine_type or 'no machine type'}; {best} is recommended for a Reduction Server, "
                "with as many replicas as match the bandwidth of pools 0 and 1"
            )
            yield Problem(f"{pool.path}.machineSpec.machineType", text, f"write machineType: {best}")


RULES = (
    Rule("pools-missing", Severity.ERROR, "A job has worker pools.", join(REST, GCLOUD), pools_missing),
    Rule("chief-empty", Severity.ERROR, "The first pool is not empty.", REST, chief_empty),
    Rule("chief-replicas", Severity.ERROR, "The first pool has one replica.",
         join(SERVER, DISTRIBUTED), chief_replicas),
    Rule("replicas-negative", Severity.ERROR, "No replicaCount is negative.", GCLOUD, replicas_negative),
    Rule("machine-and-replicas", Severity.ERROR, "machineSpec and replicaCount are given together or not at all.",
         SERVER, machine_and_replicas, "safe"),
    Rule("pool-empty-gcloud", Severity.ERROR, "No pool of a custom job's file is empty.", GCLOUD, pool_empty_gcloud),
    Rule("pool-placeholder", Severity.WARNING, "Every pool with a program has machines.", GCLOUD, pool_placeholder),
    Rule("pool-program", Severity.ERROR, "Every pool has containerSpec or pythonPackageSpec.",
         join(REST, GCLOUD), pool_program),
    Rule("evaluators", Severity.WARNING, "There is at most one evaluator.", DISTRIBUTED, evaluators, "unsafe"),
    Rule("reduction-image", Severity.WARNING, "The Reduction Server's image is Google's.",
         DISTRIBUTED, reduction_image, "unsafe"),
    Rule("reduction-pool", Severity.ERROR, "The Reduction Server is pool 2.", DISTRIBUTED, reduction_pool),
    Rule("reduction-gpu", Severity.WARNING, "The Reduction Server has no GPU.", DISTRIBUTED, reduction_gpu),
    Rule("reduction-workers", Severity.WARNING, "The Reduction Server serves several GPU workers.",
         DISTRIBUTED, reduction_workers),
    Rule("reduction-framework", Severity.WARNING, "The workers' framework supports the Reduction Server.",
         DISTRIBUTED, reduction_framework),
    Rule("reduction-machine", Severity.INFO, "The Reduction Server runs on the recommended machine.",
         DISTRIBUTED, reduction_machine),
)  # fmt: skip
