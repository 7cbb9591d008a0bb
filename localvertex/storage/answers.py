"""The form of the JSON API's answers: errors as the older APIs write them, and the part of an answer that `fields` asks for.

Source: https://cloud.google.com/storage/docs/json_api (partial response), read 2026-11-21
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import Api, ApiError, Json


class JsonApi(Api):
    """An API whose answers have the form of Cloud Storage's JSON API; the arguments are those of `Api`."""

    headers: Mapping[str, str] = {}

    async def answer(self, request: Request) -> Response:
        """Return the response to one request, cut to the fields that it asks for."""
        response = await super().answer(request)
        if not isinstance(response, JSONResponse):
            return response
        if request.query_params.get("alt") == "media" and response.status_code >= 400:
            message = json.loads(bytes(response.body))["error"]["message"]
            headers = {key: value for key, value in response.headers.items() if not key.startswith("content-")}
            headers |= {key: value for key, value in response.headers.items() if key == "content-range"}
            return Response(message, response.status_code, headers, media_type="text/html; charset=UTF-8")
        fields = field_tree(request.query_params.get("fields", ""))
        if not fields or response.status_code != 200:
            return response
        headers = {key: value for key, value in response.headers.items() if key != "content-length"}
        return JSONResponse(chosen(json.loads(bytes(response.body)), fields), headers=headers)

    def failed(self, error: ApiError) -> Response:
        """Return the error as the older APIs write it."""
        return error.response(older=True)


def field_tree(fields: str) -> Json:
    """Return the fields of `name,items(id,size),owner/entity` as nested mappings; an empty one is a whole value."""
    root: Json = {}
    bases, node = [root], root
    for token in re.findall(r"[^(),/\s]+|[(),/]", fields):
        if token == "(":
            bases.append(node)
        elif token == ")" and len(bases) > 1:
            node = bases.pop()
        elif token == ",":
            node = bases[-1]
        elif token not in ")/":
            node = node.setdefault(token, {})
    return root


def chosen(value: Any, fields: Json) -> Any:
    """Return the chosen fields of a value, of each item of a list."""
    if isinstance(value, list):
        return [chosen(item, fields) for item in value]
    if not fields or not isinstance(value, dict):
        return value
    found = {name: fields.get(name, fields.get("*")) for name in value}
    return {name: chosen(value[name], below) for name, below in found.items() if below is not None}
