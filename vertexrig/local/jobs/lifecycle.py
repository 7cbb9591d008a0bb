"""The states of a custom job as a machine: one table of what may follow what.

Sources: `create` answers PENDING (public recordings of 2021, four of four); QUEUED is where a job waits for quota
(understanding-training-service page, 2026-08-22), here for free slots; CANCELLING may end in SUCCEEDED, FAILED or CANCELLED
(REST JobState). A job whose replicas all start again is PENDING until they run: no recording shows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from vertexrig.errors import VertexrigError
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, PENDING, QUEUED, RUNNING, SUCCEEDED

CREATED = PENDING
"""The state that `create` answers."""

NEXT: Mapping[str, frozenset[str]] = {
    PENDING: frozenset({QUEUED, RUNNING, CANCELLING, FAILED}),
    QUEUED: frozenset({PENDING, CANCELLING, FAILED}),
    RUNNING: frozenset({PENDING, CANCELLING, SUCCEEDED, FAILED}),
    CANCELLING: frozenset({CANCELLED, SUCCEEDED, FAILED}),
    **dict.fromkeys(ENDED, frozenset()),
}


def require(before: str, after: str) -> None:
    """Raise VertexrigError for a change that is not in the table; staying in a state is none."""
    if after != before and after not in NEXT[before]:
        raise VertexrigError(
            f"a job in state {before} cannot become {after}: {', '.join(sorted(NEXT[before]))} can follow"
        )
