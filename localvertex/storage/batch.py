"""Batches: many metadata requests in one multipart body.

Source: https://cloud.google.com/storage/docs/batch
"""

from __future__ import annotations

import email.parser
import email.policy
import re
import secrets
from collections.abc import Mapping
from email.message import Message
from email.utils import formatdate
from http.client import responses
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message as AsgiMessage
from starlette.types import Receive

from localvertex.http import Api, ApiError, invalid, read_body, sent_body

MOST = 100
"""Most calls in a batch, as the service documents."""
_HEADERS = ("etag", "content-type", "date", "cache-control", "expires", "content-length")
"""Of the answer to a call, in their order (gcsfs's recordings of 2021-05-10: 400 calls)."""


async def run(api: Api, request: Request, values: Mapping[str, str]) -> Response:
    """Do the calls one after another, as if each came alone to `api` under `/storage`, and answer each in its own part."""
    content_type = request.headers.get("content-type", "")
    body = await read_body(request)
    # The parser of e-mails finds the boundary there.
    header = b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n"
    message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(header + body)
    parts = message.get_payload()
    if not message.is_multipart() or not isinstance(parts, list):
        raise invalid("A batch needs a multipart/mixed body.")
    if len(parts) > MOST:
        raise invalid(f"The batch has {len(parts)} calls, and at most {MOST} are allowed.")
    boundary = f"batch_{secrets.token_hex(16)}"
    answers = [await _answer(api, request, part) for part in parts if isinstance(part, Message)]
    text = b"".join(b"--" + boundary.encode() + b"\r\n" + answer + b"\r\n" for answer in answers)
    ending = b"--" + boundary.encode() + b"--\r\n"
    own = {"x-content-type-options": "nosniff", "x-frame-options": "SAMEORIGIN", "x-xss-protection": "1; mode=block"}
    return Response(text + ending, headers=own, media_type=f"multipart/mixed; boundary={boundary}")


async def _answer(api: Api, outer: Request, part: Message) -> bytes:
    """Return one call's answer as an application/http part."""
    request = outer
    try:
        request = _request(outer, part)
        response = await api.answer(request)
    except ApiError as error:
        response = error.response(older=True)
    # A line break in the id would begin another header.
    content_id = re.sub(r"[^\x21-\x7e]", "", str(part.get("Content-ID", "")))[:200]
    # Clients match answers to calls by this id, with `response-` before their own.
    reply = f"<response-{content_id.strip('<>')}>"
    lines = [f"HTTP/1.1 {response.status_code} {responses.get(response.status_code, 'Status')}"]
    body = sent_body(request, response)
    headers = {**response.headers, "date": formatdate(usegmt=True), "content-length": str(len(body))}
    lines += [f"{name.title() if name != 'etag' else 'ETag'}: {headers[name]}" for name in _HEADERS if name in headers]
    inner = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    return f"Content-Type: application/http\r\nContent-ID: {reply}\r\n\r\n".encode() + inner


def _request(outer: Request, part: Message) -> Request:
    """Return the request written in a part: a request line, headers, and a JSON body."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        raise invalid("A part of the batch is not an HTTP request.")
    # Clients differ in their line ends; only JSON follows, in which they make no difference.
    head, _, body = re.sub(rb"\r\n", b"\n", payload).lstrip(b"\n").partition(b"\n\n")
    lines = head.decode("latin-1").split("\n")
    match = re.fullmatch(r"([A-Z]{1,10}) (\S{1,8000})(?: HTTP/\d\.\d)?", lines[0].strip())
    if match is None:
        raise invalid("A part of the batch has no request line.")
    target = urlsplit(match.group(2))
    if not target.path.startswith("/storage/") or not match.group(2).isascii():
        raise invalid(f"A batch may only call metadata methods below /storage, not {match.group(2)[:200]!r}.")
    pairs = [line.partition(":") for line in lines[1:] if ":" in line]
    headers = [(k.strip().lower().encode("latin-1"), v.strip().encode("latin-1")) for k, _, v in pairs]
    kept = [(k, v) for k, v in headers if k not in (b"host", b"content-length")]
    scope = {
        **outer.scope,
        "method": match.group(1),
        "path": target.path,
        "raw_path": target.path.encode(),
        "root_path": "/storage",
        "query_string": target.query.encode("latin-1", errors="replace"),
        "headers": [*kept, (b"host", outer.headers.get("host", "127.0.0.1").encode("latin-1"))],
        "state": {},
    }
    request = Request(scope, _receive(body))
    if request.query_params.get("alt") == "media":
        raise invalid("A batch may only call metadata methods, not downloads.")
    return request


def _receive(body: bytes) -> Receive:
    async def receive() -> AsgiMessage:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
