"""The methods of the Google APIs and their REST routes, from the shipped table (`vertexrig/spec/methods.tsv`).

A route is a `google.api.http` binding: HTTP method, a path template such as `/v1/{parent=projects/*/locations/*}/studies`,
and the field that travels as the body. The same table turns a REST request into a method's request message and back
(https://google.aip.dev/127, read 2026-11-21).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from localvertex.http import VERB, Json
from vertexrig.spec import descriptors
from vertexrig.spec.api_names import camel

TABLE = Path(descriptors.__file__).with_name("methods.tsv")
_VARIABLE = re.compile(r"\{([\w.]+)(?:=([^}]*))?\}")
_ANY = "[^/]+?"
_ID = "(?:(?!%3A)[^/:])+?"
"""An id in the last segment of a variable; the colon before a verb is not part of it."""
_VERSION = re.compile(r"/v1(?=/)")


@dataclass(frozen=True)
class Binding:
    """One REST route of a method.

    Args:
        service: Full name: `google.cloud.aiplatform.v1.VizierService`.
        method: `CreateStudy`.
        http: GET, POST, PATCH or DELETE.
        template: Path with variables.
        body: The field that is the body, "*" for the whole request, "" for none.
    """

    service: str
    method: str
    http: str
    template: str
    body: str

    @cached_property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Field path and pattern of each variable of the path."""
        return tuple((name, pattern or "*") for name, pattern in _VARIABLE.findall(self.template))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression of the path, with groups v0, v1, … for the variables, and `version`."""
        parts: list[str] = []
        end = 0
        # Numbered, because a field's dotted path is not a name of a group.
        for number, found in enumerate(_VARIABLE.finditer(self.template)):
            parts += [_literal(self.template[end : found.start()]), f"(?P<v{number}>{_segments(found[2] or '*', _ID)})"]
            end = found.end()
        text = "".join(parts) + _literal(self.template[end:])
        # The table has v1's templates, which hold for v1beta1, too. The SDK's REST transport requests some operations
        # below /ui/ (google-cloud-aiplatform 2.7.0, transports/rest.py of each service).
        return re.compile(text.replace("/v1/", "/(?P<version>v1|v1beta1|ui)/", 1))

    def request(self, found: Mapping[str, str]) -> Json:
        """Return the fields of a request that its path holds, given the decoded groups of `pattern`."""
        made: Json = {}
        for number, (field, _) in enumerate(self.variables):
            put(made, field, found[f"v{number}"])
        return made

    def rest(self, request: Mapping[str, Any], version: str = "v1") -> tuple[str, Any]:
        """Path with query, and body, of a request in canonical JSON.

        Raises:
            ValueError: A field that belongs in the path is missing or does not fit its pattern; the message names it.
        """
        left, path = dict(request), self.template
        for field, pattern in self.variables:
            value = _take(left, field)
            if not re.fullmatch(_segments(pattern), value):
                raise ValueError(f"Invalid resource field value in the request: {field} is {value!r}, not {pattern}.")
            before, _, rest = path.partition("{")
            # Slashes stay: a variable such as {name=projects/*/...} spans several segments.
            path = before + quote(value, safe="/@:~") + rest.partition("}")[2]
        # Only the first: a resource may be called v1, too.
        path = _VERSION.sub(f"/{version}", path, count=1)
        if self.body == "*":
            return path, left
        body = left.pop(camel(self.body), {}) if self.body else None
        query = urlencode(list(_flat(left)), doseq=True)
        return f"{path}?{query}" if query else path, body


@cache
def bindings() -> tuple[Binding, ...]:
    """Return every row of the table."""
    return tuple(Binding(*line.split("\t")) for line in TABLE.read_text(encoding="utf-8").splitlines())


@cache
def of_service(service: str) -> dict[str, tuple[Binding, ...]]:
    """Return the routes of each method of a service; empty for a service that the table does not have."""
    found: dict[str, tuple[Binding, ...]] = {}
    for one in bindings():
        if one.service == service:
            found[one.method] = (*found.get(one.method, ()), one)
    return found


def put(data: Json, field: str, value: Any) -> None:
    """Set the field of a dotted path, in camelCase."""
    *outer, last = map(camel, field.split("."))
    for name in outer:
        inner = data.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{field} belongs to a message, and {name} is not one.")
        data = inner
    data[last] = value


def _take(data: Json, field: str) -> str:
    """Return the text at a dotted path; it stays where it is inside a message, which travels in the body."""
    *outer, last = map(camel, field.split("."))
    for name in outer:
        data = data.get(name) or {}
    return str(data.get(last, "") if outer else data.pop(last, ""))


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, [_text(one) for one in value]
        else:
            yield prefix + key, _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _literal(text: str) -> str:
    """Return a template's literal; a verb's colon may be encoded, as some clients do."""
    return re.escape(text).replace(":", VERB)


def _segments(pattern: str, last: str = _ANY) -> str:
    """Return a variable's pattern as a regular expression; its last segment is `last`, where that is a star."""
    *outer, end = [{"*": _ANY, "**": ".+?"}.get(part, re.escape(part)) for part in pattern.split("/")]
    return "/".join([*outer, last if end == _ANY else end])
