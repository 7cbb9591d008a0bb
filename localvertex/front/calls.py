"""The last calls to a local Vertex (method, client, status, time) and the methods that were not served, in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localvertex.front import call_names
from localvertex.http import HOST_STATE, STAND_IN, STATUSES, UNSERVED
from vertexrig import times

MOST_CALLS, MOST_METHODS = 500, 200
"""How many calls, and how many methods that are not served, are kept."""
OWN = b"x-vertexrig-console"
"""Header of the console's own requests, which are not among the calls."""
REST, GRPC, FRONT = "REST", "gRPC", "proxy"
"""The transport of a call; ", proxy" follows for calls through the proxy of `vertexrig local run`."""
_OWN_PATHS = ("/console/", "/local/")


@dataclass(frozen=True)
class ClientCall:
    """One answered call.

    Args:
        seq: Its number, from 1.
        time: Time of arrival, RFC 3339.
        http: HTTP method, of gRPC calls that of the REST route of the same method.
        host: The Google host that the client addressed through the front, else "".
        path: Without its query, at most 500 characters.
        client: Name of the calling program.
        status: HTTP status.
        ms: Milliseconds until the answer was complete; 0 of one that streams.
        transport: `REST` or `gRPC`, then `, proxy` for one through the front, and `, without effect` where the answer is only plausible.
    """

    seq: int
    time: str
    http: str
    host: str
    path: str
    client: str
    status: int
    ms: float
    transport: str

    def shown(self) -> dict[str, Any]:
        """Return the call with the names of its method, its resource and its status."""
        method, target = call_names.method(self.http, self.host, self.path)
        word = "OK" if self.status < 300 else STATUSES.get(self.status, ("", ""))[0]
        return {**asdict(self), "method": method, "target": target, "word": word}


class Calls:
    """Keeps the last calls.

    Args:
        note: Takes the gRPC methods that are not served; those of REST the front notes by their paths.
    """

    def __init__(self, note: Callable[[str], None] = lambda what: None) -> None:
        self._lock, self._note = threading.Lock(), note
        self._calls: deque[ClientCall] = deque(maxlen=MOST_CALLS)
        self._unserved: dict[tuple[str, str, str], int] = {}
        self.last = 0

    def around(self, app: ASGIApp, transport: str = REST, piped: Container[int] = ()) -> ASGIApp:
        """Return an application that answers as `app` does, and records its calls; see `streamed` for `piped`."""

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or _is_own(scope):
                return await app(scope, receive, send)
            status, begun, at = [0], time.monotonic(), times.now()

            async def seen(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status[0] = message["status"]
                await send(message)

            try:
                await app(scope, receive, seen)
            # Also after an exception, which ends the application when a client disconnects.
            finally:
                host = str((scope.get("state") or {}).get(HOST_STATE, ""))
                raw = scope.get("raw_path") or scope["path"].encode()
                self.note(
                    http=scope["method"],
                    host=host,
                    path=raw.decode("latin-1").split("?", 1)[0][:500],
                    client=call_names.client(
                        {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
                    ),
                    status=status[0] or 499,
                    ms=round(1000 * (time.monotonic() - begun), 1),
                    transport=_through(transport, proxy=bool(host) or (scope.get("client") or ("", 0))[1] in piped)
                    + (", without effect" if (scope.get("state") or {}).get(STAND_IN) else ""),
                    time=times.rfc3339(at),
                )

        return noted

    def note(self, **fields: Any) -> None:
        """Keep a call; see `ClientCall` for the fields."""
        with self._lock:
            self.last += 1
            call = ClientCall(seq=self.last, **fields)
            self._calls.append(call)
        # Outside the lock, which `unserved` takes, too.
        if call.status == UNSERVED:
            method, _ = call_names.method(call.http, call.host, call.path)
            self.unserved(method, call.client, call.transport)

    def streamed(self, path: str, headers: Mapping[str, str], port: int, status: int, piped: Container[int]) -> None:
        """Keep a gRPC call that streams, when it begins: it has no REST route, and it may have no end.

        Its path is `/package.Service/Method`, and `port` that of the client's end; `piped` are those that are the front's.
        """
        self.note(
            http="POST",
            host="",
            path=path,
            client=call_names.client(headers),
            status=status,
            ms=0.0,
            transport=_through(GRPC, proxy=port in piped),
            time=times.rfc3339(times.now()),
        )

    def unserved(self, method: str, client: str, transport: str) -> None:
        """Count a method that was asked for and is not served."""
        if transport.startswith(GRPC):
            self._note("not served: " + "/".join(method.rpartition(".")[::2]))
        key = (method[:300], client, transport)
        with self._lock:
            # Clients choose the names: new ones beyond the bound are not counted.
            if key in self._unserved or len(self._unserved) < MOST_METHODS:
                self._unserved[key] = self._unserved.get(key, 0) + 1

    @property
    def missing(self) -> int:
        """How many methods were asked for and not served."""
        with self._lock:
            return len({method for method, _, _ in self._unserved})

    @property
    def version(self) -> int:
        """Number that rises with every call and every method that was not served."""
        with self._lock:
            return self.last + sum(self._unserved.values())

    def shown(self, after: int = 0) -> dict[str, Any]:
        """Return the calls after the one of a number, the oldest first, and every method that was not served."""
        with self._lock:
            calls, last = [one for one in self._calls if one.seq > after], self.last
            missing = [
                {"method": method, "client": client, "transport": transport, "count": count}
                for (method, client, transport), count in self._unserved.items()
            ]
        return {"last": last, "calls": [one.shown() for one in calls], "unserved": missing}


def _through(transport: str, *, proxy: bool) -> str:
    return f"{transport}, {FRONT}" if proxy else transport


def _is_own(scope: Mapping[str, Any]) -> bool:
    """Whether a request is one of the console, or of `vertexrig local` about the server itself."""
    path = scope["path"]
    return path == "/" or path.startswith(_OWN_PATHS) or any(key.lower() == OWN for key, _ in scope["headers"])
