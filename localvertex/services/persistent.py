"""PersistentResourceService: machines that stay. Here they are kept as resources, and jobs that name one start at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localvertex.http import Json, invalid, not_found
from localvertex.jobs import resources
from localvertex.jobs.store import ResourceStore
from localvertex.services.collection import Collection
from localvertex.services.router import PACKAGE, Done, Method, place_of

SERVICE = f"{PACKAGE}.PersistentResourceService"
_UPDATED = frozenset({"displayName", "labels", "resourcePools"})


_PROGRESS = (
    "Create PersistentResource request received. Checking project configuration and quota...",
    "Your persistent resource is ready.",
)


class PersistentResources:
    """The persistent resources of a local Vertex."""

    def __init__(self, store: ResourceStore) -> None:
        self.collection = Collection(
            store, "persistentResources", "PersistentResource", id_pattern=r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
        )

    def table(self) -> dict[str, Method]:
        """Return the methods served."""
        return {
            "CreatePersistentResource": self.create,
            "GetPersistentResource": self.collection.get,
            "ListPersistentResources": self.collection.list,
            "DeletePersistentResource": self.collection.delete,
            "UpdatePersistentResource": self.update,
            "RebootPersistentResource": self.reboot,
        }

    def create(self, request: Json) -> Done:
        """CreatePersistentResource: RUNNING at once, with every replica it asks for."""
        fields, id_ = request.get("persistentResource") or {}, str(request.get("persistentResourceId", ""))
        if not id_ or not fields.get("resourcePools"):
            raise invalid("A PersistentResource needs persistent_resource_id and resource_pools.")
        running = {"resourcePools": _filled(fields["resourcePools"]), "state": "RUNNING", "startTime": resources.now()}
        made = self.collection.create(request["parent"], {"displayName": id_, **fields, **running}, id_)
        kind, name = "CreatePersistentResourceOperationMetadata", {"name": made["name"]}
        return Done(request["parent"], kind, "PersistentResource", name, made["name"], made["createTime"], _PROGRESS)

    def update(self, request: Json) -> Done:
        """UpdatePersistentResource."""
        given = request.get("persistentResource") or {}
        if "resourcePools" in given:
            request = {**request, "persistentResource": {**given, "resourcePools": _filled(given["resourcePools"])}}
        made = self.collection.update(request, _UPDATED)
        return Done(place_of(made["name"]), "UpdatePersistentResourceOperationMetadata", "PersistentResource", made)

    def reboot(self, request: Json) -> Done:
        """RebootPersistentResource: its start time is now; jobs on it go on."""
        name = self.collection.stored(request["name"]).name
        made = self.collection.store.change(name, lambda body, _: body.update(startTime=resources.now()))
        return Done(place_of(name), "RebootPersistentResourceOperationMetadata", "PersistentResource", made)

    def require(self, parent: str, job: Mapping[str, Any]) -> None:
        """Refuse a job that names a persistent resource which does not exist."""
        id_ = str(job.get("persistentResourceId", ""))
        if id_ and self.collection.store.get(f"{parent}/persistentResources/{id_}") is None:
            raise not_found(self.collection.missing)


def _filled(pools: Any) -> list[Json]:
    """Resource pools with an id and as many used replicas as asked for."""
    made: list[Json] = []
    for pool in resources.filled({"workerPoolSpecs": list(pools)})["workerPoolSpecs"]:
        count = pool.get("replicaCount") or (pool.get("autoscalingSpec") or {}).get("minReplicaCount", "1")
        # Text, as REST writes an int64; an id that the client gave wins.
        machine = str((pool.get("machineSpec") or {}).get("machineType", "pool"))
        taken = sum(str(other["id"]).startswith(machine) for other in made)
        made.append({"id": f"{machine}-{taken}" if taken else machine, **pool, "replicaCount": str(count)})
    return made
