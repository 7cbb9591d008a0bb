"""Methods of an API as functions, and the REST routes that call them.

A method takes its request message in canonical JSON and returns its answer message in the same form, or `Done` if it is a
long-running operation. Routes come from `vertexrig.local.methods`, so no path is written down twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vertexrig.local import http, methods
from vertexrig.local.http import ApiError, Endpoint, Handler, in_thread, invalid
from vertexrig.local.jobs import resources
from vertexrig.local.jobs.resources import OPERATIONS, Json
from vertexrig.local.jobs.store import ResourceStore
from vertexrig.spec import messages
from vertexrig.spec.names import camel

PACKAGE = "google.cloud.aiplatform.v1"
_PLACE = re.compile(r"projects/([^/]+)/locations/([^/]+)(?=/|$)")
# Query parameters that every Google API takes.
_SYSTEM = {"alt", "key", "fields", "prettyPrint", "quotaUser", "access_token", "callback", "uploadType", "userProject"}
_FREE = {"metadata", "labels"}
"""Fields of the user's own, whose text is left as it is."""


@dataclass(frozen=True)
class Done:
    """The result of a long-running operation, which is done at once.

    Args:
        parent: `projects/123/locations/us-central1`.
        metadata: Message of the operation's metadata: `UploadModelOperationMetadata`.
        kind: Message of the response, "" for google.protobuf.Empty.
        response: The response.
    """

    parent: str
    metadata: str
    kind: str = ""
    response: Json | None = None


Method = Callable[[Json], "Json | list[Json] | Done"]
"""A list is the answers of a method that streams: a JSON array over REST, as the service sends it."""


def rows(store: ResourceStore, service: str, table: Mapping[str, Method]) -> list[Endpoint]:
    """The REST routes of a service's methods; methods that `table` lacks have none.

    Args:
        store: Where operations are kept.
        service: Full name.
        table: Method by name.
    """
    found = methods.of_service(service)
    return [
        Endpoint(binding.http, binding.pattern, _handler(store, binding, method))
        for name, method in table.items()
        for binding in found[name]
    ]


def unserved_rows() -> list[Endpoint]:
    """Routes that answer 501 with service and method, for every method of Vertex AI; those served come before."""
    return [
        Endpoint(binding.http, binding.pattern, partial(_refuse, f"{binding.service}/{binding.method}"))
        for binding in methods.bindings()
        if binding.service.startswith(f"{PACKAGE}.")
    ]


async def _refuse(method: str, request: Request, path: Mapping[str, str]) -> Response:
    await http.read_body(request)
    raise http.unserved(method)


def _handler(store: ResourceStore, binding: methods.Binding, method: Method) -> Handler:
    """Calls a method with the request that a REST call makes, and answers in canonical JSON."""
    descriptor = messages.pool().FindServiceByName(binding.service).methods_by_name[binding.method]
    kind, answer = descriptor.input_type.full_name, descriptor.output_type.full_name

    def call(path: Mapping[str, str], query: list[tuple[str, str]], body: Json) -> Json | list[Json]:
        request = _request(binding, kind, path, query, body)
        for field, _ in binding.variables:
            check_place(_at(request, field))
        made = method(canonical_names(request))
        if isinstance(made, Done):
            return operation(store, made, path.get("version", "v1"))
        return [canonical(answer, one) for one in made] if isinstance(made, list) else canonical(answer, made)

    async def handle(request: Request, path: Mapping[str, str]) -> Response:
        body = await http.read_json(request)
        return JSONResponse(await in_thread(call, path, request.query_params.multi_items(), body))

    return handle


def _request(
    binding: methods.Binding, kind: str, path: Mapping[str, str], query: list[tuple[str, str]], body: Json
) -> Json:
    made: Json = dict(body) if binding.body == "*" else {}
    if binding.body not in ("", "*"):
        made[camel(binding.body)] = body
    # One `a=1` of a repeated field is a list of one.
    repeated = {field.json_name for field in messages.message_class(kind).DESCRIPTOR.fields if _repeated(field)}
    try:
        for name, value in query:
            # `$alt` and `$.xgafv` are system parameters, too.
            if name in _SYSTEM or name.startswith("$"):
                continue
            key = camel(name)
            if key in repeated:
                made.setdefault(key, []).append(value)
            else:
                methods.put(made, name, {"true": True, "false": False}.get(value, value))
        for field, value in binding.request(path).items():
            # What the path says wins over the body.
            made[field] = {**made.get(field, {}), **value} if isinstance(value, dict) else value
    except (ValueError, TypeError, AttributeError) as error:
        raise invalid(f"Invalid value in the query: {error}") from None
    return canonical(kind, made)


def _repeated(field: Any) -> bool:
    # protobuf deprecates `label` (3: LABEL_REPEATED in descriptor.proto) in the releases that have `is_repeated`
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def _at(data: Json, field: str) -> str:
    value: Any = data
    for name in field.split("."):
        value = (value or {}).get(camel(name))
    return str(value or "")


def canonical(kind: str, data: Mapping[str, Any]) -> Json:
    """JSON of a message in its canonical form; 400 for what is not the message."""
    try:
        return messages.from_message(messages.to_message(kind, dict(data)))
    except (json_format.ParseError, ValueError, TypeError) as error:
        raise invalid(f"Invalid JSON payload received. {error}") from None


def check_place(name: str) -> None:
    """Refuse a resource name whose project or location is not one."""
    found = _PLACE.match(name)
    if found:
        resources.parent_name(found[1], found[2])


def canonical_names(value: Any) -> Any:
    """A request with the number of the project in every resource name, whichever of its two names the client uses."""
    if isinstance(value, dict):
        return {key: one if key in _FREE else canonical_names(one) for key, one in value.items()}
    if isinstance(value, list):
        return [canonical_names(one) for one in value]
    found = _PLACE.match(value) if isinstance(value, str) else None
    if found is None:
        return value
    return f"projects/{resources.project_number(found[1])}/locations/{found[2]}{value[found.end() :]}"


def operation(store: ResourceStore, done: Done, version: str) -> Json:
    """Keep an operation that is done, and return it as the clients of that version read it."""
    prefix = f"type.googleapis.com/{PACKAGE.removesuffix('v1')}{version}."
    time = resources.now()
    kind = f"{prefix}{done.kind}" if done.kind else "type.googleapis.com/google.protobuf.Empty"
    name = resources.new_name(done.parent, OPERATIONS)
    body: Json = {
        "name": name,
        "metadata": {"@type": prefix + done.metadata, "genericMetadata": {"createTime": time, "updateTime": time}},
        "done": True,
        "response": {"@type": kind, **(canonical(done.kind, done.response or {}) if done.kind else {})},
    }
    store.add(OPERATIONS, done.parent, name, body)
    return body


def place_of(name: str) -> str:
    """`projects/123/locations/us-central1` of a resource name."""
    return "/".join(name.split("/")[:4])


def exists(name: str) -> ApiError:
    """A 409."""
    return ApiError(409, f"Requested entity already exists: {name}")


def precondition(message: str) -> ApiError:
    """A 400 FAILED_PRECONDITION."""
    return ApiError(400, message, status="FAILED_PRECONDITION")
