"""The Cloud Storage subset of the local Vertex: objects are plain files under `<root>/gs/<bucket>/`.

Trainers read and write the same objects as files; other emulators of Cloud Storage do not expect that.

Clients expect these paths at the root of the server: gcloud replaces `storage/v1/` at the end of its base URL and joins
`/upload/...` to the host alone, and STORAGE_EMULATOR_HOST is a scheme and host. So:
`CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=http://127.0.0.1:PORT/storage/v1/` and
`STORAGE_EMULATOR_HOST=http://127.0.0.1:PORT`. gsutil's own client speaks https only; with `use_gcloud_storage = True`
under `[GSUtil]` in its boto file it runs `gcloud storage` and works.
"""

from __future__ import annotations

from functools import partial

from starlette.routing import BaseRoute, Mount

from localvertex.http import endpoint
from localvertex.storage import batch, media
from localvertex.storage.answers import JsonApi
from localvertex.storage.api import StorageApi
from localvertex.storage.store import ObjectStore
from localvertex.storage.upload import Uploads
from localvertex.storage.xml import BucketPaths, XmlApi

__all__ = ["BucketPaths", "ObjectStore", "XmlApi", "routes"]


def routes(store: ObjectStore) -> list[BaseRoute]:
    """Return the Cloud Storage API over a store, to be mounted at the root of the server."""
    main, uploads = JsonApi(StorageApi(store).table()), JsonApi(Uploads(store).table())
    downloads = JsonApi([endpoint("GET", "/v1/b/{bucket}/o/{object}", partial(media.download, store))])
    batches = JsonApi([endpoint("POST", "/v1", partial(batch.run, main))])
    return [
        Mount("/storage", app=main),
        Mount("/upload/storage", app=uploads),
        Mount("/resumable/upload/storage", app=uploads),
        Mount("/download/storage", app=downloads),
        Mount("/batch/storage", app=batches),
    ]
