"""The calls that clients make, against the tables of `vertexrig.trigger.deploy` with the call that needs each permission."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from vertexrig.cloud.rest import Rest

Calls = set[tuple[str, str]]
Table = Mapping[str, tuple[str, str]]


def noted(*clients: Rest) -> Calls:
    """Method and path of each call that these clients make from here on, as they come."""
    calls = Calls()
    for rest in clients:

        def request(method: str, url: str, *, send: Any = rest.session.request, **options: Any) -> Any:
            path = urlsplit(url).path
            calls.add((method, path[path.index("/v1/projects/") :] if "/v1/projects/" in path else path))
            return send(method, url, **options)

        rest.session.request = request  # type: ignore[method-assign,assignment]
    return calls


def used(table: Table, calls: Calls) -> set[str]:
    """The permissions that a call needs."""
    return {name for name in table if any(_needs(table[name], call) for call in calls)}


def unknown(table: Table, calls: Calls) -> Calls:
    """The calls that no permission of the table is for."""
    return {call for call in calls if not any(_needs(row, call) for row in table.values())}


def _needs(row: tuple[str, str], call: tuple[str, str]) -> bool:
    return row[0] == call[0] and re.fullmatch(row[1], call[1]) is not None
