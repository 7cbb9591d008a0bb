"""MetadataService: stores, contexts, executions and artifacts, and how they belong together; what SDK experiments are made of."""

from __future__ import annotations

import json
import re
import secrets
from collections import deque
from collections.abc import Iterable
from functools import partial

from localvertex.http import Json, invalid, precondition
from localvertex.jobs.store import ResourceStore
from localvertex.services.collection import Collection, Kind, predicate
from localvertex.services.router import PACKAGE, Done, Method, numbered
from vertexrig import times

SERVICE = f"{PACKAGE}.MetadataService"
_UPDATED = frozenset(
    {"displayName", "description", "labels", "metadata", "state", "uri", "schemaTitle", "schemaVersion"}
)
_ID = "[a-z0-9][a-z0-9-]{0,127}"
MEMBER, CHILD, EVENT = "member", "child", "event"
"""Links: a context and what is in it, a context and one below it, an execution and an artifact that it reads or writes."""
_ORDERS = {"LAST_UPDATE_TIME": "update_time", "CREATE_TIME": "create_time"}
"""Times by the names of ML Metadata, which programs order lists by, too."""


def _kind(message: str, *, changes: bool = True) -> Kind:
    """Return the kind of what a store holds."""
    return Kind(
        f"{message[0].lower()}{message[1:]}s", message, STORES, updated=_UPDATED if changes else frozenset(),
        id_pattern=_ID, refused=f"User-specified resource ID must match the regular expression '{_ID}'",
        taken=f"{message} with name {{}} already exists",
        missing=f"Resource not found.; Get{message} is unable to find {message.lower()} resource with name: {{}}",
        delete_below="itself", checks_etag=True, in_milliseconds=True, named_by_uuid=True, bounds_name=True,
    )  # fmt: skip


STORES = Kind(
    "metadataStores", "MetadataStore", operations=("Create",), answered=("name",), taken="Requested entity already exists",
    missing="Requested Metadata Store {id} not found", delete_below="itself", named_by_uuid=True,
)  # fmt: skip
CONTEXTS, EXECUTIONS, ARTIFACTS = map(_kind, ("Context", "Execution", "Artifact"))
SCHEMAS = _kind("MetadataSchema", changes=False)
_TITLE = re.compile("[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}")
"""What the title of a schema has to match: the error quotes it (tfx-addons issue 249)."""


def _titled(request: Json, schema: Json) -> Json:
    """Return a schema, a text of YAML or JSON, if it has a title of the form `namespace.Name`."""
    found = re.search(r"""^[{\s]*["']?title["']?\s*:\s*["']?([^\s"',}]+)""", str(schema.get("schema", "")), re.M)
    if found is None or not _TITLE.fullmatch(found[1]):
        raise invalid(
            f"MetadataSchema must include a schema title that satisfies the following regex: ^{_TITLE.pattern}$"
        )
    return schema


class MetadataStores:
    """The metadata stores of a local Vertex."""

    def __init__(self, store: ResourceStore) -> None:
        self.store = store
        self.stores = Collection(store, STORES)
        self.contexts, self.executions, self.artifacts = (
            Collection(store, kind) for kind in (CONTEXTS, EXECUTIONS, ARTIFACTS)
        )

    def table(self) -> dict[str, Method]:
        schemas = Collection(self.store, SCHEMAS, _titled).methods()
        del schemas["DeleteMetadataSchema"]  # which the API does not have
        made: dict[str, Method] = {
            **self.stores.methods(),
            "GetMetadataStore": self.get_store,
            "ListMetadataStores": self.list_stores,
            **schemas,
            "AddContextArtifactsAndExecutions": self.add_members,
            "AddContextChildren": self.add_children,
            "RemoveContextChildren": self.remove_children,
            "AddExecutionEvents": self.add_events,
            "QueryContextLineageSubgraph": self.context_lineage,
            "QueryExecutionInputsAndOutputs": self.inputs_and_outputs,
            "QueryArtifactLineageSubgraph": self.artifact_lineage,
        }
        for collection in (self.contexts, self.executions, self.artifacts):
            message = collection.kind.message
            made |= collection.methods()
            made[f"List{message}s"] = partial(self._list, collection)
            made[f"Update{message}"] = partial(self._update, collection)
        return {**made, "DeleteContext": self.delete_context}

    def get_store(self, request: Json) -> Json:
        """GetMetadataStore."""
        return self._with_size(self.stores.get(request))

    def list_stores(self, request: Json) -> Json:
        """ListMetadataStores."""
        made = self.stores.list(request)
        return {**made, **({"metadataStores": [*map(self._with_size, made["metadataStores"])]} if made else {})}

    def _with_size(self, store: Json) -> Json:
        """Return a store with the bytes that it and what is in it take here."""
        # A range of the primary key: "0" is the character after "/".
        sql = "SELECT SUM(LENGTH(body)) FROM resources WHERE name = ? OR (name > ? AND name < ?)"
        row = self.store.database.row(sql, store["name"], f"{store['name']}/", f"{store['name']}0")
        return {**store, "state": {"diskUtilizationBytes": str(row[0] if row else 0)}}

    def delete_context(self, request: Json) -> Done:
        """DeleteContext: with `force` one that has children, too."""
        name = self.contexts.stored(request["name"]).name
        if not request.get("force") and self._targets(CHILD, name):
            raise precondition(f"{name} has children; delete them first, or set force.")
        return self.contexts.delete(request)

    def _list(self, collection: Collection, request: Json) -> Json:
        self.stores.stored(request["parent"])
        relations = {"in_context": self._in_context, "child_contexts": self._has_child}
        order = re.sub("|".join(_ORDERS), lambda found: _ORDERS[found[0]], str(request.get("orderBy", "")))
        return collection.list(
            {**request, "orderBy": order}, lambda text: predicate(text, collection.kind.known, relations)
        )

    def _update(self, collection: Collection, request: Json) -> Json | Done:
        given = request.get(collection.kind.field) or {}
        name = str(given.get("name", ""))
        if request.get("allowMissing") and self.store.get(name) is None:
            parent, _, id_ = name.rpartition(f"/{collection.kind.plural}/")
            return collection.add(parent, given, id_)
        return collection.update(request)

    def note_dataset(self, parent: str, display_name: str) -> str:
        """Make the artifact of a dataset in the default store, and return its name."""
        fields = {"displayName": display_name, "schemaTitle": "google.VertexDataset", "schemaVersion": "0.0.1"}
        return str(self.artifacts.add(f"{parent}/metadataStores/default", fields)["name"])

    def begin_experiment_run(self, experiment: str) -> str:
        """Make a run of an experiment, for a job that names the experiment alone.

        The service does so, and puts the run into the job's `experimentRun` (google-cloud-aiplatform's `CustomJob.run`
        and its system test test_custom_job.py, 2026-11-22). What it calls the run no source shows.

        Returns:
            The run's resource name; "" where there is no such experiment.
        """
        if self.store.get(experiment) is None:
            return ""
        parent, _, id_ = experiment.rpartition("/contexts/")
        run = f"custom-job-{secrets.token_hex(4)}"
        context = {
            "displayName": run,
            "schemaTitle": "system.ExperimentRun",
            "schemaVersion": "0.0.1",
            "metadata": {"_state": "RUNNING"},
        }
        with self.store.database.transaction():
            name = str(self.contexts.add(parent, context, f"{id_}-{run}"[:128])["name"])
            self.add_children({"context": experiment, "childContexts": [name]})
        return name

    # links

    def add_members(self, request: Json) -> Json:
        """AddContextArtifactsAndExecutions."""
        context = request["context"]
        self.contexts.stored(context)
        for collection, names in ((self.artifacts, "artifacts"), (self.executions, "executions")):
            for name in request.get(names, ()):
                collection.stored(name)
                self._link(MEMBER, context, name)
        return {}

    def add_children(self, request: Json) -> Json:
        """AddContextChildren: 400 for a cycle."""
        context = request["context"]
        self.contexts.stored(context)
        with self.store.database.transaction():
            for name in request.get("childContexts", ()):
                self.contexts.stored(name)
                if context in self._below(name):
                    raise invalid(f"{name} cannot be a child of {context}: that would be a cycle.")
                self._link(CHILD, context, name)
                self._note_parents(name)
        return {}

    def remove_children(self, request: Json) -> Json:
        """RemoveContextChildren."""
        with self.store.database.transaction() as connection:
            for name in request.get("childContexts", ()):
                values = (CHILD, request["context"], name)
                connection.execute("DELETE FROM links WHERE kind = ? AND source = ? AND target = ?", values)
                self._note_parents(name)
        return {}

    def add_events(self, request: Json) -> Json:
        """AddExecutionEvents: artifacts that an execution reads (INPUT) or writes (OUTPUT)."""
        execution = request["execution"]
        self.executions.stored(execution)
        with self.store.database.transaction():
            for event in request.get("events", ()):
                artifact = str(event.get("artifact", ""))
                self.artifacts.stored(artifact)
                time = times.rfc3339(times.now(), 3)
                self._link(EVENT, execution, artifact, {**event, "execution": execution, "eventTime": time})
        return {}

    def inputs_and_outputs(self, request: Json) -> Json:
        """QueryExecutionInputsAndOutputs."""
        self.executions.stored(request["execution"])
        return self._graph([request["execution"], *self._targets(EVENT, request["execution"])])

    def context_lineage(self, request: Json) -> Json:
        """QueryContextLineageSubgraph: what is in a context and in those below it."""
        name = self.contexts.stored(request["context"]).name
        return self._graph(one for context in self._below(name) for one in self._targets(MEMBER, context))

    def artifact_lineage(self, request: Json) -> Json:
        """QueryArtifactLineageSubgraph: `maxHops` steps of artifact, execution, artifact; all of them without it."""
        name = request["artifact"]
        self.artifacts.stored(name)
        hops = int(request.get("maxHops", 0))
        if hops < 0:
            raise invalid(f"Invalid max_hops: {hops}. It must not be negative.")
        # Breadth first, so that the shortest path to each counts.
        found, line = {name: 0}, deque([name])
        while line:
            here = line.popleft()
            if hops and found[here] >= hops:
                continue
            for other in (*self._targets(EVENT, here), *self._sources(EVENT, here)):
                if other not in found:
                    found[other] = found[here] + 1
                    line.append(other)
        return self._graph(list(found))

    # what is linked with what

    def _link(self, kind: str, source: str, target: str, body: Json | None = None) -> None:
        with self.store.database.transaction() as connection:
            values = (kind, source, target, json.dumps(body or {}))
            connection.execute("INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?)", values)

    def _targets(self, kind: str, source: str) -> list[str]:
        sql = "SELECT target FROM links WHERE kind = ? AND source = ? ORDER BY rowid"
        return [str(row[0]) for row in self.store.database.rows(sql, kind, source)]

    def _sources(self, kind: str, target: str) -> list[str]:
        sql = "SELECT source FROM links WHERE kind = ? AND target = ? ORDER BY rowid"
        return [str(row[0]) for row in self.store.database.rows(sql, kind, target)]

    def _note_parents(self, name: str) -> None:
        parents = self._sources(CHILD, name)
        self.store.change(name, lambda body, _: body.update(parentContexts=parents))

    def _below(self, context: str) -> list[str]:
        """Return a context and all below it."""
        found = [context]
        # The list grows while it is walked.
        for name in found:
            found += [one for one in self._targets(CHILD, name) if one not in found]
        return found

    def _in_context(self, name: str, context: str) -> bool:
        return name in self._targets(MEMBER, str(numbered(context)))

    def _has_child(self, name: str, context: str) -> bool:
        return str(numbered(context)) in self._targets(CHILD, name)

    def _graph(self, names: Iterable[str]) -> Json:
        """Return a LineageSubgraph: these artifacts and executions, and the events between them."""
        kept = dict.fromkeys(names)
        made: Json = {"artifacts": [], "executions": [], "events": []}
        for name in kept:
            stored = self.store.get(name)
            if stored is None:
                continue
            made[name.split("/")[-2]].append(stored.body)
            rows = self.store.database.rows("SELECT target, body FROM links WHERE kind = ? AND source = ?", EVENT, name)
            made["events"] += [json.loads(row[1]) for row in rows if row[0] in kept]
        return made
