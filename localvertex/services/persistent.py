"""PersistentResourceService: the resources are stored, no machine is held, and jobs that name one start at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from localvertex.http import Json, invalid, not_found
from localvertex.jobs import resources
from localvertex.jobs.store import ResourceStore
from localvertex.services.collection import Collection, Kind
from localvertex.services.router import PACKAGE, Done, Method, masked

SERVICE = f"{PACKAGE}.PersistentResourceService"
_KIND = Kind(
    "persistentResources",
    "PersistentResource",
    required=("resourcePools",),
    needs_id=True,
    updated=frozenset({"displayName", "labels", "resourcePools"}),
    operations=("Create", "Update"),
    answered=("name",),
    progress=(
        "Create PersistentResource request received. Checking project configuration and quota...",
        "Your persistent resource is ready.",
    ),
    starts=True,
    id_pattern=r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?",
    allowed="persistent_resource_id can only contain numbers, lower case letters and hyphens. The first character must be a "
    "letter, and the last character must be a letter or number.",
)
_REPLICAS = ["resourcePools", "replicaCount"]
"""The path of a mask that changes the number of replicas alone."""


class PersistentResources:
    """The persistent resources of a local Vertex."""

    def __init__(self, store: ResourceStore) -> None:
        self.collection = Collection(store, _KIND, _running)

    def table(self) -> dict[str, Method]:
        return {
            **self.collection.methods(),
            "UpdatePersistentResource": self.update,
            "RebootPersistentResource": self.reboot,
        }

    def update(self, request: Json) -> Json | Done:
        """UpdatePersistentResource; the mask `resource_pools.replica_count` changes the number of replicas of the pools that are named.

        It is the mask that the SDK sends to resize a Ray cluster (google-cloud-aiplatform 2.7.0, vertex_ray/cluster_init.py).
        """
        given = request.get("persistentResource") or {}
        paths = masked(str(request.get("updateMask", "")))
        if _REPLICAS not in paths:
            return self.collection.update(request)
        counts = {str(pool.get("id", "")): pool.get("replicaCount") for pool in given.get("resourcePools", ())}
        pools = self.collection.stored(str(given.get("name", ""))).body["resourcePools"]
        if unknown := sorted(counts.keys() - {str(pool["id"]) for pool in pools}):
            raise invalid(f"The persistent resource has no resource pool with the id {unknown[0][:80]!r}.")
        changed = [{**pool, "replicaCount": counts.get(str(pool["id"])) or pool["replicaCount"]} for pool in pools]
        mask = ",".join(".".join(path) for path in paths if path != _REPLICAS)
        return self.collection.update(
            {
                **request,
                "persistentResource": {**given, "resourcePools": changed},
                "updateMask": ",".join(filter(None, [mask, "resourcePools"])),
            }
        )

    def reboot(self, request: Json) -> Done:
        """RebootPersistentResource: its start time is now; jobs on it keep running."""
        name = self.collection.stored(request["name"]).name
        begun = {key: value for key, value in _KIND.started().items() if key in _KIND.known}
        made = self.collection.store.change(name, lambda body, _: body.update(begun))
        return Done(
            resources.place_of(name),
            "RebootPersistentResourceOperationMetadata",
            "PersistentResource",
            made,
            name,
            progress=("Waiting for persistent resource shut down.", ""),
            running={"state": "RUNNING", "worksOn": [name]},
        )

    def require(self, parent: str, spec: Mapping[str, Any]) -> None:
        """Refuse a job that names a persistent resource which does not exist."""
        id_ = str(spec.get("persistentResourceId", ""))
        if id_ and self.collection.store.get(f"{parent}/persistentResources/{id_}") is None:
            raise not_found("The PersistentResource does not exist.")


def _running(request: Json, fields: Json) -> Json:
    """Return the fields of a resource that has all its replicas; a new one is RUNNING at once."""
    if "resourcePools" in fields:
        fields = {**fields, "resourcePools": _filled(fields["resourcePools"])}
    if "parent" not in request:  # an update
        return fields
    return {"displayName": request["persistentResourceId"], **fields, "state": "RUNNING"}


def _filled(pools: Any) -> list[Json]:
    """Resource pools with an id and as many used replicas as asked for."""
    made: list[Json] = []
    for pool in resources.filled({"workerPoolSpecs": list(pools)})["workerPoolSpecs"]:
        count = pool.get("replicaCount") or (pool.get("autoscalingSpec") or {}).get("minReplicaCount", "1")
        # Text, as REST writes an int64; an id that the client gave wins.
        id_ = _id(pool.get("machineSpec") or {})
        taken = {other["id"] for other in made}
        free = next(
            one
            for one in itertools.chain([id_], (f"{id_}-{number}" for number in itertools.count(1)))
            if one not in taken
        )
        made.append({"id": free, **pool, "replicaCount": str(count)})
    return made


def _id(machine: Json) -> str:
    """Return a pool's id: its machine and accelerators, as `n1-highmem-2-nvidia-tesla-t4-1` (documented answer of 2023-09-12)."""
    id_ = str(machine.get("machineType", "pool"))
    if machine.get("acceleratorType"):
        accelerator = str(machine["acceleratorType"]).lower().replace("_", "-")
        id_ += f"-{accelerator}-{machine.get('acceleratorCount', 1)}"
    return id_
