"""Plain resources: a row (`Kind`) for each kind says what differs, and `Collection` has the methods that all of them share."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from localvertex import filters
from localvertex.filters import Compare, Predicate
from localvertex.http import ApiError, Json, invalid, not_found
from localvertex.jobs import resources
from localvertex.jobs.listing import LANGUAGE, TIMES, answer, at_time, page, page_size
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.jobs.validation import found_errors, label_problems, name_problems
from localvertex.runner.result import new_job_id
from localvertex.services.router import Done, Method, exists, masked
from vertexrig import times
from vertexrig.spec import messages
from vertexrig.spec.api_names import camel, snake

# The filter language here has no functions; this one becomes a comparison.
_FUNCTION = re.compile(r"\bin_context\(\s*(\"[^\"]*\"|'[^']*')\s*\)")


@dataclass(frozen=True)
class Kind:
    """One kind of plain resource, which Vertex AI makes, shows, lists, updates and deletes like every other.

    Args:
        plural: Last collection of the resources' names: `tensorboards`.
        message: Their message: `Tensorboard`.
        above: The kind of their parents, None where the parent is a location.
        listed: The field of a listing; `plural` unless it is given.
        required: Fields without which a create is refused.
        needs_id: Whether a create is refused without an id from the client.
        updated: Fields that can be updated; a kind without any has no update method.
        operations: Which of "Create" and "Update" are long-running operations.
        answered: Fields in the response of the create operation; all of them unless they are given.
        progress: First and last message of the create operation.
        id_pattern: What an id given by the client has to match.
        numbered: Message about an id that is no number, where the server chooses all ids; "" where it does not.
        missing: Message about a resource that does not exist, with `{}` for its name or `{id}` for the last part of it.
        top_first: Whether a resource below a topmost resource that does not exist is refused in the words for that one.
        taken: Message about a resource that exists already.
        allowed: Message about an id that does not match the pattern, as one of found errors; "" for the server's own words.
        refused: That message where it stands alone.
        bounds_name: Whether the reference has a limit for the length of the display name.
        checks_etag: Whether an update with another etag than the current one is refused.
        in_milliseconds: Whether times have milliseconds, and the etag is the time of the last update in them.
        named_by_uuid: Whether ids that the server chooses are UUIDs and not numbers.
        latest_first: Whether a list without an order begins with what was updated last, and not with what was made last.
        starts: Whether a resource has a startTime, which is between its createTime and its updateTime.
        delete_below: What a delete operation is named below: the "parent", the resource "itself", or "" for the location.
    """

    plural: str
    message: str
    above: Kind | None = None
    listed: str = ""
    required: tuple[str, ...] = ()
    needs_id: bool = False
    updated: frozenset[str] = frozenset()
    operations: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    progress: tuple[str, str] | tuple[()] = ()
    id_pattern: str = r"[a-z0-9][a-z0-9_-]{0,127}"
    numbered: str = ""
    missing: str = ""
    top_first: bool = False
    taken: str = "Requested entity already exists: {}"
    allowed: str = ""
    refused: str = ""
    bounds_name: bool = False
    checks_etag: bool = False
    in_milliseconds: bool = False
    named_by_uuid: bool = False
    latest_first: bool = False
    starts: bool = False
    delete_below: str = ""

    @cached_property
    def field(self) -> str:
        """The field of a request that holds such a resource."""
        return self.message[0].lower() + self.message[1:]

    @cached_property
    def top(self) -> Kind:
        """The kind of the topmost resource above, which is in a location."""
        return self.above.top if self.above else self

    @cached_property
    def shown(self) -> Json:
        """Fields that an answer has although they are empty."""
        return {"metadata": {}} if self.in_milliseconds else {}

    @cached_property
    def known(self) -> set[str]:
        """The message's fields."""
        return {field.json_name for field in messages.message_class(self.message).DESCRIPTOR.fields}

    def new_id(self) -> str:
        """Return the id of a new resource to which the client gives none."""
        return str(uuid.uuid4()) if self.named_by_uuid else new_job_id()

    def stamps(self, after: str = "") -> Json:
        """Return the update time and the etag of a change; the time is later than another one."""
        if not self.in_milliseconds:
            return {"updateTime": resources.now(after), "etag": resources.etag()}
        time = times.rfc3339(times.now(), 3)
        return {"updateTime": time, "etag": str((times.nanoseconds(time) or 0) // 10**6)}

    def started(self, after: str = "") -> Json:
        """Return the start time of a resource and its update time; both are later than another time."""
        begun = resources.now(after)
        # Nine digits (documented answer of 2023-09-12); protobuf writes six for a whole microsecond.
        nanoseconds = 1 + secrets.randbelow(999)
        return {"startTime": f"{begun[:-1]}{nanoseconds:03d}Z", **self.stamps(begun)}


class Collection:
    """The stored resources of one kind; `create`, `get`, `list`, `update` and `delete` are methods of the API.

    Args:
        store: Where they are kept.
        kind: What they are.
        fill: Returns the fields of a new or an updated resource, from those of the client; raises for wrong ones.
    """

    def __init__(self, store: ResourceStore, kind: Kind, fill: Callable[[Json, Json], Json] | None = None) -> None:
        self.store, self.kind, self.fill = store, kind, fill or (lambda request, fields: fields)

    def methods(self) -> dict[str, Method]:
        """Return the API's methods for this kind, by name."""
        message = self.kind.message
        # The plural of "series" is its singular.
        plural = message if message.endswith("Series") else f"{message}s"
        made: dict[str, Method] = {
            f"Create{message}": self.create,
            f"Get{message}": self.get,
            f"List{plural}": self.list,
            f"Delete{message}": self.delete,
        }
        return made | ({f"Update{message}": self.update} if self.kind.updated else {})

    def create(self, request: Json) -> Json | Done:
        """Make a resource: the answer is the resource, or a long-running operation where the kind has one."""
        made = self.made(request)
        if "Create" not in self.kind.operations:
            return made
        shown = {key: made[key] for key in self.kind.answered or made if key in made}
        metadata = f"Create{self.kind.message}OperationMetadata"
        created = str(made["createTime"])
        return Done(request["parent"], metadata, self.kind.message, shown, made["name"], created, self.kind.progress)

    def made(self, request: Json) -> Json:
        """Return the new resource of a create request."""
        kind, parent, id_ = self.kind, str(request.get("parent", "")), str(request.get(f"{self.kind.field}Id", ""))
        if kind.above:
            self._found(kind.above, parent)
        fields = request.get(kind.field) or {}
        lacking = [snake(key) for key in kind.required if not fields.get(key)]
        lacking += [f"{snake(kind.field)}_id"] if kind.needs_id and not id_ else []
        if lacking:
            raise invalid(f"A {kind.message} needs {' and '.join(lacking)}.")
        self._check(fields, self._problems_of_id(id_))
        return self.add(parent, self.fill(request, fields), id_)

    def _check(self, fields: Mapping[str, Any], others: Sequence[tuple[str, str]] = ()) -> None:
        """Raise a 400 that lists other problems and those of the display name and the labels."""
        place = snake(self.kind.field)
        named = name_problems(fields, f"{place}.display_name") if self.kind.bounds_name else ()
        if problems := [*others, *named, *label_problems(fields, f"{place}.labels")]:
            raise found_errors(problems)

    def _problems_of_id(self, id_: str) -> list[tuple[str, str]]:
        kind = self.kind
        wrong = bool(id_ and kind.allowed) and not re.fullmatch(kind.id_pattern, id_)
        return [(f"{snake(kind.field)}_id", kind.allowed)] if wrong else []

    def add(
        self, parent: str, fields: Mapping[str, Any], id_: str = "", hidden: Mapping[str, Any] | None = None
    ) -> Json:
        """Store a new resource and return it; 409 if there is one of that id, 400 for an id that does not match."""
        kind = self.kind
        if problems := self._problems_of_id(id_):
            raise found_errors(problems)
        if id_ and not re.fullmatch(kind.id_pattern, id_):
            own = f"Invalid id {id_[:150]!r} of a {kind.message}: it must match {kind.id_pattern}."
            raise invalid(kind.refused or own)
        name = f"{parent}/{kind.plural}/{id_ or kind.new_id()}"
        first = kind.stamps()
        following = kind.started if kind.starts else kind.stamps
        last = first if kind.in_milliseconds else following(first["updateTime"])
        made = {"createTime": first["updateTime"], **last}
        # Messages differ in what they have: some have no updateTime.
        body = {
            key: value for key, value in {**kind.shown, **fields, "name": name, **made}.items() if key in kind.known
        }
        with self.store.database.transaction():
            if self.store.get(name) is not None:
                raise exists(name, kind.taken)
            self.store.add(kind.plural, parent, name, body, hidden)
        return body

    def stored(self, name: str) -> StoredResource:
        """Return a resource as stored, or 404."""
        return self._found(self.kind, name)

    def _found(self, kind: Kind, name: str) -> StoredResource:
        found = self.store.get(name)
        if found is None or name.split("/")[-2:-1] != [kind.plural]:
            if kind.numbered and not resources.last_part(name).isdigit():
                raise found_errors([("name", kind.numbered)])
            if kind.top_first and name.split("/")[4:5] == [kind.top.plural]:
                self._found(kind.top, "/".join(name.split("/")[:6]))
            id_ = resources.last_part(name)
            raise not_found(
                kind.missing.format(name, id=id_) if kind.missing else f"The {kind.message} does not exist."
            )
        return found

    def get(self, request: Mapping[str, Any]) -> Json:
        """Return a resource, or 404."""
        return self.stored(request["name"]).body

    def update(self, request: Json) -> Json | Done:
        """Set the fields of a mask (all that are given, without one); 400 for a field that cannot be set."""
        kind = self.kind
        given = request.get(kind.field) or {}
        self._check(given)
        fields = self.fill(request, given)
        name = self.stored(str(fields.get("name", ""))).name

        def edit(body: Json, _: Json) -> None:
            if kind.checks_etag and fields.get("etag", body["etag"]) != body["etag"]:  # python-aiplatform issue 1674
                sent = f"Specified {kind.message} `etag`: `{str(fields['etag'])[:100]}`"
                raise ApiError(409, f"{sent} does not match server `etag`: `{body['etag']}`", status="ABORTED")
            apply_mask(body, fields, str(request.get("updateMask", "")), kind.updated)
            for key, value in kind.shown.items():
                body.setdefault(key, value)
            body.update({key: value for key, value in kind.stamps().items() if key in kind.known})

        made = self.store.change(name, edit) or {}
        if "Update" not in kind.operations:
            return made
        return Done(resources.place_of(name), f"Update{kind.message}OperationMetadata", kind.message, made)

    def delete(self, request: Mapping[str, Any]) -> Done:
        """Forget a resource and all below it, with their points and links, or 404."""
        name = self.stored(request["name"]).name
        with self.store.database.transaction() as connection:
            self.store.remove(name)
            for table, column in (
                ("resources", "name"),
                ("points", "series"),
                ("links", "source"),
                ("links", "target"),
            ):
                # substr, because LIKE would take `_` in a name for any character.
                sql = f"DELETE FROM {table} WHERE {column} = ? OR substr({column}, 1, ?) = ?"
                connection.execute(sql, (name, len(name) + 1, f"{name}/"))
        above = {"itself": name, "parent": "/".join(name.split("/")[:-2])}.get(self.kind.delete_below, "")
        return Done(resources.place_of(name), "DeleteOperationMetadata", above=above)

    def list(self, request: Mapping[str, Any], parse: Callable[[str], Predicate] | None = None) -> Json:
        """Return a page of the resources below `parent`, under the kind's field of a listing."""
        parent = request.get("parent", "")
        text, order, token = (str(request.get(key, "")) for key in ("filter", "orderBy", "pageToken"))
        order = order or ("update_time desc" if self.kind.latest_first else "")
        fits = parse or (lambda text: predicate(text, self.kind.known))
        found, following = page(self.store, self.kind.plural, parent, text, order, page_size(request), token, fits)
        return answer(self.kind.listed or self.kind.plural, [one.body for one in found], following)


def replaced(old: Mapping[str, Any], new: Mapping[str, Any], path: Sequence[str]) -> Json:
    """Return `old` with the value at a path of a mask taken from `new`, or without it where `new` has none."""
    key, *rest = path
    value = replaced(old.get(key) or {}, new.get(key) or {}, rest) or None if rest else new.get(key)
    result = {**old, key: value}
    if value is None:
        del result[key]
    return result


def apply_mask(body: Json, fields: Mapping[str, Any], mask: str, allowed: frozenset[str]) -> None:
    """Set the masked fields in `body` to those of `fields`, or remove them where `fields` has none.

    Raises:
        ApiError: 400, for a field that cannot be set.
    """
    paths = masked(mask) or [[key] for key in fields if key in allowed]
    # `*` replaces every field (AIP-134).
    if paths == [["*"]]:
        paths = [[key] for key in sorted(allowed)]
    for path in paths:
        key, text = path[0], ".".join(path)[:100]
        if key not in allowed:
            raise invalid(f"Invalid update_mask: {text!r} cannot be updated. Fields: {', '.join(sorted(allowed))}.")
        if len(path) > 1 and not (isinstance(body.get(key, {}), dict) and isinstance(fields.get(key, {}), dict)):
            raise invalid(f"Invalid update_mask: {text!r} is a field of a value that is not a message.")
        made = replaced(body, fields, path)
        # In place: `ResourceStore.change` keeps this very dict.
        body.clear()
        body.update(made)


def predicate(
    text: str, fields: Container[str] = (), relations: Mapping[str, Callable[[str, str], bool]] | None = None
) -> Predicate:
    """Return the predicate of a filter such as `schema_title="system.Run" AND in_context("…")`.

    Args:
        text: The filter.
        fields: The fields, in camelCase, that it may compare; any field if there are none.
        relations: What else it may compare, by name: whether the resource of the first name has to do with that of the second.
    """

    def comparison(node: Compare) -> Predicate:
        key = camel(node.path[0])
        related = (relations or {}).get(snake(key)) if len(node.path) == 1 else None
        if related is not None:
            return lambda body: related(str(body["name"]), node.value)
        if fields and key not in fields:
            raise invalid(f"Invalid filter: there is no field {node.path[0][:80]!r} to filter by.")
        if key in TIMES and len(node.path) == 1:
            return at_time(key, node.operator, node.value)
        return lambda body: _holds(_values(body, node.path), node.operator, node.value)

    return filters.predicate(filters.parse(_FUNCTION.sub(r"in_context=\1", text), LANGUAGE), comparison)


def _values(body: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path; `metadata.key.number_value` is the value of the Struct's key."""
    for part in path:
        # A Struct's values are plain JSON here.
        if part in ("string_value", "number_value", "bool_value") and not isinstance(body, dict):
            continue
        if not isinstance(body, dict):
            return None
        if part == "struct_value" and part not in body:
            continue
        body = body.get(part, body.get(camel(part)))
    return body


def _holds(own: Any, sign: str, value: str) -> bool:
    if isinstance(own, bool):
        own = str(own).lower()
    if sign == ":":
        return (own is not None) if value == "*" else value in own if isinstance(own, (list, dict, str)) else False
    if isinstance(own, (int, float)):
        try:
            wanted: Any = float(value)
        except ValueError:
            return False
    else:
        own, wanted = "" if own is None else str(own), value
    if sign in ("=", "!="):
        same = filters.like(own, value) if isinstance(own, str) else own == wanted
        return same if sign == "=" else not same
    return bool(filters.COMPARED[sign](own, wanted))
