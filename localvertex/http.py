"""What all local APIs share: Google-style errors, bounded bodies and routing on the undecoded path."""

from __future__ import annotations

import base64
import binascii
import errno
import json
import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vertexrig.text import markup

_LOG = logging.getLogger(__name__)

HOST_STATE = "front_host"
"""Key of a request's ASGI state: the Google host that the client addressed, for requests through the front."""
STAND_IN = "stand_in"
"""Key of a request's ASGI state, set where a stand-in answers."""

NO_METHOD = "no_method"
"""Key of a request's ASGI state, set where no method of the API has its path."""

COMPACT = "compact"
"""Key of a request's ASGI state, set where nobody reads the answer's text."""

MAKER: ContextVar[str] = ContextVar("maker", default="")
"""Id of the `local run` command that sent the current request, "" if no command did."""

JSON_LIMIT = 10 * 1024 * 1024
"""Most bytes of a JSON body that are read."""

_MOST_INDENTED = 64 * 1024
"""Most bytes of an answer that is indented."""

MOST_VALUES = 200_000
"""Most values of one request; a value is a mapping, a list, a text, a number, true, false or null."""

_API_PATH = re.compile(r"/v[0-9]+[a-z0-9]*/projects/[^/]+/.")
"""Path of an API method below the mount, served or not."""

Json = dict[str, Any]
Handler = Callable[[Request, Mapping[str, str]], Awaitable[Response]]
T = TypeVar("T")

# code -> (google.rpc status, `reason` of the older JSON APIs)
STATUSES: dict[int, tuple[str, str]] = {
    304: ("FAILED_PRECONDITION", "notModified"),
    400: ("INVALID_ARGUMENT", "invalid"),
    401: ("UNAUTHENTICATED", "required"),
    403: ("PERMISSION_DENIED", "forbidden"),
    404: ("NOT_FOUND", "notFound"),
    405: ("UNIMPLEMENTED", "httpMethodNotAllowed"),
    409: ("ALREADY_EXISTS", "conflict"),
    410: ("NOT_FOUND", "gone"),
    412: ("FAILED_PRECONDITION", "conditionNotMet"),
    413: ("INVALID_ARGUMENT", "uploadTooLarge"),
    416: ("OUT_OF_RANGE", "requestedRangeNotSatisfiable"),
    499: ("CANCELLED", "clientClosedRequest"),
    500: ("INTERNAL", "backendError"),
    503: ("UNAVAILABLE", "backendError"),
}


UNSERVED = 405
"""HTTP status for methods that are not served."""


class ApiError(Exception):
    """An error answer to a client.

    Args:
        code: HTTP status, a key of `STATUSES`.
        message: One sentence for the caller.
        status: google.rpc status name when it differs from the usual one of `code`.
        reason: `reason` of the older JSON APIs when it differs.
        parameter: Name of the query parameter at fault, which the older JSON APIs show.
        header: Name of the header that they show of a condition that does not hold (412).
        details: Entries of `error.details`, such as a BadRequest with field violations.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: str | None = None,
        reason: str | None = None,
        parameter: str = "",
        header: str = "If-Match",
        details: Sequence[Json] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.code, self.message, self.details, self.headers = code, message, list(details), dict(headers or {})
        self.parameter, self.header = parameter, header
        usual = STATUSES.get(code, ("UNKNOWN", "unknown"))
        self.status, self.reason = status or usual[0], reason or usual[1]
        super().__init__(message)

    def body(self) -> Json:
        """Return the error as Google's newer APIs write it, such as Vertex AI."""
        error: Json = {"code": self.code, "message": self.message, "status": self.status}
        return {"error": {**error, "details": self.details} if self.details else error}

    def older_body(self) -> Json:
        """Return the error as Google's older JSON APIs write it, such as Cloud Storage."""
        errors = [{"message": self.message, "domain": "global", "reason": self.reason}]
        if self.code == 412 and self.header:
            errors[0] |= {"locationType": "header", "location": self.header}
        elif self.parameter:
            errors[0] |= {"locationType": "parameter", "location": self.parameter}
        return {"error": {"code": self.code, "message": self.message, "errors": errors}}

    def response(self, *, older: bool = False) -> Response:
        """Return the error as an HTTP answer, in the form of the older JSON APIs with `older`; a 304 has no body."""
        if self.code == 304:
            return Response(status_code=304)
        return JSONResponse(self.older_body() if older else self.body(), self.code, self.headers)


def not_found(message: str = "Requested entity was not found.") -> ApiError:
    """Return a 404."""
    return ApiError(404, message)


def invalid(message: str) -> ApiError:
    """Return a 400 INVALID_ARGUMENT."""
    return ApiError(400, message)


def precondition(message: str) -> ApiError:
    """Return a 400 FAILED_PRECONDITION."""
    return ApiError(400, message, status="FAILED_PRECONDITION")


def invalid_parameter(name: str, message: str) -> ApiError:
    """Return a 400 for the value of a query parameter."""
    return ApiError(400, message, reason="invalidParameter", parameter=name)


def missing_parameter(name: str) -> ApiError:
    """Return a 400 for a query parameter that a method needs."""
    return ApiError(400, f"Required parameter: {name}", reason="required", parameter=name)


def bad_request(problems: Iterable[tuple[str, str]]) -> Json:
    """Return the detail of an error that lists field violations, from pairs of field path, "" for none, and message."""
    violations = [{**({"field": field} if field else {}), "description": text} for field, text in problems]
    return {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}


_NO_METHOD = """\
<!DOCTYPE html>
<html lang=en>
  <meta charset=utf-8>
  <meta name=viewport content="initial-scale=1, minimum-scale=1, width=device-width">
  <title>Error 404 (Not Found)!!1</title>
  <p><b>404.</b> <ins>That’s an error.</ins>
  <p>The requested URL <code>{}</code> was not found on this server.  <ins>That’s all we know.</ins>
"""


class NoMethodError(ApiError):
    """A path that no method of the service's API has: a page of Google's front end, not JSON (ogx issue 3988).

    Args:
        path: The path without its query.
    """

    def __init__(self, path: str) -> None:
        super().__init__(404, f"The requested URL {path} was not found on this server.")
        self.path = path

    def response(self, *, older: bool = False) -> Response:
        """Return the page."""
        text = _NO_METHOD.format(markup(self.path))
        return Response(text, 404, {"referrer-policy": "no-referrer"}, "text/html; charset=UTF-8")


def unserved(what: str) -> ApiError:
    """Return the error for a method that the real services have and this server does not, and log it.

    A 404 would let get-or-create code continue, and gcloud retries a 5xx for 40 seconds.
    """
    _LOG.warning("asked for and not served: %s", what)
    return ApiError(
        UNSERVED,
        f"The local Vertex does not serve {what}. It serves training: jobs, tuning, Vizier, experiments, models, data sets, "
        "Cloud Storage, Logging, Scheduler. Your jobs and their outputs are kept: see the console, whose address `vertexrig local status` prints.",
    )


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run blocking work (SQLite, files) off the event loop."""
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs))


async def read_body(request: Request) -> bytes:
    """Return the whole body, refused with 400, as Google's front end does, once it is longer than `JSON_LIMIT` bytes."""
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > JSON_LIMIT:
            raise ApiError(400, f"Request payload size exceeds the limit: {JSON_LIMIT} bytes.")
        parts.append(chunk)
    return b"".join(parts)


def parse_json(body: bytes) -> Json:
    """Return a JSON object from bytes; empty bytes are an empty object.

    Raises:
        ApiError: 400, for anything that is not one JSON object of valid Unicode and finite numbers, or has more than
            `MOST_VALUES` values.
    """
    if not body.strip():
        return {}
    _bound_values(body)
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        # Lone surrogates and 1e999 parse, but no database and no answer can hold them.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except RecursionError:
        raise invalid("Invalid JSON payload received. The message is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise UnreadableBodyError(_syntax(error)) from None
    except ValueError as error:
        raise invalid(f"Invalid JSON payload received. {error}") from None
    if not isinstance(value, dict):
        text = 'Invalid JSON payload received. Unknown name "": Root element must be a message.'
        raise ApiError(400, text, details=[bad_request([("", text)])])
    return value


class UnreadableBodyError(ApiError):
    """A body that is no JSON (400).

    Args:
        mistake: What was expected, and where.
    """

    def __init__(self, mistake: str) -> None:
        super().__init__(400, f"Invalid JSON payload received. {mistake}")
        self.mistake = mistake


_SYNTAX = (
    ("Expecting property name", "Expected an object key or }."),
    ("Illegal trailing comma before end of object", "Expected an object key or }."),
    ("Expecting ':'", "Expected : between key:value pair."),
    ("Expecting ','", "Expected , or } after key:value pair."),
    ("Extra data", "Parsing terminated before end of input."),
    ("Unterminated string", "Closing quote expected in string."),
    ("", "Expected a value."),
)
"""How Python's message about JSON begins, and what Google's reader says (json_stream_parser.cc of protobuf 3.21)."""
_CONTEXT = 20
"""Characters shown before and after the place of a mistake."""


def _syntax(error: json.JSONDecodeError) -> str:
    """Return what Google's reader says about JSON that cannot be read: the mistake, the text around it, and a mark."""
    says = next(words for begins, words in _SYNTAX if error.msg.startswith(begins))
    before, after = error.doc[: error.pos][-_CONTEXT:], error.doc[error.pos :][:_CONTEXT]
    if not after:  # nothing is left to show (an answer of Cloud Storage, index id 70871738214)
        return f"Unexpected end of string. {says}\n\n^"
    return f"{says}\n{before}{after}\n{' ' * len(before)}^"


_SIGN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{,]', re.DOTALL)


def _bound_values(body: bytes) -> None:
    """Refuse JSON of too many values before it becomes objects, which take up to 40 times its bytes."""
    # each value but the first of a mapping or list follows a comma
    if sum(map(body.count, (b"[", b"{", b","))) <= MOST_VALUES:
        return
    # text may have these signs, too
    if sum(not match[0].startswith(b'"') for match in _SIGN.finditer(body)) > MOST_VALUES:
        raise invalid(f"Invalid JSON payload received. The message has more than {MOST_VALUES:,} values.")


def _refuse_constant(text: str) -> object:
    raise ValueError(f"Unexpected token: {text}")


async def read_json(request: Request) -> Json:
    """Return the body as a JSON object; see `read_body` and `parse_json` for what is refused."""
    return parse_json(await read_body(request))


def query_int(request: Request, name: str, *, default: int, high: int = 2**63 - 1) -> int:
    """Return an integer query parameter; 400 when it is not one or lies outside 0..`high`."""
    return whole_number(request.query_params.get(name), name, default=default, high=high)


def whole_number(value: object, name: str, *, default: int = 0, high: int = 2**63 - 1) -> int:
    """Return a whole number that a client sent as text; 400 for another text, and for one outside 0..`high`."""
    if value is None or value == "":
        return default
    # int() also takes signs, spaces, underscores and digits of other scripts.
    if not re.fullmatch(r"[0-9]{1,19}", str(value)) or int(str(value)) > high:
        message = f"Invalid value for parameter '{name}': {str(value)[:80]!r}. Expected an integer of 0 to {high}."
        raise invalid_parameter(name, message)
    return int(str(value))


def token_of(position: str) -> str:
    """Return the page token of a position in a listing: opaque to clients, as the services' tokens are."""
    return base64.urlsafe_b64encode(position.encode()).decode()


def position_of_token(token: str) -> str:
    """Return the position that a page token names, "" for the first page; 400 for an invalid token."""
    try:
        return base64.urlsafe_b64decode(token.encode("ascii")).decode()
    except (binascii.Error, UnicodeError):
        raise invalid(f"Invalid page token: {token[:80]!r}.") from None


def query_bool(request: Request, name: str) -> bool:
    """Return a boolean query parameter; absent is false."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0", ""):
        raise invalid_parameter(name, f"Invalid value for parameter '{name}': {text[:80]!r}. Expected true or false.")
    return text in ("true", "1")


@dataclass(frozen=True)
class Endpoint:
    """One row of an API's routing table.

    Args:
        method: HTTP method.
        pattern: Matched in full against the undecoded path below the mount, since object names may hold `%2F`.
        handler: Called with the request and the pattern's decoded named groups.
    """

    method: str
    pattern: re.Pattern[str]
    handler: Handler


VERB = "(?::|%3A)"
"""Before a verb of a path (https://google.aip.dev/136): some clients encode its colon."""


def endpoint(method: str, pattern: str, handler: Handler) -> Endpoint:
    """Return a row of a routing table; `{name}` is one path segment, `{name*}` for the rest of the path."""
    regex = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", pattern)
    return Endpoint(method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+?)", regex)), handler)


def no_method(request: Request) -> NoMethodError:
    """Return the error for a path that no method of the API has, and log it."""
    request.scope.setdefault("state", {})[NO_METHOD] = True
    asked = request.url.path.removeprefix(request.scope.get("root_path", ""))[:2000]
    _LOG.warning("no method of the API has this path: %s %s", request.method, asked[:200])
    return NoMethodError(asked)


def no_method_routes(paths: re.Pattern[str]) -> list[Endpoint]:
    """Return routes that answer these paths as the service answers a path that no method of its API has, and log them."""

    async def refuse(request: Request, path: Mapping[str, str]) -> Response:
        await read_body(request)
        raise no_method(request)

    return [Endpoint(method, paths, refuse) for method in ("GET", "POST", "PUT", "PATCH", "DELETE")]


class Api:
    """An ASGI application that routes by a table and turns every failure into a Google-style error.

    Starlette's own router matches the decoded path, in which the object `a%2Fb` is no longer one segment.

    Args:
        table: Tried in order; the first row whose pattern and method fit is called.
    """

    headers: Mapping[str, str] = {
        "cache-control": "private",
        "content-type": "application/json; charset=UTF-8",
        "server": "ESF",
        "vary": "Origin, X-Origin, Referer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "SAMEORIGIN",
        "x-xss-protection": "0",
    }
    """Of an answer in JSON (cloud-custodian and k8s-config-connector, recordings of 2026; firebase-tools issue 1880)."""

    def __init__(self, table: Sequence[Endpoint]) -> None:
        self.table = tuple(table)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request."""
        request = Request(scope, receive)
        response = await self.answer(request)
        if isinstance(response, JSONResponse):  # not an object that happens to be JSON
            if response.headers["content-type"] == "application/json":
                response.headers.update(self.headers)
            response.body = sent_body(request, response)
            response.headers["content-length"] = str(len(response.body))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """Return the response to one request; never raises."""
        raw = request.scope.get("raw_path") or request.scope["path"].encode()
        try:
            path = raw.decode("ascii").split("?", 1)[0][len(request.scope.get("root_path", "")) :]
            return await self.dispatch(request, path)
        except ApiError as error:
            return self.failed(error)
        except ClientDisconnect:
            return self.failed(ApiError(499, "The client closed the connection."))
        except UnicodeError:
            return self.failed(invalid("The path is not valid UTF-8."))
        except (OSError, sqlite3.Error) as error:
            return self.failed(_trouble(error))
        except Exception:
            _LOG.exception("%s %s failed", request.method, request.url.path)
            return self.failed(ApiError(500, "Internal error of the local Vertex; its log has the traceback."))

    def failed(self, error: ApiError) -> Response:
        """Return the answer for an error, in the API's own form."""
        return error.response()

    async def dispatch(self, request: Request, path: str) -> Response:
        """Call the row that fits `path`, the undecoded path below the mount."""
        known = False
        for row in self.table:
            match = row.pattern.fullmatch(path)
            if match is None:
                continue
            known = True
            if row.method == request.method:
                # After matching: an encoded slash is part of a name, and must not split it.
                values = {k: unquote(v, errors="strict") for k, v in match.groupdict().items() if v is not None}
                return await row.handler(request, values)
        if request.scope.get("root_path") and _API_PATH.match(path):
            # A 404 would mean that a resource is missing, and get-or-create code would continue.
            raise unserved(f"{request.method} {path[:200]}")
        if known:
            raise ApiError(UNSERVED, f"Method {request.method} is not allowed here.")
        raise self.unmatched(request, path)

    def unmatched(self, request: Request, path: str) -> ApiError:
        """Return the error for a path that fits no row."""
        host = (request.scope.get("state") or {}).get(HOST_STATE, "")
        if host:  # for the same reason
            return unserved(f"{request.method} {path[:200]} of {host}")
        return not_found(f"The local Vertex does not serve {request.method} {path[:200]}.")


def sent_body(request: Request, response: Response) -> bytes:
    """Return the body of an answer as it is sent: JSON is indented unless the client asks for it without."""
    body = bytes(getattr(response, "body", b""))
    if not isinstance(response, JSONResponse) or not _is_indented(request, response):
        return body
    made = json.loads(body)
    # Of a stream, which is an array, Google's clients read nothing but elements.
    end = "" if isinstance(made, list) else "\n"
    return f"{json.dumps(made, ensure_ascii=False, indent=2)}{end}".encode()


def _is_indented(request: Request, response: Response) -> bool:
    """Whether an answer's JSON is indented, as the services do unless the client asks for `prettyPrint=false`.

    A long answer stays as it is: indenting it would hold up all other requests.
    """
    asked = request.query_params
    wanted = asked.get("prettyPrint", asked.get("$prettyPrint", "true")).lower() not in ("false", "0")
    return wanted and len(response.body) <= _MOST_INDENTED and not (request.scope.get("state") or {}).get(COMPACT)


def _trouble(error: Exception) -> ApiError:
    """Return a 503 that names the server's failure, such as a full disk, which the user can mend."""
    numbers = (errno.ENOSPC, errno.EDQUOT)
    full = (isinstance(error, OSError) and error.errno in numbers) or "disk is full" in str(error)
    return ApiError(
        503, f"No space left on the local Vertex's disk: {error}" if full else f"Local storage failed: {error}"
    )


def dated(app: ASGIApp) -> ASGIApp:
    """Return an application that answers as `app` does, with a `date` where an answer has none.

    Uvicorn's own `date` may be a second old, and Cloud Storage's `expires` is equal to its `date`.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def start(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                if all(key != b"date" for key, _ in headers):
                    message = {**message, "headers": [(b"date", formatdate(usegmt=True).encode()), *headers]}
            await send(message)

        await app(scope, receive, start)

    return answered


def mount(prefix: str, table: Sequence[Endpoint]) -> BaseRoute:
    """Return an API's table under a path prefix."""
    return Mount(prefix, app=Api(table))
