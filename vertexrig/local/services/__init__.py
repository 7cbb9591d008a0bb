"""What is served beside jobs: Vertex AI's models, datasets, studies of Vizier, TensorBoards, metadata and persistent resources,
projects, Cloud Logging (`log*`) and Cloud Scheduler (`scheduler_*`), which really fires HTTP targets on this machine.

A service of Vertex AI is a table of methods that take a request and give an answer as canonical JSON. `service.rows` makes their
REST routes from Google's own table, and gRPC calls those. The other two have endpoints of their own; gcloud finds them by
`CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING` and `…_CLOUDSCHEDULER`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vertexrig.local.http import Endpoint
from vertexrig.local.jobs.store import ResourceStore
from vertexrig.local.services import datasets, empty, metadata, models, persistent, service, tensorboards, vizier
from vertexrig.local.services.projects import Projects

__all__ = ["Registry"]


class Registry:
    """Vertex AI's services beside jobs, over one store.

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
        self.store = store
        self.models = models.Models(store)
        self.datasets = datasets.Datasets(store, root)
        self.metadata = metadata.MetadataStores(store)
        self.machines = persistent.PersistentResources(store)
        self.projects = Projects(project)
        self.tables = {
            models.SERVICE: self.models.table(),
            datasets.SERVICE: self.datasets.table(),
            persistent.SERVICE: self.machines.table(),
            vizier.SERVICE: vizier.Vizier(store, seed).table(),
            tensorboards.SERVICE: tensorboards.Tensorboards(store, make_bucket, root).table(),
            metadata.SERVICE: self.metadata.table(),
        }

    def table(self) -> list[Endpoint]:
        """Their routes below Vertex AI's mount; behind them, those of every method of Vertex AI that is not served."""
        served = [row for name, table in self.tables.items() for row in service.rows(self.store, name, table)]
        return [*served, *empty.rows(), *service.unserved_rows()]
