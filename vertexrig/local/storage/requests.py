"""Reading the parts that storage requests share: names in the path, preconditions, the base of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request

from vertexrig.local.storage.conditions import Conditions
from vertexrig.local.storage.names import check_bucket, check_object


class ObjectPlace(NamedTuple):
    """A bucket and an object name from a path, both checked."""

    bucket: str
    name: str


def place(values: Mapping[str, str], *, bucket: str = "bucket", name: str = "object") -> ObjectPlace:
    """The object that a path names; 400 for a name that cannot be one."""
    found = ObjectPlace(values[bucket], values[name])
    check_bucket(found.bucket)
    check_object(found.name)
    return found


def conditions(request: Request, *, source: bool = False) -> Conditions:
    """The preconditions of a request's query."""
    return Conditions.of(dict(request.query_params), source=source)


def base(request: Request) -> str:
    """`http://host:port` as the client wrote it, for links in answers."""
    return f"{request.url.scheme}://{request.headers.get('host', '127.0.0.1')}"
