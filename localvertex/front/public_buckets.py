"""Reads of public buckets of Google's Cloud Storage: without credentials, and of the buckets that the project file lists."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import closing
from urllib.request import getproxies_environment

from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from localvertex.front.variables import USER

ORIGIN = "https://storage.googleapis.com"
"""The real host, which has the paths of both APIs."""
_TIMEOUT_S = 60
# The JSON API's paths, then the XML API's; that of a bucket with a host of its own has got the bucket's name in front.
_BUCKET = re.compile(r"/(?:download/)?storage/v1/b/([^/]+)(?:/|$)|/([^/]+)(?:/|$)")
# Fields that choose what is read. No other one is passed on, so that no credential can be.
_ASKED = ("accept", "accept-encoding", "range", "if-match", "if-none-match", "if-modified-since", "user-agent")
# Fields of the connection to the real host, which say nothing of the one to the client.
_OWN = ("connection", "keep-alive", "transfer-encoding", "alt-svc", "set-cookie")


class PublicBuckets:
    """Passes reads of listed buckets that are not on this machine on to the real host, and answers all else as `app` does."""

    def __init__(self, app: ASGIApp, names: Iterable[str], is_here: Callable[[str], bool]) -> None:
        self.app, self.names, self.is_here = app, frozenset(names), is_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request of Cloud Storage's hosts."""
        # The undecoded path, as the local APIs read it.
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        named = _BUCKET.match(path) if scope["method"] in ("GET", "HEAD") else None
        name = (named[1] or named[2]) if named else ""
        if name not in self.names or self.is_here(name):
            return await self.app(scope, receive, send)
        answer = await run_in_threadpool(_read, Request(scope), ORIGIN + path)
        await answer(scope, receive, send)


def _read(request: Request, url: str) -> Response:
    """Return the real host's answer."""
    import requests  # a tenth of the server's start, and most servers read no public bucket

    session = requests.Session()
    # Not from the environment: requests would take a login from ~/.netrc. The proxy is the user's, unless it is ours.
    session.trust_env = False
    session.proxies = {kind: one for kind, one in getproxies_environment().items() if f"//{USER}:" not in one}
    session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or True
    session.headers.clear()
    asked = {name: request.headers[name] for name in _ASKED if name in request.headers}
    # An access token may be in the query.
    query = [(key, value) for key, value in request.query_params.multi_items() if key not in ("access_token", "key")]
    try:
        answer = session.request(request.method, url, params=query, headers=asked, stream=True, timeout=_TIMEOUT_S)
    except requests.RequestException as error:
        session.close()
        return PlainTextResponse(f"{url} cannot be read: {error}\n", 502)

    def parts() -> Iterable[bytes]:
        # As it came, compressed or not: the client asked for that.
        with closing(session), closing(answer):
            yield from answer.raw.stream(1 << 16, decode_content=False)

    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
    return StreamingResponse(parts(), answer.status_code, headers, background=BackgroundTask(session.close))
