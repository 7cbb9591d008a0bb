"""Pages of a listing: filter, order, page size and page token, the same for every collection."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable

from vertexrig.local.http import invalid
from vertexrig.local.jobs import filters
from vertexrig.local.jobs.store import ResourceStore, StoredResource

_ORDERED = {
    "create_time": "createTime", "update_time": "updateTime", "start_time": "startTime", "end_time": "endTime",
    "display_name": "displayName", "createTime": "createTime", "displayName": "displayName", "name": "name",
}  # fmt: skip


def page(
    store: ResourceStore,
    kind: str,
    parent: str,
    text: str,
    order: str,
    size: int,
    token: str,
    parse: Callable[[str], filters.Predicate] = filters.parse,
) -> tuple[list[StoredResource], str]:
    """One page of a listing and the token of the next, "" after the last.

    Args:
        store: Where resources are kept.
        kind: Collection.
        parent: `projects/123/locations/us-central1`.
        text: Filter.
        order: `create_time desc` and the like; by default the newest first.
        size: Resources on a page.
        token: Of this page, "" for the first.
        parse: Reads the filter.
    """
    fits = parse(text)
    if order.strip():
        # With an order a token is an offset: the place of one resource says nothing where values are equal.
        return _ordered(store.listed(kind, parent), fits, order, size, offset_of(token))
    found: list[StoredResource] = []
    # without an order a token names the last resource shown, so that new ones do not move what the next page has
    # One more than a page: whether there is a next page shows only then.
    for stored in store.listed(kind, parent, before=offset_of(token) or None, most=size + 1):
        if fits(stored.body):
            if len(found) == size:
                return found, token_of(found[-1].number)
            found.append(stored)
    return found, ""


def _ordered(
    all_: Iterable[StoredResource], fits: filters.Predicate, order: str, size: int, offset: int
) -> tuple[list[StoredResource], str]:
    found = [stored for stored in all_ if fits(stored.body)]
    for part in reversed(order.split(",")):  # sorts are stable, so the first field is sorted by last
        field, _, direction = part.strip().partition(" ")
        if field not in _ORDERED or direction.strip() not in ("", "asc", "desc"):
            raise invalid(f"Invalid order_by: {part.strip()[:80]!r}. Fields: {', '.join(sorted(_ORDERED))}.")
        key = _ORDERED[field]
        found.sort(key=lambda stored: str(stored.body.get(key, "")), reverse=direction.strip() == "desc")
    rest = found[offset : offset + size]
    return rest, token_of(offset + size) if offset + size < len(found) else ""


def token_of(number: int) -> str:
    """The page token of a place in a listing."""
    return base64.urlsafe_b64encode(str(number).encode()).decode()


def offset_of(token: str) -> int:
    """The place that a page token names; 400 for what is not one."""
    if not token:
        return 0
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        text = ""
    # isdecimal() alone takes digits of other scripts; 18 digits are within SQLite's integers.
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise invalid(f"Invalid page token: {token[:80]!r}.")
    return int(text)
