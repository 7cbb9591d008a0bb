"""Uploads in one request, and resumable uploads; bytes of these that were acknowledged survive a kill of the server.

Source: https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import ApiError, Endpoint, Json, endpoint, in_thread, invalid, not_found, read_json
from localvertex.storage.conditions import Conditions
from localvertex.storage.media import check_list, check_target, expected, multipart, object_name, receive, simple
from localvertex.storage.names import base
from localvertex.storage.object_files import Sums
from localvertex.storage.resources import OBJECT_FIELDS, object_resource, predefined, whole, writable
from localvertex.storage.store import ObjectStore
from localvertex.storage.stored import Upload

MULTIPLE = 256 * 1024
"""Every chunk but the last must have this many bytes or more, of which a multiple is kept (index ids 57929717713, 63116234826)."""

# As the service documents.
LIFETIME = 7 * 86400
"""Seconds after which an upload can no longer be resumed."""

MOST_CANCELLED = 10_000
"""Most ids of cancelled uploads that are remembered."""

MOST_SUMS = 1000
"""Most uploads whose checksums are continued; those of another one are made anew."""

Values = Mapping[str, str]


class RefusedBytesError(ApiError):
    """A request to an upload's address that is refused because of its bytes or its Content-Range: an answer in plain text."""


class ContentRange(NamedTuple):
    """A chunk's first byte (None: the status is asked for), its end (None: all the rest) and the whole size (None: not known yet)."""

    start: int | None
    end: int | None
    total: int | None


def capitalised(status: int, headers: Mapping[str, str]) -> Response:
    """Return an answer without body whose headers are written as given: TensorFlow's client looks for `Location` and `Range`."""
    response = Response(status_code=status)
    # Starlette writes names in lower case, which HTTP allows and TensorFlow's client does not find.
    own = {name.lower().encode() for name in headers}
    kept = [(name, value) for name, value in response.raw_headers if name not in own]
    response.raw_headers = [*kept, *((k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items())]
    return response


def content_range(header: str | None) -> ContentRange | None:
    """Read a Content-Range header; None when there is none, which means that the body is all the rest."""
    if header is None:
        return None
    # `bytes 0-99/200`, `bytes 0-99/*` where the size is not known yet, `bytes 0-*/*` for all the rest (Node's client), `bytes */200` to
    # ask how far it is.
    match = re.fullmatch(r"bytes\s+(?:(\d{1,19})-(\d{1,19}|\*)|\*)/(\d{1,19}|\*)", header.strip())
    unreadable = RefusedBytesError(400, "Failed to parse Content-Range header.")
    if match is None:
        raise unreadable
    first, last, size = match.groups()
    total = None if size == "*" else int(size)
    if first is None:
        return ContentRange(None, None, total)
    end = total if last == "*" else int(last) + 1
    # Of all the rest nothing may be left.
    if end is not None and (end < int(first) + (last != "*") or (total is not None and end > total)):
        raise unreadable
    return ContentRange(int(first), end, total)


async def has_body(request: Request) -> bool:
    """Whether a request has a body; the rest of one is not read."""
    async for part in request.stream():
        if part:
            return True
    return False


class Uploads:
    """The handlers of uploads, over one store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.folder = store.files.state / "uploads"
        self.folder.mkdir(exist_ok=True)
        self._expire()
        # One per upload that is being sent; it goes with the last request that holds it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._cancelled: set[str] = set()
        self._sums: dict[str, Sums] = {}

    def _expire(self) -> None:
        """Drop uploads that are a week old, as the service does."""
        oldest = time.time() - LIFETIME
        self.store.records.expire_uploads(int(oldest * 1e6))
        for path in self.folder.iterdir():
            # Of the last bytes, so that an upload which is still sent does not expire.
            if path.stat().st_mtime < oldest:
                self.store.records.drop_upload(path.name)
                path.unlink()

    def path(self, upload: Upload) -> Path:
        """Return the file of an upload's bytes."""
        return self.folder / upload.id

    def table(self) -> list[Endpoint]:
        """Return the routes below `/upload/storage` and `/resumable/upload/storage`."""
        path = "/v1/b/{bucket}/o/?"  # with a slash as googleCloudStorageR asks
        return [
            endpoint("POST", path, self.insert),
            endpoint("PUT", path, self.send),
            endpoint("DELETE", path, self.cancel),
        ]

    async def insert(self, request: Request, values: Values) -> Response:
        """objects.insert, by the type of the upload."""
        kind = request.query_params.get("uploadType") or request.query_params.get("upload_protocol", "")
        if request.query_params.get("upload_id"):
            return await self.send(request, values)
        if kind == "media":
            return await simple(self.store, request, values)
        if kind == "multipart":
            return await multipart(self.store, request, values)
        if kind == "resumable":
            return await self.begin(request, values)
        raise invalid(f"Invalid uploadType: {kind[:80]!r}. Expected media, multipart or resumable.")

    async def begin(self, request: Request, values: Values) -> Response:
        """objects.insert with uploadType=resumable"""
        await check_target(self.store, values["bucket"], request)
        body = await read_json(request)
        name = object_name(request, body)
        asked = dict(request.query_params)
        Conditions.of(asked)  # refused now rather than after the bytes
        sent_type = request.headers.get("x-upload-content-type")
        meta = whole(writable({**({"contentType": sent_type} if sent_type else {}), **body}, OBJECT_FIELDS))
        # Digests may come with the first request, and the bytes much later.
        meta |= predefined(request.query_params, meta)
        await check_list(self.store, values["bucket"], meta)
        meta |= {"_expect": expected(request, body)}
        # Preconditions are sent once and hold when the upload is finished.
        kept = {key: value for key, value in asked.items() if key.startswith("if")}
        upload = await in_thread(self.start, values["bucket"], name, meta, kept)
        link = f"{base(request)}{request.scope.get('root_path', '')}/v1/b/{quote(upload.bucket)}/o"
        headers = {"Location": f"{link}?{request.url.query}&upload_id={upload.id}", "X-GUploader-UploadID": upload.id}
        return capitalised(200, {**headers, "Content-Type": "text/plain; charset=utf-8"})

    def start(self, bucket: str, name: str, meta: Json, conditions: Json) -> Upload:
        """Return a new upload, whose bytes come later."""
        upload = Upload(secrets.token_urlsafe(24), bucket, name, meta, conditions)
        # The file before its record: a record without a file could not take bytes.
        self.path(upload).touch()
        self.store.records.save_upload(upload)
        return upload

    def find(self, upload_id: str, bucket: str) -> Upload:
        """Return an open upload to a bucket, 404 if there is none."""
        upload = self.store.records.upload(upload_id)
        if upload_id in self._cancelled:
            raise ApiError(499, "The upload was cancelled.")
        if upload is None or upload.bucket != bucket:
            raise not_found("No such resumable upload: it was cancelled, or never started on this server.")
        return upload

    async def cancel(self, request: Request, values: Values) -> Response:
        """Cancel an upload: 499, as the service answers."""
        upload = await in_thread(self.find, request.query_params.get("upload_id", ""), values["bucket"])
        await in_thread(self.store.records.drop_upload, upload.id)
        await in_thread(self.path(upload).unlink, missing_ok=True)
        if len(self._cancelled) < MOST_CANCELLED:
            self._cancelled.add(upload.id)
        return Response(status_code=499)

    async def send(self, request: Request, values: Values) -> Response:
        """Receive a chunk, or answer how many bytes have arrived."""
        try:
            return await self._receive(request, values)
        except RefusedBytesError as error:
            return Response(error.message, error.code, media_type="text/plain; charset=utf-8")

    async def _receive(self, request: Request, values: Values) -> Response:
        upload_id = request.query_params.get("upload_id", "")
        lock = self._locks.setdefault(upload_id, asyncio.Lock())
        # A client that has lost an answer sends a chunk again while the first one may still be written.
        async with lock:
            upload = await in_thread(self.find, upload_id, values["bucket"])
            if upload.generation is not None:
                return await self._finished(request, upload)
            chunk = content_range(request.headers.get("content-range"))
            if chunk is not None and chunk.start is None and await has_body(request):
                raise RefusedBytesError(400, "Client sent query request with a non-empty body.")
            if chunk is None:
                # Without a Content-Range the body is the whole object, from its first byte.
                upload, chunk = replace(upload, received=0), ContentRange(0, None, None)
            total = chunk.total
            # A chunk that leaves a gap after the stored bytes is refused.
            if chunk.start is not None and chunk.start > upload.received:
                message = f"Invalid request.  According to the Content-Range header, the upload offset is {chunk.start} byte(s), which exceeds already uploaded size of {upload.received} byte(s)."
                raise RefusedBytesError(503, message)
            if chunk.start is not None:
                upload = await self._take(request, upload, chunk.start, chunk)
                # All the rest has arrived.
                if chunk.end is None:
                    total = upload.received
            # Also where more has arrived than the client says (Java's tests against the service, scenario 2).
            if upload.received != total:
                return await self._incomplete(request, upload)
            return await self._finish(request, upload)

    async def _incomplete(self, request: Request, upload: Upload) -> Response:
        headers = {}
        if upload.received:
            sums = await in_thread(self._summed, upload)
            headers = {"Range": f"bytes=0-{upload.received - 1}", "X-Range-MD5": sums.md5.hexdigest()}
            headers |= {"X-Goog-Running-Hash": f"crc32c={sums.crc32c}"}
        headers |= {"X-GUploader-UploadID": upload.id, "Content-Type": "text/plain; charset=utf-8"}
        # 308 is "Resume Incomplete" here, not a redirect. Go's client asks for a status that its HTTP library takes for no redirect.
        if request.headers.get("x-guploader-no-308") == "yes":
            return capitalised(200, {**headers, "X-HTTP-Status-Code-Override": "308"})
        return capitalised(308, headers)

    def _summed(self, upload: Upload) -> Sums:
        """Return the checksums of the bytes that an upload has, continued from the answer before."""
        sums = self._sums.pop(upload.id, None)
        if sums is None or sums.size > upload.received:
            sums = Sums()
        with self.path(upload).open("rb") as file:
            sums.read(file.fileno(), upload.received)
        self._sums[upload.id] = sums
        if len(self._sums) > MOST_SUMS:
            del self._sums[next(iter(self._sums))]
        return sums

    async def _take(self, request: Request, upload: Upload, start: int, chunk: ContentRange) -> Upload:
        """Append the bytes of a chunk that are not stored yet; a client repeats a chunk that was cut off."""
        if chunk.end is not None and chunk.end <= upload.received:
            return upload
        length = None if chunk.end is None else chunk.end - start
        is_last = length is None or chunk.end == chunk.total
        if length is not None and length < MULTIPLE and not is_last:
            message = f"Invalid request.  The number of bytes uploaded is required to be equal or greater than {MULTIPLE}, except for the final request (it's recommended to be the exact multiple of {MULTIPLE}).  The received request contained {length} bytes, which does not meet this requirement."
            raise RefusedBytesError(400, message)
        with self.path(upload).open("r+b") as out:
            # Bytes that were not acknowledged are of a chunk that a crash cut off.
            await in_thread(out.truncate, upload.received)
            out.seek(0, os.SEEK_END)
            try:
                size = await receive(request, out, skip=upload.received - start)
            finally:
                await in_thread(out.flush)
                # Also of a body that broke off: bytes on disk count, and the client continues after them.
                arrived = os.fstat(out.fileno()).st_size
                # A body longer than its Content-Range is not kept: which bytes are right is unknown.
                if chunk.end is None or arrived <= chunk.end:
                    kept = arrived if is_last else arrived - arrived % MULTIPLE
                    upload = replace(upload, received=kept)
                    await in_thread(self.store.records.save_upload, upload)
        if length is not None and size != length:
            message = f"Invalid request.  There were {size} byte(s) in the request body.  There should have been {length} byte(s) (starting at offset {start} and ending at offset {start + length - 1}) according to the Content-Range header."
            raise RefusedBytesError(400, message)
        return upload

    async def _finish(self, request: Request, upload: Upload) -> Response:
        """Turn the bytes into an object."""
        self._sums.pop(upload.id, None)
        meta = dict(upload.meta)
        sent_type = request.headers.get("content-type")
        if sent_type and not meta.get("contentType"):
            meta["contentType"] = sent_type
        expect = {**meta.pop("_expect", {}), **expected(request, {})}
        source = self.path(upload)
        required = Conditions.of(upload.conditions)
        try:
            made = await in_thread(self.store.put, upload.bucket, upload.name, source, meta, required, expect=expect)
        # `put` has removed the bytes; a client that asks again has to begin again.
        except ApiError:
            await in_thread(self.store.records.drop_upload, upload.id)
            raise
        # After the object: a crash between the two leaves an upload that cannot be finished, and never an answer for
        # an object that is not there.
        await in_thread(self.store.records.save_upload, replace(upload, generation=made.generation))
        return JSONResponse(object_resource(made, base(request)))

    async def _finished(self, request: Request, upload: Upload) -> Response:
        """Return the answer to a client that missed the answer to its finished upload."""
        found = await in_thread(self.store.get, upload.bucket, upload.name)
        found = await in_thread(self.store.digested, found)
        return JSONResponse(object_resource(found, base(request)))
