"""The gRPC server of a local Vertex: methods that are each answered by the REST handler of the same method.

A method that streams and has no such handler has its own handler here, or it is refused at once with its name, as are all
others that are not served. The server runs in the event loop of the HTTP server, on a second port of this machine, without
TLS. Clients that insist on TLS reach it through a proxy that adds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf.wrappers_pb2 import StringValue
from starlette.types import ASGIApp

from localvertex import bindings
from localvertex.front import call_names
from localvertex.front import rpc_convert as convert
from localvertex.front.calls import GRPC, Calls
from localvertex.front.runs import Commands
from localvertex.http import COMPACT, JSON_LIMIT, MAKER, ApiError, Json, invalid, unserved
from localvertex.services import tensorboards
from localvertex.services.jobs import EMPTY_LISTS
from localvertex.state import AIPLATFORM, HOST
from vertexrig import guard
from vertexrig.spec import messages

PREFIXES = {start: prefix for prefix, start in call_names.APIS.values()} | {"google.longrunning.": AIPLATFORM}
"""Where the REST API of a gRPC service is, by the beginning of the service's name."""
# Bounds, because without them a client in a loop takes all files and memory of the server.
CONNECTIONS, CALLS, STREAMS = 256, 1000, 256
"""Most connections, calls at a time, and calls at a time on one connection."""
# grpc names a peer as `ipv4:127.0.0.1:54321`; the server listens on IPv4 alone.
_PEER = re.compile(r"ipv4:(127\.[\d.]+):(\d+)")
_PASSED = ("user-agent", "x-goog-api-client", "x-goog-request-params", "x-goog-user-project")
"""Metadata that is passed to the REST handler as header fields; credentials are not."""
_EMPTY = ("google.cloud.aiplatform.v1.ListOptimalTrialsRequest", "google.cloud.aiplatform.v1.ListCustomJobsResponse")
"""What reads and answers lists that are always empty and whose messages are not shipped: of the requests the parent alone,
which is their first field, as a test holds; an answer has nothing in it."""
_LAYOUT = "google.storage.control.v2.StorageControl/GetStorageLayout"

Stream = Callable[[dict[str, Any]], Awaitable[AsyncIterator[dict[str, Any]]]]


class RpcServer(grpc.GenericRpcHandler):  # type: ignore[misc,unused-ignore]
    """Answers the methods whose messages are shipped, and names those that it does not serve.

    Args:
        app: The REST application, called in this process.
        streams: Methods that stream, by `package.Service/Method`: a request's JSON to that of each answer.
        calls: Takes these calls, and those that are not served; the calls of all other methods are calls of `app`.
        runs: Commands of `local run`.
        piped: The port that a client of the front came to, by the port that this server sees.
    """

    def __init__(
        self, app: ASGIApp, streams: Mapping[str, Stream], calls: Calls, runs: Commands, piped: Mapping[int, int]
    ) -> None:
        self.app, self.streams, self.calls, self.runs, self.piped, self.port = app, streams, calls, runs, piped, 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on a free port, which is `port` while this is entered."""
        options = [
            ("grpc.so_reuseport", 0),  # else another process could listen on the same port and get some of the calls
            ("grpc.max_receive_message_length", 2 * JSON_LIMIT),  # a longer one is refused by gRPC in its own words
            ("grpc.max_send_message_length", -1),  # a page of log entries may be longer than the usual 4 MiB
            ("grpc.max_concurrent_streams", STREAMS),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS),
            ("grpc.max_metadata_size", 64 * 1024),
            ("grpc.keepalive_time_ms", 120_000),  # of calls: less than a tunnel of the front may be silent
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS)
        server.add_generic_rpc_handlers((self,))
        port = server.add_insecure_port(f"{HOST}:0")
        self.address = (HOST, port)
        await server.start()
        self.port = port
        try:
            yield
        finally:
            self.port = 0
            # Seconds for calls under way; a tail of a log has no end.
            await server.stop(1)

    def service(self, handler_call_details: Any) -> Any:
        """Return what gRPC asks for the handler of a call."""
        return self.handler(handler_call_details.method)

    @lru_cache(maxsize=1024)  # noqa: B019 - one server per process, and the names that clients ask for are bounded
    def handler(self, path: str) -> Any:
        """Return the handler of `/package.Service/Method`."""
        service, _, name = path.strip("/").partition("/")
        if path.strip("/") == _LAYOUT:
            return grpc.unary_unary_rpc_method_handler(self._layout)
        if path.strip("/") in self.streams:
            return grpc.stream_stream_rpc_method_handler(self._streamed(service, name))
        # One set of messages for both versions; see `rpc_convert`.
        stable = service.replace("google.cloud.aiplatform.v1beta1.", "google.cloud.aiplatform.v1.")
        version = "v1" if stable == service else "v1beta1"
        routes = bindings.of_service(stable).get(name, ())
        prefix = next((prefix for start, prefix in PREFIXES.items() if stable.startswith(start)), None)
        found = _messages(stable, name)
        if found is None or not routes or prefix is None:
            # Streaming on both sides fits any method: nothing of the request is read.
            return grpc.stream_stream_rpc_method_handler(self._unserved(service, name))
        kind, answer = found
        call = self._called(messages.message_class(kind), routes, prefix, version)

        async def one(request: bytes, context: Any) -> bytes:
            return convert.to_answer(answer, await call(request, context)).SerializeToString()  # type: ignore[no-any-return]

        async def each(request: bytes, context: Any) -> AsyncIterator[bytes]:
            for data in await call(request, context):
                yield convert.to_answer(answer, data).SerializeToString()

        if (stable, name) in tensorboards.STREAMED:
            return grpc.unary_stream_rpc_method_handler(each)
        return grpc.unary_unary_rpc_method_handler(one)

    def _called(
        self, kind: Any, routes: tuple[bindings.Binding, ...], prefix: str, version: str
    ) -> Callable[[bytes, Any], Awaitable[Any]]:
        """Return a function that calls the REST handler of a method, and returns the JSON of its answer."""

        async def call(request: bytes, context: Any) -> Any:
            client = await self._client(context)
            try:
                binding, target, body = _rest(routes, convert.to_json(kind, request), version)
            except ValueError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
            path, headers = prefix + target, _headers(context)
            code, data = await call_rest(self.app, binding.http, path, body, headers, client)
            if code < 400:
                return data
            name, message, details = convert.status(code, data)
            trailing = (("grpc-status-details-bin", details),) if details else ()
            await context.abort(grpc.StatusCode[name], message, trailing)
            return None  # for the type checker: abort() raises

        return call

    def _streamed(self, service: str, name: str) -> Callable[[Any, Any], AsyncIterator[bytes]]:
        method = messages.pool().FindServiceByName(service).methods_by_name[name]
        kind, answer = messages.message_class(method.input_type.full_name), method.output_type.full_name

        async def call(requests: Any, context: Any) -> AsyncIterator[bytes]:
            client = await self._client(context)
            refused: ApiError | None = None
            try:
                first = convert.to_json(kind, await anext(requests, b""))  # the first message is the request
                answers = await self.streams[f"{service}/{name}"](first)
            except ApiError as error:
                refused = error
            except ValueError as error:
                refused = invalid(str(error))
            # Noted before the first answer: the call may have no end.
            status = refused.code if refused else 200
            self.calls.streamed(f"/{service}/{name}", _headers(context), client[1], status, self.piped)
            if refused is not None:
                await context.abort(grpc.StatusCode[refused.status], refused.message)
            async for data in answers:
                yield convert.to_answer(answer, data).SerializeToString()

        return call

    async def _layout(self, request: bytes, context: Any) -> bytes:
        """Answer GetStorageLayout, which gcsfs asks of each bucket: the bucket has no hierarchical namespace."""
        client = await self._client(context)
        # Request and answer are not shipped; the name is field 1 of both, as it is of this message.
        name = StringValue.FromString(request).value
        parts = name.split("/")
        bucket = quote(parts[3] if len(parts) > 3 and parts[3] else "-", safe="")
        path = f"/storage/v1/b/{bucket}/storageLayout"
        code, data = await call_rest(self.app, "GET", path, None, _headers(context), client)
        if code >= 400:  # no other error: the handler only looks for the bucket
            await context.abort(grpc.StatusCode.NOT_FOUND, convert.status(code, data)[1])
        return StringValue(value=name).SerializeToString()

    def _unserved(self, service: str, name: str) -> Callable[[Any, Any], Awaitable[None]]:
        """Return a handler that refuses before the first message: a streaming client may send none for long."""

        async def call(requests: Any, context: Any) -> None:
            client = await self._client(context)
            MAKER.set(self.runs.at(self.piped.get(client[1], 0)))
            self.calls.unserved(f"{service[:200]}.{name[:200]}", call_names.client(_headers(context)), GRPC)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, unserved(f"{service[:200]}/{name[:200]}").message)

        return call

    async def _client(self, context: Any) -> guard.Address:
        """Return the client's end; a call over another user's connection is refused, and one that a web page makes."""
        peer = _PEER.fullmatch(context.peer())
        client = (peer[1], int(peer[2])) if peer else None
        refusal = guard.user_refusal(client, self.address) if client else "This server answers this machine only."
        # Browsers add these fields, and programs do not.
        if any(key in ("origin", "sec-fetch-site") for key, _ in context.invocation_metadata() or ()):
            refusal = "Requests of web pages are refused."
        if refusal:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        assert client is not None
        return client


def _headers(context: Any) -> dict[str, str]:
    given = {key: str(value) for key, value in context.invocation_metadata() or ()}
    # A key is refused where there is no token.
    passed = _PASSED if "authorization" in given else (*_PASSED, "x-goog-api-key")
    return {key: value for key, value in given.items() if key in passed}


def _messages(service: str, name: str) -> tuple[str, str] | None:
    """Full names of the request and the answer of a method; None where they are not shipped, and for one that streams here alone."""
    try:
        method = messages.pool().FindServiceByName(service).methods_by_name[name]
    except KeyError:
        return _EMPTY if name in EMPTY_LISTS.get(service, ()) else None
    if (method.client_streaming or method.server_streaming) and (service, name) not in tensorboards.STREAMED:
        return None
    return method.input_type.full_name, method.output_type.full_name


def _rest(
    routes: tuple[bindings.Binding, ...], request: dict[str, Any], version: str
) -> tuple[bindings.Binding, str, Any]:
    """Return the first route whose path the request fits, with path and body.

    Raises:
        ValueError: No route fits.
    """
    # The error of the last route is the one that is shown.
    for route in routes[:-1]:
        try:
            return (route, *route.rest(request, version))
        except ValueError:
            continue
    return (routes[-1], *routes[-1].rest(request, version))


async def call_rest(
    app: ASGIApp, method: str, target: str, body: Any, headers: Mapping[str, str], client: guard.Address
) -> tuple[int, Json]:
    """Return the status and JSON of an application's answer to a request from inside its process and event loop, without a connection.

    The target is encoded; a body of None is left out.
    """
    path, _, query = target.partition("?")
    sent = b"" if body is None else json.dumps(body).encode()
    fields = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [*fields, (b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())],
        # No address: the application behind gRPC has no guard that asks for it, since `RpcServer` has its own.
        "client": client, "server": None, "state": {COMPACT: True},
    }  # fmt: skip
    parts: list[bytes] = []
    # What a client sees where the application ends without an answer.
    status = 500

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, json.loads(b"".join(parts) or b"{}")
