"""The form of answers: of the JSON API (errors as the older APIs write them, and the part of an answer that `fields` asks for), and of
the XML API, of which GET and HEAD of `/bucket/object` are served: TensorFlow's GCS file system and programs with a public URL read so.

Sources: https://cloud.google.com/storage/docs/json_api (partial response), read 2026-11-21;
https://cloud.google.com/storage/docs/xml-api/get-object-download
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import Api, ApiError, endpoint
from localvertex.storage import media
from localvertex.storage.store import ObjectStore
from vertexrig.text import markup


class JsonApi(Api):
    """An API whose answers have the form of Cloud Storage's JSON API; the arguments are those of `Api`."""

    headers: Mapping[str, str] = {}

    async def answer(self, request: Request) -> Response:
        """Return the response to one request, cut to the fields that it asks for."""
        response = await super().answer(request)
        names = top_level(request.query_params.get("fields", ""))
        if not names or response.status_code != 200 or not isinstance(response, JSONResponse):
            return response
        kept = {key: value for key, value in json.loads(bytes(response.body)).items() if key in names}
        headers = {key: value for key, value in response.headers.items() if key != "content-length"}
        return JSONResponse(kept, headers=headers)

    def failed(self, error: ApiError) -> Response:
        """Return the error as the older APIs write it."""
        return error.response(older=True)


def top_level(fields: str) -> frozenset[str]:
    """Return the names of an answer's outermost fields in `name,items(id,size),owner/entity`; empty for the whole answer."""
    depth, outer = 0, []
    for part in re.split(r"([()])", fields):
        depth = max(0, depth + {"(": 1, ")": -1}.get(part, 0))
        outer.append("" if depth or part == ")" else part)
    names = frozenset(part.strip().partition("/")[0] for part in "".join(outer).split(",")) - {""}
    return frozenset() if "*" in names else names


_CODES = {
    304: "NotModified", 400: "InvalidArgument", 403: "AccessDenied", 404: "NoSuchKey", 405: "MethodNotAllowed",
    412: "PreconditionFailed", 416: "InvalidRange", 501: "NotImplemented", 503: "ServiceUnavailable",
}  # fmt: skip


class XmlApi(Api):
    """Objects by `/bucket/object`, with errors in XML."""

    def __init__(self, store: ObjectStore) -> None:
        get = partial(media.download, store)
        super().__init__([endpoint(method, "/{bucket}/{object*}", get) for method in ("GET", "HEAD")])

    def failed(self, error: ApiError) -> Response:
        """Return the error as the XML API writes it."""
        code = _CODES.get(error.code, "InternalError")
        body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{markup(error.message)}</Message></Error>"
        content = None if error.code == 304 else body
        return Response(content, error.code, error.headers, media_type="application/xml; charset=UTF-8")
