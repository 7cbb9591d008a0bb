"""The endpoints of Cloud Logging v2 that clients of training jobs use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local.filters import Node
from vertexrig.local.http import VERB, Endpoint, Json, endpoint, in_thread, invalid, place_of_token, read_json, token_of
from vertexrig.local.services.log_store import LogStore, Place
from vertexrig.local.services.logging_query import SEVERITIES, parse
from vertexrig.times import nanoseconds

Values = Mapping[str, str]
PAGE_LIMIT = 1000
WRITE_LIMIT = 1000
TAIL_S = 0.2
"""How often a tail looks for entries."""
LIST_FIELDS = ("resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken")
WRITE_FIELDS = ("logName", "resource", "labels", "entries", "partialSuccess", "dryRun")
ENTRY_FIELDS = (
    *("logName", "resource", "timestamp", "receiveTimestamp", "severity", "insertId", "httpRequest", "labels"),
    *("metadata", "operation", "trace", "spanId", "traceSampled", "sourceLocation", "split"),
    *("textPayload", "jsonPayload", "protoPayload"),
)
PAYLOADS = ("textPayload", "jsonPayload", "protoPayload")
_LOG_NAME = re.compile(r"(?:projects|organizations|billingAccounts|folders)/[^/]+/logs/[A-Za-z0-9/_.%-]{1,511}")


def _known(body: Json, fields: tuple[str, ...], where: str = "") -> None:
    for name in body:
        if name not in fields:
            at = f" at '{where}'" if where else ""
            raise invalid(f'Invalid JSON payload received. Unknown name "{name[:200]}"{at}: Cannot find field.')


def _resources(body: Json) -> None:
    names = body.get("resourceNames") or body.get("projectIds")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise invalid("At least one resource name (resourceNames) is required.")


def _text(body: Json, name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str):
        raise invalid(f"Invalid value at '{name}': {str(value)[:80]!r} is not a string.")
    return value


def _page_size(value: Any) -> int:
    if value in (None, ""):
        return 50
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,9}", str(value)):
        raise invalid(f"Invalid value at 'page_size': {str(value)[:80]!r} is not an integer.")
    if not 0 <= int(value) <= PAGE_LIMIT:
        raise invalid(f"page_size must be between 0 and {PAGE_LIMIT}, not {int(value)}.")
    return int(value) or 50


def _place(token: str) -> Place | None:
    """Where the page before ended."""
    if not token:
        return None
    try:
        when, number, insert_id = place_of_token(token).split(":", 2)
        if max(abs(int(when)), abs(int(number))) >= 2**63:
            raise ValueError("SQLite holds 64 bits")
    except ValueError:
        raise invalid(f"page_token doesn't match arguments from the request: {token[:80]!r}.") from None
    return int(when), insert_id, int(number)


async def tail(store: LogStore, request: Json) -> AsyncIterator[Json]:
    """The answers of LoggingServiceV2.TailLogEntries, which has no REST form: entries as they arrive, from now on.

    Entries come in order of arrival: `bufferWindow`, for which the service waits to put them in order, is not needed.

    Raises:
        ApiError: The request is wrong.
    """
    _resources(request)
    node = await in_thread(parse, _text(request, "filter"))
    return _arriving(store, node, await in_thread(store.last))


async def _arriving(store: LogStore, node: Node, place: int) -> AsyncIterator[Json]:
    while True:
        found, now = await in_thread(store.arrived, node, place)
        if found:
            yield {"entries": found}
        # Without a pause while there is more: a tail must keep up with a job that prints a lot.
        if now == place:
            await asyncio.sleep(TAIL_S)
        place = now


class LoggingApi:
    """The handlers, over one store."""

    def __init__(self, store: LogStore) -> None:
        self.store = store

    async def list_entries(self, request: Request, values: Values) -> Response:
        """entries.list."""
        body = await read_json(request)
        _known(body, LIST_FIELDS)
        _resources(body)
        order = " ".join(_text(body, "orderBy").lower().split())
        if order not in ("", "timestamp", "timestamp asc", "timestamp desc"):
            raise invalid(f"Invalid order_by: {order[:80]!r}. Expected 'timestamp asc' or 'timestamp desc'.")
        node = await in_thread(parse, _text(body, "filter"))
        found, place = await in_thread(
            self.store.query,
            node,
            descending=order == "timestamp desc",
            after=_place(_text(body, "pageToken")),
            limit=_page_size(body.get("pageSize")),
        )
        answer: Json = {"entries": found} if found else {}
        if place:
            # The insertId last: a client's own may hold a colon.
            answer["nextPageToken"] = token_of(f"{place[0]}:{place[2]}:{place[1]}")
        return JSONResponse(answer)

    async def write_entries(self, request: Request, values: Values) -> Response:
        """entries.write."""
        body = await read_json(request)
        _known(body, WRITE_FIELDS)
        entries = body.get("entries")
        if not isinstance(entries, list) or not 0 < len(entries) <= WRITE_LIMIT:
            raise invalid(f"entries must be a list of 1 to {WRITE_LIMIT} log entries.")
        ready = [_entry(entry, body, f"entries[{index}]") for index, entry in enumerate(entries)]
        if not body.get("dryRun"):
            await in_thread(self.store.keep, ready)
        return JSONResponse({})

    async def list_logs(self, request: Request, values: Values) -> Response:
        """logs.list."""
        names = await in_thread(self.store.log_names)
        return JSONResponse({"logNames": names} if names else {})

    def table(self) -> list[Endpoint]:
        """The routes below the mount."""
        return [
            endpoint("POST", f"/v2/entries{VERB}list", self.list_entries),
            endpoint("POST", f"/v2/entries{VERB}write", self.write_entries),
            endpoint("GET", "/v2/projects/{project}/logs", self.list_logs),
        ]


def _entry(entry: Any, body: Json, where: str) -> tuple[Json, int | None]:
    """A client's entry with the request's defaults, and its time in ns (None is now)."""
    if not isinstance(entry, dict):
        raise invalid(f"Invalid value at '{where}': not a log entry.")
    _known(entry, ENTRY_FIELDS, where)
    full = {key: value for key, value in entry.items() if value is not None}
    # What the entry says itself wins over the request's defaults.
    full = {**{key: body[key] for key in ("logName", "resource") if body.get(key)}, **full}
    if not isinstance(full.get("logName"), str) or not _LOG_NAME.fullmatch(full["logName"]):
        raise invalid(f"{where}: log_name must be projects/PROJECT/logs/LOG, not {str(full.get('logName'))[:80]!r}.")
    full.setdefault("resource", {"type": "global"})
    full["labels"] = {**_map(body.get("labels"), "labels"), **_map(full.get("labels"), f"{where}.labels")}
    resource = full["resource"]
    if not isinstance(resource, dict):
        raise invalid(f"Invalid value at '{where}.resource': not a monitored resource.")
    _map(resource.get("labels"), f"{where}.resource.labels")
    if not isinstance(resource.get("labels", {}), dict):
        full["resource"] = {**resource, "labels": {}}
    payloads = [name for name in PAYLOADS if name in full]
    if len(payloads) != 1:
        raise invalid(f"{where}: expected one of {', '.join(PAYLOADS)}, found {len(payloads)}.")
    if not isinstance(full[payloads[0]], str if payloads[0] == "textPayload" else dict):
        raise invalid(f"Invalid value at '{where}.{payloads[0]}'.")
    if "insertId" in full and not isinstance(full["insertId"], str):
        raise invalid(f"Invalid value at '{where}.insertId': not a string.")
    full["severity"] = _severity(full.get("severity"), where)
    return full, _time(full.get("timestamp"), where)


def _map(value: Any, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise invalid(f"Invalid value at '{where}': not a map of strings.")
    return value


def _severity(value: Any, where: str) -> str:
    names = {number: name for name, number in SEVERITIES.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return names.get(value, "DEFAULT")
    if value is None or (isinstance(value, str) and value in SEVERITIES):
        return str(value or "DEFAULT")
    raise invalid(f"Invalid value at '{where}.severity': {str(value)[:80]!r} is none of {', '.join(SEVERITIES)}.")


def _time(value: Any, where: str) -> int | None:
    if value is None:
        return None
    found = nanoseconds(value) if isinstance(value, str) else None
    # Within SQLite's 64 bits; the service's own limits are narrower.
    if found is None or not -(2**62) < found < 2**62 * 2 - 1:
        raise invalid(f"Invalid value at '{where}.timestamp': {str(value)[:80]!r} is not an RFC 3339 time.")
    return found
