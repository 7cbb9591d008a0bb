"""Which kind of upload a request is."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from vertexrig.local.http import Endpoint, endpoint, invalid
from vertexrig.local.storage import media
from vertexrig.local.storage.resumable import Resumable
from vertexrig.local.storage.store import ObjectStore


def upload_table(store: ObjectStore) -> list[Endpoint]:
    """The routes below `/upload/storage` and `/resumable/upload/storage`."""
    resumable = Resumable(store)

    async def insert(request: Request, values: Mapping[str, str]) -> Response:
        kind = request.query_params.get("uploadType") or request.query_params.get("upload_protocol", "")
        if request.query_params.get("upload_id"):
            return await resumable.send(request, values)
        if kind == "media":
            return await media.simple(store, request, values)
        if kind == "multipart":
            return await media.multipart(store, request, values)
        if kind == "resumable":
            return await resumable.begin(request, values)
        raise invalid(f"Invalid uploadType: {kind[:80]!r}. Expected media, multipart or resumable.")

    path = "/v1/b/{bucket}/o"
    return [
        endpoint("POST", path, insert),
        endpoint("PUT", path, resumable.send),
        endpoint("DELETE", path, resumable.cancel),
    ]
