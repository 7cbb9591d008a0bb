"""The cluster a CustomJobSpec makes: its replicas and roles, and what each of them finds in its environment.

Pure functions, used to explain a job and to run one. The rules are those of the distributed-training, code-requirements
and CustomJobSpec pages of the Vertex AI documentation as of 2026-08-22.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vertexrig.spec.api_names import snake_keys
from vertexrig.spec.document import Pool

ROLES = ("chief", "worker", "ps", "evaluator")
"""TF_CONFIG task types by the index of the worker pool (distributed-training page)."""

DIRECTORIES = {
    "AIP_MODEL_DIR": "model",
    "AIP_CHECKPOINT_DIR": "checkpoints",
    "AIP_TENSORBOARD_LOG_DIR": "logs",
}
"""Output variables and the folder of each below `baseOutputDirectory` (CustomJobSpec reference)."""

_OPEN_PORT = 3333

_RANKED_POOLS = (0, 1, 3)
"""Worker pools whose replicas have a PyTorch rank. Pool 3 has: Snapchat/GiGL (pull requests 350 and 394, 2025-10 and 2025-11) runs
`init_process_group` there and expects RANK to count on from pool 1. Pool 2 has not: in Google's Reduction Server
notebook (vertex-ai-samples) WORLD_SIZE × GPUs processes meet, while its four reduction servers never join."""

Address = Callable[[int, int], str]
"""Pool index and replica index to `host:port`."""


@dataclass(frozen=True)
class Replica:
    """One process of a job.

    Args:
        name: `workerpool1-0`, as logs and error messages name it.
        pool_index: Index of its worker pool.
        index: Its index within the pool, from 0.
        role: TF_CONFIG task type: chief, worker, ps or evaluator.
        address: `host:port` its peers reach it at.
    """

    name: str
    pool_index: int
    index: int
    role: str
    address: str

    @property
    def host(self) -> str:
        """The host in its address."""
        return self.address.rpartition(":")[0]


@dataclass(frozen=True)
class Identity:
    """What the service knows of a job in addition to its spec.

    Args:
        job_id: Numeric id; of a trial, that of the tuning job.
        project_number: Numeric project; the service gives the number, not the id.
        region: Region the job runs in.
        trial: Trial id of a tuning job's trial, "" otherwise.
    """

    job_id: str
    project_number: str
    region: str
    trial: str = ""


def cloud_host(pool: int, index: int, token: str) -> str:
    """Return a replica's host as the service names it: `cmle-training-workerpool0-<token>-0`."""
    return f"cmle-training-workerpool{pool}-{token}-{index}"


def cloud_address(token: str = "0123456789") -> Address:
    """Return a function that gives addresses as the service forms them: `cloud_host` with port 2222."""
    return lambda pool, index: f"{cloud_host(pool, index, token)}:2222"


def role(pool: int) -> str:
    """Return the role of worker pool `pool`; a pool past the fourth has none and keeps its pool's name."""
    return ROLES[pool] if pool < len(ROLES) else f"workerpool{pool}"


def replicas(pools: Iterable[Pool], address: Address | None = None) -> tuple[Replica, ...]:
    """Return every replica of a job, in the order of its pools."""
    address = address or cloud_address()
    return tuple(
        Replica(f"workerpool{pool.index}-{i}", pool.index, i, role(pool.index), address(pool.index, i))
        for pool in pools
        if pool.makes_machines
        for i in range(pool.replica_count)
    )


def cluster_spec(
    all_replicas: Sequence[Replica], one: Replica, job: Mapping[str, Any], trial: str = ""
) -> dict[str, Any]:
    """Return CLUSTER_SPEC of one replica; every replica of every job has it.

    `job` in it is text and `open_ports` is set, as in the values that public programs copied (read 2026-11-22); the
    distributed-training page shows the CustomJobSpec instead.
    """
    cluster: dict[str, list[str]] = {}
    for replica in all_replicas:
        cluster.setdefault(f"workerpool{replica.pool_index}", []).append(replica.address)
    task: dict[str, Any] = {"type": f"workerpool{one.pool_index}", "index": one.index}
    if trial:
        task["trial"] = trial
    program = executor_job(_pool(job, one))
    return {"cluster": cluster, "environment": "cloud", "task": task, "job": program, "open_ports": [_OPEN_PORT]}


def _pool(job: Mapping[str, Any], one: Replica) -> Pool:
    pools = job.get("workerPoolSpecs") or ()
    return Pool(one.pool_index, "", pools[one.pool_index] if one.pool_index < len(pools) else {})


def executor_job(pool: Pool) -> str:
    """Return a pool's program as the service's executor gets it, as JSON; the fields of a container's are empty."""
    args = pool.args if pool.python_package is not None else []
    return compact({"python_module": pool.module, "package_uris": pool.package_uris, "job_args": args})


def compact(value: object) -> str:
    """Return JSON without blanks, as the service writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def tf_config(
    all_replicas: Sequence[Replica], one: Replica, job: Mapping[str, Any], trial: str = "", cloud: str = ""
) -> dict[str, Any] | None:
    """Return TF_CONFIG of one replica, None for a job of a single replica; its cluster never holds the evaluator.

    `cloud` is the service's internal id of the task.
    """
    # by the distributed-training page a single replica has no TF_CONFIG; CLUSTER_SPEC is always set
    if len(all_replicas) < 2:
        return None
    cluster: dict[str, list[str]] = {}
    for replica in all_replicas:
        # TensorFlow counts the replicas of the cluster it trains in, and the evaluator is not one of them
        if replica.role != "evaluator":
            cluster.setdefault(replica.role, []).append(replica.address)
    task: dict[str, Any] = {"type": one.role, "index": one.index, "cloud": cloud}
    if trial:
        task["trial"] = trial
    return {"cluster": cluster, "environment": "cloud", "task": task, "job": snake_keys(job)}


def output_directories(job: Mapping[str, Any], trial: str = "") -> dict[str, str]:
    """AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR as gs:// URIs with a trailing slash; none without a `baseOutputDirectory`."""
    base = str((job.get("baseOutputDirectory") or {}).get("outputUriPrefix", ""))
    if not base:
        return {}
    base = base if base.endswith("/") else base + "/"
    # each trial has a folder of its own below the study's
    base = f"{base}{trial}/" if trial else base
    return {name: f"{base}{folder}/" for name, folder in DIRECTORIES.items()}


def ranks(all_replicas: Sequence[Replica]) -> dict[str, int]:
    """PyTorch's rank of each replica that has one, by name: the chief 0, then workers, then evaluators; none in a job of one."""
    if len(all_replicas) < 2:
        return {}
    ranked = (replica.name for replica in all_replicas if replica.pool_index in _RANKED_POOLS)
    return {name: rank for rank, name in enumerate(ranked)}


def rank_variables(all_replicas: Sequence[Replica], one: Replica) -> dict[str, str]:
    """Return what PyTorch's `env://` reads: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, counted in replicas, not in GPUs.

    Empty for a job of a single replica, and for parameter and reduction servers, which are not counted in WORLD_SIZE.
    Sources: vertex-ai-samples
    (multi_node_ddp_gloo_vertex_training_with_custom_container, pytorch_distributed_training_reduction_server) and
    Snapchat/GiGL (vertex_ai_context.py), read 2026-11-21. None of them shows the port's number; here it is the one that
    CLUSTER_SPEC names for the chief, at which programs that read CLUSTER_SPEC first meet too.

    Args:
        all_replicas: The job's replicas, in the order of their pools.
        one: The replica they are for.
    """
    ranked = ranks(all_replicas)
    if one.name not in ranked:
        return {}
    host, _, port = all_replicas[0].address.rpartition(":")
    return {"MASTER_ADDR": host, "MASTER_PORT": port, "RANK": str(ranked[one.name]), "WORLD_SIZE": str(len(ranked))}


# Fields of a CustomJobSpec whose resource the replicas know by full name. The two of experiments are what
# google-cloud-aiplatform reads since 2024-05 (python-aiplatform f041f1af0 and 555ead7c4, read 2026-11-23); until 1.51
# it set them itself in the `env` of its jobs, by short names.
_RESOURCES = {
    "tensorboard": "AIP_TENSORBOARD_RESOURCE_NAME",
    "experiment": "AIP_EXPERIMENT_NAME",
    "experimentRun": "AIP_EXPERIMENT_RUN_NAME",
}


def service_environment(
    all_replicas: Sequence[Replica], one: Replica, job: Mapping[str, Any], identity: Identity
) -> dict[str, str]:
    """Return the variables the service sets on one replica, before the spec's own `env`."""
    trial = identity.trial
    variables = {
        "CLUSTER_SPEC": compact(cluster_spec(all_replicas, one, job, trial)),
        "CLOUD_ML_JOB": executor_job(_pool(job, one)),
        "CLOUD_ML_JOB_ID": identity.job_id,
        "CLOUD_ML_PROJECT_ID": identity.project_number,
        "CLOUD_ML_REGION": identity.region,
    }
    config = tf_config(all_replicas, one, job, trial, cloud=f"{identity.job_id}-{one.name}")
    if config is not None:
        variables["TF_CONFIG"] = json.dumps(config)
    variables |= rank_variables(all_replicas, one)
    if trial:
        variables["CLOUD_ML_TRIAL_ID"] = trial
    variables |= {name: str(job[field]) for field, name in _RESOURCES.items() if job.get(field)}
    return variables | output_directories(job, trial)


_REFERENCE = re.compile(r"\$(?:\$(?=\()|\(([A-Za-z_][A-Za-z0-9_]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` with the variable, if there is one; `$$(NAME)` is the text `$(NAME)` (EnvVar page)."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    return _REFERENCE.sub(value, text)


def own_environment(entries: Iterable[Mapping[str, Any]], service: Mapping[str, str]) -> dict[str, str]:
    """Return the spec's `env` in order, each value expanded with the service's variables and the entries before it."""
    own: dict[str, str] = {}
    for entry in entries:
        own[str(entry.get("name", ""))] = expand(str(entry.get("value", "")), {**service, **own})
    own.pop("", None)
    return own
