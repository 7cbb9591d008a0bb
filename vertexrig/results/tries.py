"""The tries of a job with candidates, for people: on which each was, how long it waited for machines, why it was left, what it cost.

A try is a mapping as `vertexrig.submit.ladder.Try` has it; a rehearsal keeps them in its record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vertexrig.times import length


def table(tries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each try, the first one first."""
    return [
        {
            "candidate": one["candidate"],
            "changes": one["changes"] or "as it stands",
            "job": str(one["job"]).rpartition("/")[2] or "none",
            "waited": "" if one["waited_s"] is None else length(round(one["waited_s"])),
            "USD": "" if one["usd"] is None else f"{one['usd']:.2f}",
            "outcome": ": ".join(filter(None, (one["reason"], one["text"]))),
        }
        for one in tries
    ]
