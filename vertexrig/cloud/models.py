"""The Model Registry over REST: find a model, read its versions, add one, move aliases, delete one.

Source of paths and fields: REST reference projects.locations.models (get, list, listVersions, upload, mergeVersionAliases, deleteVersion,
delete) and projects.locations.operations.get, v1 (copy of 2026-08-22).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import PAGE, Vertex, in_filter
from vertexrig.waiting import waiting

WAIT_S = 600.0
"""Longest wait for an upload, seconds; the service copies nothing but checks the files."""
POLL_S = 2.0
"""Seconds between two looks at an operation."""


class ModelsClient:
    """The Model Registry of one project and region."""

    def __init__(self, vertex: Vertex) -> None:
        self.rest, self.parent = vertex.rest, vertex.parent

    def find(self, display_name: str) -> list[dict[str, Any]]:
        """Return the models of exactly this display name, the newest first; each as its default version."""
        params = {"filter": f"display_name={in_filter(display_name)}", "pageSize": PAGE}
        rows = self.rest.pages(f"/{self.parent}/models", "models", params)
        # A `*` in the name is a wildcard to the filter.
        own = (row for row in rows if row.get("displayName") == display_name)
        return sorted(own, key=lambda row: str(row.get("createTime", "")), reverse=True)

    def version(self, name: str, version: str = "default") -> dict[str, Any] | None:
        """Return a version of a model by its number or an alias; None if there is none."""
        answer = self.rest.find(f"/{plain(name)}@{version}")
        return None if answer is None else dict(answer.data)

    def versions(self, name: str) -> list[dict[str, Any]]:
        """Return every version of a model."""
        return list(self.rest.pages(f"/{plain(name)}:listVersions", "models", {"pageSize": PAGE}))

    def upload(self, model: Mapping[str, Any], parent_model: str = "") -> dict[str, Any]:
        """Add a model, or a version of one, and wait until it is there: `{"model": …, "modelVersionId": …}`.

        It is tried once: a second try may add a second version.

        Raises:
            RestError: The service refused it, or (`outcome_unknown`) it may have been added.
        """
        return self._finished(self.begin_upload(model, parent_model))

    def begin_upload(self, model: Mapping[str, Any], parent_model: str = "", model_id: str = "") -> dict[str, Any]:
        """Ask for a model, or a version of one, to be added: the operation that does it. It is tried once.

        Args:
            parent_model: The model that gets another version.
            model_id: The id of a new model; the service chooses one by default, and refuses one that is taken with 409.
        """
        more = {"parentModel": plain(parent_model), "modelId": model_id}
        body = {"model": dict(model), **{key: value for key, value in more.items() if value}}
        return dict(self.rest.call("POST", f"/{self.parent}/models:upload", json=body).data)

    def operation(self, name: str) -> dict[str, Any] | None:
        """Return an operation as it is now; None if the service knows it no more."""
        answer = self.rest.find(f"/{name}")
        return None if answer is None else dict(answer.data)

    def delete(self, name: str, version: str = "") -> None:
        """Ask for a version, or without one the whole model, to be deleted; what is gone already is left out."""
        what = f"{plain(name)}@{version}:deleteVersion" if version else plain(name)
        self.rest.find(f"/{what}", method="DELETE", repeat=True)

    def merge_aliases(self, name: str, version: str, aliases: list[str]) -> dict[str, Any]:
        """Give a version aliases (`-alias` takes one away); an alias that another version has moves here."""
        path = f"/{plain(name)}@{version}:mergeVersionAliases"
        return dict(self.rest.call("POST", path, json={"versionAliases": aliases}, repeat=True).data)

    @waiting("the Model Registry, which adds the model")
    def _finished(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        waited = 0.0
        while not operation.get("done"):
            name = str(operation.get("name", ""))
            if not name or waited > WAIT_S:
                text = f"the upload {name or 'without an operation'} had not ended after {WAIT_S:g} s"
                raise RestError(f"Vertex AI: {text}", outcome_unknown=True)
            time.sleep(POLL_S)
            waited += POLL_S
            operation = self.rest.call("GET", f"/{name}").data
        if operation.get("error"):
            message = str(operation["error"].get("message", "the upload failed"))
            # An operation's error has no HTTP status; it was refused, and trying again makes no sense.
            raise RestError(f"Vertex AI: {' '.join(message.split())}", status=400)
        return dict(operation.get("response") or {})


def version_name(version: Mapping[str, Any]) -> str:
    """Return the resource name of a version: projects/P/locations/R/models/M@V."""
    return f"{plain(str(version.get('name', '')))}@{version.get('versionId', '')}"


def plain(name: str) -> str:
    """Return a model's resource name without its version."""
    return name.partition("@")[0]
