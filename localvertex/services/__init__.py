"""The services of the local Vertex: jobs and operations (`jobs`), models, datasets, Vizier studies, TensorBoards, metadata, persistent
resources, projects, Cloud Logging (`log*`), and Cloud Scheduler (`scheduler_*`), which sends HTTP requests to this machine.

A service is a table of methods, from a request to an answer in canonical JSON (`router`). Their REST routes come from Google's own
table, and gRPC calls those routes. Plain resources have a row each and share their methods (`collection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localvertex.jobs import resources
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.services import datasets, metadata, models, persistent, tensorboards, vizier
from localvertex.services.artifacts import require_regional
from localvertex.services.router import Service
from localvertex.storage import ObjectStore

__all__ = ["Registry"]


class Registry:
    """The services of Vertex AI except jobs, over one store."""

    def __init__(self, store: ResourceStore, settings: Settings, objects: ObjectStore) -> None:
        # Before any client names the project: only this call leads from the number back to the id.
        resources.project_number(settings.options.project)
        self.objects = objects
        self.models = models.Models(store, objects)
        self.metadata = metadata.MetadataStores(store)
        self.datasets = datasets.Datasets(store, objects.create_bucket, settings.root, self.metadata)
        self.machines = persistent.PersistentResources(store)
        self.boards = tensorboards.Tensorboards(store, objects.create_bucket, settings.root)
        self.services = [
            Service(models.SERVICE, self.models.table()),
            Service(datasets.SERVICE, self.datasets.table()),
            Service(persistent.SERVICE, self.machines.table()),
            Service(vizier.SERVICE, vizier.Vizier(store, settings.seed).table()),
            Service(tensorboards.SERVICE, self.boards.table()),
            Service(metadata.SERVICE, self.metadata.table()),
        ]

    def admit(self, parent: str, spec: Mapping[str, Any]) -> None:
        """Refuse a job that names a persistent resource which does not exist, or an output bucket of a multi-region."""
        self.machines.require(parent, spec)
        require_regional(self.objects, str((spec.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")), parent)
