"""What is served: jobs and operations (`jobs`), Vertex AI's models, datasets, studies of Vizier, TensorBoards, metadata and persistent
resources, projects, Cloud Logging (`log*`) and Cloud Scheduler (`scheduler_*`), which really fires HTTP targets on this machine.

A service is a table of methods that take a request and give an answer as canonical JSON (`router`): its REST routes come from Google's
own table, gRPC calls those, and the coverage page lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vertexrig.local.jobs import resources
from vertexrig.local.jobs.store import ResourceStore
from vertexrig.local.services import datasets, metadata, models, persistent, tensorboards, vizier
from vertexrig.local.services.router import Service

__all__ = ["Registry"]


class Registry:
    """Vertex AI's services for all that does not run, over one store.

    Args:
        store: Where their resources are kept.
        seed: Of Vizier's search.
        project: The project of which the number is known before any client names it.
        make_bucket: Makes a Cloud Storage bucket.
        root: The local Vertex's folder, in which the buckets are.
    """

    def __init__(
        self,
        store: ResourceStore,
        *,
        seed: int,
        project: str,
        make_bucket: Callable[[str], object] = lambda name: None,
        root: Path = Path(),
    ) -> None:
        # Only this call leads from the number back to the id.
        resources.project_number(project)
        self.store = store
        self.models = models.Models(store)
        self.metadata = metadata.MetadataStores(store)
        self.datasets = datasets.Datasets(store, make_bucket, root, self.metadata)
        self.machines = persistent.PersistentResources(store)
        boards = tensorboards.Tensorboards(store, make_bucket, root)
        self.services = [
            Service(models.SERVICE, self.models.table()),
            Service(datasets.SERVICE, self.datasets.table()),
            Service(persistent.SERVICE, self.machines.table()),
            Service(vizier.SERVICE, vizier.Vizier(store, seed).table()),
            Service(tensorboards.SERVICE, boards.table()),
            Service(metadata.SERVICE, self.metadata.table()),
        ]
