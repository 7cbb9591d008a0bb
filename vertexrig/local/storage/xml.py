"""The part of Cloud Storage's XML API that readers use: GET and HEAD of `/bucket/object`.

TensorFlow's GCS file system and programs with a public URL read this way.
Source: https://cloud.google.com/storage/docs/xml-api/get-object-download
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import Response

from vertexrig.local.http import Api, ApiError, endpoint
from vertexrig.local.storage import media
from vertexrig.local.storage.store import ObjectStore

_CODES = {
    304: "NotModified", 400: "InvalidArgument", 403: "AccessDenied", 404: "NoSuchKey", 405: "MethodNotAllowed",
    412: "PreconditionFailed", 416: "InvalidRange", 501: "NotImplemented", 503: "ServiceUnavailable",
}  # fmt: skip


class XmlApi(Api):
    """Objects by `/bucket/object`, with errors in XML.

    Args:
        store: Where the objects are.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        rows = [endpoint(method, "/{bucket}/{object*}", self._get) for method in ("GET", "HEAD")]
        super().__init__(rows)

    async def _get(self, request: Request, values: Mapping[str, str]) -> Response:
        return await media.download(self.store, request, values)

    def failed(self, error: ApiError) -> Response:
        """The error as the XML API writes it."""
        code = _CODES.get(error.code, "InternalError")
        body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{escape(error.message)}</Message></Error>"
        return Response(None if error.code == 304 else body, error.code, media_type="application/xml; charset=UTF-8")
