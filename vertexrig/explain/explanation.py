"""The cluster of a job or sweep on Vertex AI: pools, replicas, the environment of each replica, quota and price.

A pure function of the job spec and the catalog; `vertexrig.explain.picture` draws its value for a terminal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vertexrig.catalog import Catalog, Machine
from vertexrig.checks import secrets
from vertexrig.errors import FindingsError, UsageError, did_you_mean
from vertexrig.finding import Severity
from vertexrig.spec import cluster, quota
from vertexrig.spec.cluster import Replica
from vertexrig.spec.document import Document, Pool, most_trials, parallel_trials, scheduling_strategy
from vertexrig.spec.estimate import Estimate, estimate

MOST_REPLICAS = 10_000
"""Most replicas that are listed one by one."""

UNKNOWN = cluster.Identity("<job id>", "<project number>", "<region>")
"""Stands for a value that the service decides when the job is created."""

_PORT = "<port>"  # of MASTER_PORT: no source shows its number


@dataclass(frozen=True)
class ImageFacts:
    """A container image.

    Args:
        uri: As the job names it.
        name: The prebuilt image's own name, such as `tf-gpu.2-17.py310`; "" if the catalog does not know it.
        end_of_support: ISO date after which no new versions are published; "" if not known.
        end_of_availability: ISO date after which the service may refuse it; "" if not known.
    """

    uri: str
    name: str = ""
    end_of_support: str = ""
    end_of_availability: str = ""


@dataclass(frozen=True)
class PoolFacts:
    """A worker pool with at least one replica.

    Args:
        name: `workerpool1`.
        index: Its place.
        role: TF_CONFIG task type: chief, worker, ps or evaluator.
        label: The role in words; differs from `role` for Reduction Server.
        replica_count: Replicas.
        machine_type: Machine type of each replica.
        vcpus: Per VM; None if not documented.
        memory_gb: Per VM; None if not documented.
        accelerator_type: As the job names it, or the catalog's name of a TPU chosen by topology; "" if none.
        accelerator_count: GPUs or TPU cores per replica, or the chips of a TPU slice.
        accelerator_unit: "GPUs", "cores", "chips", or "" without an accelerator.
        gpu_partition_size: Partition of each GPU, "" if whole.
        tpu_topology: Shape of a TPU slice, "" if none.
        vms: VMs per replica: more than one for a TPU slice of several hosts.
        boot_disk_type: Boot disk type of each VM.
        boot_disk_size_gb: Its size in GB.
        image: The image of each replica.
        packages: URIs of the Python packages installed in it.
        command: What each replica runs, word by word; empty for the image's own entry point.
        args: Its arguments; a trial's parameters come on top.
        env: The job's own variables.
    """

    name: str
    index: int
    role: str
    label: str
    replica_count: int
    machine_type: str
    vcpus: int | None
    memory_gb: float | None
    accelerator_type: str
    accelerator_count: int
    accelerator_unit: str
    gpu_partition_size: str
    tpu_topology: str
    vms: int
    boot_disk_type: str
    boot_disk_size_gb: int
    image: ImageFacts
    packages: tuple[str, ...]
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class StudyFacts:
    """The search of a tuning job.

    Args:
        metrics: Goal by metric id.
        algorithm: GRID_SEARCH, RANDOM_SEARCH or BAYESIAN (the service's default).
        parameters: What is searched, by parameter id: `0.001 to 1, UNIT_LOG_SCALE`. Conditional ones name their condition.
        trials: Trials at most.
        parallel: Trials at one time.
    """

    metrics: Mapping[str, str]
    algorithm: str
    parameters: Mapping[str, str]
    trials: int
    parallel: int


@dataclass(frozen=True)
class Explanation:
    """A job or sweep, explained.

    Args:
        name: The job's or sweep's name, or the file's.
        kind: CustomJobSpec or HyperparameterTuningJob.
        topology: The template it was made from, "" for a file.
        region: Where it runs, "" if not known.
        strategy: Scheduling strategy.
        trial: The trial whose environment is shown ("1"), "" for a custom job.
        pools: The worker pools that make machines.
        replicas: Every replica of the job, or of one trial.
        variables: What the service sets alike in every replica; TF_CONFIG and CLUSTER_SPEC differ, see `environment`.
        study: What a tuning job searches; None for a custom job.
        quota: What is needed of each quota while all replicas of all parallel trials run.
        quota_date: The date of the region's default quotas, "" if the region is not known.
        price: The estimate.
        job: The CustomJobSpec, canonical.
    """

    name: str
    kind: str
    topology: str
    region: str
    strategy: str
    trial: str
    pools: tuple[PoolFacts, ...]
    replicas: tuple[Replica, ...]
    variables: Mapping[str, str]
    study: StudyFacts | None
    quota: tuple[quota.QuotaNeed, ...]
    quota_date: str
    price: Estimate
    job: Mapping[str, Any] = field(repr=False)

    @property
    def distributed(self) -> bool:
        """Whether there is more than one replica: only then is TF_CONFIG set."""
        return len(self.replicas) > 1

    def replica(self, name: str) -> Replica:
        """Return the replica called `workerpool1-0`; UsageError if there is none."""
        for one in self.replicas:
            if one.name == name:
                return one
        names = [one.name for one in self.replicas]
        raise UsageError(f"{self.name} has no replica {name!r}. {did_you_mean(name, names)}")

    def tf_config(self, replica: Replica) -> dict[str, Any] | None:
        """TF_CONFIG of one replica, None if it is not set."""
        cloud = f"{UNKNOWN.job_id}-{replica.name}"
        return cluster.tf_config(self.replicas, replica, self.job, self.trial, cloud=cloud)

    def cluster_spec(self, replica: Replica) -> dict[str, Any]:
        """CLUSTER_SPEC of one replica."""
        return cluster.cluster_spec(self.replicas, replica, self.job, self.trial)

    def ranks(self) -> dict[str, int]:
        """PyTorch's rank of each replica that has one, by name."""
        return cluster.ranks(self.replicas)

    def rendezvous(self) -> dict[str, str] | None:
        """PyTorch's variables that all ranked replicas share, None if they are not set."""
        shared = cluster.rank_variables(self.replicas, self.replicas[0])
        shared.pop("RANK", None)
        return {**shared, "MASTER_PORT": _PORT} if shared else None

    def environment(self, replica: Replica) -> dict[str, str]:
        """Return all environment variables of one replica: the service's, then the job's own."""
        identity = dataclasses.replace(UNKNOWN, region=self.region or UNKNOWN.region, trial=self.trial)
        service = cluster.service_environment(self.replicas, replica, self.job, identity)
        service |= {"MASTER_PORT": _PORT} if "MASTER_PORT" in service else {}
        own = next(pool.env for pool in self.pools if pool.index == replica.pool_index)
        entries = [{"name": name, "value": value} for name, value in own.items()]
        return service | cluster.own_environment(entries, service)


def explain(
    document: Document, catalog: Catalog, *, region: str = "", name: str = "", topology: str = ""
) -> Explanation:
    """Return the explanation of a job spec; secrets in plain text are cut.

    Args:
        document: The job spec as read; what the reading refused is left out.
        catalog: Machines, images, quotas and prices.
        region: Where it runs, "" if not known.
        name: What to call it.
        topology: The template it was made from.

    Raises:
        FindingsError: No worker pool makes a machine.
        UsageError: There are more than `MOST_REPLICAS` replicas.
    """
    document = secrets.without(document)
    called = name or document.file or "the job"
    pools = tuple(pool for pool in document.running if pool.replica_count > 0)
    if not pools:
        errors = [finding.message for finding in document.findings if finding.severity is Severity.ERROR]
        why = f": {errors[0]}" if errors else ""
        raise FindingsError(f"{called} has no worker pool that makes a machine, so there is nothing to explain{why}")
    count = sum(pool.replica_count for pool in pools)
    if count > MOST_REPLICAS:
        raise UsageError(f"{called} has {count:,} replicas; clusters of up to {MOST_REPLICAS:,} can be explained")
    trial = "" if document.kind == "CustomJobSpec" else "1"
    replicas = cluster.replicas(pools, cluster.cloud_address("<id>"))
    identity = dataclasses.replace(UNKNOWN, region=region or UNKNOWN.region, trial=trial)
    # of one replica alone: the variables that name others would make the text as long as the cluster
    shared = cluster.service_environment(replicas[:1], replicas[0], document.job, identity)
    place = catalog.regions.get(region)
    return Explanation(
        name=called,
        kind=document.kind,
        topology=topology,
        region=region,
        strategy=scheduling_strategy(document),
        trial=trial,
        pools=tuple(_pool(pool, catalog) for pool in pools),
        replicas=replicas,
        variables={
            key: value for key, value in shared.items() if key not in ("CLUSTER_SPEC", "TF_CONFIG", "CLOUD_ML_JOB")
        },
        study=_study(document),
        quota=tuple(quota.quota_needs(document, catalog, region)),
        quota_date=place.date if place is not None else "",
        price=estimate(document, catalog),
        job=document.job,
    )


def _pool(pool: Pool, catalog: Catalog) -> PoolFacts:
    machine = catalog.machines.get(pool.machine_type)
    disk = pool.data.get("diskSpec") or {}
    role = cluster.role(pool.index)
    accelerator, count, unit, vms = _accelerators(pool, machine, catalog)
    return PoolFacts(
        name=f"workerpool{pool.index}",
        index=pool.index,
        role=role,
        label="reduction server" if catalog.is_reduction_server(pool.image) else role,
        replica_count=pool.replica_count,
        machine_type=pool.machine_type,
        vcpus=machine.vcpus if machine else None,
        memory_gb=machine.memory_gb if machine else None,
        accelerator_type=accelerator,
        accelerator_count=count,
        accelerator_unit=unit,
        gpu_partition_size=str((pool.data.get("machineSpec") or {}).get("gpuPartitionSize", "")),
        tpu_topology=pool.tpu_topology,
        vms=vms,
        boot_disk_type=str(disk.get("bootDiskType") or catalog.default_boot_disk(pool.machine_type)),
        boot_disk_size_gb=int(disk.get("bootDiskSizeGb") or catalog.limits.integer("boot_disk.default_gb")),
        image=image_facts(pool.image, catalog),
        packages=tuple(pool.package_uris),
        command=_command(pool),
        args=tuple(pool.args),
        env={str(entry.get("name", "")): str(entry.get("value", "")) for entry in pool.env},
    )


def _accelerators(pool: Pool, machine: Machine | None, catalog: Catalog) -> tuple[str, int, str, int]:
    """Return name, count, unit of the count, and VMs per replica."""
    if machine is not None and machine.tpu:
        topology = machine.tpu_topologies.get(pool.tpu_topology)
        return (machine.tpu, topology.chips, "chips", topology.vms) if topology else (machine.tpu, 0, "chips", 1)
    if not pool.accelerator_type:
        return "", 0, "", 1
    row = catalog.accelerators.get(pool.accelerator_type)
    unit = "cores" if row is not None and row.kind == "tpu" else "GPUs"
    return pool.accelerator_type, pool.accelerator_count, unit, 1


def image_facts(uri: str, catalog: Catalog) -> ImageFacts:
    """Return an image with the catalog's data about it."""
    row = catalog.image(uri)
    return ImageFacts(uri) if row is None else ImageFacts(uri, row.name, row.end_of_support, row.end_of_availability)


def _command(pool: Pool) -> tuple[str, ...]:
    if pool.python_package is not None:
        # What the service runs in a prebuilt image once the package is installed.
        return "python3", "-m", pool.module
    return tuple(str(word) for word in pool.program.get("command", ()))


def _study(document: Document) -> StudyFacts | None:
    study = document.study
    if study is None:
        return None
    algorithm = str(study.get("algorithm", ""))
    parameters: dict[str, str] = {}
    pending = [(spec, "") for spec in reversed(study.get("parameters", []))]
    while pending:  # parents before their children, in the order of the file
        spec, condition = pending.pop()
        key = str(spec.get("parameterId", ""))
        parameters[key] = ", ".join(part for part in (parameter_range(spec), spec.get("scaleType"), condition) if part)
        for child in reversed(spec.get("conditionalParameterSpecs", [])):
            pending.append((child.get("parameterSpec", {}), f"only if {key} is {_parents(child)}"))
    return StudyFacts(
        metrics={str(one.get("metricId", "")): str(one.get("goal", "")) for one in study.get("metrics", [])},
        # The API's default: Vizier's Bayesian optimization.
        algorithm="BAYESIAN" if algorithm in ("", "ALGORITHM_UNSPECIFIED") else algorithm,
        parameters=parameters,
        trials=most_trials(document),
        parallel=parallel_trials(document),
    )


def parameter_range(spec: Mapping[str, Any]) -> str:
    """Return the values that a parameter may have, on one line: `0.001 to 1`, `64, 128, 512`."""
    for key, unit in (("doubleValueSpec", ""), ("integerValueSpec", "whole numbers ")):
        if key in spec:
            return f"{unit}{spec[key].get('minValue', 0)} to {spec[key].get('maxValue', 0)}"
    for key in ("discreteValueSpec", "categoricalValueSpec"):
        if key in spec:
            return ", ".join(str(value) for value in spec[key].get("values", ()))
    return ""


def _parents(child: Mapping[str, Any]) -> str:
    for key in ("parentDiscreteValues", "parentIntValues", "parentCategoricalValues"):
        if key in child:
            return " or ".join(str(value) for value in child[key].get("values", ()))
    return "set"


def data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain values for JSON.

    TF_CONFIG, CLUSTER_SPEC and PyTorch's variables are given once, without what differs between the replicas: that is under
    `tf_config_task`, `cluster_spec_task` and `rank` of each; CLUSTER_SPEC's job is the chief's. `replica_data` gives them whole.
    """
    first = explanation.replicas[0]
    shared, spec = explanation.tf_config(first), explanation.cluster_spec(first)
    for one in (shared, spec):
        # What differs between replicas is left out here, and is with each of them.
        if one is not None:
            del one["task"]
    ranks = explanation.ranks()
    plain = {name: getattr(explanation, name) for name in ("name", "kind", "topology", "region", "strategy", "trial")}
    return {
        **plain,
        "pools": [dataclasses.asdict(pool) for pool in explanation.pools],
        "replicas": [_replica(explanation, one, ranks) for one in explanation.replicas],
        "variables": dict(explanation.variables),
        "pytorch": explanation.rendezvous(),
        "tf_config": shared,
        "cluster_spec": spec,
        "study": None if explanation.study is None else dataclasses.asdict(explanation.study),
        "quota": [dataclasses.asdict(need) for need in explanation.quota],
        "quota_date": explanation.quota_date,
        "price": _price(explanation.price),
    }


def replica_data(explanation: Explanation, replica: Replica) -> dict[str, Any]:
    """Return the environment of one replica as plain values for JSON; `environment` holds the exact texts, except for secrets."""
    return {
        "replica": _fields(replica),
        "tf_config": explanation.tf_config(replica),
        "cluster_spec": explanation.cluster_spec(replica),
        "environment": explanation.environment(replica),
    }


def _fields(one: Replica) -> dict[str, Any]:
    return {"name": one.name, "pool": one.pool_index, "index": one.index, "role": one.role, "address": one.address}


def _replica(explanation: Explanation, one: Replica, ranks: Mapping[str, int]) -> dict[str, Any]:
    # the task does not depend on who else there is: a cluster of the replica alone saves a list of all per replica
    cloud, trial = f"{UNKNOWN.job_id}-{one.name}", explanation.trial
    config = cluster.tf_config((one, one), one, {}, trial, cloud) if explanation.distributed else None
    return {
        **_fields(one),
        "rank": ranks.get(one.name),
        "tf_config_task": None if config is None else config["task"],
        "cluster_spec_task": cluster.cluster_spec((one,), one, explanation.job, trial)["task"],
    }


def _price(price: Estimate) -> dict[str, Any]:
    return {
        **dataclasses.asdict(price),
        "unpriced": price.unpriced,
        "usd_per_job": price.usd_per_job,
        "usd_at_most": price.usd_at_most,
        "wall_s": price.wall_s,
    }
