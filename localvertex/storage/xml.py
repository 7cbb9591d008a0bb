"""The XML API: what signed URLs, public URLs, TensorFlow's file system and transfer managers use of it.

A signed URL's time is checked, and its signature is not: the local Vertex does not know the keys of a program's account.

Sources: https://cloud.google.com/storage/docs/xml-api/reference-methods and .../multipart-uploads, read 2026-11-26
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime, formatdate
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from localvertex.http import (
    Api,
    ApiError,
    Json,
    endpoint,
    in_thread,
    invalid,
    position_of_token,
    query_int,
    read_body,
    token_of,
)
from localvertex.storage import media
from localvertex.storage.answers import served
from localvertex.storage.conditions import Conditions
from localvertex.storage.names import base, object_of
from localvertex.storage.object_files import digests
from localvertex.storage.resources import OBJECT_FIELDS, predefined, time_text, writable
from localvertex.storage.store import KeptError, NoBucketError, ObjectStore, Query
from localvertex.storage.stored import Object, Upload
from localvertex.storage.upload import Uploads, capitalised
from vertexrig.text import markup

Values = Mapping[str, str]
_DECLARATION = "<?xml version='1.0' encoding='UTF-8'?>"
_OF_LISTING, _OF_UPLOAD = "http://doc.s3.amazonaws.com/2006-03-01", "http://s3.amazonaws.com/doc/2006-03-01/"
"""Namespaces of a listing, and of a multipart upload."""
_CODES = {
    304: ("NotModified", ""), 400: ("InvalidArgument", "Invalid argument."), 403: ("AccessDenied", "Access denied."),
    404: ("NoSuchKey", "The specified key does not exist."), 405: ("MethodNotAllowed", ""),
    412: ("PreconditionFailed", ""), 416: ("InvalidRange", "The requested range cannot be satisfied."),
    501: ("NotImplemented", ""), 503: ("ServiceUnavailable", ""),
}  # fmt: skip
_FIELDS = {
    "content-type": "contentType", "content-encoding": "contentEncoding", "content-language": "contentLanguage",
    "content-disposition": "contentDisposition", "cache-control": "cacheControl", "x-goog-storage-class": "storageClass", "x-goog-custom-time": "customTime",
}  # fmt: skip


_EXPIRED = "The provided token has expired."
_MESSAGES = {
    "MalformedSecurityHeader": "Your request has a malformed header.",
    "ExpiredToken": _EXPIRED,
    "InvalidPolicyDocument": "The content of the form does not meet the conditions specified in the policy document.",
}
"""By code; the error's own message is then the details."""


class XmlApi(Api):
    """Objects by `/bucket/object`, with answers and errors in XML."""

    def __init__(self, store: ObjectStore) -> None:
        self.store, self.uploads = store, Uploads(store)
        item, bucket = "/{bucket}/{object*}", "/{bucket}/?"
        super().__init__(
            [
                *(endpoint(method, bucket, self.list) for method in ("GET", "HEAD")),
                *(endpoint("OPTIONS", place, self.options) for place in (item, bucket)),
                *(endpoint(method, item, self.get) for method in ("GET", "HEAD")),
                endpoint("PUT", item, self.put),
                endpoint("POST", item, self.post),
                endpoint("DELETE", item, self.delete),
            ]
        )

    async def answer(self, request: Request) -> Response:
        """Return the response to one request, with the headers that the service sends with it."""
        return served(await super().answer(request))

    async def dispatch(self, request: Request, path: str) -> Response:
        """Answer a request whose signature, if it has one, is readable and has not expired."""
        _check_signature(request.query_params)
        _check_time(request.query_params)
        response = await super().dispatch(request, path)
        sums = response.headers.get("x-goog-hash", "").split(",")
        if sums != [""]:
            del response.headers["x-goog-hash"]
            for one in sums:  # a header each
                response.headers.append("x-goog-hash", one)
        return response

    async def get(self, request: Request, values: Values) -> Response:
        """Send an object, as a page that a browser shows unless it says otherwise; or list the parts of a multipart upload."""
        if "uploadId" in request.query_params:
            return await self._parts(request, values)
        try:
            response = await media.download(self.store, request, values)
        except ApiError as error:
            if error.code == 416:  # its details are the range alone
                error.message = request.headers["range"]
            raise
        found = await in_thread(self.store.find, *object_of(values))
        own = found.meta if found is not None else {}
        if found is not None:
            response.headers.update({"etag": f'"{media.xml_etag(found)}"', "accept-ranges": "bytes"})
            for key, value in (own.get("metadata") or {}).items():
                response.headers[f"x-goog-meta-{key}"] = media.latin(value)
        if "contentDisposition" not in own:
            del response.headers["content-disposition"]
        if (await in_thread(self.store.bucket, values["bucket"])).meta.get("cors"):
            response.headers["vary"] = "Origin"
        public = any(one["entity"] == "allUsers" for one in own.get("acl", []))
        if not public:
            bindings = (await in_thread(self.store.policy, values["bucket"]))["bindings"]
            public = any("allUsers" in one["members"] for one in bindings)
        response.headers.setdefault("cache-control", "public, max-age=3600" if public else "private, max-age=0")
        age = re.search(r"max-age=([0-9]{1,8})", response.headers["cache-control"])
        now = datetime.now(timezone.utc)
        expires = now + timedelta(seconds=int(age[1]) if age else 0)
        response.headers["date"] = format_datetime(now, usegmt=True)
        response.headers.setdefault("expires", format_datetime(expires, usegmt=True))
        return response

    async def options(self, request: Request, values: Values) -> Response:
        """Answer whether a web page may send a request, by the bucket's `cors`."""
        bucket = await in_thread(self.store.bucket, values["bucket"])
        origin = request.headers.get("origin", "")
        method = request.headers.get("access-control-request-method", "")
        for rule in bucket.meta.get("cors", []):
            methods, origins = rule.get("method", []), rule.get("origin", [])
            if method and {method, "*"} & set(methods) and {origin, "*"} & set(origins):
                headers = {
                    "Access-Control-Allow-Origin": "*" if "*" in origins else origin,
                    "Access-Control-Max-Age": str(rule.get("maxAgeSeconds", 3600)),
                    "Access-Control-Allow-Methods": ",".join(methods),
                    "Access-Control-Allow-Headers": ",".join(rule.get("responseHeader", [])),
                }
                return Response(headers=headers)
        return Response()

    def failed(self, error: ApiError) -> Response:
        """Return the error as the XML API writes it."""
        code, message = _CODES.get(error.code, ("InternalError", ""))
        if isinstance(error, NoBucketError):
            code, message = "NoSuchBucket", ""
        if isinstance(error, KeptError):
            code, message = error.xml
        if error.reason[:1].isupper():
            code, message = error.reason, _MESSAGES.get(error.reason, "")
        details = f"<Details>{markup(error.message)}</Details>" if message not in ("", error.message) else ""
        if error.parameter and error.reason[:1].isupper():
            details = f"<ParameterName>{markup(error.parameter)}</ParameterName>{details}"
        body = f"{_DECLARATION}<Error><Code>{code}</Code><Message>{markup(message or error.message)}</Message>{details}</Error>"
        return _xml("" if error.code == 304 else body, error.code, error.headers)

    async def list(self, request: Request, values: Values) -> Response:
        """List a bucket's objects, in either version of the listing."""
        asked = request.query_params
        after = position_of_token(asked.get("continuation-token", "")) or asked.get("marker", "")
        query = Query(
            prefix=asked.get("prefix", ""),
            delimiter=asked.get("delimiter", ""),
            after=after or asked.get("start-after", ""),
            limit=min(query_int(request, "max-keys", default=1000), 1000),
        )
        page = await in_thread(self.store.list, values["bucket"], query)
        names = {"Name": values["bucket"], "Prefix": query.prefix}
        if asked.get("list-type") == "2":
            names |= {"StartAfter": asked["start-after"]} if asked.get("start-after") else {}
            names |= {"KeyCount": str(len(page.items) + len(page.prefixes)), "MaxKeys": str(query.limit)}
            names |= {"NextContinuationToken": token_of(page.token)} if page.token else {}
        else:
            names |= {"Marker": asked.get("marker", "")} | ({"NextMarker": page.token} if page.token else {})
        names |= {"Delimiter": query.delimiter} if query.delimiter else {}
        head = _elements({**names, "IsTruncated": str(bool(page.token)).lower()})
        items = [await in_thread(self.store.digested, one) for one in page.items]
        inner = "".join(map(_entry, items))
        inner += "".join(f"<CommonPrefixes><Prefix>{markup(one)}</Prefix></CommonPrefixes>" for one in page.prefixes)
        now = formatdate(usegmt=True)
        headers = {"cache-control": "private, max-age=0", "date": now, "expires": now}
        body = f"{_DECLARATION}<ListBucketResult xmlns='{_OF_LISTING}'>{head}{inner}</ListBucketResult>"
        return _xml(body, headers=headers)

    async def put(self, request: Request, values: Values) -> Response:
        """Store an object, a chunk of a resumable upload, or a part of a multipart upload."""
        asked = request.query_params
        if "upload_id" in asked:
            done = await self.uploads.send(request, values)
            return Response() if done.status_code == 200 else done
        path = self.store.files.temp()
        try:
            with path.open("wb") as out:
                await media.receive(request, out, raw=True)
            if "uploadId" in asked:
                upload = await in_thread(self.uploads.find, asked["uploadId"], values["bucket"])
                number = query_int(request, "partNumber", default=0, high=10_000)
                part = self._part_path(upload, number)
                with path.open("rb") as stored:
                    md5, crc32c = await in_thread(digests, stored.fileno())
                path.replace(part)
                tag = f'"{media.md5_tag(md5)}"'
                return Response(headers={"ETag": tag, "X-Goog-Hash": f"crc32c={crc32c},md5={md5}"})
            kept, expected = _conditions(request), media.expected(request, {})
            where = object_of(values)
            meta = await self._fields(request, where.bucket)
            made = await in_thread(self.store.put, *where, path, meta, kept, expect=expected)
        finally:
            path.unlink(missing_ok=True)
        return Response(headers=_made(made))

    async def _fields(self, request: Request, bucket: str) -> Json:
        """Return an object's fields from a request's headers; 400 for an access control list where none can be."""
        meta = _meta(request)
        await media.check_list(self.store, bucket, meta)
        return meta

    async def post(self, request: Request, values: Values) -> Response:
        """Begin a resumable or a multipart upload, or complete the latter."""
        asked, where = request.query_params, object_of(values)
        if "uploadId" in asked:
            return await self._complete(request, values)
        await media.check_target(self.store, where.bucket, request)
        in_parts = "uploads" in asked
        if not in_parts and request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise ApiError(400, "Missing policy", reason="InvalidPolicyDocument")
        if not in_parts and request.headers.get("x-goog-resumable") != "start":
            raise invalid("A POST to an object needs the header x-goog-resumable: start.")
        upload = await in_thread(self.uploads.start, *where, await self._fields(request, where.bucket), {})
        if in_parts:
            inner = f"<Bucket>{where.bucket}</Bucket><Key>{markup(where.name)}</Key><UploadId>{upload.id}</UploadId>"
            return _upload_result("InitiateMultipartUpload", inner)
        # Both forms of the address name the bucket: a request to the bucket's own host has it in its path by now.
        location = f"{base(request)}/{where.bucket}/{quote(where.name)}?upload_id={upload.id}"
        if request.url.hostname and request.url.hostname.startswith(f"{where.bucket}."):
            location = location.replace(f"/{where.bucket}/", "/", 1)
        return capitalised(201, {"Location": location, "X-GUploader-UploadID": upload.id})

    async def _parts(self, request: Request, values: Values) -> Response:
        """List the parts of a multipart upload (https://docs.cloud.google.com/storage/docs/xml-api/get-object-multipart)."""
        upload = await in_thread(self.uploads.find, request.query_params["uploadId"], values["bucket"])
        after = query_int(request, "part-number-marker", default=0)
        most = min(query_int(request, "max-parts", default=1000), 1000)
        every = await in_thread(self._numbers, upload.id)
        left = [number for number in every if number > after]
        shown, last = left[:most], (left[:most] or [after])[-1]
        more = len(left) > most
        head = _elements({
            "Bucket": upload.bucket, "Key": upload.name, "UploadId": upload.id, "StorageClass": "STANDARD",
            "PartNumberMarker": str(after), **({"NextPartNumberMarker": str(last)} if more else {}),
            "MaxParts": str(most), "IsTruncated": str(more).lower(),
        })  # fmt: skip
        parts = [await in_thread(self._part, upload, number) for number in shown]
        return _upload_result("ListParts", f"{head}{''.join(parts)}")

    def _part_path(self, upload: Upload, number: int) -> Path:
        return self.uploads.path(replace(upload, id=f"{upload.id}.{number}"))

    def _numbers(self, upload_id: str) -> Sequence[int]:
        ends = (path.name.rpartition(".")[2] for path in self.uploads.folder.glob(f"{upload_id}.*"))
        return sorted(int(end) for end in ends if end.isdigit())

    def _part(self, upload: Upload, number: int) -> str:
        with self._part_path(upload, number).open("rb") as stored:
            md5, _ = digests(stored.fileno())
            stat = os.fstat(stored.fileno())
        texts = {"PartNumber": str(number), "LastModified": time_text(stat.st_mtime_ns // 1000)}
        return f'<Part>{_elements(texts)}<ETag>"{media.md5_tag(md5)}"</ETag><Size>{stat.st_size}</Size></Part>'

    async def _complete(self, request: Request, values: Values) -> Response:
        """Join the parts of a multipart upload in the order of their numbers."""
        upload = await in_thread(self.uploads.find, request.query_params["uploadId"], values["bucket"])
        text = (await read_body(request)).decode("utf-8", "replace")
        numbers = [int(one) for one in re.findall(r"<(?:\w+:)?PartNumber>\s*(\d{1,5})\s*<", text)]
        paths = [self._part_path(upload, number) for number in numbers]
        if not paths or numbers != sorted(set(numbers)) or not all(path.is_file() for path in paths):
            raise ApiError(400, "One or more of the specified parts could not be found.", reason="InvalidPart")
        whole = self.store.files.temp()
        await in_thread(media.join, paths, whole)
        meta = dict(upload.meta)
        made = await in_thread(self.store.put, upload.bucket, upload.name, whole, meta, components=len(paths))
        await in_thread(self._drop, upload.id)
        inner = f'<Bucket>{made.bucket}</Bucket><Key>{markup(made.name)}</Key><ETag>"{media.xml_etag(made)}"</ETag>'
        return _upload_result("CompleteMultipartUpload", inner, _made(made))

    def _drop(self, upload_id: str) -> None:
        """Forget a multipart upload and its parts."""
        self.store.records.drop_upload(upload_id)
        for path in self.uploads.folder.glob(f"{upload_id}*"):
            path.unlink(missing_ok=True)

    async def delete(self, request: Request, values: Values) -> Response:
        """Delete an object, or abort a multipart upload."""
        if "uploadId" in request.query_params:
            upload = await in_thread(self.uploads.find, request.query_params["uploadId"], values["bucket"])
            await in_thread(self._drop, upload.id)
        else:
            await in_thread(self.store.delete, *object_of(values), _conditions(request))
        return Response(status_code=204)


class BucketPaths:
    """Sends a request whose path begins with a bucket to the XML API, and any other one to `other`.

    Clients that are given the server's own address read and sign there as they do at the service's (Go's, for one).
    """

    def __init__(self, xml: XmlApi, other: ASGIApp) -> None:
        self.xml, self.other = xml, other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request."""
        name = scope["path"].split("/")[1] if scope["type"] == "http" else ""
        app = self.xml if name and self.xml.store.files.has_bucket(name) else self.other
        await app(scope, receive, send)


def _xml(body: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body or None, status, dict(headers or {}), media_type="application/xml; charset=UTF-8")


def _upload_result(method: str, inner: str, headers: Mapping[str, str] | None = None) -> Response:
    name = f"{method}Result"
    return _xml(f"{_DECLARATION}<{name} xmlns='{_OF_UPLOAD}'>{inner}</{name}>", headers=headers)


def _elements(texts: Mapping[str, str]) -> str:
    """Return elements by their names; one without text is closed at once."""
    return "".join(f"<{name}>{markup(text)}</{name}>" if text else f"<{name}/>" for name, text in texts.items())


def _entry(o: Object) -> str:
    texts = {
        "Key": o.name, "Generation": str(o.generation), "MetaGeneration": str(o.metageneration),
        "LastModified": time_text(o.created),
    }  # fmt: skip
    # The tag's quotes are written as they are.
    return f'<Contents>{_elements(texts)}<ETag>"{media.xml_etag(o)}"</ETag><Size>{o.stamp.size}</Size></Contents>'


def _made(o: Object) -> dict[str, str]:
    kept = ("X-Goog-Generation", "X-Goog-Metageneration", "X-Goog-Hash", "X-Goog-Stored-Content-Length")
    shown = {key: value for key, value in media.download_headers(o).items() if key in kept}
    return {"ETag": f'"{media.xml_etag(o)}"', **shown}


def _meta(request: Request) -> Json:
    """Return an object's fields from a request's headers."""
    sent: Json = {field: request.headers[name] for name, field in _FIELDS.items() if name in request.headers}
    own = {name[12:]: value for name, value in request.headers.items() if name.startswith("x-goog-meta-")}
    # A list's name as the XML API writes it: public-read.
    named = re.sub("-([a-z])", lambda found: found[1].upper(), request.headers.get("x-goog-acl", ""))
    lists = predefined({"predefinedAcl": named}, {})
    return writable({**sent, **({"metadata": own} if own else {})}, OBJECT_FIELDS) | lists


def _conditions(request: Request) -> Conditions:
    names = (
        ("x-goog-if-generation-match", "ifGenerationMatch"),
        ("x-goog-if-metageneration-match", "ifMetagenerationMatch"),
    )
    return Conditions.of({name: request.headers[header] for header, name in names if header in request.headers})


def _check_signature(asked: Mapping[str, str]) -> None:
    """Raise a 400 for a V2 signature that is not Base64 (google-cloud-go issue 1062)."""
    # A plus sign that the client did not encode arrives as a blank.
    if not re.fullmatch(r"[A-Za-z0-9+/_ -]*={0,2}", asked.get("Signature", "")):
        details = "Signature was not base64 encoded"
        raise ApiError(400, details, reason="MalformedSecurityHeader", parameter="signature")


def _check_time(asked: Mapping[str, str]) -> None:
    """Raise a 400 for a signed URL that has expired (https://cloud.google.com/storage/docs/access-control/signed-urls)."""
    try:
        if "X-Goog-Date" in asked:
            begun = datetime.strptime(asked["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
            end = (begun + timedelta(seconds=int(asked["X-Goog-Expires"]))).timestamp()
        elif "Signature" in asked:
            if not re.fullmatch(r"-?[0-9]+", asked["Expires"]):  # nodejs-storage issue 64
                raise invalid(f"Expires parameter is not a valid long value: {asked['Expires'][:100]}")
            end = float(asked["Expires"])
        else:
            return
    except (KeyError, ValueError, OverflowError):
        raise invalid("The signed URL's date or expiry cannot be read.") from None
    if end < time.time():
        # Details of a V2 signature as fog-google issue 264 shows them; none are known of a V4 signature.
        details = f"Request has expired: {asked['Expires'][:100]}" if "Signature" in asked else _EXPIRED
        raise ApiError(400, details, reason="ExpiredToken")
