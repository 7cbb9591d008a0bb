"""The bytes of objects: downloads, simple and multipart uploads. Resumable uploads are in `upload`."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from localvertex.http import ApiError, Json, in_thread, invalid, missing_parameter, parse_json
from localvertex.storage.conditions import MESSAGE
from localvertex.storage.names import base, check_bucket, check_object, conditions, generation, object_of
from localvertex.storage.object_files import CHUNK
from localvertex.storage.resources import (
    OBJECT_FIELDS,
    etag,
    is_uniform,
    no_acl,
    object_resource,
    predefined,
    whole,
    writable,
)
from localvertex.storage.store import ObjectStore
from localvertex.storage.stored import Object

HEAD_LIMIT = 1 << 20
"""Most bytes of the parts before the media of a multipart upload."""


# -- downloads


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of a Range header, or None for the whole object.

    A header that is not a single byte range is ignored, as HTTP allows (RFC 9110 section 14.2).

    Raises:
        ApiError: 416 when no byte of the object lies in the range.
    """
    match = re.fullmatch(r"bytes=(\d{0,19})-(\d{0,19})", (header or "").strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    # `bytes=-100` asks for the last hundred.
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    # Not a range at all, by RFC 9110; the whole object is sent.
    if first and last and int(last) < int(first):
        return None
    if start >= size:
        # google-cloud-storage reads from it that an object is empty.
        headers = {"Content-Range": f"bytes */{size}"}
        raise ApiError(416, "Request range not satisfiable", headers=headers)
    return start, end


def check_etag(request: Request, found: Object) -> None:
    """Raise 412 or 304 as If-Match and If-None-Match ask."""
    own = {etag(found.generation, found.metageneration), xml_etag(found), "*"}
    for header, code, wanted in (("if-match", 412, True), ("if-none-match", 304, False)):
        text = request.headers.get(header)
        if text is None:
            continue
        tags = {part.strip().strip('"') for part in text.split(",")}
        if bool(own & tags) != wanted:
            raise ApiError(code, MESSAGE)


def xml_etag(o: Object) -> str:
    """Return the tag that the XML API gives an object: its MD5, or, without one, that of the JSON API after a dash.

    Source: https://cloud.google.com/storage/docs/xml-api/reference-headers (ETag), read 2026-11-28
    """
    return md5_tag(o.md5) if o.md5 else f"-{etag(o.generation, o.metageneration)}"


def md5_tag(md5: str) -> str:
    """Return the tag of bytes that have an MD5."""
    return base64.b64decode(md5).hex()


def is_inflated(request: Request, found: Object) -> bool:
    """Whether a gzip object is sent without its compression (https://cloud.google.com/storage/docs/transcoding)."""
    stored, accepted = found.meta.get("contentEncoding"), request.headers.get("accept-encoding", "")
    return stored == "gzip" and "gzip" not in accepted and "no-transform" not in found.meta.get("cacheControl", "")


def download_headers(found: Object) -> dict[str, str]:
    """Return the headers of an object's bytes. Values set by clients are quoted where Latin-1 cannot hold them."""
    stored = datetime.fromtimestamp(found.created // 1_000_000, tz=timezone.utc)
    sums = [f"crc32c={found.crc32c}"] + ([f"md5={found.md5}"] if found.md5 else [])
    headers = {
        "Content-Type": found.meta.get("contentType") or "application/octet-stream",
        # A client saves it, and no browser shows it.
        "Content-Disposition": "attachment",
        "ETag": etag(found.generation, found.metageneration),
        "Last-Modified": format_datetime(stored, usegmt=True),
        "X-Goog-Generation": str(found.generation),
        "X-Goog-Metageneration": str(found.metageneration),
        "X-Goog-Hash": ",".join(sums),
        "X-Goog-Storage-Class": found.meta.get("storageClass") or "STANDARD",
        "X-Goog-Stored-Content-Length": str(found.stamp.size),
        "X-Goog-Stored-Content-Encoding": found.meta.get("contentEncoding") or "identity",
        # A page opened from here must not run as this origin.
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    for field, header in (
        ("contentEncoding", "Content-Encoding"),
        ("contentDisposition", "Content-Disposition"),
        ("contentLanguage", "Content-Language"),
        ("cacheControl", "Cache-Control"),
    ):
        if found.meta.get(field):
            headers[header] = found.meta[field]
    return {key: latin(value) for key, value in headers.items()}


def latin(value: str) -> str:
    """Return a header's value, quoted where Latin-1 cannot hold it."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return quote(value)
    return value


async def download(store: ObjectStore, request: Request, values: Mapping[str, str]) -> Response:
    """objects.get with alt=media: the bytes, or the asked range of them."""
    return await in_thread(_download, store, request, values)


def _download(store: ObjectStore, request: Request, values: Mapping[str, str]) -> Response:
    """Return the whole answer in one thread; only what is longer than a chunk is read while it is sent."""
    found = store.get(*object_of(values), conditions(request), generation(request))
    check_etag(request, found)
    found, descriptor = store.open(store.digested(found))
    try:
        # The file changed between the two calls above, and `open` has read it again.
        if found.crc32c is None:
            found = store.digested(found)
        size = found.stamp.size
        headers = download_headers(found)
        if size and is_inflated(request, found) and os.pread(descriptor, 2, 0) == b"\x1f\x8b":
            # Of the whole object: a range of what is inflated cannot be found in what is stored.
            del headers["Content-Encoding"]
            headers |= {"Warning": "214 UploadServer gunzipped", "Vary": "Accept-Encoding"}
            return StreamingResponse(_inflated(_read(descriptor, 0, size)), 200, headers)
        part = byte_range(request.headers.get("range"), size)
        start, end = part or (0, size)
        # Most objects that are read are small: one read in this thread, and no stream.
        data = os.pread(descriptor, end - start, start) if end - start <= CHUNK else b""
    except BaseException:
        os.close(descriptor)
        raise
    headers["Content-Length"] = str(end - start)
    if part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        # A sum is of the whole object.
        del headers["X-Goog-Hash"]
    status = 206 if part else 200
    if len(data) < end - start:  # long, or cut short in place: sent as it is read
        return StreamingResponse(_read(descriptor, start, end), status, headers)
    os.close(descriptor)
    return Response(data, status, headers)


async def _read(descriptor: int, start: int, end: int) -> AsyncIterator[bytes]:
    """Yield the bytes from `start` to `end`; closes the descriptor."""
    try:
        while start < end:
            chunk = await in_thread(os.pread, descriptor, min(CHUNK, end - start), start)
            if not chunk:
                # The file was cut short in place; ending early makes the client see a broken transfer.
                return
            start += len(chunk)
            yield chunk
    finally:
        os.close(descriptor)


async def _inflated(stored: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what gzip members hold; ends early where they are damaged, so that the client sees a broken transfer."""
    inflate = zlib.decompressobj(31)
    with contextlib.suppress(zlib.error):
        async for chunk in stored:
            while chunk:
                yield inflate.decompress(chunk, CHUNK)
                chunk = inflate.unconsumed_tail or inflate.unused_data
                if inflate.eof:
                    inflate = zlib.decompressobj(31)
        yield inflate.flush()


# -- uploads


async def receive(request: Request, out: BinaryIO, skip: int = 0, *, raw: bool = False) -> int:
    """Write a request's body without its first `skip` bytes to a file as it comes; returns the size of the whole body.

    A body that the client compressed is inflated, unless it is to be stored `raw`.
    """
    coding = "identity" if raw else request.headers.get("content-encoding", "identity").lower()
    if coding not in ("identity", "gzip"):
        raise invalid(f"Unsupported Content-Encoding: {coding[:80]!r}.")
    # 31 is zlib's way to ask for a gzip header (16) with the largest window (15)
    inflate = zlib.decompressobj(31) if coding == "gzip" else None
    size = 0
    try:
        async for chunk in request.stream():
            data = inflate.decompress(chunk) if inflate else chunk
            fresh = data[max(0, skip - size) :]
            size += len(data)
            if fresh:
                await in_thread(out.write, fresh)
    except zlib.error as error:
        raise invalid(f"The body is not gzip: {error}.") from None
    return size


def expected(request: Request, body: Json) -> Json:
    """Return the digests a client computed: fields of the resource, the X-Goog-Hash header, or Content-MD5."""
    found = {field: body[field] for field in ("md5Hash", "crc32c") if isinstance(body.get(field), str)}
    for part in request.headers.get("x-goog-hash", "").split(","):
        name, _, value = part.strip().partition("=")
        field = {"md5": "md5Hash", "crc32c": "crc32c"}.get(name)
        if field and value:
            found[field] = value
    if request.headers.get("content-md5"):
        found["md5Hash"] = request.headers["content-md5"]
    return found


def object_name(request: Request, body: Json) -> str:
    """Return the name of the object to make: the `name` parameter, or the resource's."""
    name = request.query_params.get("name") or body.get("name")
    if not isinstance(name, str):
        raise missing_parameter("name")
    check_object(name)
    return name


async def check_target(store: ObjectStore, bucket: str, request: Request) -> None:
    """Raise a 404 for an upload to a missing bucket, and a 400 for an ACL where none can be, before its bytes are read."""
    check_bucket(bucket)
    await check_list(store, bucket, {"acl": request.query_params.get("predefinedAcl")})


async def check_list(store: ObjectStore, bucket: str, meta: Json) -> None:
    """Raise a 400 for a new object's access control list where none can be."""
    found = await in_thread(store.bucket, bucket)
    if meta.get("acl") and is_uniform(found.meta):
        raise no_acl("insert", "an object")


async def simple(store: ObjectStore, request: Request, values: Mapping[str, str]) -> Response:
    """objects.insert with uploadType=media: the body is the object."""
    await check_target(store, values["bucket"], request)
    name, required = object_name(request, {}), conditions(request)
    found = {
        "contentType": request.headers.get("content-type"),
        "contentEncoding": request.query_params.get("contentEncoding"),
    }
    sent = {key: value for key, value in found.items() if value}
    meta = whole(writable(sent, OBJECT_FIELDS)) | predefined(request.query_params, {})
    path = store.files.temp()
    try:
        with path.open("wb") as out:
            await receive(request, out)
        made = await in_thread(store.put, values["bucket"], name, path, meta, required, expect=expected(request, {}))
    finally:
        path.unlink(missing_ok=True)
    return JSONResponse(object_resource(made, base(request)))


async def multipart(store: ObjectStore, request: Request, values: Mapping[str, str]) -> Response:
    """objects.insert with uploadType=multipart: the resource as JSON, then the bytes, in one multipart/related body."""
    await check_target(store, values["bucket"], request)
    required, boundary = conditions(request), _boundary(request.headers.get("content-type", ""))
    raw, path = store.files.temp(), store.files.temp()
    try:
        with raw.open("wb") as out:
            await receive(request, out)
        body, content_type = await in_thread(split_multipart, raw, boundary, path)
        name = object_name(request, body)
        meta = whole(writable({**({"contentType": content_type} if content_type else {}), **body}, OBJECT_FIELDS))
        meta |= predefined(request.query_params, meta)
        made = await in_thread(store.put, values["bucket"], name, path, meta, required, expect=expected(request, body))
    finally:
        raw.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return JSONResponse(object_resource(made, base(request)))


def _boundary(content_type: str) -> bytes:
    match = re.search(r"""boundary=(?:"([^"]{1,200})"|'([^']{1,200})'|([^\s;"]{1,200}))""", content_type, re.IGNORECASE)
    if not content_type.lower().startswith("multipart/") or match is None:
        raise invalid("A multipart upload needs a Content-Type of multipart/related with a boundary.")
    return next(group for group in match.groups() if group).encode("latin-1")


def split_multipart(raw: Path, boundary: bytes, target: Path) -> tuple[Json, str]:
    """Return the JSON part of a multipart/related body and the content type of its media ("" for none), which is written to `target`.

    The media may be larger than memory, which rules out Python's email package: its head and its end are searched for the
    boundary, and what is between them is copied.
    """
    with raw.open("rb") as source:
        head = source.read(HEAD_LIMIT)
        line = re.compile(rb"(?:\A|\r?\n)--" + re.escape(boundary) + rb"[ \t]*\r?\n")
        # The media may hold the boundary by chance: only the first two count.
        marks = list(re.finditer(line, head))[:2]
        if len(marks) < 2:
            message = f"Payload size invalid. Expected 2-3 payloads. Actual size: {len(marks)}"
            raise ApiError(400, message, reason="invalidPayloadSize")
        _, text = _part(head, marks[0].end())
        body = parse_json(head[text : marks[1].start()])
        headers, start = _part(head, marks[1].end())
        size = source.seek(0, os.SEEK_END)
        # The last boundary, and blanks that a client may write after it.
        tail_start = max(start, size - len(boundary) - 1024)
        source.seek(tail_start)
        tail = source.read()
        # Where lines end in a bare line feed (gcsfs), a carriage return before the last one is of the media.
        feed = rb"\r?\n" if marks[0].group().endswith(b"\r\n") else rb"\n"
        end = re.search(rb"(?:" + feed + rb"|\A)--" + re.escape(boundary) + rb"--[\s\S]*\Z", tail)
        if end is None:
            raise invalid("The multipart upload does not end with its boundary.")
        _copy(source, start, tail_start + end.start(), target)
    return body, headers.get("content-type", "")


def _part(head: bytes, start: int) -> tuple[dict[str, str], int]:
    """Return the headers of a part, and where its body starts."""
    # A part without any header begins with its blank line.
    if blank := re.compile(rb"\r?\n").match(head, start):
        return {}, blank.end()
    blank = re.compile(rb"\r?\n\r?\n").search(head, start)
    if blank is None:
        raise invalid("A part of the multipart upload has no end of headers.")
    pairs = (line.partition(b":") for line in head[start : blank.start()].splitlines())
    return {k.decode("latin-1").strip().lower(): v.decode("latin-1").strip() for k, _, v in pairs}, blank.end()


def join(paths: Sequence[Path], target: Path) -> None:
    """Write the bytes of files, one after the other, to another."""
    with target.open("wb") as out:
        for path in paths:
            with path.open("rb") as part:
                shutil.copyfileobj(part, out, CHUNK)


def _copy(source: BinaryIO, start: int, end: int, target: Path) -> None:
    with target.open("wb") as out:
        source.seek(start)
        while start < end:
            chunk = source.read(min(CHUNK, end - start))
            start += len(chunk)
            out.write(chunk)
