"""How jobs, studies and pipelines change their state, and which state of a custom job may follow which (`NEXT`).

Sources: `create` answers PENDING (public recordings of 2021, four of four); QUEUED is where a job waits for quota
(understanding-training-service page, 2026-08-22), here for free slots; CANCELLING may end in SUCCEEDED, FAILED or CANCELLED
(REST JobState). A job whose replicas all start again is PENDING until they run: no recording shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localvertex.http import Json, not_found, precondition
from localvertex.jobs import resources
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.jobs.validation import found_errors
from vertexrig.errors import VertexrigError
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, PENDING, QUEUED, RUNNING, SUCCEEDED, of_pipeline

_BEING_CANCELLED = (CANCELLING, of_pipeline(CANCELLING))

NEXT: Mapping[str, frozenset[str]] = {
    PENDING: frozenset({QUEUED, RUNNING, CANCELLING, FAILED}),
    QUEUED: frozenset({PENDING, CANCELLING, FAILED}),
    RUNNING: frozenset({PENDING, CANCELLING, SUCCEEDED, FAILED}),
    CANCELLING: frozenset({CANCELLED, SUCCEEDED, FAILED}),
    **dict.fromkeys(ENDED, frozenset()),
}


def require(before: str, after: str) -> None:
    """Raise VertexrigError for a change that is not in the table; staying in a state is allowed."""
    if after != before and after not in NEXT[before]:
        raise VertexrigError(
            f"a job in state {before} cannot become {after}: {', '.join(sorted(NEXT[before]))} can follow"
        )


def set_queued(body: Json, _: Json) -> None:
    """Set a resource that has not been queued yet to QUEUED; a change for `ResourceStore.change`."""
    if body["state"] == PENDING and "startTime" not in body:  # `resources.move` gives it one when it is queued
        resources.move(body, QUEUED)


def stored(store: ResourceStore, name: str, collection: str) -> StoredResource:
    """Return a resource of a collection, or 404."""
    found = store.get(name)
    if found is None or f"/{collection}/" not in name:
        kind = resources.MESSAGES[collection]
        if not resources.last_part(name).isdigit():
            raise found_errors([("name", f"Invalid {kind} resource name.")])
        raise not_found(f"The {kind} does not exist.")
    return found


def remove_ended(store: ResourceStore, name: str, collection: str) -> None:
    """Forget a resource that has ended; 400 for one that has not."""
    body = stored(store, name, collection).body
    if not resources.has_ended(body):
        message = f"{resources.MESSAGES[collection]} {name} is in state {body['state']} and cannot be deleted. Cancel it first."
        raise precondition(message)
    store.retire(name)


def advance(
    store: ResourceStore,
    name: str,
    state: str,
    error: Mapping[str, Any] | None = None,
    check: Callable[[str, str], None] = lambda before, after: None,
) -> bool:
    """Set a resource's state, and return whether it changed; `check` raises for a change that is not allowed.

    Ignored if the resource has ended, or if it is being cancelled and the new state is not a last one.
    """
    changed = False

    def edit(body: Json, _: Json) -> bool:  # returns whether the resource has ended, for `ResourceStore.change`
        nonlocal changed
        before = body["state"]
        if resources.has_ended(body):
            return True
        # Ignored, not refused: the thread that reports progress cannot know of the cancellation.
        if before in _BEING_CANCELLED and not resources.has_ended({"state": state}):
            return False
        check(before, state)
        changed = before != state
        return resources.move(body, state, error)

    store.change(name, edit)
    return changed
