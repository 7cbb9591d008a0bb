"""The methods of Cloud Logging v2 that clients of training jobs use."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator
from urllib.parse import unquote

from localvertex.filters import Node
from localvertex.http import ApiError, Json, in_thread, invalid, not_found, position_of_token, token_of
from localvertex.jobs.listing import answer, portion
from localvertex.jobs.validation import canonical, whole_numbers
from localvertex.services.log_store import LogStore, Position
from localvertex.services.logging_query import SEVERITIES, parse
from localvertex.services.monitored_resources import DROPPED, TYPES, extra_label, is_monitored
from localvertex.services.router import Service
from vertexrig.times import nanoseconds

_PACKAGE = "google.logging.v2."
SERVICE = f"{_PACKAGE}LoggingServiceV2"
PAGE_LIMIT = 1000
WRITE_LIMIT = 1000
MOST_KIB = 256
"""Most KiB of an entry."""
TAIL_S = 0.2
"""Seconds between two queries of a tail."""
MOST_RESOURCES = 100
_AHEAD_NS = 24 * 3600 * 10**9
"""How far an entry's time may be in the future, in ns."""
_RESOURCE = r"(?:projects|organizations|billingAccounts|folders)/[^/]+"
_RESOURCE_NAME = re.compile(rf"{_RESOURCE}(?:/locations/[^/]+/buckets/[^/]+/views/[^/]+)?")
_LOG_NAME = re.compile(r"/?(projects|organizations|billingAccounts|folders)/[^/]+/logs/(.{1,511})", re.DOTALL)
_NAMES = {
    "projects": "projects/[PROJECT_ID]",
    "organizations": "organizations/[ORGANIZATION_ID]",
    "billingAccounts": "billingAccounts/[BILLING_ACCOUNT_ID]",
    "folders": "folders/[FOLDER_ID]",
}


def _read(method: str, request: Json) -> Json:
    """Return a parsed request for entries; 400 for one without resource names, and for too many or wrong ones."""
    read = canonical(f"{_PACKAGE}{method}Request", request)
    names = read.get("resourceNames", ())
    if not 0 < len(names) <= MOST_RESOURCES:
        raise invalid(f"resource_names must have 1 to {MOST_RESOURCES} names, not {len(names)}.")
    for name in names:
        if not _RESOURCE_NAME.fullmatch(name):
            raise invalid(f"Invalid resource name: {name[:100]!r}. Expected projects/PROJECT_ID and the like.")
    return read


def _query(asked: Json) -> str:
    """Return a digest of what all pages of a list have in common."""
    query = [asked.get("filter", ""), asked.get("orderBy", ""), sorted(asked.get("resourceNames", ()))]
    return hashlib.sha256(json.dumps(query).encode()).hexdigest()[:16]


def _position(token: str, query: str) -> Position | None:
    """Return the position at which the previous page of a query ended; 400 for a token of another one (java-logging issue 1852)."""
    if not token:
        return None
    try:
        of, when, number, insert_id = position_of_token(token).split(":", 3)
        if of != query or max(abs(int(when)), abs(int(number))) >= 2**63:
            raise ValueError("of another query, or more than the 64 bits of SQLite")
    except ValueError:
        raise invalid("page_token doesn't match arguments from the request") from None
    return int(when), insert_id, int(number)


async def tail(store: LogStore, request: Json) -> AsyncIterator[Json]:
    """Return the stream of answers of TailLogEntries, which has no REST form: entries as they arrive, from now on.

    Entries come in order of arrival: `bufferWindow`, for which the service waits to put them in order, is not needed.

    Raises:
        ApiError: The request is wrong.
    """
    node = await in_thread(parse, _read("TailLogEntries", request).get("filter", ""))
    return _arriving(store, node, await in_thread(store.last))


async def _arriving(store: LogStore, node: Node, position: int) -> AsyncIterator[Json]:
    while True:
        found, now = await in_thread(store.arrived, node, position)
        if found:
            yield {"entries": found}
        # Without a pause while there is more: a tail must keep up with a job that prints a lot.
        if now == position:
            await asyncio.sleep(TAIL_S)
        position = now


class LoggingApi:
    """The methods, over one store."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.service = Service(
            SERVICE,
            {
                "ListLogEntries": self.list_entries,
                "WriteLogEntries": self.write_entries,
                "ListLogs": self.list_logs,
                "DeleteLog": self.delete_log,
                "ListMonitoredResourceDescriptors": self.list_resource_types,
            },
            as_sent=True,
        )

    def list_entries(self, request: Json) -> Json:
        asked = _read("ListLogEntries", request)
        order, size = " ".join(asked.get("orderBy", "").lower().split()), asked.get("pageSize", 0)
        if order not in ("", "timestamp", "timestamp asc", "timestamp desc"):
            raise invalid(f"Invalid order_by: {order[:80]!r}. Expected 'timestamp asc' or 'timestamp desc'.")
        if not 0 <= size <= PAGE_LIMIT:
            raise invalid(f"page_size must be between 0 and {PAGE_LIMIT}, not {size}.")
        query = _query(asked)
        found, position = self.store.query(
            parse(asked.get("filter", "")),
            descending=order == "timestamp desc",
            after=_position(asked.get("pageToken", ""), query),
            limit=size or 50,
        )
        # The insertId last: a client's own may hold a colon.
        return answer(
            "entries", found, token_of(f"{query}:{position[0]}:{position[2]}:{position[1]}") if position else ""
        )

    def write_entries(self, request: Json) -> Json:
        """WriteLogEntries: all entries or none; with `partialSuccess` those without an error, which the answer's details name."""
        # A Struct has doubles only; see `whole_numbers`.
        given = whole_numbers(canonical(f"{_PACKAGE}WriteLogEntriesRequest", request))
        entries = given.get("entries", [])
        if not 0 < len(entries) <= WRITE_LIMIT:
            raise invalid(f"entries must be a list of 1 to {WRITE_LIMIT} log entries.")
        ready: list[tuple[Json, int | None]] = []
        refused: dict[int, ApiError] = {}
        for index, entry in enumerate(entries):
            try:
                ready.append(_entry(entry, given, f"entries[{index}]"))
            except ApiError as error:
                if not given.get("partialSuccess"):
                    raise
                refused[index] = error
        if not given.get("dryRun"):
            self.store.keep(ready)
        if refused:
            raise _partly(refused)
        return {}

    def delete_log(self, request: Json) -> Json:
        """DeleteLog: 404 for a log without entries (google-cloud-python issue 3155)."""
        if not self.store.remove(str(canonical(f"{_PACKAGE}DeleteLogRequest", request).get("logName", ""))):
            raise not_found()
        return {}

    def list_logs(self, request: Json) -> Json:
        """ListLogs; a page size below 1 is ignored, as documented."""
        asked = canonical(f"{_PACKAGE}ListLogsRequest", request)
        return answer("logNames", *_paged(self.store.log_names(), asked))

    def list_resource_types(self, request: Json) -> Json:
        """ListMonitoredResourceDescriptors: the types and the keys of their labels, without Google's descriptions."""
        asked = canonical(f"{_PACKAGE}ListMonitoredResourceDescriptorsRequest", request)
        kinds, following = _paged(list(TYPES), asked)
        shown = [{"type": one, "labels": [{"key": key} for key in TYPES[one]]} for one in kinds]
        return answer("resourceDescriptors", shown, following)


def _paged(every: list[str], asked: Json) -> tuple[list[str], str]:
    size = max(int(asked.get("pageSize", 0)), 0) or PAGE_LIMIT
    return portion(every, size, str(asked.get("pageToken", "")))


def _partly(refused: dict[int, ApiError]) -> ApiError:
    """Return the error of a write that kept some entries: the first entry's, with each by index (fluent-plugin-google-cloud, test data)."""
    first = next(iter(refused.values()))
    each = {str(index): {"code": 3, "message": error.message} for index, error in refused.items()}
    detail = {"@type": f"type.googleapis.com/{_PACKAGE}WriteLogEntriesPartialErrors", "logEntryErrors": each}
    return ApiError(first.code, first.message, status=first.status, details=[detail, *first.details])


def _size(length: int) -> str:
    """Return a number of bytes as the service writes it: 369.7K, and from a mebibyte on 6.23M."""
    kib = length / 1024
    return f"{kib:.1f}K" if kib < 1024 else f"{kib / 1024:.2f}M"


def _check_log_name(name: str, where: str) -> None:
    """Raise a 400 for the name of a log that is not one; a slash of a log's own name has to be encoded."""
    found = _LOG_NAME.fullmatch(name)
    if found is None:
        raise invalid(f"{where}: log_name must be projects/PROJECT/logs/LOG, not {name[:80]!r}.")
    if "/" in found[2]:  # fluent-bit issue 5475
        form, rest = f"{_NAMES[found[1]]}/logs/[ID]", name.rpartition("/")[2]
        raise invalid(f'Received unexpected value parsing name "{name[:200]}": {rest[:80]}. Expected the form {form}')
    wrong = re.search(r"[^A-Za-z0-9/_.-]", unquote(found[2]))
    if wrong:  # serilog-sinks-googlecloudlogging issue 4
        raise invalid(f"Log name contains illegal character {wrong[0]}")


def _resource(resource: Json) -> Json:
    """Return a monitored resource without labels that the service drops; 400 for a type or a label that is not known."""
    kind, labels = str(resource["type"]), resource.get("labels", {})
    if not is_monitored(kind):
        raise invalid(f"Resource type not supported: {kind[:200]}")
    kept = {key: value for key, value in labels.items() if (kind, key) not in DROPPED}
    if wrong := extra_label(kind, kept):  # google-cloud-java issue 1994
        raise invalid(f"Resource {kind} has extra label: {wrong[:200]}")
    return {**resource, "labels": kept} if kept else {"type": kind}


def _entry(entry: Json, request: Json, where: str) -> tuple[Json, int | None]:
    """Return a client's entry with the request's defaults, and its time in ns (None is now)."""
    # The entry's own fields win.
    full: Json = {
        "logName": "",
        **{key: request[key] for key in ("logName", "resource") if key in request},
        **entry,
    }
    _check_log_name(full["logName"], where)
    if not full.get("resource", {}).get("type"):
        raise invalid("A monitored resource must be specified for each log entry")
    full["resource"] = _resource(full["resource"])
    size = len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > MOST_KIB * 1024:
        raise invalid(f"Log entry with size {_size(size)} exceeds maximum size of {_size(MOST_KIB * 1024)}")
    if labels := {**request.get("labels", {}), **entry.get("labels", {})}:
        full["labels"] = labels
    full["logName"] = full["logName"].removeprefix("/")  # as documented
    container, name = full["logName"].split("/")[:2]
    resource = full["resource"]
    # The service adds it where the client left it out, to a type that has it.
    if container == "projects" and not extra_label(resource["type"], ["project_id"]):
        full["resource"] = {**resource, "labels": {"project_id": name, **resource.get("labels", {})}}
    # An open enum: numbers that have no name come as they are. DEFAULT is not shown: it is the 0 of the enum.
    if full.get("severity") not in SEVERITIES or full["severity"] == "DEFAULT":
        full.pop("severity", None)
    when = nanoseconds(entry["timestamp"]) if "timestamp" in entry else None
    if when is not None and when > time.time_ns() + _AHEAD_NS:
        raise invalid("Timestamp is over a day in the future")
    # Within SQLite's 64 bits; the service's own limit is narrower.
    if when is not None and when <= -(2**62):
        raise invalid(f"{where}: timestamp {entry['timestamp']!r} is out of range.")
    return full, when
