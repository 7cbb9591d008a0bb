"""A Model Registry and folders of a bucket in memory, beside `tests/support/clouds_in_memory.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.clouds_in_memory import Clock, Gate, MemoryStorage, MemoryVertex, straight
from vertexrig.cloud.models import ModelsClient, plain
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Item, Storage, StoredObject


class MemoryFolder(Storage):
    """A folder of a bucket in memory, to read from."""

    def __init__(self, storage: MemoryStorage, uri: str) -> None:
        super().__init__(uri, url="http://127.0.0.1:9")
        self.whole = storage

    def read(self, name: str, *, generation: int | None = None) -> StoredObject | None:
        found = self.whole.objects.get(self.prefix + name)
        return StoredObject(found[0], found[1]) if found else None

    def exists(self, name: str) -> bool:
        return self.prefix + name in self.whole.objects

    def list(self, prefix: str) -> Iterator[Item]:
        names = [name for name in self.whole.objects if name.startswith(self.prefix + prefix)]
        yield from (Item(name.removeprefix(self.prefix), self.whole.objects[name][1], "") for name in names)


class MemoryModels(ModelsClient):
    """A Model Registry: an upload is an operation that ends at once, or after `slow` seconds.

    Args:
        vertex: Gives the names.
        clock: Its clock.
        gate: Every call goes through it.
    """

    def __init__(self, vertex: MemoryVertex, clock: Clock, gate: Gate = straight) -> None:
        super().__init__(vertex)
        self.clock, self.gate, self.slow, self.vertex = clock, gate, 0.0, vertex
        self.models: dict[str, list[dict[str, Any]]] = {}
        self.crowned = -1e9
        self.operations: dict[str, tuple[float, dict[str, Any]]] = {}
        self.refusal: RestError | None = None
        self.uploading: RestError | None = None
        self._numbers = itertools.count(1)

    def _do(self, name: str, effect: Callable[[], Any]) -> Any:
        def refused() -> Any:
            if self.refusal is not None:
                raise self.refusal
            return effect()

        return self.gate(name, refused)

    def _seen(self, name: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.models.get(plain(name), ()) if row["from"] <= self.clock()]

    def find(self, display_name: str) -> list[dict[str, Any]]:
        def effect() -> list[dict[str, Any]]:
            rows = [row for name in self.models for row in self._seen(name) if "default" in row["versionAliases"]]
            return [row for row in rows if row["displayName"] == display_name]

        return list(self._do("models", effect))

    def version(self, name: str, version: str = "default") -> dict[str, Any] | None:
        def effect() -> dict[str, Any] | None:
            rows = self._seen(name)
            return next((row for row in rows if version in (row["versionId"], *row["versionAliases"])), None)

        found: dict[str, Any] | None = self._do("models", effect)
        return found

    def versions(self, name: str) -> list[dict[str, Any]]:
        return list(self._do("models", lambda: self._seen(name)))

    def begin_upload(self, model: Mapping[str, Any], parent_model: str = "", model_id: str = "") -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            if self.uploading is not None:
                raise self.uploading
            name = plain(parent_model) or f"{self.parent}/models/{model_id}"
            if not parent_model and name in self.models:
                raise RestError("the model is there", status=409)
            rows = self.models.setdefault(name, [])
            number = str(1 + max((int(row["versionId"]) for row in rows), default=0))
            aliases = [] if rows else ["default"]
            at = self.clock() + self.slow
            rows.append({**model, "name": name, "versionId": number, "versionAliases": aliases, "from": at})
            operation = f"{name}/operations/{next(self._numbers)}"
            self.operations[operation] = (at, {"model": name, "modelVersionId": number})
            return {"name": operation}

        return dict(self._do("upload", effect))

    def operation(self, name: str) -> dict[str, Any] | None:
        def effect() -> dict[str, Any]:
            at, response = self.operations[name]
            return {"name": name, "done": True, "response": response} if at <= self.clock() else {"name": name}

        return dict(self._do("operation", effect))

    def merge_aliases(self, name: str, version: str, aliases: list[str]) -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            rows = self.models[plain(name)]
            for row in rows:
                own = set(row["versionAliases"])
                row["versionAliases"] = sorted(
                    own | set(aliases) if row["versionId"] == version else own - set(aliases)
                )
            return {}

        return dict(self._do("merge", effect))

    def crown(self, folder: str) -> None:
        """Let somebody else add a version that takes the aliases, at once."""
        name = next(iter(self.models), f"{self.parent}/models/first")
        rows = self.models.setdefault(name, [])
        for row in rows:
            row["versionAliases"] = []
        number = str(1 + max((int(row["versionId"]) for row in rows), default=0))
        about = {"displayName": "cpu", "versionDescription": "accuracy 0.5, from cpu 1", "artifactUri": folder}
        aliases = {"versionAliases": ["champion", "default"]}
        rows.append({**about, "name": name, "versionId": number, **aliases, "from": 0.0})
        self.crowned = self.clock()

    @property
    def champion(self) -> str:
        """Folder of the version with the aliases, "" if there is none."""
        rows = [row for found in self.models.values() for row in found if "default" in row["versionAliases"]]
        return str(rows[0].get("artifactUri", "")) if rows else ""

    def delete(self, name: str, version: str = "") -> None:
        def effect() -> None:
            rows = self.models.get(plain(name), [])
            kept = [row for row in rows if version and row["versionId"] != version]
            if any("default" in row["versionAliases"] for row in rows if row not in kept) and version:
                raise RestError("the default version cannot be deleted", status=400)
            if kept:
                self.models[plain(name)] = kept
            else:
                self.models.pop(plain(name), None)

        self._do("delete model", effect)
