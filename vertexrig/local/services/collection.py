"""A collection of plain resources: made, shown, listed, changed by an update mask, and forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from vertexrig.local import filters as language
from vertexrig.local.filters import All, Any_, Not
from vertexrig.local.http import invalid, not_found
from vertexrig.local.jobs import filters, resources
from vertexrig.local.jobs.listing import page
from vertexrig.local.jobs.resources import Json
from vertexrig.local.jobs.store import ResourceStore, StoredResource
from vertexrig.local.services.service import Done, exists, place_of
from vertexrig.spec.names import camel

_PAGE, _LARGEST_PAGE = 100, 1000
# The filter language here has no functions; this one becomes a comparison.
_FUNCTION = re.compile(r"\bin_context\(\s*(\"[^\"]*\"|'[^']*')\s*\)")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda own, other: own < other, "<=": lambda own, other: own <= other,
    ">": lambda own, other: own > other, ">=": lambda own, other: own >= other,
}  # fmt: skip


class Collection:
    """Resources of one kind; `get`, `list`, `update` and `delete` take the requests of the API's methods.

    Args:
        store: Where they are kept.
        kind: Last collection of their names: `tensorboards`.
        message: Their message: `Tensorboard`.
        listed: The field of a listing; `kind` unless it is given.
        id_pattern: What an id given by the client has to be.
    """

    def __init__(
        self,
        store: ResourceStore,
        kind: str,
        message: str,
        listed: str = "",
        id_pattern: str = r"[a-z0-9][a-z0-9_-]{0,127}",
    ) -> None:
        self.store, self.kind, self.message, self.id_pattern = store, kind, message, re.compile(id_pattern)
        self.listed = listed or kind
        self.field = message[0].lower() + message[1:]
        """The field of a request that holds a resource."""

    def create(
        self, parent: str, fields: Mapping[str, Any], id_: str = "", hidden: Mapping[str, Any] | None = None
    ) -> Json:
        """A new resource; 409 if there is one of that id, 400 for an id that is not one."""
        if id_ and not self.id_pattern.fullmatch(id_):
            raise invalid(f"Invalid id {id_[:150]!r} of a {self.message}: it must match {self.id_pattern.pattern}.")
        name = f"{parent}/{self.kind}/{id_}" if id_ else resources.new_name(parent, self.kind)
        time = resources.now()
        body = {**fields, "name": name, "createTime": time, "updateTime": time}
        known = self.known
        # Messages differ in what they have: some have no updateTime.
        body = {key: value for key, value in body.items() if key in known}
        with self.store.database.transaction():
            if self.store.get(name) is not None:
                raise exists(name)
            self.store.add(self.kind, parent, name, body, hidden)
        return body

    @property
    def known(self) -> set[str]:
        """The message's fields."""
        from vertexrig.spec import messages

        return {field.json_name for field in messages.message_class(self.message).DESCRIPTOR.fields}

    def stored(self, name: str) -> StoredResource:
        """A resource as kept, or 404."""
        found = self.store.get(name)
        if found is None or name.split("/")[-2:-1] != [self.kind]:
            raise not_found(f"The {self.message} does not exist: {name}")
        return found

    def get(self, request: Mapping[str, Any]) -> Json:
        """A resource, or 404."""
        return self.stored(request["name"]).body

    def update(self, request: Mapping[str, Any], allowed: frozenset[str]) -> Json:
        """Set the fields of a mask (all that are given, without one); 400 for a field that cannot be set."""
        fields = request.get(self.field) or {}
        name = self.stored(str(fields.get("name", ""))).name

        def edit(body: Json, _: Json) -> None:
            apply_mask(body, fields, str(request.get("updateMask", "")), allowed)
            body["updateTime"] = resources.now()

        return self.store.change(name, edit) or {}

    def delete(self, request: Mapping[str, Any]) -> Done:
        """Forget a resource and what is below it, or 404."""
        name = self.stored(request["name"]).name
        with self.store.database.transaction() as connection:
            self.store.remove(name)
            # substr, because LIKE would take `_` in a name for any character.
            connection.execute("DELETE FROM resources WHERE substr(name, 1, ?) = ?", (len(name) + 1, f"{name}/"))
        return Done(place_of(name), "DeleteOperationMetadata")

    def list(self, request: Mapping[str, Any], parse: Callable[[str], filters.Predicate] | None = None) -> Json:
        """A page of the resources below `parent`, under the collection's name."""
        parent = request.get("parent", "")
        size = page_size(request, _PAGE, _LARGEST_PAGE)
        text, order, token = (str(request.get(key, "")) for key in ("filter", "orderBy", "pageToken"))
        found, following = page(self.store, self.kind, parent, text, order, size, token, parse or predicate)
        answer: Json = {self.listed: [one.body for one in found]} if found else {}
        return {**answer, "nextPageToken": following} if following else answer


def page_size(request: Mapping[str, Any], usual: int, largest: int) -> int:
    """How many resources a page has; 400 for a negative number."""
    asked = int(request.get("pageSize", 0))
    if asked < 0:
        raise invalid(f"Invalid page_size: {asked}. It must not be negative.")
    return min(asked or usual, largest)


def apply_mask(body: Json, fields: Mapping[str, Any], mask: str, allowed: frozenset[str]) -> None:
    """Set in `body` the masked fields of `fields`, or take them away where `fields` has none.

    Raises:
        ApiError: 400, for a field that cannot be set.
    """
    paths = [path for path in mask.split(",") if path] or [key for key in fields if key in allowed]
    # `*` replaces every field (AIP-134).
    if paths == ["*"]:
        paths = sorted(allowed)
    for path in paths:
        head, _, rest = path.partition(".")
        key = camel(head)
        if key not in allowed:
            raise invalid(
                f"Invalid update_mask: {path[:100]!r} cannot be updated. Fields: {', '.join(sorted(allowed))}."
            )
        if rest and not (isinstance(body.get(key, {}), dict) and isinstance(fields.get(key, {}), dict)):
            raise invalid(f"Invalid update_mask: {path[:100]!r} is inside of what is not a message.")
        if rest:
            inner, given = body.setdefault(key, {}), fields.get(key, {})
            # Keys of a map are the user's own and have no camelCase.
            name = rest if rest in given or key in ("labels", "metadata") else camel(rest)
            inner.pop(name, None)
            inner.update({name: given[name]} if name in given else {})
        elif key in fields:
            body[key] = fields[key]
        else:
            body.pop(key, None)


def predicate(text: str, contexts: Callable[[str, str], bool] = lambda name, context: False) -> filters.Predicate:
    """A filter over any field of a resource: `schema_title="system.Run" AND in_context("…")`.

    Args:
        text: The filter.
        contexts: Whether the resource of that name is in a context; for `in_context`.
    """
    return _predicate(language.parse(_FUNCTION.sub(r"in_context=\1", text), filters.LANGUAGE), contexts)


def _predicate(node: language.Node, contexts: Callable[[str, str], bool]) -> filters.Predicate:
    if isinstance(node, Not):
        inner = _predicate(node.part, contexts)
        return lambda body: not inner(body)
    if isinstance(node, (All, Any_)):
        parts, join = [_predicate(part, contexts) for part in node.parts], all if isinstance(node, All) else any
        return lambda body: join(part(body) for part in parts)
    path, operator, value = node.path, node.operator, node.value
    if path == ("in_context",):
        return lambda body: contexts(str(body["name"]), value)
    return lambda body: _holds(_values(body, path), operator, value)


def _values(body: Any, path: tuple[str, ...]) -> Any:
    """The value at a path; `metadata.key.number_value` is the value of the Struct's key."""
    for part in path:
        # A Struct's values are plain JSON here.
        if part in ("string_value", "number_value", "bool_value") and not isinstance(body, dict):
            continue
        if not isinstance(body, dict):
            return None
        body = body.get(part, body.get(camel(part)))
    return body


def _holds(own: Any, operator: str, value: str) -> bool:
    if isinstance(own, bool):
        own = str(own).lower()
    if operator == ":":
        return (own is not None) if value == "*" else value in own if isinstance(own, (list, dict, str)) else False
    if isinstance(own, (int, float)):
        try:
            wanted: Any = float(value)
        except ValueError:
            return False
    else:
        own, wanted = "" if own is None else str(own), value
    if operator in ("=", "!="):
        same = _globbed(value).fullmatch(own) is not None if isinstance(own, str) else own == wanted
        return same if operator == "=" else not same
    return _COMPARED[operator](own, wanted)


def _globbed(value: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, value.split("*"))), re.DOTALL)
