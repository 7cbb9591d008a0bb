"""Which process of which cluster this is, read from TF_CONFIG. Imports no TensorFlow.

Vertex AI sets TF_CONFIG on every replica of a distributed job and on no single-replica job. The evaluator is named in
`task` but not in `cluster` (Vertex AI documentation, "Distributed training").
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from trainer.errors import ClusterError

ROLES = ("chief", "worker", "ps", "evaluator")


@dataclass(frozen=True)
class Cluster:
    """One process of a cluster.

    Args:
        role: "chief", "worker", "ps" or "evaluator"; "chief" for a process that is alone.
        index: Index within the role, from 0.
        addresses: role -> "host:port" of each process. Empty without TF_CONFIG. Never holds "evaluator".
    """

    role: str = "chief"
    index: int = 0
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the outputs.

        Where the cluster has a chief, only that one does; where it has none, worker 0; alone, yes. Exactly one
        process of a cluster is the chief: two of them writing one directory is how exports break.
        """
        if "chief" in self.addresses:
            return self.role == "chief"
        return self.index == 0 and self.role in ("chief", "worker")

    @property
    def training_processes(self) -> int:
        """How many processes train: the chief and the workers, at least 1."""
        return max(1, len(self.addresses.get("chief", ())) + len(self.addresses.get("worker", ())))

    @property
    def has_servers(self) -> bool:
        """Whether the cluster has parameter servers."""
        return bool(self.addresses.get("ps"))

    @property
    def training_index(self) -> int:
        """This process's place among the training processes: the chief first, then the workers."""
        return self.index + (len(self.addresses.get("chief", ())) if self.role == "worker" else 0)

    def peers(self) -> tuple[str, ...]:
        """Return the addresses of the other training processes."""
        everyone = (*self.addresses.get("chief", ()), *self.addresses.get("worker", ()))
        return tuple(address for place, address in enumerate(everyone) if place != self.training_index)

    def describe(self) -> str:
        """Return one line for the log."""
        if not self.addresses:
            return "no TF_CONFIG: this process is alone"
        sizes = ", ".join(f"{len(hosts)} {role}" for role, hosts in self.addresses.items())
        return f"TF_CONFIG: cluster of {sizes}; this is {self.role} {self.index}"


def _role(name: object) -> str:
    """Return a task type in today's words: `master` is what Vertex AI may still call the chief."""
    role = "chief" if name == "master" else name
    if role not in ROLES:
        raise ClusterError(f"TF_CONFIG: unknown task type {name!r}; the roles are {', '.join(ROLES)} (or master)")
    return str(role)


def _parse(text: str) -> Cluster:
    """Refuse a wrong cluster.

    Raises: ClusterError naming what is wrong with the value of TF_CONFIG.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"TF_CONFIG is not JSON: {error}; unset it to train in one process") from None
    if not isinstance(value, dict) or not isinstance(value.get("cluster") or {}, dict):
        raise ClusterError('TF_CONFIG must look like {"cluster": {"chief": ["host:port"], ...}, "task": {...}}')
    addresses: dict[str, tuple[str, ...]] = {}
    for name, hosts in (value.get("cluster") or {}).items():
        if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
            raise ClusterError(f'TF_CONFIG: cluster.{name} must be a list of "host:port", not {hosts!r}')
        if hosts and _role(name) != "evaluator":
            addresses[_role(name)] = tuple(hosts)
    task = value.get("task") or {}
    if not addresses and not task:
        return Cluster()
    role = _role(task.get("type"))
    try:
        index = int(task.get("index", 0))
    except (TypeError, ValueError):
        raise ClusterError(f"TF_CONFIG: task.index must be a whole number, not {task.get('index')!r}") from None
    # the evaluator is not in the cluster, whatever its index
    if role != "evaluator" and not 0 <= index < len(addresses.get(role, ())):
        raise ClusterError(
            f"TF_CONFIG: this task is {role} {index}, but the cluster has {len(addresses.get(role, ()))} of {role}"
        )
    return Cluster(role, index, addresses)


def from_environment(environ: MutableMapping[str, str] = os.environ) -> Cluster:
    """Return the cluster that TF_CONFIG describes; alone when it is unset or empty.

    TF_CONFIG is written back in the form TensorFlow's resolver takes: `master` becomes `chief`, and a cluster of one
    process is taken out, since collective strategies would wait for nobody.

    Raises:
        ClusterError: the value is not JSON, or the task is not part of the cluster.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return Cluster()
    cluster = _parse(text)
    if cluster.training_processes == 1 and not cluster.has_servers and cluster.role != "evaluator":
        environ.pop("TF_CONFIG", None)
        return Cluster()
    environ["TF_CONFIG"] = json.dumps({
        "cluster": {role: list(hosts) for role, hosts in cluster.addresses.items()},
        "task": {"type": cluster.role, "index": cluster.index},
    })  # fmt: skip
    return cluster
