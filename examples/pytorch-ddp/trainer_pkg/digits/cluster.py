"""This process's place among all that train, from the variables that the service or torchrun sets."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Pools in the order of their ranks: the chief is rank 0, then come the workers.
TRAINING_POOLS = ("workerpool0", "workerpool1")


class ClusterError(Exception):
    """The variables of the environment contradict each other, or a peer is gone."""


@dataclass(frozen=True)
class Cluster:
    """Where this process is.

    Args:
        rank: Its number, 0 for the chief, which alone writes outputs.
        size: How many processes train together.
        local_rank: Its number on its machine: the number of its GPU.
        address: Host and port of the chief; "" for one process.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    address: str = ""

    @property
    def is_chief(self) -> bool:
        return self.rank == 0


def from_environment(environ: Mapping[str, str] = os.environ) -> Cluster:
    """The place that the environment describes.

    `RANK` and its companions are taken first: Vertex AI sets them on jobs of several replicas, and torchrun sets them
    for each of its processes. Without them CLUSTER_SPEC, which Vertex AI sets on every job, says the same. A default of
    `WORLD_SIZE=1` would be wrong here: each replica would train a model of its own, and the job would succeed.

    Raises:
        ClusterError: Some of the rank variables are set and others are not, or a number is none.
    """
    given = [name for name in RANK_VARIABLES if environ.get(name)]
    if given and len(given) < len(RANK_VARIABLES):
        missing = ", ".join(name for name in RANK_VARIABLES if name not in given)
        raise ClusterError(f"{', '.join(given)} are set, but {missing} are not: set all four or none")
    if given:
        try:
            rank, size, local = (int(environ.get(name) or 0) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        except ValueError as error:
            raise ClusterError(f"RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers: {error}") from error
        if not 0 <= rank < size:
            raise ClusterError(f"RANK={rank} must be at least 0 and below WORLD_SIZE={size}")
        return Cluster(rank, size, local, f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}")
    return _from_cluster_spec(environ.get("CLUSTER_SPEC", ""))


def _from_cluster_spec(text: str) -> Cluster:
    if not text:
        return Cluster()
    try:
        spec = json.loads(text)
        pools, task = spec["cluster"], spec["task"]
        hosts = [host for pool in TRAINING_POOLS for host in pools.get(pool, [])]
        if len(hosts) < 2:
            return Cluster()
        before = sum(len(pools.get(pool, [])) for pool in TRAINING_POOLS[: TRAINING_POOLS.index(task["type"])])
        return Cluster(before + int(task["index"]), len(hosts), 0, hosts[0])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"CLUSTER_SPEC cannot be read ({error!r}): {text[:200]}") from error


def join(cluster: Cluster, device: torch.device, timeout: timedelta = timedelta(minutes=10)) -> None:
    """Meet the other processes; does nothing for one process.

    NCCL needs a GPU in every process; on CPUs it is gloo.

    Raises:
        ClusterError: The others did not come in time.
    """
    if cluster.size == 1:
        return
    try:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"tcp://{cluster.address}",
            rank=cluster.rank,
            world_size=cluster.size,
            timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:
        raise ClusterError(f"no cluster of {cluster.size} processes at {cluster.address}: {error}") from error


def leave() -> None:
    """Part from the others, if there are any; no DistributedDataParallel may be used any more.

    It holds the process group, in reference cycles of its own. A group that is left to the end of the interpreter may abort
    the process ("terminate called without an active exception"), which fails the replica after all its work.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
        gc.collect()


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum over all processes, the same in each."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values
