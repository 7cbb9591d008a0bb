"""Which names of buckets and objects are allowed, and the object, preconditions and links of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request

from localvertex.http import invalid
from localvertex.storage.conditions import Conditions, whole_number

# With dots up to 222 characters, of which each part has at most 63.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
NAME_LIMIT = 1024
"""Most bytes of an object name in UTF-8 (https://cloud.google.com/storage/docs/objects#naming)."""


def is_bucket(name: str) -> bool:
    """Whether `name` follows the bucket naming rules; such a name is also a safe folder name.

    Source: https://cloud.google.com/storage/docs/buckets#naming
    """
    return bool(_BUCKET.fullmatch(name)) and ".." not in name and all(len(part) <= 63 for part in name.split("."))


def check_bucket(name: str) -> None:
    """Raise a 400 unless `is_bucket(name)`."""
    if not is_bucket(name):
        raise invalid(f"Invalid bucket name: '{name[:300]}'")


def check_object(name: str) -> None:
    """Raise a 400 unless `name` may name an object."""
    size = len(name.encode("utf-8", errors="surrogatepass"))
    if size > NAME_LIMIT:
        limit = f"The maximum object length is {NAME_LIMIT} characters"
        raise invalid(f"{limit}, but got a name with {size} characters: '{name[:128]}...")
    if not name:
        raise invalid("Invalid object name: it is empty.")
    # These names are the service's own exceptions (naming requirements).
    if "\r" in name or "\n" in name or name in (".", "..") or name.startswith(".well-known/acme-challenge/"):
        raise invalid(f"Invalid object name: '{name[:300]}'")


def check_new_bucket(name: str) -> None:
    """Raise a 400 unless a bucket with this name may be created: names of Google's and IP addresses are refused."""
    if name.startswith("goog") or "google" in name or re.fullmatch(r"(\d{1,3}\.){3}\d{1,3}", name):
        raise invalid(f"Invalid bucket name: '{name[:300]}'")
    check_bucket(name)


class ObjectName(NamedTuple):
    """A bucket and an object name from a path, both checked."""

    bucket: str
    name: str


def object_of(values: Mapping[str, str], *, bucket: str = "bucket", name: str = "object") -> ObjectName:
    """Return the object that a request's path names; 400 for an invalid name."""
    found = ObjectName(values[bucket], values[name])
    check_bucket(found.bucket)
    check_object(found.name)
    return found


_GLOB = re.compile(r"\*\*+/|\*\*+|\[!?\]?[^\]]*\]|\\.|.", re.DOTALL)


def glob(text: str) -> re.Pattern[str]:
    """Return what matches the names of a `matchGlob` (https://cloud.google.com/storage/docs/json_api/v1/objects/list)."""
    out, depth = "", 0
    for token in _GLOB.findall(text):
        if token.startswith("**"):
            # `**/` at the start of a folder's name also matches no folder at all.
            whole = token.endswith("/") and (not out or out.endswith("/"))
            out += "(?:.*/)?" if whole else ".*" + token.lstrip("*")
        elif token[0] == "[" and len(token) > 2:
            inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[").replace("&&", r"&\&").replace("||", r"|\|")
            out += "[^" + inner[1:] + "]" if inner.startswith("!") else "[" + inner.replace("^", r"\^") + "]"
        elif token[0] == "\\" and len(token) > 1:
            out += re.escape(token[1:])
        elif token in "{}":
            depth += 1 if token == "{" else -1
            out += "(?:" if token == "{" else ")"
        else:
            out += {"*": "[^/]*", "?": "[^/]", ",": "|" if depth > 0 else ","}.get(token) or re.escape(token)
    try:
        return re.compile(out, re.DOTALL)
    except re.error:
        raise invalid(f"Invalid glob pattern: {text[:200]!r}.") from None


def conditions(request: Request, *, source: bool = False) -> Conditions:
    """Return the preconditions of a request's query."""
    return Conditions.of(dict(request.query_params), source=source)


def generation(request: Request) -> int | None:
    """Return the generation that a request asks for, None for the live one."""
    return whole_number(request.query_params, "generation")


def base(request: Request) -> str:
    """Return `http://host:port` as the client wrote it, for links in answers."""
    return f"{request.url.scheme}://{request.headers.get('host', '127.0.0.1')}"
