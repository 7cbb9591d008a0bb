"""The form of the JSON API's answers: errors as the older APIs write them, and the part of an answer that `fields` asks for.

Source: https://cloud.google.com/storage/docs/json_api (partial response), read 2026-11-21
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import UNSERVED, Api, ApiError, Endpoint, NoMethodError, UnreadableBodyError, invalid, no_method
from localvertex.partial import chosen, field_tree

FIELDS = frozenset(
    "* kind items prefixes nextPageToken id selfLink name etag metageneration acl owner timeCreated updated storageClass "
    # of an object, and of what an upload, a rewrite or a restoration answers
    "bucket cacheControl componentCount contentDisposition contentEncoding contentLanguage contentType contexts crc32c "
    "customTime customerEncryption eventBasedHold generation hardDeleteTime kmsKeyName md5Hash mediaLink metadata "
    "restoreToken retention retentionExpirationTime size softDeleteTime temporaryHold timeDeleted "
    "timeFinalized timeStorageClassUpdated done objectSize resource rewriteToken totalBytesRewritten "
    # of a bucket
    "autoclass billing cors customPlacementConfig defaultEventBasedHold defaultObjectAcl encryption generation hierarchicalNamespace "
    "iamConfiguration ipFilter labels lifecycle location locationType logging objectRetention projectNumber "
    "retentionPolicy rpo satisfiesPZI satisfiesPZS softDeletePolicy unreachable versioning website "
    # of policies, access controls, folders, notifications, keys and operations
    "bindings resourceId version domain email entity entityId object projectTeam role permissions managedFolders "
    "createTime updateTime custom_attributes event_types object_name_prefix payload_format topic accessId projectId "
    "serviceAccountEmail state secret email_address error operations response".split()
)
"""Fields of the answers of Cloud Storage, of which `fields` may name some (reference of the JSON API, read 2026-11-27)."""

_TAG = re.compile(rb'\A\{"kind":"storage#(?:object|bucket|policy)",[^{}]*?"etag":"([^"]*)"')
"""The tag of a single object, bucket or policy: it stands before any nested value."""
_IDEMPOTENCY = "x-goog-gcs-idempotency-token"
_REPEATED_S = 120
"""For so long a write with the token of an earlier one is not made again: it was not after 115 s, and was after 130 (zig-gcp, 2026-09-30)."""
_MOST_KEPT = 1000


_UNSERVED = re.compile(
    r"/v1/(?:b/[^/]+/(?:o/[^/]+/(?:acl|iam).*|o/(?:watch|bulkRestore)|(?:managedFolders|folders|anywhereCaches|operations).*|relocate|restore)"
    r"|projects/[^/]+/hmacKeys.*|channels/stop)"
)
"""Paths of methods that the JSON API has, and this server has not."""


def served(response: Response) -> Response:
    """Return an answer with the headers of Cloud Storage's own server (cloud-custodian's recordings of 2026-02-06)."""
    names = {key.lower() for key, _ in response.raw_headers}
    response.headers["server"] = "UploadServer"
    if b"x-guploader-uploadid" not in names:  # that of a resumable upload is in capitals
        response.headers["x-guploader-uploadid"] = secrets.token_urlsafe(60)
    return response


class JsonApi(Api):
    """An API whose answers have the form of Cloud Storage's JSON API; the arguments are those of `Api`."""

    headers: Mapping[str, str] = {}

    def __init__(self, table: Sequence[Endpoint]) -> None:
        super().__init__(table)
        # By the token and the address: when the write was made, and its answer.
        self._made: dict[tuple[str, str, str], tuple[float, Response]] = {}

    async def _once(self, request: Request) -> Response:
        """Return the answer of the first of several writes with one idempotency token, which is made once."""
        token, now = request.headers.get(_IDEMPOTENCY, ""), time.monotonic()
        # The chunks of an upload are many requests of one call.
        if not token or request.method == "GET" or "upload_id" in request.query_params:
            return await self._cut(request)
        key = token, request.method, str(request.url)
        self._made = {one: made for one, made in self._made.items() if now - made[0] < _REPEATED_S}
        if key in self._made:
            async for _ in request.stream():  # or the connection could not be used for its next request
                pass
            return self._made[key][1]
        response = await self._cut(request)
        if response.status_code < 400 and len(self._made) < _MOST_KEPT:
            self._made[key] = now, response
        return response

    async def answer(self, request: Request) -> Response:
        """Return the response to one request, with the headers that the service sends with it."""
        response = await self._once(request)
        is_json = isinstance(response, JSONResponse)
        # Of a chunk of bytes the uploads' own server speaks, without the headers of the API.
        if "upload_id" in request.query_params and not is_json:
            return served(response)
        reads = request.method == "GET" and ((is_json and response.status_code < 300) or response.status_code == 304)
        now = formatdate(usegmt=True)
        if response.status_code in (204, 304):
            response.headers["content-type"] = "application/json"
        if is_json:
            response.headers["content-type"] = "application/json; charset=UTF-8"
        if reads:
            response.headers["cache-control"] = "private, max-age=0, must-revalidate, no-transform"
            response.headers.update({"date": now, "expires": now})
        elif response.media_type == "text/html; charset=UTF-8":
            response.headers.update({"cache-control": "private, max-age=0", "date": now, "expires": now})
        else:
            response.headers.setdefault("cache-control", "no-cache, no-store, max-age=0, must-revalidate")
            response.headers.update({"pragma": "no-cache", "expires": "Mon, 01 Jan 1990 00:00:00 GMT"})
        response.headers["vary"] = "Origin, X-Origin"
        return served(response)

    def unmatched(self, request: Request, path: str) -> ApiError:
        """Return the error for a path that fits no row: no method of the API has it, or this server has not the method."""
        return super().unmatched(request, path) if _UNSERVED.fullmatch(path) else no_method(request)

    async def _cut(self, request: Request) -> Response:
        """Return the response to one request, cut to the fields that it asks for."""
        response = await super().answer(request)
        if not isinstance(response, JSONResponse):
            return response
        if request.query_params.get("alt") == "media" and 400 <= response.status_code != UNSERVED:
            message = json.loads(bytes(response.body))["error"]["message"]
            own = response.headers.items()
            headers = {key: value for key, value in own if key == "content-range" or not key.startswith("content-")}
            return Response(message, response.status_code, headers, media_type="text/html; charset=UTF-8")
        tag = _TAG.search(bytes(response.body)) if response.status_code == 200 else None
        if tag:  # whether or not `fields` names it
            response.headers["etag"] = tag[1].decode()
        fields = field_tree(request.query_params.get("fields", ""))
        if not fields or response.status_code != 200:
            return response
        for name in (*fields, *fields.get("items", ())):
            if name not in FIELDS:  # issue 267 of fsouza/fake-gcs-server; google-api-dotnet-client issue 1444
                return self.failed(invalid(f"Invalid field selection {name[:100]}"))
        headers = {key: value for key, value in response.headers.items() if key != "content-length"}
        return JSONResponse(chosen(json.loads(bytes(response.body)), fields), headers=headers)

    def failed(self, error: ApiError) -> Response:
        """Return the error as the older APIs write it, with their own words for a body that is no JSON."""
        if isinstance(error, UnreadableBodyError):
            error = invalid(f"Parse Error: {error.mistake}")
        if isinstance(error, NoMethodError):  # two words (issue 140 of googleCloudStorageR)
            return Response("Not Found", 404, media_type="text/html; charset=UTF-8")
        return error.response(older=True)
