"""Pages of a listing: filter, order, page size and page token, the same for every collection.

A filter is such as `state="JOB_STATE_FAILED" AND (labels.team=vision OR NOT display_name:"old-*")`, with the fields and operators
that the list methods of jobs document (display_name: = != :, state: = !=, create_time: all comparisons, labels:
`labels.key=value`, `labels.key:value`, `labels.key:*`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from localvertex import filters
from localvertex.filters import Predicate
from localvertex.http import Json, invalid, position_of_token, token_of, whole_number
from localvertex.jobs.store import ResourceStore, StoredResource
from vertexrig import times
from vertexrig.errors import did_you_mean
from vertexrig.spec.api_names import camel, snake

T = TypeVar("T")

LANGUAGE = filters.Dialect(
    "Invalid filter",
    length=10_000,
    depth=40,
    text=False,
    space=re.compile(r"\s*"),
    quoted=re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""),
    bare=re.compile(r"[^\s()<>=!\"']+"),
)
"""How Vertex AI writes filters of its list methods."""
TIMES = {"createTime", "updateTime", "startTime", "endTime"}
_ORDERED = {*TIMES, "displayName", "name"}
_FIELDS = {*_ORDERED, "state", "trainingTaskDefinition"}


def parse(text: str) -> Predicate:
    """Return a filter as a predicate on resource bodies; an empty one is true of all.

    Raises:
        ApiError: 400, for anything that is not a filter.
    """
    return filters.predicate(filters.parse(text, LANGUAGE), _restriction)


def _restriction(node: filters.Compare) -> Predicate:
    field, operator, value = ".".join(node.path), node.operator, node.value
    if field.startswith("labels."):
        return _label(field[len("labels.") :], operator, value)
    key = camel(field)
    if key not in _FIELDS:
        choices = did_you_mean(field, ["display_name", "state", "create_time", "labels.KEY"])
        raise invalid(f"Invalid filter: there is no field {field[:80]!r} to filter by. {choices}")
    if key in TIMES:
        return at_time(key, operator, value)
    if operator == "=":
        return lambda body: filters.like(body.get(key, ""), value) if "*" in value else body.get(key, "") == value
    if operator == "!=":
        return lambda body: body.get(key, "") != value
    # The list methods document `=` and `!=` for a state.
    if operator == ":" and key != "state":
        pattern = value if "*" in value else f"*{value}*"
        return lambda body: filters.like(body.get(key, ""), pattern)
    raise invalid(f"Invalid filter: {field} does not support {operator}.")


def _label(name: str, operator: str, value: str) -> Predicate:
    def labels(body: Mapping[str, Any]) -> Mapping[str, str]:
        return body.get("labels") or {}

    if operator in ("=", ":"):
        if operator == ":" and value == "*":
            return lambda body: name in labels(body)
        return lambda body: labels(body).get(name) == value
    if operator == "!=":
        return lambda body: labels(body).get(name) != value
    raise invalid(f"Invalid filter: labels.{name[:80]} does not support {operator}.")


def at_time(key: str, operator: str, value: str) -> Predicate:
    """Return a comparison of a resource's time, which is false where the resource does not have it yet.

    Raises:
        ApiError: 400, for what is no time in RFC 3339, and for an operator that compares none.
    """
    wanted, test = _moment(value), filters.COMPARED.get(operator)
    if test is None:
        raise invalid(f"Invalid filter: {key} does not support {operator}.")
    return lambda body: bool(body.get(key)) and bool(test(_moment(str(body[key])), wanted))


def _moment(text: str) -> datetime:
    try:
        return times.parse(text)
    except ValueError as error:
        raise invalid(f"Invalid filter: {error}.") from None


def page_size(request: Mapping[str, Any], usual: int = 100, largest: int = 1000) -> int:
    """Return how many resources a page has: 0 is unset, and too much is cut, as AIP-158 asks; 400 for a negative number."""
    return min(whole_number(request.get("pageSize"), "page_size") or usual, largest)


def answer(field: str, items: Sequence[Any], following: str) -> Json:
    """Return the answer of a list method: the items below a field, and the token of the next page, each if there is one."""
    return {key: value for key, value in ((field, items), ("nextPageToken", following)) if value}


def page(
    store: ResourceStore,
    kind: str,
    parent: str,
    text: str,
    order: str,
    size: int,
    token: str,
    parse: Callable[[str], Predicate] = parse,
) -> tuple[list[StoredResource], str]:
    """Return one page of a listing, without an order the newest first, and the token of the next, "" after the last."""
    fits = parse(text)
    if order.strip():
        # With an order a token is an offset: the place of one resource says nothing where values are equal.
        fitting = [stored for stored in store.listed(kind, parent) if fits(stored.body)]
        return cut(fitting, attrgetter("body"), order, size, token)
    found: list[StoredResource] = []
    # without an order a token names the last resource shown, so that new ones do not move what the next page has
    # One more than a page: whether there is a next page shows only then.
    for stored in store.listed(kind, parent, before=offset_of(token) or None, most=size + 1):
        if fits(stored.body):
            if len(found) == size:
                return found, token_of(str(found[-1].number))
            found.append(stored)
    return found, ""


def cut(
    items: Iterable[T], body: Callable[[T], Mapping[str, Any]], order: str, size: int, token: str
) -> tuple[list[T], str]:
    """Return one page of items in an order, "" for their own, and the token of the next page; `body` has what is sorted by."""
    found = list(items)
    # Sorts are stable, so the first field is sorted by last.
    for part in reversed(order.split(",") if order.strip() else ()):
        field, _, direction = part.strip().partition(" ")
        key = camel(field)
        if key not in _ORDERED or direction.strip() not in ("", "asc", "desc"):
            raise invalid(
                f"Invalid order_by: {part.strip()[:80]!r}. Fields: {', '.join(map(snake, sorted(_ORDERED)))}."
            )
        found.sort(key=lambda item: str(body(item).get(key, "")), reverse=direction.strip() == "desc")
    return portion(found, size, token)


def portion(items: Sequence[T], size: int, token: str) -> tuple[list[T], str]:
    """Return one page of items in their own order, and the token of the next page, which is an offset."""
    start = offset_of(token)
    end = start + size
    return list(items[start:end]), token_of(str(end)) if end < len(items) else ""


def offset_of(token: str) -> int:
    """Return the place that a page token names; 400 for what is not one."""
    if not token:
        return 0
    text = position_of_token(token)
    # isdecimal() alone takes digits of other scripts; 18 digits are within SQLite's integers.
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise invalid(f"Invalid page token: {token[:80]!r}.")
    return int(text)
