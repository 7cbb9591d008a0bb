"""Vertex ML Metadata over REST: one execution with its artifacts, in a context.

Source of paths, ids and fields: REST reference projects.locations.metadataStores and below, v1, and the SDK's schemas of artifacts
(google-cloud-aiplatform 2.7.0, metadata/schema).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.rest import RestError

STORE = "default"
STORE_WAIT_S = 10.0
"""Longest wait for the store, seconds; a project has one as soon as anything has used it."""
VERSION = "0.0.1"
"""Version of the schemas."""


@dataclass(frozen=True)
class Node:
    """An artifact, an execution or a context.

    Args:
        id: Its id in the store; one that is there stays as it is.
        schema: Title of its schema, such as system.Dataset.
        title: Its display name.
        metadata: What is known of it.
        uri: Of an artifact.
    """

    id: str
    schema: str
    title: str
    metadata: Mapping[str, Any]
    uri: str = ""


class MetadataClient:
    """The default metadata store of the project and region of a Model Registry."""

    def __init__(self, models: ModelsClient) -> None:
        self.models, self.store = models, f"{models.parent}/metadataStores/{STORE}"

    def record(self, execution: Node, inputs: list[Node], outputs: list[Node], context: Node) -> str:
        """Record an execution that has ended; doing so again changes nothing. Return its resource name."""
        name = self._make("execution", execution, state="COMPLETE")
        artifacts = {
            self._make("artifact", one, state="LIVE", uri=one.uri): kind
            for kind, nodes in (("INPUT", inputs), ("OUTPUT", outputs))
            for one in nodes
        }
        events = [{"artifact": one, "type": kind} for one, kind in artifacts.items()]
        self._call(f"/{name}:addExecutionEvents", {"events": events})
        group = self._make("context", context)
        self._call(f"/{group}:addContextArtifactsAndExecutions", {"artifacts": list(artifacts), "executions": [name]})
        return name

    def _make(self, kind: str, node: Node, **more: str) -> str:
        """Make a node, if it is not there; return its resource name."""
        body = {"displayName": node.title[:128], "schemaTitle": node.schema, "schemaVersion": VERSION, **more}
        path, query = f"/{self.store}/{kind}s", {f"{kind}Id": node.id}
        try:
            self._call(path, {**body, "metadata": dict(node.metadata)}, query)
        except RestError as error:
            if error.status == 404:
                self._make_store()
                self._call(path, {**body, "metadata": dict(node.metadata)}, query)
            elif error.status != 409:
                raise
        return f"{self.store}/{kind}s/{node.id}"

    def _make_store(self) -> None:
        parent, _, _ = self.store.rpartition("/")
        operation = self._call(f"/{parent}", {}, {"metadataStoreId": STORE})
        until = time.monotonic() + STORE_WAIT_S
        while not operation.get("done") and time.monotonic() < until:
            time.sleep(0.5)
            operation = self.models.operation(str(operation["name"])) or {}

    def _call(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> dict[str, Any]:
        # with the same id a second call adds nothing, so it may be repeated
        return dict(self.models.rest.call("POST", path, json=body, params=query, repeat=True).data)
