"""Google API methods as functions, and the REST routes that call them, from Google's own table.

A method takes its request in canonical JSON and returns its answer in the same form, or `Done` if it is a long-running operation. A
`Service` is a table of such methods. Its REST routes come from `localvertex.bindings`, and gRPC calls
those routes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex import bindings, http
from localvertex.bindings import Binding
from localvertex.http import ApiError, Endpoint, Handler, Json, in_thread, invalid
from localvertex.jobs import resources
from localvertex.jobs.resources import OPERATIONS
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.validation import canonical, found_errors
from localvertex.misread import error_of, is_repeated, misread
from localvertex.partial import camel_tree, chosen, enum_numbers, field_tree, unknown_paths
from vertexrig.spec import messages
from vertexrig.spec.api_names import camel

PACKAGE = "google.cloud.aiplatform.v1"
LONG_RUNNING = "google.longrunning.Operations"
# Query parameters that every Google API takes.
_SYSTEM = {
    *("alt", "key", "fields", "prettyPrint", "quotaUser", "access_token", "callback", "uploadType", "userProject"),
    *("oauth_token", "upload_protocol"),
}
_TOKENS = ("access_token", "oauth_token")
_HOSTS = {
    "google.logging.": "logging",
    "google.cloud.scheduler.": "cloudscheduler",
    "google.cloud.resourcemanager.": "cloudresourcemanager",
}
"""The API of a service by the beginning of its name; all others are Vertex AI's."""
_FREE = {"metadata", "labels"}
"""Fields whose keys and texts are the user's own, and stay unchanged."""
_MASKS = ("updateMask", "readMask")


@dataclass(frozen=True)
class Done:
    """The result of a long-running operation, which is done at once.

    Args:
        parent: `projects/123/locations/us-central1`.
        metadata: Message of the operation's metadata: `UploadModelOperationMetadata`.
        kind: Message of the response, "" for google.protobuf.Empty.
        response: The response.
        above: The resource below which the operation is named, "" for the location. GetOperation finds it by either name.
        created: Creation time of the new resource, which is the operation's, too.
        progress: Its first and last progress message.
        details: Fields of the metadata beside genericMetadata.
        id: Id of the operation, "" for a new number.
        running: Fields of genericMetadata in the first answer, while the operation is not done.
    """

    parent: str
    metadata: str
    kind: str = ""
    response: Json | None = None
    above: str = ""
    created: str = ""
    progress: tuple[str, str] | tuple[()] = ()
    details: Json | None = None
    id: str = ""
    running: Json | None = None

    @property
    def begins(self) -> bool:
        """Whether the first answer shows the operation as not done, as recorded or documented for these methods."""
        return self.metadata.startswith(("Create", "Export", "Import", "Reboot", "Upload"))


Method = Callable[[Json], "Json | list[Json] | Done"]
"""A list is the answers of a method that streams: a JSON array over REST, as the service sends it."""


@dataclass(frozen=True)
class Service:
    """The methods of one service that are served.

    Args:
        name: Full name.
        methods: By name.
        as_sent: Whether methods get requests as the client sent them, and report wrong fields in the service's words.
            Otherwise requests are parsed as their message, and resource names have the number of the project.
        on_loop: Whether methods are called in the event loop instead of a thread.
    """

    name: str
    methods: Mapping[str, Method]
    as_sent: bool = False
    on_loop: bool = False

    def routes(self, store: ResourceStore | None = None) -> list[Endpoint]:
        """Return the REST routes of the methods that are served."""
        found = bindings.of_service(self.name)
        return [
            Endpoint(one.http, one.pattern, self._handler(store, one, method))
            for name, method in self.methods.items()
            for binding in found[name]
            for one in (_placed(binding) if self.name == LONG_RUNNING else (binding,))
            if one.variables or not self.name.startswith(PACKAGE)  # of Vertex AI not those without a project
        ]

    def _handler(self, store: ResourceStore | None, binding: Binding, method: Method) -> Handler:
        """Return the handler of a route, which calls a method and answers in canonical JSON."""

        def call(path: Mapping[str, str], query: list[tuple[str, str]], body: Json) -> Json | list[Json]:
            kind, answer = _messages(binding)
            _check_query(kind, query)
            if self.as_sent:
                request = _request(binding, path, query, body)
                made = method(request)
            else:
                sent = _request(binding, path, query, body, repeated_fields(kind))
                # Clients write masks in either case, and protobuf reads one.
                sent |= {
                    key: ",".join(map(".".join, masked(sent[key]))) for key in _MASKS if isinstance(sent.get(key), str)
                }
                request = canonical(kind, sent)
                for field, _ in binding.variables:
                    check_location(_at(request, field))
                made = method(numbered(request))
            if isinstance(made, Done) and store is not None:
                return operation(store, made, path.get("version", "v1"))
            assert not isinstance(made, Done)
            if isinstance(made, dict) and (mask := str(request.get("readMask", ""))):
                made = {
                    key: [_read(one, mask) for one in value] if isinstance(value, list) else value
                    for key, value in made.items()
                }
            if self.as_sent:
                return made
            return [canonical(answer, one) for one in made] if isinstance(made, list) else canonical(answer, made)

        async def handle(request: Request, path: Mapping[str, str]) -> Response:
            _check_credentials(request, binding, path.get("version", "v1"))
            given = path, request.query_params.multi_items(), await http.read_json(request)
            if binding.variables:
                _check_endpoint(request, binding.variables[0][0], path["v0"])
            made = call(*given) if self.on_loop else await in_thread(call, *given)
            return JSONResponse(_shown(made, _messages(binding)[1], request))

        return handle


def _check_credentials(request: Request, binding: Binding, version: str) -> None:
    """Raise a 401 for an API key without a token (google-genai issue 1404); without either a request is let through."""
    asked = request.query_params
    key = request.headers.get("x-goog-api-key") or asked.get("key") or asked.get("$key")
    if not key or request.headers.get("authorization") or any(asked.get(name) for name in _TOKENS):
        return
    host = next((name for start, name in _HOSTS.items() if binding.service.startswith(start)), "aiplatform")
    method = f"{binding.service}.{binding.method}".replace(PACKAGE, f"{PACKAGE.removesuffix('v1')}{version}")
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "CREDENTIALS_MISSING",
        "domain": "googleapis.com",
        "metadata": {"service": f"{host}.googleapis.com", "method": method},
    }
    text = (
        "API keys are not supported by this API. Expected OAuth2 access token or other authentication credentials that "
        "assert a principal. See https://cloud.google.com/docs/authentication"
    )
    raise ApiError(401, text, details=[detail])


def _shown(made: Json | list[Json], kind: str, request: Request) -> Any:
    """Return an answer as the client wants it: enums as numbers, and the fields that it names (system parameters of all APIs)."""
    asked = request.query_params
    answer = messages.message_class(kind).DESCRIPTOR if kind else None
    # The SDK's REST transport asks for enums as numbers. An operation holds any messages, and stays as stored.
    if answer and "enum-encoding=int" in asked.get("$alt", asked.get("alt", "")):
        made = [enum_numbers(answer, one) for one in made] if isinstance(made, list) else enum_numbers(answer, made)
    fields = asked.get("fields", asked.get("$fields", request.headers.get("x-goog-fieldmask", "")))
    tree = field_tree(fields.replace(".", "/"))
    if answer and (path := next(unknown_paths(answer, tree), None)):
        text = f"Error expanding 'fields' parameter. Cannot find matching fields for path '{path[:200]}'."
        raise ApiError(400, "Request contains an invalid argument.", details=[http.bad_request([(fields, text)])])
    return chosen(made, camel_tree(tree)) if tree else made


# The table has the methods of v1 alone; those of IAM are in none.
_ELSEWHERE = re.compile(r"/(?!(?:v1beta1|ui)/).*(?<!:getIamPolicy)(?<!:setIamPolicy)(?<!:testIamPermissions)")


def unserved_routes() -> list[Endpoint]:
    """Return routes that refuse every method of Vertex AI by its name, and every path that no method has as the service does."""
    return [
        *(
            Endpoint(binding.http, binding.pattern, partial(_refuse, f"{binding.service}/{binding.method}"))
            for binding in bindings.bindings()
            if binding.service.startswith(f"{PACKAGE}.")
        ),
        *http.no_method_routes(_ELSEWHERE),
    ]


async def _refuse(method: str, request: Request, path: Mapping[str, str]) -> Response:
    await http.read_body(request)
    raise http.unserved(method)


def _placed(binding: Binding) -> Iterator[Binding]:
    """Yield the routes of a method of operations: at a location, and at any resource below it."""
    for above in ("projects/*/locations/*", "projects/*/locations/*/**"):
        name = f"{above}/operations/*" if binding.method != "ListOperations" else above
        yield replace(binding, template=binding.template.replace("{name=**}", f"{{name={name}}}"))


def _check_endpoint(request: Request, field: str, name: str) -> None:
    """Raise a 400 for a name of another location than that of the host, which a request through the front has."""
    valid = re.match(r"([a-z0-9-]+)-aiplatform\.", (request.scope.get("state") or {}).get(http.HOST_STATE, ""))
    place = resources.PLACE.match(name)
    if valid:
        check_location(name)  # the project comes first
    if valid and place and place[2] != valid[1]:
        # python-aiplatform issue 1684
        words = f"The provided location ID doesn't match the endpoint. The valid location ID is `{valid[1]}`."
        raise found_errors([(field, words)])


def _check_query(kind: str, query: Iterable[tuple[str, str]]) -> None:
    """Raise the 400 of every Google API for a query parameter that is not a field of the request, or has another type."""
    fields = messages.message_class(kind).DESCRIPTOR.fields_by_camelcase_name if kind else {}
    for name, value in query if kind else ():
        if name not in _SYSTEM and not name.startswith("$") and camel(first := name.partition(".")[0]) not in fields:
            text = (
                f'Invalid JSON payload received. Unknown name "{name[:100]}": Cannot bind query parameter. '
                f"Field '{first[:100]}' could not be found in request message."
            )
            raise ApiError(400, text, details=[http.bad_request([("", text)])])
        field = fields.get(camel(name))
        if field is not None and field.message_type is None and field.type != field.TYPE_BOOL:
            wrong = misread(field.containing_type, {name: [value] if is_repeated(field) else value})
            if wrong:
                raise error_of(wrong)


def masked(mask: str) -> list[list[str]]:
    """Return each path of an update mask as a list of fields in camelCase; clients write them in either case.

    protobuf's FieldMask accepts one case only, and no keys of a map or a Struct, which clients send, too.
    """
    found = []
    for path in filter(None, map(str.strip, mask.split(","))):
        head, _, rest = path.partition(".")
        # Keys of a map are the user's own and have no camelCase.
        below = [rest] if head in _FREE else [camel(part) for part in rest.split(".")]
        found.append([camel(head), *(below if rest else ())])
    return found


def _read(body: Json, mask: str) -> Json:
    """Return the fields of a resource that a mask names; `*` names all."""
    paths = masked(mask)
    made: Json = dict(body) if ["*"] in paths else {}
    for path in paths:
        value: Any = body
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            bindings.put(made, ".".join(path), value)
    return made


@cache
def _messages(binding: Binding) -> tuple[str, str]:
    """Return the names of a method's request and response, "" where the pool of descriptors does not have its service."""
    try:
        descriptor = messages.pool().FindServiceByName(binding.service).methods_by_name[binding.method]
    except KeyError:  # of lists that are always empty
        return "", ""
    return descriptor.input_type.full_name, descriptor.output_type.full_name


def _request(
    binding: Binding,
    path: Mapping[str, str],
    query: list[tuple[str, str]],
    body: Json,
    repeated: frozenset[str] = frozenset(),
) -> Json:
    """Return the request that a REST call makes, given the decoded groups of its route's pattern.

    Of the `repeated` fields one `a=1` is a list of one.
    """
    made: Json = dict(body) if binding.body == "*" else {}
    if binding.body not in ("", "*"):
        made[camel(binding.body)] = body
    try:
        for name, value in query:
            # `$alt` and `$.xgafv` are system parameters, too.
            if name in _SYSTEM or name.startswith("$"):
                continue
            key = camel(name)
            if key in repeated:
                made.setdefault(key, []).append(value)
            else:
                bindings.put(made, name, {"true": True, "false": False}.get(value, value))
        for field, value in binding.request(path).items():
            # The path wins over the body.
            made[field] = {**made.get(field, {}), **value} if isinstance(value, dict) else value
    except (ValueError, TypeError, AttributeError) as error:
        raise invalid(f"Invalid value in the query: {error}") from None
    return made


def repeated_fields(kind: str) -> frozenset[str]:
    """Return the names of a message's repeated fields."""
    return frozenset(one.json_name for one in messages.message_class(kind).DESCRIPTOR.fields if is_repeated(one))


def _at(data: Json, field: str) -> str:
    value: Any = data
    for name in field.split("."):
        value = (value or {}).get(camel(name))
    return str(value or "")


def check_location(name: str) -> None:
    """Raise a 400 for a resource name with an invalid project or location."""
    found = resources.PLACE.match(name)
    if found:
        resources.parent_name(found[1], found[2])


def numbered(value: Any) -> Any:
    """Return a request in which every resource name has the number of the project, also where the client sent its id."""
    if isinstance(value, dict):
        return {key: one if key in _FREE else numbered(one) for key, one in value.items()}
    if isinstance(value, list):
        return [numbered(one) for one in value]
    found = resources.PLACE.match(value) if isinstance(value, str) else None
    if found is None:
        return value
    return f"projects/{resources.project_number(found[1])}/locations/{found[2]}{value[found.end() :]}"


def operation(store: ResourceStore, done: Done, version: str) -> Json:
    """Store an operation that is done, and return it in the form of that API version."""
    prefix = f"type.googleapis.com/{PACKAGE.removesuffix('v1')}{version}."
    kind = f"{prefix}{done.kind}" if done.kind else "type.googleapis.com/google.protobuf.Empty"
    name = f"{done.parent}/{OPERATIONS}/{done.id}" if done.id else resources.new_name(done.parent, OPERATIONS)
    begun = done.created or resources.now()
    first, last = (
        {
            "@type": prefix + done.metadata,
            "genericMetadata": {"createTime": begun, "updateTime": time, **generic},
            **({"progressMessage": message} if message else {}),
            **(done.details or {}),
        }
        for time, message, generic in zip(
            (begun, resources.now(begun) if done.begins else begun),
            done.progress or ("", ""),
            (done.running or {}, {}),
            strict=True,
        )
    )
    shown: Json = {"name": f"{done.above or done.parent}/{OPERATIONS}/{resources.last_part(name)}", "metadata": first}
    body: Json = {
        **shown,
        "metadata": last,
        "done": True,
        "response": {"@type": kind, **(canonical(done.kind, done.response or {}) if done.kind else {})},
    }
    store.add(OPERATIONS, done.parent, name, body)
    return shown if done.begins else body


def exists(name: str, words: str = "Requested entity already exists: {}") -> ApiError:
    """Return a 409."""
    return ApiError(409, words.format(name))
