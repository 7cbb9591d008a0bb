"""A collection of plain resources: made, shown, listed, changed by an update mask, and forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from localvertex import filters
from localvertex.filters import Compare, Predicate
from localvertex.http import Json, invalid, not_found
from localvertex.jobs import resources
from localvertex.jobs.listing import LANGUAGE, answer, page, page_size
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.jobs.validation import found_errors
from localvertex.services.router import Done, exists, place_of
from vertexrig.spec import messages
from vertexrig.spec.api_names import camel, snake

# The filter language here has no functions; this one becomes a comparison.
_FUNCTION = re.compile(r"\bin_context\(\s*(\"[^\"]*\"|'[^']*')\s*\)")


class Collection:
    """Resources of one kind; `get`, `list`, `update` and `delete` take the requests of the API's methods.

    Args:
        store: Where they are kept.
        kind: Last collection of their names: `tensorboards`.
        message: Their message: `Tensorboard`.
        listed: The field of a listing; `kind` unless it is given.
        id_pattern: What an id given by the client has to be.
        numbered: Ids are numbers of ours.
        missing: What is said of one that is not there, with `{}` for its name.
        taken: What is said of one that is there already.
        allowed: What is said of an id that is not one, "" for our own words.
    """

    def __init__(
        self,
        store: ResourceStore,
        kind: str,
        message: str,
        listed: str = "",
        id_pattern: str = r"[a-z0-9][a-z0-9_-]{0,127}",
        *,
        numbered: bool = False,
        missing: str = "",
        taken: str = "Requested entity already exists: {}",
        allowed: str = "",
    ) -> None:
        self.numbered, self.taken, self.allowed = numbered, taken, allowed
        self.missing = missing or f"The {message} does not exist."
        self.store, self.kind, self.message, self.id_pattern = store, kind, message, re.compile(id_pattern)
        self.listed = listed or kind
        self.field = message[0].lower() + message[1:]
        """The field of a request that holds a resource."""

    def create(
        self, parent: str, fields: Mapping[str, Any], id_: str = "", hidden: Mapping[str, Any] | None = None
    ) -> Json:
        """Return a new resource; 409 if there is one of that id, 400 for an id that is not one."""
        if id_ and not self.id_pattern.fullmatch(id_):
            if self.allowed:
                raise found_errors([(f"{snake(self.field)}_id", self.allowed)])
            raise invalid(f"Invalid id {id_[:150]!r} of a {self.message}: it must match {self.id_pattern.pattern}.")
        name = f"{parent}/{self.kind}/{id_}" if id_ else resources.new_name(parent, self.kind)
        time = resources.now()
        made = {"createTime": time, "updateTime": resources.now(time), "etag": resources.etag()}
        # Messages differ in what they have: some have no updateTime.
        body = {key: value for key, value in {**fields, "name": name, **made}.items() if key in self.known}
        with self.store.database.transaction():
            if self.store.get(name) is not None:
                raise exists(name, self.taken)
            self.store.add(self.kind, parent, name, body, hidden)
        return body

    @cached_property
    def known(self) -> set[str]:
        """The message's fields."""
        return {field.json_name for field in messages.message_class(self.message).DESCRIPTOR.fields}

    def stored(self, name: str) -> StoredResource:
        """Return a resource as kept, or 404."""
        found = self.store.get(name)
        if found is None or name.split("/")[-2:-1] != [self.kind]:
            if self.numbered and not resources.last_part(name).isdigit():
                raise found_errors([("name", f"Invalid {self.message} resource name.")])
            raise not_found(self.missing.format(name))
        return found

    def get(self, request: Mapping[str, Any]) -> Json:
        """Return a resource, or 404."""
        return self.stored(request["name"]).body

    def update(self, request: Mapping[str, Any], allowed: frozenset[str]) -> Json:
        """Set the fields of a mask (all that are given, without one); 400 for a field that cannot be set."""
        fields = request.get(self.field) or {}
        name = self.stored(str(fields.get("name", ""))).name

        def edit(body: Json, _: Json) -> None:
            apply_mask(body, fields, str(request.get("updateMask", "")), allowed)
            stamps = {"updateTime": resources.now(), "etag": resources.etag()}
            body.update({key: value for key, value in stamps.items() if key in self.known})

        return self.store.change(name, edit) or {}

    def delete(self, request: Mapping[str, Any], above: str = "") -> Done:
        """Forget a resource and what is below it, or 404; the operation is below `above`, "" for the location."""
        name = self.stored(request["name"]).name
        with self.store.database.transaction() as connection:
            self.store.remove(name)
            # substr, because LIKE would take `_` in a name for any character.
            connection.execute("DELETE FROM resources WHERE substr(name, 1, ?) = ?", (len(name) + 1, f"{name}/"))
        return Done(place_of(name), "DeleteOperationMetadata", above=above)

    def list(self, request: Mapping[str, Any], parse: Callable[[str], Predicate] | None = None) -> Json:
        """Return a page of the resources below `parent`, under the collection's name."""
        parent = request.get("parent", "")
        text, order, token = (str(request.get(key, "")) for key in ("filter", "orderBy", "pageToken"))
        found, following = page(
            self.store, self.kind, parent, text, order, page_size(request), token, parse or predicate
        )
        return answer(self.listed, [one.body for one in found], following)


def masked(mask: str) -> list[list[str]]:
    """Return the paths of an update mask as the fields they lead through, in camelCase; clients write them in either case.

    protobuf's FieldMask takes one case only, and no key of a map or a Struct, which clients name, too.
    """
    found = []
    for path in filter(None, map(str.strip, mask.split(","))):
        head, _, rest = path.partition(".")
        # Keys of a map are the user's own and have no camelCase.
        below = [rest] if head in ("labels", "metadata") else [camel(part) for part in rest.split(".")]
        found.append([camel(head), *(below if rest else ())])
    return found


def replaced(old: Mapping[str, Any], new: Mapping[str, Any], path: Sequence[str]) -> Json:
    """Return `old` with the value at a path of a mask taken from `new`, or without it where `new` has none."""
    key, *rest = path
    value = replaced(old.get(key) or {}, new.get(key) or {}, rest) or None if rest else new.get(key)
    result = {**old, key: value}
    if value is None:
        del result[key]
    return result


def apply_mask(body: Json, fields: Mapping[str, Any], mask: str, allowed: frozenset[str]) -> None:
    """Set in `body` the masked fields of `fields`, or take them away where `fields` has none.

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
            raise invalid(f"Invalid update_mask: {text!r} is inside of what is not a message.")
        made = replaced(body, fields, path)
        # In place: `ResourceStore.change` keeps this very dict.
        body.clear()
        body.update(made)


def predicate(text: str, contexts: Callable[[str, str], bool] = lambda name, context: False) -> Predicate:
    """Return a filter over any field of a resource: `schema_title="system.Run" AND in_context("…")`."""

    def comparison(node: Compare) -> Predicate:
        if node.path == ("in_context",):
            return lambda body: contexts(str(body["name"]), node.value)
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
