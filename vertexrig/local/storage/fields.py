"""The form of the JSON API's answers: errors as the older APIs write them, and the part of an answer that `fields` asks for.

Source: https://cloud.google.com/storage/docs/json_api (partial response), read 2026-11-21.
"""

from __future__ import annotations

import json
import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local.http import Api, ApiError

_INNERMOST = re.compile(r"\([^()]*\)")


class JsonApi(Api):
    """An API whose answers have the form of Cloud Storage's JSON API; the arguments are those of `Api`."""

    async def answer(self, request: Request) -> Response:
        """The response to one request, cut to the fields that it asks for."""
        response = await super().answer(request)
        names = top_level(request.query_params.get("fields", ""))
        if not names or response.status_code != 200 or not isinstance(response, JSONResponse):
            return response
        kept = {key: value for key, value in json.loads(bytes(response.body)).items() if key in names}
        headers = {key: value for key, value in response.headers.items() if key != "content-length"}
        return JSONResponse(kept, headers=headers)

    def failed(self, error: ApiError) -> Response:
        """The error as the older APIs write it."""
        return error.response(older=True)


def top_level(fields: str) -> frozenset[str]:
    """The names of an answer's outermost fields in `name,items(id,size),owner/entity`; empty for the whole answer."""
    # From the inside out: brackets may be in brackets, which a regular expression cannot count.
    while _INNERMOST.search(fields):
        fields = _INNERMOST.sub("", fields)
    names = frozenset(part.strip().partition("/")[0] for part in fields.split(",")) - {""}
    return frozenset() if "*" in names else names
